// SPDX-License-Identifier: BSD-3-Clause
//! Verbs: protection domains, memory regions, completion channels and queues, shared receive queues, queue pairs.
//!
//! Names, signatures and error conventions are those of the manual pages of libibverbs (`ibv_alloc_pd(3)` and so on): functions that create
//! an object return NULL and set errno on failure, the others return 0 or a positive errno value. All are thread-safe; as with any verbs
//! provider a program must not destroy an object that another thread uses. Destroying an object that other objects use fails with EBUSY.

use libc::{c_int, c_uint, c_void};
use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr_ex, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex,
    ibv_qp_type, ibv_query_device_ex_input, ibv_sge, ibv_srq, ibv_srq_init_attr,
};
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::context::{next_number, owns};
use super::object::Object;
use crate::access::{Access, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_WRITE};
use crate::cancel::Whole;
use crate::channel::EventQueue;
use crate::cq::Cq;
use crate::limits::*;
use crate::lock;
use crate::memory::{self, Region};
use crate::progress::sleep;
use crate::qp::{Attributes, Qp};
use crate::srq::Srq;
use crate::sys::{self, Errno, set_errno};

pub(crate) struct PdOwn {
    pub(crate) number: u32,
    users: AtomicU32,
}

pub(crate) struct MrOwn {
    pd: *mut ibv_pd,
    stag: u32,
}

pub(crate) struct ChannelOwn {
    queue: Arc<EventQueue<usize>>,
    /// The completion queues whose events it delivers.
    users: Mutex<Vec<Arc<Cq>>>,
}

pub(crate) struct CqOwn {
    pub(crate) queue: Arc<Cq>,
    channel: *mut ibv_comp_channel,
}

pub(crate) type PdObject = Object<ibv_pd, PdOwn>;
pub(crate) type MrObject = Object<ibv_mr, MrOwn>;
pub(crate) type ChannelObject = Object<ibv_comp_channel, ChannelOwn>;
pub(crate) type CqObject = Object<ibv_cq, CqOwn>;
pub(crate) type SrqObject = Object<ibv_srq, Arc<Srq>>;
pub(crate) type QpObject = Object<ibv_qp, Arc<Qp>>;

/// The access flags that verbs define, other than the optional ones.
const ACCESS_KNOWN: u32 = 0x3ff;
/// Access flags that a provider may ignore: IBV_ACCESS_OPTIONAL_RANGE.
const ACCESS_OPTIONAL: u32 = 0x3ff0_0000;

fn null_with<T>(e: Errno) -> *mut T {
    set_errno(e);
    null_mut()
}

fn or_null<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(null_with)
}

// ---- the device --------------------------------------------------------------------------------------------------------------------

/// The function in the extended context that the inline `ibv_query_device_ex` of `verbs.h` calls.
///
/// # Safety
///
/// `attr` must be valid for writes of `size` bytes.
pub(crate) unsafe extern "C" fn query_device_slot(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let full = device_attributes();
    let size = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: `attr` is valid for writes of `size` bytes, and `full` has at least as many after the `min` above.
    unsafe { std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), attr.cast(), size) };
    0
}

/// Returns the device attributes: limits, on-demand paging (memory is never pinned), no atomics. EINVAL if `input` has a comp_mask.
///
/// # Safety
///
/// As for ibv_query_device_ex(3).
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: `input` is NULL or points to an ibv_query_device_ex_input (ibv_query_device_ex(3)).
    if !input.is_null() && unsafe { addr_of!((*input).comp_mask).read() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: `attr` points to an ibv_device_attr_ex (ibv_query_device_ex(3)).
    unsafe { query_device_slot(context, input, attr, size_of::<ibv_device_attr_ex>()) }
}

