// SPDX-License-Identifier: BSD-3-Clause
//! The object of an identifier: the C structure and what belongs to it.

use libc::c_void;
use rdma_sys::{ibv_qp_init_attr, rdma_cm_id, rdma_event_channel, rdma_port_space};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use super::pd::default_pd;
use super::queues::Made;
use crate::cm::addr;
use crate::cm::id::{Channel, Id};
use crate::cm::request::Request;
use crate::ffi::object::Object;
use crate::ffi::soft0;

/// What belongs to the C structure of an identifier.
pub(super) struct IdOwn {
    pub(super) cm: Arc<Id>,
    pub(super) made: Mutex<Made>,
    /// The attributes of the queue pairs that [`super::rdma_get_request`] creates.
    pub(super) template: Mutex<Option<ibv_qp_init_attr>>,
}

pub(super) type IdObject = Object<rdma_cm_id, IdOwn>;

/// Allocates the C structure of an identifier.
pub(super) fn create_object(c: rdma_cm_id, cm: Arc<Id>) -> *mut rdma_cm_id {
    let id =
        IdObject::create(c, IdOwn { cm: cm.clone(), made: Mutex::default(), template: Mutex::default() });
    cm.set_handle(id as usize);
    id
}

pub(super) fn blank_id(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: rdma_port_space::Type,
) -> rdma_cm_id {
    // SAFETY: all-zero is a valid rdma_cm_id: no device and no addresses.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    c.channel = channel;
    c.context = context;
    c.ps = ps;
    c.qp_type = rdma_sys::ibv_qp_type::IBV_QPT_RC;
    c
}

/// The identifier of a connect request, with a channel of the program or synchronous.
pub(super) fn new_requested_id(
    on: Option<(*mut rdma_event_channel, Channel)>,
    context: *mut c_void,
    request: Request,
) -> *mut rdma_cm_id {
    let (channel, queue) = on.map_or((null_mut(), None), |(channel, queue)| (channel, Some(queue)));
    let mut c = blank_id(channel, context, rdma_port_space::RDMA_PS_TCP);
    c.verbs = soft0::context();
    c.pd = default_pd();
    c.port_num = 1;
    if let Some(local) = &request.local {
        c.route.addr.__bindgen_anon_1.src_storage = addr::to_storage(local).0;
    }
    c.route.addr.__bindgen_anon_2.dst_storage = addr::to_storage(&request.peer).0;
    create_object(c, Id::requested(queue, request))
}
