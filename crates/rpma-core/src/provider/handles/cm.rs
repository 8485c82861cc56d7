// SPDX-License-Identifier: BSD-3-Clause
//! Owners of connection-manager objects.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use libc::sockaddr;
use rdma_sys::*;
use rpma_log::text::Text;

use super::peer_name::{self, PeerName};
use super::{Failed, Why, by_errno, by_pointer, released};
use crate::cancel;
use crate::error::Errno;
use crate::provider::native::NativeQp;
use crate::provider::{Api, metered};

/// Which side of a connection an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This host: bind and listen.
    Passive,
    /// The other host: resolve and connect.
    Active,
}

/// A translated address.
pub struct AddrInfo {
    api: Api,
    info: *mut rdma_addrinfo,
}

impl AddrInfo {
    /// # Safety
    /// `node` must be a C string; `service` a C string or NULL.
    pub unsafe fn get(
        api: Api,
        node: *const c_char,
        service: *const c_char,
        side: Side,
    ) -> Result<Self, Failed> {
        let mut info = ptr::null_mut();
        // SAFETY: all zero is a valid value of the hints; the hints and `info` outlive the call; the caller
        // guarantees C strings.
        let ret = unsafe {
            let mut hints = MaybeUninit::<rdma_addrinfo>::zeroed().assume_init();
            hints.ai_flags = if side == Side::Passive { RAI_PASSIVE as c_int } else { 0 };
            hints.ai_qp_type = ibv_qp_type::IBV_QPT_RC as c_int;
            hints.ai_port_space = rdma_port_space::RDMA_PS_TCP as c_int;
            api.rdma_getaddrinfo(node, service, &hints, &mut info)
        };
        match ret {
            0 => Ok(Self { api, info }),
            -1 | libc::EAI_SYSTEM => Err(Failed::errno("rdma_getaddrinfo", Errno::last())),
            code => Err(Failed { call: "rdma_getaddrinfo", why: Why::AddrInfo(code) }),
        }
    }

    fn source(&self) -> *mut sockaddr {
        // SAFETY: the result is readable until freed, which only drop does.
        unsafe { (*self.info).ai_src_addr }
    }

    /// Whether the destination is this host because it is a loopback address.
    pub fn leads_back(&self) -> bool {
        let to = self.destination();
        if to.is_null() {
            return false;
        }
        // SAFETY: the address belongs to the result, which is readable until freed, and is as long as its
        // family says. Its alignment is not guaranteed.
        unsafe {
            match c_int::from((&raw const (*to).sa_family).read_unaligned()) {
                libc::AF_INET => {
                    let to = to.cast::<libc::sockaddr_in>().read_unaligned();
                    Ipv4Addr::from_bits(u32::from_be(to.sin_addr.s_addr)).is_loopback()
                }
                libc::AF_INET6 => {
                    let to =
                        Ipv6Addr::from(to.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr);
                    to.is_loopback() || to.to_ipv4_mapped().is_some_and(|to| to.is_loopback())
                }
                _ => false,
            }
        }
    }

    fn destination(&self) -> *mut sockaddr {
        // SAFETY: the result is readable until freed, which only drop does.
        unsafe { (*self.info).ai_dst_addr }
    }
}

impl Drop for AddrInfo {
    fn drop(&mut self) {
        // SAFETY: this object owns the result, which is freed once.
        unsafe { self.api.rdma_freeaddrinfo(self.info) };
    }
}

/// A channel of connection events.
pub struct EventChannel {
    api: Api,
    channel: *mut rdma_event_channel,
}

impl EventChannel {
    pub fn create(api: Api) -> Result<Self, Failed> {
        // SAFETY: no arguments.
        let channel = by_pointer("rdma_create_event_channel", unsafe { api.rdma_create_event_channel() })?;
        Ok(Self { api, channel })
    }

    pub fn as_ptr(&self) -> *mut rdma_event_channel {
        self.channel
    }