fn device_attributes() -> ibv_device_attr_ex {
    // SAFETY: all-zero is a valid ibv_device_attr_ex: nothing is supported.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let orig = &mut attr.orig_attr;
    for (to, from) in orig.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as libc::c_char;
    }
    orig.max_mr_size = u64::MAX;
    orig.page_size_cap = sys::page_size();
    orig.max_qp = MAX_MR as c_int;
    orig.max_qp_wr = MAX_QP_WR as c_int;
    orig.max_sge = MAX_SGE as c_int;
    orig.max_sge_rd = MAX_SGE as c_int;
    orig.max_cq = MAX_MR as c_int;
    orig.max_cqe = MAX_CQE as c_int;
    orig.max_mr = MAX_MR as c_int;
    orig.max_pd = MAX_MR as c_int;
    orig.max_qp_rd_atom = c_int::from(MAX_READS);
    orig.max_qp_init_rd_atom = c_int::from(MAX_READS);
    orig.max_srq = MAX_MR as c_int;
    orig.max_srq_wr = MAX_SRQ_WR as c_int;
    orig.max_srq_sge = MAX_SGE as c_int;
    orig.phys_port_cnt = 1;
    attr.odp_caps.general_caps = 1;
    // SEND, RECV, WRITE, READ and SRQ_RECV, not ATOMIC.
    attr.odp_caps.per_transport_caps.rc_odp_caps = 0b10_1111;
    attr
}

// ---- protection domains ------------------------------------------------------------------------------------------------------------

/// Creates a protection domain. EINVAL if the context is not that of the software device.
///
/// # Safety
///
/// As for ibv_alloc_pd(3).
pub unsafe fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    if !owns(context) {
        return null_with(libc::EINVAL);
    }
    let number = next_number();
    PdObject::create(ibv_pd { context, handle: number }, PdOwn { number, users: AtomicU32::new(0) })
}

/// Deallocates a protection domain. EBUSY while it has memory regions, queue pairs or shared receive queues.
///
/// # Safety
///
/// As for ibv_dealloc_pd(3).
pub unsafe fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_dealloc_pd(3)).
    if unsafe { PdObject::own(pd) }.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: the program does not use `pd` any more (ibv_dealloc_pd(3)), and no object refers to it: `users` is 0.
    unsafe { PdObject::free(pd) };
    0
}

// ---- memory regions ----------------------------------------------------------------------------------------------------------------

/// Registers `length` bytes at `addr`. Memory is neither pinned nor copied. `lkey` and `rkey` are the same STag.
///
/// EINVAL: the length is 0, the range exceeds the address space, an access flag is unknown, or remote write or atomic access is requested
/// without local write access. EFAULT: part of the range is not mapped, or is mapped
/// without the right to read it, or, for a region that is written, to write it (not checked with IBV_ACCESS_ON_DEMAND). ENOMEM: all STags are in
/// use.
///
/// # Safety
///
/// As for ibv_reg_mr(3): until the region is deregistered, work requests of this process and of remote peers access the range as the access
/// flags permit, where it is mapped.
pub unsafe fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    const ON_DEMAND: u32 = 1 << 6;
    let (start, len, access) = (addr as u64, length as u64, access as u32);
    let remote = REMOTE_WRITE | REMOTE_ATOMIC;
    if len == 0
        || start.checked_add(len).is_none()
        || access & !(ACCESS_KNOWN | ACCESS_OPTIONAL) != 0
        || (access & remote != 0 && access & LOCAL_WRITE == 0)
    {
        return null_with(libc::EINVAL);
    }
    if access & ON_DEMAND == 0 && !memory::is_accessible(start, len, access & (LOCAL_WRITE | remote) != 0) {
        return null_with(libc::EFAULT);
    }
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_reg_mr(3)).
    let own = unsafe { PdObject::own(pd) };
    let stag = match memory::register(Region { addr: start, len, access, pd: own.number }) {
        Ok(stag) => stag,
        Err(e) => return null_with(e),
    };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: `pd` has not been deallocated, and its `context` never changes.
    let context = unsafe { addr_of!((*pd).context).read() };
    let mr = ibv_mr { context, pd, addr, length, handle: stag >> 8, lkey: stag, rkey: stag };
    MrObject::create(mr, MrOwn { pd, stag })
}

/// Deregisters a memory region. After it has returned, neither work requests nor remote peers access the range.
///
/// # Safety
///
/// As for ibv_dereg_mr(3).
pub unsafe fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: `mr` was returned by ibv_reg_mr and is not used afterwards (ibv_dereg_mr(3)). Its protection domain cannot be deallocated
    // before `users` is decremented.
    unsafe {
        let own = MrObject::own(mr);
        memory::deregister(own.stag);
        PdObject::own(own.pd).users.fetch_sub(1, Ordering::AcqRel);
        MrObject::free(mr);
    }
    0
}

