// SPDX-License-Identifier: BSD-3-Clause
//! A provider that counts the operations of devices, for `RPMA_METRICS`.
//!
//! Its table passes every call on to libibverbs and librdmacm. Calls that count something are functions of
//! this file, which call the underlying provider; all others are those of the underlying provider. Each queue
//! pair, completion queue and shared receive queue gets a stand-in, whose context has the data-path
//! operations of this file: the data path ([`super::hot`]) calls through the context of its object, so it
//! needs no check for metrics. Only this library uses the stand-ins. The `context` of an identifier, which is
//! otherwise unused, points to the stand-in of its queue pair.
//!
//! The data path reads the context of a stand-in and the number of a queue pair; all other fields are zero.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::ENOMEM;
use once_cell::race::OnceBox;
use rdma_sys::*;

use super::handles::PeerName;
use super::{Api, Provider, hot};
use crate::abi::rpma_conn_event;
use crate::alloc;
use crate::event::translate;
use rpma_metrics::{Connection, Event, Kind, Place, Process};

/// The underlying provider.
#[cfg(feature = "rdma-core")]
fn real() -> Api {
    super::rdma_core::looked_up()
}

/// A build without devices has no underlying provider, and creates no objects of this one.
#[cfg(not(feature = "rdma-core"))]
fn real() -> Api {
    super::soft::api()
}

/// The provider for the objects of a peer: the given one or, if that uses devices and metrics are enabled,
/// the counting one. Software RDMA counts its operations itself.
#[inline]
pub(crate) fn chosen(api: Api) -> Api {
    let is_of_devices = || cfg!(feature = "rdma-core") && ptr::eq(api, real());
    if process().is_some() && is_of_devices() { counting() } else { api }
}

fn process() -> Option<&'static Process> {
    rpma_metrics::process(|text| log_warning!("{text}"))
}

#[cold]
fn counting() -> Api {
    static COUNTING: OnceBox<Provider> = OnceBox::new();
    COUNTING.get_or_init(|| {
        Box::new(Provider {
            plain: Some(real()),
            ibv_reg_mr,
            ibv_dereg_mr,
            ibv_create_cq,
            ibv_destroy_cq,
            ibv_get_cq_event,
            ibv_ack_cq_events,
            ibv_create_srq,
            ibv_destroy_srq,
            rdma_create_qp_ex,
            rdma_destroy_qp,
            rdma_get_cm_event,
            ending,
            post_denied,
            flushes_by,
            ..*real()
        })
    })
}

/// The context of all stand-ins.
fn context() -> *mut ibv_context {
    struct Shared(ibv_context);
    // SAFETY: it is not written to after its creation, and its pointers are NULL or functions.
    unsafe impl Sync for Shared {}
    // SAFETY: its pointers are NULL or functions, which belong to no thread.
    unsafe impl Send for Shared {}
    static CONTEXT: OnceBox<Shared> = OnceBox::new();
    let shared = CONTEXT.get_or_init(|| {
        // SAFETY: all zero is a context without a device and without operations.
        let mut context = unsafe { MaybeUninit::<ibv_context>::zeroed().assume_init() };
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        context.ops.post_srq_recv = Some(post_srq_recv);
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(req_notify_cq);
        Box::new(Shared(context))
    });
    (&raw const shared.0).cast_mut()
}

/// The stand-in of a queue pair.
#[repr(C)]
struct MeteredQp {
    shown: ibv_qp,
    real: *mut ibv_qp,
    process: &'static Process,
    connection: Arc<Connection>,
    /// The completion queues that refer to the connection.
    cqs: [*mut MeteredCq; 2],
}

/// The stand-in of a completion queue.
#[repr(C)]
struct MeteredCq {
    shown: ibv_cq,
    real: *mut ibv_cq,
    process: &'static Process,
    /// The connection of the queue, as long as it has a queue pair; NULL for the queue of a shared receive
    /// queue.
    connection: AtomicPtr<Connection>,
}

/// The stand-in of a shared receive queue.
#[repr(C)]
struct MeteredSrq {
    shown: ibv_srq,
    real: *mut ibv_srq,
    process: &'static Process,
}