    /// The descriptor that becomes readable when an event is pending.
    pub fn fd(&self) -> c_int {
        // SAFETY: the channel is readable until destroyed, which only drop does; its descriptor is constant.
        unsafe { (*self.channel).fd }
    }

    /// Calls `then` with the next event; blocks unless the descriptor was made non-blocking. The thread may
    /// be cancelled while it waits, so the caller must not own anything during the call; in `then` it is not
    /// cancelled any more.
    #[inline]
    pub fn next_event<T>(&self, then: impl FnOnce(CmEvent) -> T) -> Result<T, Failed> {
        let mut event = MaybeUninit::uninit();
        // SAFETY: the channel is alive; the pointer outlives the call.
        let ret = unsafe { self.api.rdma_get_cm_event(self.channel, event.as_mut_ptr()) };
        by_errno("rdma_get_cm_event", ret)?;
        // SAFETY: the call has succeeded, so it has written the event.
        let event = CmEvent { api: self.api, event: unsafe { event.assume_init() } };
        Ok(cancel::whole(|| then(event)))
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: this object owns the channel, which is destroyed once; fields that use it are declared
        // before it.
        unsafe { self.api.rdma_destroy_event_channel(self.channel) };
    }
}

/// A connection event, not acknowledged yet.
pub struct CmEvent {
    api: Api,
    event: *mut rdma_cm_event,
}

impl CmEvent {
    pub fn kind(&self) -> rdma_cm_event_type::Type {
        // SAFETY: an event is readable until acknowledged.
        unsafe { (*self.event).event }
    }

    pub fn status(&self) -> c_int {
        // SAFETY: an event is readable until acknowledged.
        unsafe { (*self.event).status }
    }

    pub fn id(&self) -> *mut rdma_cm_id {
        // SAFETY: an event is readable until acknowledged.
        unsafe { (*self.event).id }
    }

    /// The cause of a failed connection attempt, if the provider recorded one.
    #[cold]
    pub fn reason(&self) -> Text<384> {
        let mut reason = Text::new();
        // SAFETY: the event is not acknowledged as long as this object lives.
        unsafe { (self.api.event_reason)(self.event, &mut reason) };
        reason
    }

    /// Address and length of the private data, which live as long as the event.
    pub fn private_data(&self) -> (*const c_void, u8) {
        // SAFETY: an event is readable until acknowledged; all variants of the parameters begin with these
        // two fields, which may hold any bits.
        unsafe {
            let conn = &raw const (*self.event).param.conn;
            ((*conn).private_data, (*conn).private_data_len)
        }
    }

    pub fn acknowledge(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the event is acknowledged once: either in `acknowledge`, which then forgets the object, or
        // in drop.
        by_errno("rdma_ack_cm_event", unsafe { self.api.rdma_ack_cm_event(self.event) })
    }
}

impl Drop for CmEvent {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// The identifier of a queue pair.
///
/// # Safety
/// `qp` must be a live queue pair that [`CmId::create_queue_pair`] created.
pub(crate) unsafe fn identifier(qp: *mut ibv_qp) -> *mut rdma_cm_id {
    // SAFETY: the caller guarantees a queue pair whose context was set when it was created.
    unsafe { (&raw const (*qp).qp_context).read().cast() }
}

/// The capacities requested for a queue pair, and after its creation those that it has.
pub struct QpCaps {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_inline_data: u32,
    /// Native operations, `QP_WITH_*` of [`crate::provider::native`].
    pub native_ops: u64,
}

/// An identifier: an endpoint, or one end of a connection.
pub struct CmId {
    api: Api,
    id: *mut rdma_cm_id,
    /// The remote peer waits for a reply to its connection request: reject it before destroying the
    /// identifier.
    unanswered: bool,
}

impl CmId {
    /// A new identifier; with a NULL channel its calls are synchronous.
    ///
    /// # Safety
    /// `channel` must be NULL or a live channel of `api` that outlives the identifier.
    pub unsafe fn create(api: Api, channel: *mut rdma_event_channel) -> Result<Self, Failed> {
        let mut id = ptr::null_mut();
        // SAFETY: the caller guarantees that `channel` is NULL or live and outlives the identifier; `id`
        // outlives the call.
        let ret =
            unsafe { api.rdma_create_id(channel, &mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP) };
        by_errno("rdma_create_id", ret)?;
        Ok(Self { api, id, unanswered: false })
    }