/// Prefetches ranges of registered memory: faults them in for reading (advice 0) or writing (1), or only advises the kernel (2).
///
/// EINVAL: unknown advice or flags, no entries, or an entry that is not within a memory region of this protection domain. EFAULT: the
/// memory is not mapped, or not writable for advice 1.
///
/// # Safety
///
/// As for ibv_advise_mr(3).
pub unsafe fn ibv_advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    const FLAG_FLUSH: u32 = 1;
    if advice > 2 || flags & !FLAG_FLUSH != 0 || num_sge == 0 || sg_list.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_advise_mr(3)).
    let pd = unsafe { PdObject::own(pd) }.number;
    for i in 0..num_sge as usize {
        // SAFETY: `sg_list` points to `num_sge` entries (ibv_advise_mr(3)).
        let sge = unsafe { sg_list.add(i).read() };
        let len = u64::from(sge.length);
        let rights = if advice == 1 { LOCAL_WRITE } else { 0 };
        let access = Access { stag: sge.lkey, addr: sge.addr, len: sge.length as usize, rights };
        let Ok(_grant) = memory::acquire(access, pd) else { return libc::EINVAL };
        if len == 0 {
            continue;
        }
        let done = match advice {
            2 => sys::will_need(sge.addr, len),
            _ => sys::populate(sge.addr, len, advice == 1),
        };
        match done {
            Ok(()) => {}
            // The kernel or the mapping does not support it, which is no error: it is only advice.
            Err(libc::EINVAL) => {}
            Err(_) => return libc::EFAULT,
        }
    }
    0
}

// ---- completion channels and queues ------------------------------------------------------------------------------------------------

/// Creates a completion channel. Its descriptor is readable while an event is queued, and may be switched to O_NONBLOCK. EINVAL, EMFILE,
/// ENFILE, ENOMEM.
///
/// # Safety
///
/// As for ibv_create_comp_channel(3).
pub unsafe fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    if !owns(context) {
        return null_with(libc::EINVAL);
    }
    or_null(EventQueue::new().map(|queue| {
        let channel = ibv_comp_channel { context, fd: queue.fd(), refcnt: 0 };
        ChannelObject::create(channel, ChannelOwn { queue: Arc::new(queue), users: Mutex::default() })
    }))
}

/// Destroys a completion channel. EBUSY while completion queues use it.
///
/// # Safety
///
/// As for ibv_destroy_comp_channel(3).
pub unsafe fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: `channel` was returned by ibv_create_comp_channel and has not been destroyed (ibv_destroy_comp_channel(3)).
    if !lock(&unsafe { ChannelObject::own(channel) }.users).is_empty() {
        return libc::EBUSY;
    }
    // SAFETY: the program does not use `channel` any more (ibv_destroy_comp_channel(3)), and no queue refers to it: `users` is empty.
    unsafe { ChannelObject::free(channel) };
    0
}

/// Creates a completion queue with `cqe` entries (1 to 2^20); its events go to `channel` unless that is NULL. EINVAL, ENOMEM.
///
/// # Safety
///
/// As for ibv_create_cq(3).
pub unsafe fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let entries = u32::try_from(cqe).unwrap_or(0);
    if !owns(context) || entries == 0 || entries > MAX_CQE || comp_vector != 0 {
        return null_with(libc::EINVAL);
    }
    // SAFETY: `channel` is NULL, or was returned by ibv_create_comp_channel and has not been destroyed (ibv_create_cq(3)).
    let events = (!channel.is_null()).then(|| unsafe { ChannelObject::own(channel) });
    let queue = match Cq::new(entries, events.map(|own| own.queue.clone())) {
        Ok(queue) => Arc::new(queue),
        Err(e) => return null_with(e),
    };
    if let Some(own) = events {
        let mut users = lock(&own.users);
        if users.try_reserve(1).is_err() {
            return null_with(libc::ENOMEM);
        }
        users.push(queue.clone());
    }
    // SAFETY: all-zero is a valid ibv_cq: an unlocked mutex, no events.
    let mut cq: ibv_cq = unsafe { std::mem::zeroed() };
    cq.context = context;
    cq.channel = channel;
    cq.cq_context = cq_context;
    cq.handle = next_number();
    cq.cqe = cqe;
    let cq = CqObject::create(cq, CqOwn { queue: queue.clone(), channel });
    queue.set_handle(cq as usize);
    cq
}

