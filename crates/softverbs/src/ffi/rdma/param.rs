// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a connection.

use libc::c_void;
use rdma_sys::rdma_conn_param;

use crate::cm::negotiate::Offer;
use crate::config;
use crate::limits::{MAX_PRIVATE_DATA, MAX_READS};
use crate::sys::Errno;

/// The parameters of rdma_connect(3) or rdma_accept(3).
pub(super) struct Param {
    pub(super) private_data: Vec<u8>,
    pub(super) ird: u16,
    pub(super) ord: u16,
    pub(super) wait_for_receives: bool,
    /// The queue pair, if the identifier has none.
    pub(super) qp_num: u32,
}

impl Param {
    pub(super) fn offer(&self) -> Offer {
        Offer { ird: self.ird, ord: self.ord, crc: config::get().crc }
    }
}

/// Reads connection parameters. NULL selects the defaults of librdmacm: as many reads as the device permits, and messages wait for receives
/// without a limit. EINVAL if there is more private data than [`MAX_PRIVATE_DATA`].
///
/// # Safety
///
/// `param` must be as for rdma_connect(3).
pub(super) unsafe fn read_param(param: *const rdma_conn_param) -> Result<Param, Errno> {
    const UNLIMITED: u8 = 7;
    if param.is_null() {
        return Ok(Param {
            private_data: Vec::new(),
            ird: MAX_READS,
            ord: MAX_READS,
            wait_for_receives: true,
            qp_num: 0,
        });
    }
    // SAFETY: `param` is not NULL, so it points to an rdma_conn_param, which holds only integers and an address; it is copied.
    let given = unsafe { param.read() };
    // SAFETY: `private_data` points to `private_data_len` bytes (rdma_connect(3)).
    let private_data = unsafe { read_private_data(given.private_data, given.private_data_len) }?;
    Ok(Param {
        private_data,
        ird: u16::from(given.responder_resources).min(MAX_READS),
        ord: u16::from(given.initiator_depth).min(MAX_READS),
        wait_for_receives: given.rnr_retry_count >= UNLIMITED,
        qp_num: given.qp_num,
    })
}

/// Copies private data. EINVAL if there is more than [`MAX_PRIVATE_DATA`].
///
/// # Safety
///
/// `data` must be NULL or readable for `len` bytes.
pub(super) unsafe fn read_private_data(data: *const c_void, len: u8) -> Result<Vec<u8>, Errno> {
    let len = usize::from(len);
    if len > MAX_PRIVATE_DATA || (data.is_null() && len > 0) {
        return Err(libc::EINVAL);
    }
    let mut bytes = vec![0u8; len];
    // SAFETY: unless `len` is 0 and nothing is copied, `data` is not NULL and thus readable for `len` bytes; `bytes` has as many.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}