    /// The identifier of a connection request that has not been answered.
    ///
    /// # Safety
    /// `id` must be live, of `api`, and owned by the caller.
    pub unsafe fn of_request(api: Api, id: *mut rdma_cm_id) -> Self {
        Self { api, id, unanswered: true }
    }

    pub fn api(&self) -> Api {
        self.api
    }

    /// The identifier itself.
    pub fn as_ptr(&self) -> *mut rdma_cm_id {
        self.id
    }

    /// The context of the device that the address selected; NULL if it selected none.
    pub fn context(&self) -> *mut ibv_context {
        // SAFETY: the identifier is readable until destroyed.
        unsafe { (*self.id).verbs }
    }

    /// The remote peer.
    pub fn peer(&self) -> PeerName {
        // SAFETY: the identifier is alive.
        unsafe { PeerName::of(self.id) }
    }

    /// The local address, if it is bound.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive.
        unsafe { peer_name::local(self.id) }
    }

    /// The queue pair for native operations, and those operations of `ops` that it has.
    ///
    /// # Safety
    /// The identifier must have a queue pair that was created with `ops`.
    pub unsafe fn native_queue_pair(&self, ops: u64) -> Option<(NativeQp, u64)> {
        // SAFETY: the identifier is readable until destroyed. The caller guarantees a queue pair created with
        // `ops`; its extended form is the same object and lives as long.
        unsafe { NativeQp::with(self.api.ibv_qp_to_qp_ex((*self.id).qp), ops) }
    }

    pub fn bind(&self, to: &AddrInfo) -> Result<(), Failed> {
        // SAFETY: the identifier and the translation are alive, and the address belongs to the latter.
        by_errno("rdma_bind_addr", unsafe { self.api.rdma_bind_addr(self.id, to.source()) })
    }

    pub fn resolve_addr(&self, to: &AddrInfo, timeout_ms: c_int) -> Result<(), Failed> {
        // SAFETY: the identifier and the translation are alive, and the addresses belong to the latter.
        let ret = unsafe { self.api.rdma_resolve_addr(self.id, to.source(), to.destination(), timeout_ms) };
        by_errno("rdma_resolve_addr", ret)
    }

    pub fn resolve_route(&self, timeout_ms: c_int) -> Result<(), Failed> {
        // SAFETY: the identifier is alive.
        by_errno("rdma_resolve_route", unsafe { self.api.rdma_resolve_route(self.id, timeout_ms) })
    }

    pub fn listen(&self) -> Result<(), Failed> {
        // SAFETY: the identifier is alive. Backlog 0 is the provider's default.
        by_errno("rdma_listen", unsafe { self.api.rdma_listen(self.id, 0) })
    }

    /// Sends a connection request to the remote peer.
    ///
    /// # Safety
    /// The private data that `param` points to must be readable.
    pub unsafe fn connect(&self, param: &mut rdma_conn_param) -> Result<(), Failed> {
        // SAFETY: the identifier is alive; the caller guarantees that the private data of `param` are
        // readable.
        by_errno("rdma_connect", unsafe { self.api.rdma_connect(self.id, param) })
    }

    /// Accepts the remote peer's connection request. A failed attempt also counts as an answer.
    ///
    /// # Safety
    /// The private data that `param` points to must be readable.
    pub unsafe fn accept(&mut self, param: &mut rdma_conn_param) -> Result<(), Failed> {
        self.unanswered = false;
        // SAFETY: the identifier is alive; the caller guarantees that the private data of `param` are
        // readable.
        by_errno("rdma_accept", unsafe { self.api.rdma_accept(self.id, param) })
    }

    pub fn disconnect(&self) -> Result<(), Failed> {
        // SAFETY: the identifier is alive.
        by_errno("rdma_disconnect", unsafe { self.api.rdma_disconnect(self.id) })
    }

