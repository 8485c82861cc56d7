// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs: creating, modifying, querying and destroying them.
//!
//! A queue pair is always allocated as an `ibv_qp_ex`, so that both forms share one object. On a RoCE device
//! ibv_modify_qp(3) connects it. On an iWARP device only rdma_cm does, because iWARP needs a TCP connection:
//! the states RTR and RTS are reached by rdma_connect(3) and rdma_accept(3). The field `state` of the C
//! structure is updated by every call that changes or returns it.

use libc::c_int;
use rdma_sys::{
    ibv_context, ibv_event_type, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as Mask, ibv_qp_state, ibv_qp_type,
};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::cq::CqObject;
use super::events;
use super::pd::PdObject;
use super::qp_ex;
use super::qp_object::{QpEx, QpObject, QpOwn};
use super::qp_state::number_of;
use super::roce::Modified;
use super::srq::SrqObject;
use super::wr_builder::Builder;
use super::{or_null, transport};
use crate::ffi::unsupported;
use crate::instrument::Settings;
use crate::limits::*;
use crate::qp::{AsyncEvent, Attributes, Kind, Qp, numbers};
use crate::sys::Errno;
use ::transport::limits::{MAX_INLINE, MAX_SGE};

const PD: u32 = Mask::IBV_QP_INIT_ATTR_PD.0;

/// EOPNOTSUPP: a queue pair type that the device does not have. EINVAL: not a queue pair type.
fn kind_of(qp_type: ibv_qp_type::Type) -> Result<Kind, Errno> {
    use ibv_qp_type::*;
    let (name, kind) = match qp_type {
        IBV_QPT_RC => ("IBV_QPT_RC", Some(Kind::Rc)),
        IBV_QPT_UC => ("IBV_QPT_UC", Some(Kind::Uc)),
        IBV_QPT_UD => ("IBV_QPT_UD", Some(Kind::Ud)),
        IBV_QPT_RAW_PACKET => ("IBV_QPT_RAW_PACKET", None),
        IBV_QPT_XRC_SEND => ("IBV_QPT_XRC_SEND", None),
        IBV_QPT_XRC_RECV => ("IBV_QPT_XRC_RECV", None),
        IBV_QPT_DRIVER => ("IBV_QPT_DRIVER", None),
        _ => return Err(libc::EINVAL),
    };
    let offered = kind.filter(|kind| transport().has_type(*kind));
    offered.ok_or_else(|| unsupported(&format!("a queue pair of type {name}: {}", transport().remedy())))
}

/// The send operations that queue pairs of this type have.
fn operations_of(kind: Kind) -> u64 {
    match kind {
        Kind::Ud => qp_ex::UD_OPERATIONS,
        Kind::Uc => qp_ex::UC_OPERATIONS,
        _ if transport().has_flush_and_atomic_write() => qp_ex::OPERATIONS | qp_ex::ROCE_OPERATIONS,
        _ => qp_ex::OPERATIONS,
    }
}

/// Whether all objects in the attributes belong to the device of `verbs`.
///
/// # Safety
///
/// Each object must be NULL or an object of some device that has not been destroyed; the protection domain
/// must not be NULL.
pub(crate) unsafe fn are_of(verbs: *mut ibv_context, attr: &ibv_qp_init_attr_ex) -> bool {
    // SAFETY: the caller guarantees that each object is NULL or has not been destroyed; every verbs object
    // has a field `context`, which never changes.
    unsafe {
        addr_of!((*attr.pd).context).read() == verbs
            && (attr.send_cq.is_null() || addr_of!((*attr.send_cq).context).read() == verbs)
            && (attr.recv_cq.is_null() || addr_of!((*attr.recv_cq).context).read() == verbs)
            && (attr.srq.is_null() || addr_of!((*attr.srq).context).read() == verbs)
    }
}