/// Destroys a completion queue and withdraws its events from the channel. EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_cq(3).
pub unsafe fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: `cq` was returned by ibv_create_cq and has not been destroyed (ibv_destroy_cq(3)).
    let own = unsafe { CqObject::own(cq) };
    if !own.queue.is_unused() {
        return libc::EBUSY;
    }
    if let Some(channel) = own.queue.channel() {
        channel.withdraw(|handle| *handle == cq as usize);
        // SAFETY: the channel cannot be destroyed before the queue is removed from its `users`, which is done here.
        lock(&unsafe { ChannelObject::own(own.channel) }.users).retain(|user| !Arc::ptr_eq(user, &own.queue));
    }
    // SAFETY: the program does not use `cq` any more (ibv_destroy_cq(3)), no queue pair refers to it, and its events are withdrawn.
    unsafe { CqObject::free(cq) };
    0
}

/// Gets the next event of a completion channel: the completion queue and its context. -1 and errno EAGAIN or EINTR, as a read of the
/// descriptor fails.
///
/// # Safety
///
/// As for ibv_get_cq_event(3).
pub unsafe fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `channel` was returned by ibv_create_comp_channel and has not been destroyed (ibv_get_cq_event(3)).
    let own = unsafe { ChannelObject::own(channel) };
    let _whole = Whole::new();
    let watches: Vec<_> = lock(&own.users).iter().flat_map(|cq| cq.watches()).collect();
    // Waiting for more than a few sets costs more than being woken by the engine.
    let taken = if watches.len() <= SLEEP_SETS {
        sleep::take(&own.queue, watches)
    } else {
        drop(watches);
        own.queue.take()
    };
    match taken {
        Ok(handle) => {
            let from = handle as *mut ibv_cq;
            // SAFETY: `cq` and `cq_context` point to pointers for the results (ibv_get_cq_event(3)). `from` has not been destroyed:
            // ibv_destroy_cq withdraws the events of the queue.
            unsafe {
                cq.write(from);
                cq_context.write(addr_of!((*from).cq_context).read());
            }
            0
        }
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// Acknowledges events of a completion queue.
///
/// # Safety
///
/// As for ibv_ack_cq_events(3).
pub unsafe fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: `cq` was returned by ibv_create_cq and has not been destroyed (ibv_ack_cq_events(3)). As in libibverbs, its mutex protects
    // the count; all-zero is an initialised mutex and condition variable.
    unsafe {
        let mutex: *mut libc::pthread_mutex_t = addr_of_mut!((*cq).mutex).cast();
        let cond: *mut libc::pthread_cond_t = addr_of_mut!((*cq).cond).cast();
        libc::pthread_mutex_lock(mutex);
        let count = addr_of_mut!((*cq).comp_events_completed);
        count.write(count.read().wrapping_add(nevents));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

// ---- shared receive queues ---------------------------------------------------------------------------------------------------------

/// Creates a shared receive queue. EINVAL: no receives or more than 2^20, or more than one scatter/gather entry.
///
/// # Safety
///
/// As for ibv_create_srq(3).
pub unsafe fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: `attr` points to an ibv_srq_init_attr (ibv_create_srq(3)).
    let (srq_context, max_wr, max_sge) = unsafe {
        (
            addr_of!((*attr).srq_context).read(),
            addr_of!((*attr).attr.max_wr).read(),
            addr_of!((*attr).attr.max_sge).read(),
        )
    };
    if max_wr == 0 || max_wr > MAX_SRQ_WR || max_sge > MAX_SGE {
        return null_with(libc::EINVAL);
    }
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_create_srq(3)).
    let own = unsafe { PdObject::own(pd) };
    let queue = match Srq::new(own.number, max_wr) {
        Ok(queue) => Arc::new(queue),
        Err(e) => return null_with(e),
    };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: all-zero is a valid ibv_srq.
    let mut srq: ibv_srq = unsafe { std::mem::zeroed() };
    // SAFETY: `pd` has not been deallocated, and its `context` never changes.
    srq.context = unsafe { addr_of!((*pd).context).read() };
    srq.srq_context = srq_context;
    srq.pd = pd;
    srq.handle = next_number();
    SrqObject::create(srq, queue)
}