    /// Migrates the identifier to another event channel; NULL makes its calls synchronous.
    ///
    /// # Safety
    /// `channel` must be NULL or a live channel of the same provider, alive as long as the identifier uses
    /// it.
    pub unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<(), Failed> {
        // SAFETY: the identifier is alive; the caller guarantees that `channel` is NULL or stays alive while
        // the identifier uses it.
        by_errno("rdma_migrate_id", unsafe { self.api.rdma_migrate_id(self.id, channel) })
    }

    /// Creates the identifier's queue pair: reliable connection, one range per request, completions only for
    /// signalled requests. `caps` is updated to the actual capacities.
    ///
    /// # Safety
    /// The protection domain and queues must be live, of the identifier's device, and outlive the queue pair.
    pub unsafe fn create_queue_pair(
        &self,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        caps: &mut QpCaps,
    ) -> Result<QueuePair, Failed> {
        // SAFETY: all zero is a valid value of the attributes, which outlive the call; the caller guarantees
        // a live `pd` and live queues that outlive the queue pair.
        let (ret, cap) = unsafe {
            let mut attr = MaybeUninit::<ibv_qp_init_attr_ex>::zeroed().assume_init();
            attr.send_cq = send_cq;
            attr.recv_cq = recv_cq;
            attr.srq = srq;
            attr.cap = ibv_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: caps.max_inline_data,
            };
            attr.qp_type = ibv_qp_type::IBV_QPT_RC;
            // If the mask contains only the domain, a provider without extended creation creates a plain
            // queue pair.
            attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
            attr.pd = pd;
            if caps.native_ops != 0 {
                attr.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
                attr.send_ops_flags = caps.native_ops;
            }
            (self.api.rdma_create_qp_ex(self.id, &mut attr), attr.cap)
        };
        by_errno("rdma_create_qp_ex", ret)?;
        caps.max_send_wr = cap.max_send_wr;
        caps.max_recv_wr = cap.max_recv_wr;
        // SAFETY: the identifier is alive and has a queue pair, whose context the provider leaves to the
        // consumer.
        let posts = unsafe {
            let posts = if self.api.plain.is_none() { (*self.id).qp } else { metered::stand_in(self.id) };
            (&raw mut (*posts).qp_context).write(self.id.cast());
            posts
        };
        Ok(QueuePair { posts, api: self.api, id: self.id })
    }

    /// Rejects a pending connection request, then destroys its identifier, even if the reject fails.
    pub fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        let rejected = if self.unanswered {
            // SAFETY: the identifier is alive until the next call.
            by_errno("rdma_reject", unsafe { self.api.rdma_reject(self.id, ptr::null(), 0) })
        } else {
            Ok(())
        };
        // SAFETY: this object owns the identifier, which is destroyed once: either in `close`, which then
        // forgets the object, or in drop.
        let destroyed = by_errno("rdma_destroy_id", unsafe { self.api.rdma_destroy_id(self.id) });
        match (rejected, destroyed) {
            (Err(first), later) => {
                released(later);
                Err(first)
            }
            (Ok(()), destroyed) => destroyed,
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// The queue pair of an identifier; destroyed when dropped. Its identifier must be declared after it.
pub struct QueuePair {
    posts: *mut ibv_qp,
    api: Api,
    id: *mut rdma_cm_id,
}

impl QueuePair {
    /// The queue pair to which requests are posted.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut ibv_qp {
        self.posts
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the owner keeps the identifier alive longer than this object, which destroys the queue pair
        // once.
        unsafe { self.api.rdma_destroy_qp(self.id) };
    }
}

/// The name of a connection-manager event, for messages.
pub(crate) fn cm_event_name(event: rdma_cm_event_type::Type) -> &'static str {
    use rdma_cm_event_type::*;
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => "RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => "RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => "RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => "RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => "RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => "RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => "RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => "RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => "RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => "RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => "RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => "RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => "RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => "RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => "RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => "unknown",
    }
}