/// Creates a queue pair in the state RESET; with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS an extended one.
///
/// The actual capabilities are stored in `attr`: at least one scatter/gather entry, [`MAX_INLINE`] bytes of
/// inline data, the others as given.
///
/// EOPNOTSUPP: a type other than IBV_QPT_RC, on a RoCE device also IBV_QPT_UC and IBV_QPT_UD, send operations
/// that it does not have, or other extensions; the reason is logged. EINVAL: not a queue pair type, a
/// completion queue or the protection domain is missing, an object belongs to another device, the shared
/// receive queue belongs to another protection domain, or a capability exceeds [`MAX_QP_WR`] requests,
/// [`MAX_SGE`] entries or [`MAX_INLINE`] bytes. ENOMEM.
///
/// # Safety
///
/// `context` must be that of the software device, and `attr` as for rdma_create_qp_ex(3).
pub(crate) unsafe fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    const CREATE_FLAGS: u32 = Mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
    const SEND_OPS: u32 = Mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    // SAFETY: the caller guarantees that `attr` points to an ibv_qp_init_attr_ex; it holds only integers and
    // addresses, and is copied.
    let given = unsafe { attr.read() };
    let cap = given.cap;
    let kind = kind_of(given.qp_type)?;
    let refused = given.comp_mask & PD == 0
        || given.pd.is_null()
        || given.send_cq.is_null()
        || given.recv_cq.is_null()
        || cap.max_send_wr > MAX_QP_WR
        || cap.max_recv_wr > MAX_QP_WR
        || cap.max_send_sge as usize > MAX_SGE
        || cap.max_recv_sge as usize > MAX_SGE
        || cap.max_inline_data as usize > MAX_INLINE;
    if refused {
        return Err(libc::EINVAL);
    }
    let create_flags = if given.comp_mask & CREATE_FLAGS != 0 { given.create_flags } else { 0 };
    if given.comp_mask & !(PD | CREATE_FLAGS | SEND_OPS) != 0 || create_flags != 0 {
        return Err(unsupported("a queue pair with these extensions"));
    }
    let operations = (given.comp_mask & SEND_OPS != 0).then_some(given.send_ops_flags);
    if operations.is_some_and(|flags| flags & !operations_of(kind) != 0) {
        return Err(unsupported("a queue pair with these send operations"));
    }
    // SAFETY: rdma_create_qp_ex(3) requires that the objects have not been destroyed, and the protection
    // domain is not NULL (checked above).
    if !unsafe { are_of(context, &given) } {
        return Err(libc::EINVAL);
    }
    // SAFETY: none of the three is NULL (checked above), `are_of` has found that they belong to softverbs,
    // and rdma_create_qp_ex(3) requires that they have not been destroyed.
    let (pd, send_cq, recv_cq) =
        unsafe { (PdObject::own(given.pd), CqObject::own(given.send_cq), CqObject::own(given.recv_cq)) };
    // SAFETY: `srq` is not NULL here, `are_of` has found that it belongs to softverbs, and
    // rdma_create_qp_ex(3) requires that it has not been destroyed.
    let srq = (!given.srq.is_null()).then(|| unsafe { SrqObject::own(given.srq) }.clone());
    if srq.as_ref().is_some_and(|srq| srq.pd != pd.number) {
        return Err(libc::EINVAL);
    }
    let (max_send_sge, max_recv_sge) = (cap.max_send_sge.max(1), cap.max_recv_sge.max(1));
    let instruments = Settings::of_process()?;
    let num = transport().allocate_number()?;
    let inner = Qp::new(Attributes {
        kind,
        num,
        pd: pd.number,
        send_cq: send_cq.queue.clone(),
        recv_cq: recv_cq.queue.clone(),
        srq,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if given.srq.is_null() { cap.max_recv_wr } else { 0 },
        max_send_sge,
        max_recv_sge,
        signal_all: given.sq_sig_all != 0,
        instruments,
    })
    .inspect_err(|_| transport().release_number(num))?;
    pd.users.fetch_add(1, Ordering::AcqRel);
    let mut extended = QpEx::new();
    if let Some(operations) = operations {
        qp_ex::fill(&mut extended, operations, kind);
    }
    let qp = &mut extended.qp.qp_base;
    qp.context = context;
    qp.qp_context = given.qp_context;
    qp.pd = given.pd;
    qp.send_cq = given.send_cq;
    qp.recv_cq = given.recv_cq;
    qp.srq = given.srq;
    qp.handle = num;
    qp.qp_num = num;
    qp.qp_type = given.qp_type;
    qp.state = ibv_qp_state::IBV_QPS_RESET;
    let cap = ibv_qp_cap { max_send_sge, max_recv_sge, max_inline_data: MAX_INLINE as u32, ..cap };
    // SAFETY: `attr` is valid for writes, as rdma_create_qp_ex(3) returns the actual capabilities in it.
    unsafe { addr_of_mut!((*attr).cap).write(cap) };
    log::debug!("queue pair {num} created");
    let builder = operations.map(|_| Builder::default());
    let connection = inner.clone();
    let notifies_drained = Arc::new(AtomicBool::new(false));
    let qp = QpObject::create(
        extended,
        QpOwn {
            qp: inner,
            cap,
            modified: Arc::new(Mutex::new(Modified::new())),
            notifies_drained: notifies_drained.clone(),
            builder,
        },
    );
    // SAFETY: the object has just been created, and no other thread has it.
    if let Some(on_terms) = transport().on_terms(unsafe { QpObject::own(qp) }) {
        connection.set_on_terms(on_terms);
    }
    let handle = qp as usize;
    connection.set_on_async_event(Box::new(move |event| {
        let (kind, object) = match event {
            AsyncEvent::Failed => (ibv_event_type::IBV_EVENT_QP_FATAL, handle),
            AsyncEvent::AccessRefused => (ibv_event_type::IBV_EVENT_QP_ACCESS_ERR, handle),
            AsyncEvent::RequestRefused => (ibv_event_type::IBV_EVENT_QP_REQ_ERR, handle),
            AsyncEvent::Established => (ibv_event_type::IBV_EVENT_COMM_EST, handle),
            AsyncEvent::Drained if !notifies_drained.load(Ordering::Relaxed) => return,
            AsyncEvent::Drained => (ibv_event_type::IBV_EVENT_SQ_DRAINED, handle),
            AsyncEvent::LastReceiveTaken => (ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED, handle),
            // The completion queue cannot be destroyed before the queue pair.
            AsyncEvent::Overrun(cq) => (ibv_event_type::IBV_EVENT_CQ_ERR, cq),
        };
        events::raise(kind, object);
    }));
    Ok(qp)
}

