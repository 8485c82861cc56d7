// SPDX-License-Identifier: BSD-3-Clause
//! The route of an identifier over RoCE: GIDs and path record, which programs read from its C structure.

use rdma_sys::{ibv_gid, ibv_sa_path_rec, rdma_cm_id};
use std::ptr::{addr_of, addr_of_mut};

use super::handle::IdObject;
use crate::cm::addr;
use crate::lock;
use transport::roce::wire::DEFAULT_PKEY;
use transport::roce::wire::gid;

/// Stores GIDs and the path record.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed, and whose addresses are resolved.
pub(super) unsafe fn enter_path(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees that `id` has not been destroyed. Its addresses are whole
    // sockaddr_storages. Programs read the fields only after the rdma_cm function that sets them has
    // returned; the path record belongs to the identifier.
    unsafe {
        let route = addr_of_mut!((*id).route);
        let src = addr::read(addr_of!((*route).addr.__bindgen_anon_1.src_storage).cast());
        let dst = addr::read(addr_of!((*route).addr.__bindgen_anon_2.dst_storage).cast());
        let (Ok(src), Ok(dst)) = (src, dst) else { return };
        let (sgid, dgid) = (ibv_gid { raw: gid(src.ip()) }, ibv_gid { raw: gid(dst.ip()) });
        let ib = addr_of_mut!((*route).addr.addr.ibaddr);
        addr_of_mut!((*ib).sgid).write(sgid);
        addr_of_mut!((*ib).dgid).write(dgid);
        addr_of_mut!((*ib).pkey).write(DEFAULT_PKEY.to_be());
        // All-zero is a valid path record.
        let mut record: Box<ibv_sa_path_rec> = Box::new(std::mem::zeroed());
        (record.sgid, record.dgid) = (sgid, dgid);
        record.pkey = DEFAULT_PKEY.to_be();
        record.reversible = 1;
        record.hop_limit = 64;
        let mut path = lock(&IdObject::own(id).path);
        addr_of_mut!((*route).path_rec).write(&raw mut **path.insert(record));
        addr_of_mut!((*route).num_paths).write(1);
    }
}