fn set_errno(errno: c_int) {
    // SAFETY: returns the address of the calling thread's errno, which always exists.
    unsafe { *libc::__errno_location() = errno };
}

// ---- memory regions ------------------------------------------------------------------------------------------------------------------------

unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller meets the requirements of ibv_reg_mr(3).
    let mr = unsafe { real().ibv_reg_mr(pd, addr, length, access) };
    if let Some(process) = process().filter(|_| !mr.is_null()) {
        process.counters.registered(length);
    }
    mr
}

unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller guarantees a region that ibv_reg_mr(3) returned and that has not been deregistered;
    // the field that is read first is constant.
    let (length, ret) = unsafe { ((&raw const (*mr).length).read(), real().ibv_dereg_mr(mr)) };
    if let Some(process) = process().filter(|_| ret == 0) {
        process.counters.deregistered(length);
    }
    ret
}

// ---- completion queues ---------------------------------------------------------------------------------------------------------------------

unsafe extern "C" fn ibv_create_cq(
    ctx: *mut ibv_context,
    cqe: c_int,
    _: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let room = alloc::Slot::<MeteredCq>::new();
    let (Some(process), Ok(room)) = (process(), room) else {
        set_errno(ENOMEM);
        return ptr::null_mut();
    };
    // SAFETY: the public part consists of pointers, integers and locks, for which all zero is valid.
    let mut shown = unsafe { MaybeUninit::<ibv_cq>::zeroed().assume_init() };
    shown.context = context();
    let connection = AtomicPtr::new(ptr::null_mut());
    let this = Box::into_raw(room.fill(MeteredCq { shown, real: ptr::null_mut(), process, connection }));
    // SAFETY: the caller meets the requirements of ibv_create_cq(3). Until it returns, no other thread has
    // the stand-in, which is the queue's cq_context, which ibv_get_cq_event(3) returns.
    unsafe {
        let real = real().ibv_create_cq(ctx, cqe, this.cast(), channel, comp_vector);
        if real.is_null() {
            free(this);
            return ptr::null_mut();
        }
        (*this).real = real;
    }
    this.cast()
}

unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let this = cq.cast::<MeteredCq>();
    // SAFETY: the caller guarantees a queue of `ibv_create_cq` that is not in use and not destroyed again
    // (ibv_destroy_cq(3)).
    unsafe {
        let ret = real().ibv_destroy_cq((*this).real);
        if ret == 0 {
            free(this);
        }
        ret
    }
}

unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees a live channel that is used only for queues of `ibv_create_cq`, whose
    // cq_context is their stand-in, and two writable outputs (ibv_get_cq_event(3)).
    unsafe {
        let ret = real().ibv_get_cq_event(channel, cq, cq_context);
        if ret == 0 {
            cq.write(cq_context.read().cast());
        }
        ret
    }
}

unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: the caller guarantees a live queue of `ibv_create_cq`, for which it has taken as many events
    // (ibv_ack_cq_events(3)).
    unsafe { real().ibv_ack_cq_events((*cq.cast::<MeteredCq>()).real, nevents) };
}

unsafe fn ending(cq: *mut ibv_cq, qp_num: u32, then: &mut dyn FnMut(&str, bool)) {
    // SAFETY: the caller guarantees a live queue of `ibv_create_cq`.
    unsafe { (real().ending)((*cq.cast::<MeteredCq>()).real, qp_num, then) }
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller guarantees a live queue of `ibv_create_cq` (ibv_req_notify_cq(3)).
    unsafe { hot::req_notify_cq((*cq.cast::<MeteredCq>()).real, solicited_only) }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller guarantees a live queue of `ibv_create_cq`, and room for `num_entries` completions
    // (ibv_poll_cq(3)). The connection of a queue lives until the program deletes both, which it must not do
    // while it polls. The provider has written as many completions as it returned, and at least the status
    // and queue pair number of a failed one.
    unsafe {
        let this = cq.cast::<MeteredCq>();
        let got = hot::poll_cq((*this).real, num_entries, wc);
        if got > 0 && got <= num_entries {
            let connection = (*this).connection.load(Ordering::Acquire).as_ref();
            for at in 0..got as usize {
                taken((*this).process, connection, wc.add(at));
            }
        }
        got
    }
}