/// Moves a new queue pair to the state INIT, in which it accepts receives.
///
/// # Safety
///
/// `qp` must come from [`create_qp`] and not have been destroyed.
pub(crate) unsafe fn enter_init(qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `qp` comes from `create_qp` and has not been destroyed. Programs
    // only read the field `state`.
    unsafe {
        let own = QpObject::own(qp);
        transport().enter_init(own)?;
        addr_of_mut!((*qp).state).write(number_of(own.qp.state()));
    }
    Ok(())
}

/// The slot of the extended context that the inline function `ibv_create_qp_ex` of `verbs.h` calls. As
/// [`create_qp`], but returns NULL and sets errno on failure.
///
/// # Safety
///
/// As for ibv_create_qp_ex(3), with objects of softverbs.
pub(crate) unsafe extern "C" fn create_qp_slot(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the requirements of ibv_create_qp_ex(3) on `attr`, which the caller meets, are those of
    // rdma_create_qp_ex(3). The queue pair in the closure has just been created.
    or_null(unsafe { create_qp(context, attr).inspect(|&qp| numbers::note(&QpObject::own(qp).qp)) })
}

/// Converts the attributes of rdma_create_qp(3) and ibv_create_qp(3) to those of the extended functions.
pub(crate) fn extended(given: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    // SAFETY: all-zero is a valid ibv_qp_init_attr_ex: it holds only integers and nullable pointers.
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.qp_context = given.qp_context;
    attr.send_cq = given.send_cq;
    attr.recv_cq = given.recv_cq;
    attr.srq = given.srq;
    attr.cap = given.cap;
    attr.qp_type = given.qp_type;
    attr.sq_sig_all = given.sq_sig_all;
    attr.comp_mask = PD;
    attr.pd = pd;
    attr
}

/// Creates a queue pair in the state RESET, in which it accepts no work requests, not even receives. The
/// actual capabilities are stored in `attr`: at least one scatter/gather entry, 220 bytes of inline data, the
/// others as given. On an iWARP device only rdma_cm can connect it; rdma_create_qp(3) creates one that
/// belongs to an identifier from the beginning.
///
/// Returns the queue pair, which the caller destroys with [`ibv_destroy_qp`], or NULL and errno: EOPNOTSUPP
/// (a type other than IBV_QPT_RC, on a RoCE device also IBV_QPT_UC and IBV_QPT_UD), EINVAL (not a queue pair
/// type, a missing completion queue, an object of another device, an SRQ of another protection domain, or a
/// capability above the limits of ibv_query_device(3)), ENOMEM.
///
/// # Safety
///
/// As for ibv_create_qp(3).
pub unsafe fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: as ibv_create_qp(3) requires, `attr` points to an ibv_qp_init_attr, which holds only integers
    // and addresses and is copied, and is valid for writes; `pd` was returned by ibv_alloc_pd and has not
    // been deallocated; its `context` never changes.
    unsafe {
        let mut full = extended(&attr.read(), pd);
        let qp = or_null(create_qp(addr_of!((*pd).context).read(), &mut full));
        if !qp.is_null() {
            addr_of_mut!((*attr).cap).write(full.cap);
            numbers::note(&QpObject::own(qp).qp);
        }
        qp
    }
}

