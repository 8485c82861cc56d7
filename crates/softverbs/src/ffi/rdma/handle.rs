// SPDX-License-Identifier: BSD-3-Clause
//! The object of an identifier: the C structure `rdma_cm_id`, and the data of softverbs behind it.

use libc::c_void;
use rdma_sys::{
    ibv_qp_init_attr, ibv_qp_type, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_port_space,
};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use super::pd::default_pd;
use super::queues::CreatedQueues;
use crate::cm::id::{Channel, Id};
use crate::cm::protocol::Request;
use crate::cm::{addr, calls};
use crate::ffi::object::Object;
use crate::ffi::soft0;
use crate::qp::Kind;
use transport::roce::wire::cm::PortSpace;

/// The data behind the C structure of an identifier.
pub(super) struct IdOwn {
    pub(super) cm: Arc<Id>,
    /// The completion queues that were created for its queue pair.
    pub(super) queues: Mutex<CreatedQueues>,
    /// The attributes of the queue pairs that [`super::rdma_get_request`] creates.
    pub(super) template: Mutex<Option<ibv_qp_init_attr>>,
    /// What `route.path_rec` of the C structure points to.
    pub(super) path: Mutex<Option<Box<ibv_sa_path_rec>>>,
}

pub(super) type IdObject = Object<rdma_cm_id, IdOwn>;

/// Allocates the object of an identifier, and stores its address in `cm`, which puts it into events from now
/// on.
pub(super) fn create_object(c: rdma_cm_id, cm: Arc<Id>) -> *mut rdma_cm_id {
    let id = IdObject::create(
        c,
        IdOwn {
            cm: cm.clone(),
            queues: Mutex::default(),
            template: Mutex::default(),
            path: Mutex::default(),
        },
    );
    cm.set_handle(id as usize);
    id
}

/// The C structure of an identifier without device and addresses.
pub(super) fn blank_id(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: rdma_port_space::Type,
    qp_type: ibv_qp_type::Type,
) -> rdma_cm_id {
    // SAFETY: all-zero is a valid rdma_cm_id: no device and no addresses.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    c.channel = channel;
    c.context = context;
    c.ps = ps;
    c.qp_type = qp_type;
    c
}

/// The port space with this number, of those that the device has.
pub(super) fn port_space(ps: rdma_port_space::Type) -> PortSpace {
    match ps {
        rdma_port_space::RDMA_PS_UDP => PortSpace::Udp,
        rdma_port_space::RDMA_PS_IB => PortSpace::Ib,
        _ => PortSpace::Tcp,
    }
}

/// The type of the queue pairs of identifiers in a port space, unless an endpoint has another one.
pub(super) fn qp_type(ps: rdma_port_space::Type) -> ibv_qp_type::Type {
    if port_space(ps).is_for_datagrams() { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC }
}

/// The kind of queue pairs of this type; the device has these three.
pub(super) fn kind(qp_type: ibv_qp_type::Type) -> Kind {
    match qp_type {
        ibv_qp_type::IBV_QPT_UD => Kind::Ud,
        ibv_qp_type::IBV_QPT_UC => Kind::Uc,
        _ => Kind::Rc,
    }
}

/// The type of queue pairs of this kind.
fn type_of(kind: Kind) -> ibv_qp_type::Type {
    match kind {
        Kind::Rc => ibv_qp_type::IBV_QPT_RC,
        Kind::Uc => ibv_qp_type::IBV_QPT_UC,
        Kind::Ud => ibv_qp_type::IBV_QPT_UD,
    }
}

/// Creates the identifier of a connect request, with the channel `on` of the program, or synchronous if that
/// is `None`. It has the device, the default protection domain and both addresses.
pub(super) fn new_requested_id(
    on: Option<(*mut rdma_event_channel, Channel)>,
    context: *mut c_void,
    ps: rdma_port_space::Type,
    kind: Kind,
    request: Box<dyn Request>,
) -> *mut rdma_cm_id {
    let (channel, queue) = on.map_or((null_mut(), None), |(channel, queue)| (channel, Some(queue)));
    let mut c = blank_id(channel, context, ps, type_of(kind));
    c.verbs = soft0::context();
    c.pd = default_pd();
    c.port_num = 1;
    if let Some(local) = &request.local() {
        c.route.addr.__bindgen_anon_1.src_storage = addr::to_storage(local).0;
    }
    c.route.addr.__bindgen_anon_2.dst_storage = addr::to_storage(&request.peer()).0;
    create_object(c, calls::create_requested(queue, port_space(ps), kind, request))
}