/// Counts a completion.
///
/// # Safety
/// `wc` must point to a completion that the provider has written.
unsafe fn taken(process: &'static Process, connection: Option<&Connection>, wc: *const ibv_wc) {
    /// The bit that the opcodes of receives have.
    const RECV: ibv_wc_opcode::Type = ibv_wc_opcode::IBV_WC_RECV;
    // SAFETY: the caller guarantees a written completion, in which these two fields are defined regardless of
    // the status (ibv_poll_cq(3)).
    let (status, qp_num) = unsafe { ((&raw const (*wc).status).read(), (&raw const (*wc).qp_num).read()) };
    let connection = connection.filter(|connection| connection.qp_num == qp_num);
    let counts = connection.map_or(&process.counters.shared, |connection| &connection.counts);
    counts.completed(status);
    if status != ibv_wc_status::IBV_WC_SUCCESS {
        if let Some(connection) = connection {
            connection.failed(status);
        }
        return;
    }
    // SAFETY: the request succeeded, so the opcode is defined, and for a receive also the length
    // (ibv_poll_cq(3)).
    let (opcode, len) = unsafe { ((&raw const (*wc).opcode).read(), (&raw const (*wc).byte_len).read()) };
    if opcode & RECV != 0 {
        counts.received(len.into());
    } else if let Some(connection) = connection {
        connection.succeeded();
    }
}

// ---- receive queues ------------------------------------------------------------------------------------------------------------------------

unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let room = alloc::Slot::<MeteredSrq>::new();
    let (Some(process), Ok(room)) = (process(), room) else {
        set_errno(ENOMEM);
        return ptr::null_mut();
    };
    // SAFETY: the caller meets the requirements of ibv_create_srq(3).
    let real = unsafe { real().ibv_create_srq(pd, attr) };
    if real.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the public part consists of pointers, integers and locks, for which all zero is valid.
    let mut shown = unsafe { MaybeUninit::<ibv_srq>::zeroed().assume_init() };
    shown.context = context();
    Box::into_raw(room.fill(MeteredSrq { shown, real, process })).cast()
}

unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let this = srq.cast::<MeteredSrq>();
    // SAFETY: the caller guarantees a queue of `ibv_create_srq` that is not in use and not destroyed again
    // (ibv_destroy_srq(3)).
    unsafe {
        let ret = real().ibv_destroy_srq((*this).real);
        if ret == 0 {
            free(this);
        }
        ret
    }
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let this = srq.cast::<MeteredSrq>();
    // SAFETY: the caller guarantees a live queue of `ibv_create_srq`, a complete request and a writable
    // `bad_wr`.
    unsafe {
        let ret = hot::post_srq_recv((*this).real, wr, bad_wr);
        if ret == 0 {
            (*this).process.counters.shared.posted(Kind::Recv, 0);
        }
        ret
    }
}

// ---- connections ---------------------------------------------------------------------------------------------------------------------------

/// The stand-in of an identifier's queue pair; NULL if it has none.
///
/// # Safety
/// `id` must be a live identifier of a provider of this file, or one that it has received.
pub(crate) unsafe fn stand_in(id: *mut rdma_cm_id) -> *mut ibv_qp {
    // SAFETY: the caller guarantees a live identifier, whose context is NULL or the stand-in that
    // `rdma_create_qp_ex` stored there.
    unsafe { (&raw const (*id).context).read().cast() }
}