/// Destroys a queue pair and closes its connection. Outstanding work requests do not complete. Asynchronous
/// events of the queue pair that were not fetched are discarded. Returns 0.
///
/// # Safety
///
/// As for ibv_destroy_qp(3).
pub unsafe fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: as ibv_destroy_qp(3) requires, `qp` was returned by a function that creates queue pairs and is
    // not used afterwards; they all use `create_qp`.
    unsafe { destroy_qp(qp) };
    0
}

/// Modifies a queue pair: carries out a state transition, or changes attributes. `mask` selects the
/// attributes in `attr` (`enum ibv_qp_attr_mask`). On a RoCE device this is how a program connects a queue
/// pair. On an iWARP device rdma_cm connects it; IBV_QPS_RTR and IBV_QPS_RTS then change nothing, and most
/// attributes are accepted without effect. IBV_QPS_ERR ends the connection, and outstanding work requests
/// complete with IBV_WC_WR_FLUSH_ERR.
///
/// Returns 0 or an errno value. EINVAL: an unknown attribute, one that is missing or out of range, or a state
/// transition that does not exist. EOPNOTSUPP on an iWARP device: RTR or RTS of a queue pair that rdma_cm has
/// not connected, RESET of one that has had a connection, and SQD; on a RoCE device: automatic path
/// migration, and changes in SQD that the connection does not support. The log says what to do instead.
///
/// # Safety
///
/// As for ibv_modify_qp(3).
pub unsafe fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: as ibv_modify_qp(3) requires, `attr` points to an ibv_qp_attr, which holds only integers and is
    // copied, and `qp` was returned by a function that creates queue pairs and has not been destroyed.
    let (attr, own) = unsafe { (attr.read(), QpObject::own(qp)) };
    if let Err(e) = transport().modify(own, &attr, mask as u32) {
        return e;
    }
    // SAFETY: ibv_modify_qp(3) requires that `qp` has not been destroyed. Programs only read the field
    // `state`.
    unsafe { addr_of_mut!((*qp).state).write(number_of(own.qp.state())) };
    0
}

/// Stores the attributes of a queue pair in `attr`, and those that it was created with in `init_attr`. All
/// are stored, whatever `mask` selects; attributes that were not set, or that the transport does not have,
/// are 0. On an iWARP device `timeout` is the value of RDMA_OPTION_ID_ACK_TIMEOUT. Returns 0.
///
/// # Safety
///
/// As for ibv_query_qp(3).
pub unsafe fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: as ibv_query_qp(3) requires, `qp` was returned by a function that creates queue pairs and has
    // not been destroyed. These fields of the C structure never change.
    let (own, init) = unsafe {
        let own = QpObject::own(qp);
        let init = ibv_qp_init_attr {
            qp_context: addr_of!((*qp).qp_context).read(),
            send_cq: addr_of!((*qp).send_cq).read(),
            recv_cq: addr_of!((*qp).recv_cq).read(),
            srq: addr_of!((*qp).srq).read(),
            cap: own.cap,
            qp_type: addr_of!((*qp).qp_type).read(),
            sq_sig_all: c_int::from(own.qp.signal_all),
        };
        (own, init)
    };
    let state = number_of(own.qp.state());
    // SAFETY: all-zero is a valid ibv_qp_attr: it holds only integers and nullable pointers.
    let mut full: ibv_qp_attr = unsafe { std::mem::zeroed() };
    full.qp_state = state;
    full.cur_qp_state = state;
    full.cap = own.cap;
    transport().query(own, &mut full);
    // SAFETY: ibv_query_qp(3) requires that `attr` and `init_attr` are valid for writes and that `qp` has not
    // been destroyed.
    unsafe {
        attr.write(full);
        init_attr.write(init);
        addr_of_mut!((*qp).state).write(state);
    }
    0
}

/// Destroys a queue pair and closes its connection. Outstanding work requests do not complete.
///
/// # Safety
///
/// `qp` must come from [`create_qp`] and not be used afterwards.
pub(crate) unsafe fn destroy_qp(qp: *mut ibv_qp) {
    // SAFETY: the caller guarantees that `qp` comes from `create_qp` and is not used afterwards. `create_qp`
    // has counted it in `users` of its protection domain, which therefore cannot be deallocated before
    // `users` is decremented here.
    unsafe {
        QpObject::own(qp).qp.destroy();
        transport().release_number(QpObject::own(qp).qp.num);
        events::withdraw(qp as usize);
        let pd = addr_of!((*qp).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        QpObject::free(qp);
    }
}