/// Destroys a shared receive queue. EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_srq(3).
pub unsafe fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: `srq` was returned by ibv_create_srq and has not been destroyed (ibv_destroy_srq(3)).
    if !unsafe { SrqObject::own(srq) }.is_unused() {
        return libc::EBUSY;
    }
    // SAFETY: the program does not use `srq` any more (ibv_destroy_srq(3)). Its protection domain cannot be deallocated before `users` is
    // decremented.
    unsafe {
        let pd = addr_of!((*srq).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        SrqObject::free(srq);
    }
    0
}

// ---- queue pairs -------------------------------------------------------------------------------------------------------------------

/// Creates a queue pair for an identifier. EINVAL: the type is not RC, a completion queue or the protection domain is missing, the shared
/// receive queue belongs to another protection domain, or a capability exceeds [`MAX_QP_WR`], [`MAX_SGE`] or [`MAX_INLINE`]. The
/// max_inline_data of the queue pair is stored in `attr`.
///
/// # Safety
///
/// `attr` must be as for rdma_create_qp_ex(3), with objects of softverbs.
pub(crate) unsafe fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    const MASK_PD: u32 = 1;
    // SAFETY: `attr` points to an ibv_qp_init_attr_ex (rdma_create_qp_ex(3)), which holds only integers and addresses; it is copied.
    let given = unsafe { attr.read() };
    let cap = given.cap;
    let refused = given.qp_type != ibv_qp_type::IBV_QPT_RC
        || given.comp_mask & MASK_PD == 0
        || given.pd.is_null()
        || given.send_cq.is_null()
        || given.recv_cq.is_null()
        || cap.max_send_wr > MAX_QP_WR
        || cap.max_recv_wr > MAX_QP_WR
        || cap.max_send_sge > MAX_SGE
        || cap.max_recv_sge > MAX_SGE
        || cap.max_inline_data as usize > MAX_INLINE;
    if refused {
        return Err(libc::EINVAL);
    }
    // SAFETY: the three objects are objects of softverbs that have not been destroyed (rdma_create_qp_ex(3)); none is NULL.
    let (pd, send_cq, recv_cq) =
        unsafe { (PdObject::own(given.pd), CqObject::own(given.send_cq), CqObject::own(given.recv_cq)) };
    // SAFETY: `srq` is NULL or a shared receive queue of softverbs that has not been destroyed (rdma_create_qp_ex(3)).
    let srq = (!given.srq.is_null()).then(|| unsafe { SrqObject::own(given.srq) }.clone());
    if srq.as_ref().is_some_and(|srq| srq.pd != pd.number) {
        return Err(libc::EINVAL);
    }
    let num = next_number();
    let inner = Qp::new(Attributes {
        num,
        pd: pd.number,
        send_cq: send_cq.queue.clone(),
        recv_cq: recv_cq.queue.clone(),
        srq,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if given.srq.is_null() { cap.max_recv_wr } else { 0 },
        signal_all: given.sq_sig_all != 0,
    })?;
    pd.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: all-zero is a valid ibv_qp.
    let mut qp: ibv_qp = unsafe { std::mem::zeroed() };
    qp.context = context;
    qp.qp_context = given.qp_context;
    qp.pd = given.pd;
    qp.send_cq = given.send_cq;
    qp.recv_cq = given.recv_cq;
    qp.srq = given.srq;
    qp.handle = num;
    qp.qp_num = num;
    qp.qp_type = given.qp_type;
    qp.state = rdma_sys::ibv_qp_state::IBV_QPS_INIT;
    // SAFETY: `attr` is writable: rdma_create_qp_ex(3) returns the actual capabilities in it.
    unsafe { addr_of_mut!((*attr).cap.max_inline_data).write(MAX_INLINE as u32) };
    log::debug!("queue pair {num} created");
    Ok(QpObject::create(qp, inner))
}

/// Destroys a queue pair. Its outstanding work requests do not complete any more, and its connection is closed.
///
/// # Safety
///
/// `qp` must come from [`create_qp`] and not be used afterwards.
pub(crate) unsafe fn destroy_qp(qp: *mut ibv_qp) {
    // SAFETY: `qp` was returned by `create_qp` and is not used afterwards. Its protection domain cannot be deallocated before `users` is
    // decremented.
    unsafe {
        QpObject::own(qp).destroy();
        let pd = addr_of!((*qp).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        QpObject::free(qp);
    }
}