unsafe extern "C" fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    let room = alloc::Slot::<MeteredQp>::new();
    let (Some(process), Ok(room)) = (process(), room) else {
        set_errno(ENOMEM);
        return -1;
    };
    // SAFETY: the caller meets the requirements of rdma_create_qp_ex, with completion queues and a shared
    // receive queue (or NULL) of this file, and attributes that nothing else uses. After success the
    // identifier has the queue pair.
    unsafe {
        let send_cq = (&raw const (*attr).send_cq).read().cast::<MeteredCq>();
        let recv_cq = (&raw const (*attr).recv_cq).read().cast::<MeteredCq>();
        let srq = (&raw const (*attr).srq).read().cast::<MeteredSrq>();
        (&raw mut (*attr).send_cq).write((*send_cq).real);
        (&raw mut (*attr).recv_cq).write((*recv_cq).real);
        if !srq.is_null() {
            (&raw mut (*attr).srq).write((*srq).real);
        }
        let ret = real().rdma_create_qp_ex(id, attr);
        if ret != 0 {
            return ret;
        }
        let real = (&raw const (*id).qp).read();
        let mut shown = MaybeUninit::<ibv_qp>::zeroed().assume_init();
        shown.context = context();
        shown.qp_num = (&raw const (*real).qp_num).read();
        let place = place_of((&raw const (*id).verbs).read());
        let connection = process.counters.connection(PeerName::of(id).0, shown.qp_num, place);
        // Several connections share the completion queue of a shared receive queue.
        let cqs = [send_cq, if srq.is_null() { recv_cq } else { send_cq }];
        for cq in cqs {
            (*cq).connection.store(Arc::as_ptr(&connection).cast_mut(), Ordering::Release);
        }
        let this = Box::into_raw(room.fill(MeteredQp { shown, real, process, connection, cqs }));
        (&raw mut (*id).context).write(this.cast());
        ret
    }
}

unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees a live identifier with a queue pair of `rdma_create_qp_ex` that is not in
    // use, whose completion queues are destroyed after it (ibv_destroy_cq(3)).
    unsafe {
        real().rdma_destroy_qp(id);
        let this = (&raw const (*id).context).read().cast::<MeteredQp>();
        (&raw mut (*id).context).write(ptr::null_mut());
        for cq in (*this).cqs {
            (*cq).connection.store(ptr::null_mut(), Ordering::Release);
        }
        (*this).process.counters.deleted(&(*this).connection);
        free(this);
    }
}

/// The device of a queue pair. RoCE and InfiniBand are distinguished by the first port of the device.
///
/// # Safety
/// `verbs` must be NULL or an open context.
unsafe fn place_of(verbs: *mut ibv_context) -> Place {
    let mut place =
        Place { provider: "rdma-core", device: String::new(), transport: "unknown", link: "device" };
    // SAFETY: the caller guarantees an open context, whose device the library keeps; its name is a C string
    // in an array, and does not change.
    let (name, transport) = unsafe {
        let Some(device) = verbs.as_ref().and_then(|verbs| verbs.device.as_ref()) else { return place };
        (CStr::from_ptr(device.name.as_ptr()).to_string_lossy(), device.transport_type)
    };
    place.transport = match transport {
        ibv_transport_type::IBV_TRANSPORT_IWARP => "iwarp",
        ibv_transport_type::IBV_TRANSPORT_IB => {
            let layer = std::fs::read_to_string(format!("/sys/class/infiniband/{name}/ports/1/link_layer"));
            if layer.is_ok_and(|layer| layer.trim() == "InfiniBand") { "infiniband" } else { "roce" }
        }
        _ => "unknown",
    };
    place.device = name.into_owned();
    place
}

/// The event under which it is counted; `None` if it is not counted.
fn event_of(event: rpma_conn_event) -> Option<Event> {
    use rpma_conn_event::*;
    Some(match event {
        RPMA_CONN_ESTABLISHED => Event::Established,
        RPMA_CONN_CLOSED => Event::Closed,
        RPMA_CONN_LOST => Event::Lost,
        RPMA_CONN_REJECTED => Event::Rejected,
        RPMA_CONN_UNREACHABLE => Event::Unreachable,
        RPMA_CONN_UNDEFINED => return None,
    })
}

unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller guarantees a live channel and a writable `event` (rdma_get_cm_event(3)). An event is
    // readable until it is acknowledged; its identifier lives as long, and has a context that is from
    // `rdma_create_qp_ex`, or NULL as that of a listener, which its requests inherit.
    unsafe {
        let ret = real().rdma_get_cm_event(channel, event);
        if ret == 0 {
            let event = event.read();
            let id = (&raw const (*event).id).read();
            let this = if id.is_null() { ptr::null() } else { stand_in(id).cast::<MeteredQp>() };
            let kind = translate((&raw const (*event).event).read()).and_then(event_of);
            if let (Some(this), Some(kind)) = (this.as_ref(), kind) {
                this.process.counters.event(&this.connection, kind);
            }
        }
        ret
    }
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let this = qp.cast::<MeteredQp>();
    // SAFETY: the caller guarantees a live queue pair of `rdma_create_qp_ex`, a complete request and a
    // writable `bad_wr`.
    unsafe {
        let ret = hot::post_recv((*this).real, wr, bad_wr);
        if ret == 0 {
            let connection = &(*this).connection;
            connection.counts.posted(Kind::Recv, 0);
        }
        ret
    }
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees a live queue pair of `rdma_create_qp_ex`, a request of at most one range
    // whose fields that its opcode reads are set, and a writable `bad_wr`.
    unsafe { post_counted(qp, wr, |qp| hot::post_send(qp, wr, bad_wr)) }
}

unsafe fn post_denied(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller guarantees the requirements of `post_send`, which `post_denied` shares.
    unsafe { post_counted(qp, wr, |qp| (real().post_denied)(qp, wr, bad_wr)) }
}

/// Posts a request to the underlying queue pair with `post`, and counts it.
///
/// # Safety
/// `qp` must be a live queue pair of `rdma_create_qp_ex`, and `wr` a request of at most one range whose
/// fields that its opcode reads are set.
#[inline(always)]
unsafe fn post_counted(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    post: impl FnOnce(*mut ibv_qp) -> c_int,
) -> c_int {
    use ibv_wr_opcode::*;
    const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
    let this = qp.cast::<MeteredQp>();
    // SAFETY: the caller guarantees a live queue pair and a request in which these fields are set. A flush
    // has its type in place of immediate data ([`crate::post`]).
    unsafe {
        let connection = &(*this).connection;
        let flags = (&raw const (*wr).send_flags).read();
        let range = (&raw const (*wr).sg_list).read().as_ref().copied();
        let len = range.map_or(0, |range| range.length.into());
        let (kind, len) = match (&raw const (*wr).opcode).read() {
            // Only atomic writes are fenced.
            IBV_WR_RDMA_WRITE if flags & FENCE != 0 => (Kind::AtomicWrite, len),
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => (Kind::Write, len),
            IBV_WR_RDMA_READ if range.is_some_and(|range| connection.is_flush(range.addr)) => {
                let kind = (&raw const (*wr).__bindgen_anon_1.imm_data).read();
                (if kind == 0 { Kind::FlushPersistent } else { Kind::FlushVisibility }, 0)
            }
            IBV_WR_RDMA_READ => (Kind::Read, len),
            _ => (Kind::Send, len),
        };
        let is_signaled = flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
        as_number(connection.post(Some(kind), len, is_signaled, || as_result(post((*this).real))))
    }
}

fn as_result(ret: c_int) -> Result<(), c_int> {
    if ret == 0 { Ok(()) } else { Err(ret) }
}

fn as_number(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Posts a native request with `post`, and counts it unless `counted` is NULL.
///
/// # Safety
/// `counted` must be NULL or a live queue pair of this file.
pub(crate) unsafe fn native(
    counted: *mut ibv_qp,
    kind: Kind,
    flags: u32,
    post: impl FnOnce() -> c_int,
) -> c_int {
    let len = if kind == Kind::AtomicWrite { 8 } else { 0 };
    let is_signaled = flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
    // SAFETY: the caller guarantees NULL or a live stand-in.
    match unsafe { counted.cast::<MeteredQp>().as_ref() } {
        Some(this) => as_number(this.connection.post(Some(kind), len, is_signaled, || as_result(post()))),
        None => post(),
    }
}

unsafe fn flushes_by(qp: *mut ibv_qp, target: u64) {
    // SAFETY: the caller guarantees a live queue pair of this file.
    unsafe { (*qp.cast::<MeteredQp>()).connection.flushes_by(target) };
}

/// Frees a stand-in.
///
/// # Safety
/// `this` must be a stand-in of this file that is no longer in use.
unsafe fn free<T>(this: *mut T) {
    // SAFETY: the caller guarantees a pointer from `Box::into_raw` of an object from a slot, and that nothing
    // uses it any more.
    unsafe { alloc::end(Box::from_raw(this), drop) };
}
