// SPDX-License-Identifier: BSD-3-Clause
//! Connections.

use std::ffi::c_int;
use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EAGAIN, ENODATA};
use rdma_sys::{ibv_cq, ibv_qp, rdma_cm_event_type, rdma_conn_param};
use rpma_log::Subject;
use rpma_log::text::Lossy;

use super::bounce::Bounce;
use super::cq::Cq;
use super::flush::Flush;
use super::native::NativeFlush;
use super::peer::Domain;
use super::peer_cfg::PeerCfg;
use super::private_data::PrivateData;
use super::resources::Resources;
use super::utils::conn_event_text;
use crate::abi::{rpma_conn_event, rpma_conn_private_data, rpma_log_level};
use crate::alloc::Slot;
use crate::error::{Error, Result, first_error};
use crate::event::translate;
use crate::failure;
use crate::log;
use crate::provider::Api;
use crate::provider::handles::{
    CmEvent, CmId, EventChannel, PeerName, channel_fd, cm_event_name, next_cq_event, provider_error,
};
use crate::provider::native::NativeQp;

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: the maximum that the device supports.
const MAX_DEPTH: u8 = 0xff;

/// The retry count, and the RNR retry count, where 7 means infinite.
const RETRIES: u8 = 7;

/// A connection to a remote peer.
// The order of the fields is the order of tear-down.
pub struct Conn {
    /// The queue pair of `res`, to which requests are posted.
    qp: *mut ibv_qp,
    /// Whether the remote peer has declared direct write to persistent memory.
    direct_write_to_pmem: AtomicBool,
    flush: Flush,
    atomic_write: AtomicWrite,
    res: Resources,
    events: EventChannel,
    pdata: PrivateData,
    api: Api,
}

/// How a connection writes 8 bytes atomically.
pub enum AtomicWrite {
    /// By a write with inline data.
    Inline,
    /// By a write from registered memory, if the queue pair does not support inline data.
    Bounce(Bounce),
    /// By native atomic write.
    Native(NativeQp),
}

/// The objects that a connection needs in addition to the resources of its request. Once they exist, nothing
/// can fail.
pub struct ConnParts {
    flush: Flush,
    atomic_write: AtomicWrite,
    events: EventChannel,
    room: Slot<Conn>,
}

impl ConnParts {
    /// Creates them. If the identifier has no event channel of its own yet, it is migrated to one.
    ///
    /// # Safety
    /// The domain's peer must be alive and outlive the connection.
    pub unsafe fn new(domain: Domain, res: &Resources, events: Option<EventChannel>) -> Result<Self> {
        let migrated = Migrated::new(&res.id, events)?;
        // SAFETY: the caller guarantees that the peer outlives the connection, which owns both objects.
        let (flush, atomic_write) = unsafe {
            let flush = Flush::new(domain)?;
            let atomic_write = match res.native.atomic_write {
                Some(qp) => AtomicWrite::Native(qp),
                None if res.inline => AtomicWrite::Inline,
                None => AtomicWrite::Bounce(Bounce::new(domain, res.max_send_wr)?),
            };
            (flush, atomic_write)
        };
        let room = Slot::new()?;
        Ok(Self { flush, atomic_write, events: migrated.keep(), room })
    }

    pub fn assemble(self, res: Resources, pdata: PrivateData) -> Box<Conn> {
        let Self { flush, atomic_write, events, room } = self;
        // SAFETY: the queue pair belongs to this provider and lives until the resources are closed.
        unsafe { (res.id.api().flushes_by)(res.qp.as_ptr(), flush.target().addr) };
        room.fill(Conn {
            qp: res.qp.as_ptr(),
            direct_write_to_pmem: AtomicBool::new(false),
            flush,
            atomic_write,
            api: res.id.api(),
            res,
            events,
            pdata,
        })
    }
}

/// Migrates an identifier to an event channel of its own, which must live longer.
pub fn own_channel(id: &CmId) -> Result<EventChannel> {
    let events = EventChannel::create(id.api()).map_err(|failed| provider_error!(failed, ""))?;
    // SAFETY: the caller keeps the channel until the identifier is migrated away from it or destroyed.
    unsafe { id.migrate(events.as_ptr()) }.map_err(|failed| provider_error!(failed, ""))?;
    Ok(events)
}

/// An identifier migrated to its own event channel; the migration is undone on drop.
struct Migrated<'a> {
    id: &'a CmId,
    events: Option<EventChannel>,
}

impl<'a> Migrated<'a> {
    fn new(id: &'a CmId, events: Option<EventChannel>) -> Result<Self> {
        let events = events.map_or_else(|| own_channel(id), Ok)?;
        Ok(Migrated { id, events: Some(events) })
    }

    /// Keeps the migration and returns the channel, which the connection must keep longer than the
    /// identifier.
    fn keep(mut self) -> EventChannel {
        // Taken only here, where `self` is consumed.
        self.events.take().unwrap_or_else(|| unreachable!())
    }
}

impl Drop for Migrated<'_> {
    fn drop(&mut self) {
        if self.events.is_some() {
            // SAFETY: NULL is always allowed. The caller's error is the one to report.
            let _ = unsafe { self.id.migrate(ptr::null_mut()) }.map_err(|failed| provider_error!(failed, ""));
        }
    }
}

/// The function that returns events, for `rpma_err_last`.
const NEXT_EVENT: &str = "rpma_conn_next_event";

/// The text of an event.
fn text_of(event: rpma_conn_event) -> Lossy<'static> {
    Lossy(conn_event_text(event as c_int).to_bytes())
}

/// Whether an attempt to connect has failed.
fn is_no_connection(event: rdma_cm_event_type::Type) -> bool {
    use rdma_cm_event_type::*;
    matches!(event, RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_REJECTED | RDMA_CM_EVENT_UNREACHABLE)
}

/// Calls `then` with the next event of a channel. If the channel is non-blocking and no event is pending, the
/// result is `Error::NoEvent`, without a log message.
#[inline]
pub fn next_cm_event<T>(events: &EventChannel, then: impl FnOnce(CmEvent) -> Result<T>) -> Result<T> {
    events.next_event(then).unwrap_or_else(|failed| {
        Err(match failed.raw_errno() {
            Some(ENODATA | EAGAIN) => Error::NoEvent,
            _ => provider_error!(failed, ""),
        })
    })
}

impl Conn {
    /// Sends the request of a prepared connection, or accepts it if it is `passive`.
    ///
    /// # Safety
    /// The private data must be readable.
    pub unsafe fn begin(&mut self, passive: bool, pdata: Option<rpma_conn_private_data>) -> Result<()> {
        let mut param = conn_param(pdata);
        let id = &mut self.res.id;
        // SAFETY: the caller guarantees that the private data, to which `param` points, are readable.
        let begun = unsafe { if passive { id.accept(&mut param) } else { id.connect(&mut param) } };
        begun.map_err(|failed| provider_error!(failed, "private_data_len={}", param.private_data_len))
    }

    /// Destroys everything even if a step fails; returns the first error.
    pub fn close(self) -> Result<()> {
        let Self { flush, atomic_write, res, events, pdata, .. } = self;
        let flush = flush.close();
        let bounce = match atomic_write {
            AtomicWrite::Bounce(bounce) => bounce.close(),
            AtomicWrite::Inline | AtomicWrite::Native(_) => Ok(()),
        };
        let res = res.close();
        drop(events);
        drop(pdata);
        first_error([flush, bounce, res])
    }

    pub fn api(&self) -> Api {
        self.api
    }

    /// The remote peer, as a prefix for messages.
    pub fn peer(&self) -> PeerName {
        self.res.id.peer()
    }

    /// The address of the remote peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer().0
    }

    #[inline(always)]
    pub fn queue_pair(&self) -> *mut ibv_qp {
        self.qp
    }

    /// The object that counts requests which are not posted to [`Conn::queue_pair`], or NULL.
    pub fn counted(&self) -> *mut ibv_qp {
        if self.api.plain.is_some() { self.queue_pair() } else { ptr::null_mut() }
    }

    pub fn qp_num(&self) -> u32 {
        // SAFETY: the queue pair is alive as long as the connection, and its number is constant.
        unsafe { (*self.queue_pair()).qp_num }
    }

    pub fn event_fd(&self) -> c_int {
        self.events.fd()
    }

    pub fn cq(&self) -> &Cq {
        &self.res.cq
    }

    pub fn rcq(&self) -> Option<&Cq> {
        self.res.rcq.as_deref()
    }

    #[inline(always)]
    pub fn flush(&self) -> &Flush {
        &self.flush
    }

    /// How an atomic write is executed.
    #[inline(always)]
    pub fn atomic_write(&self) -> &AtomicWrite {
        &self.atomic_write
    }

    /// Present if a type of flush is executed natively.
    #[inline(always)]
    pub fn native_flush(&self) -> Option<&NativeFlush> {
        self.res.native.flush.as_ref()
    }

    pub fn apply_remote_peer_cfg(&self, cfg: &PeerCfg) {
        self.direct_write_to_pmem.store(cfg.direct_write_to_pmem(), Ordering::SeqCst);
    }

    #[inline(always)]
    pub fn direct_write_to_pmem(&self) -> bool {
        self.direct_write_to_pmem.load(Ordering::Relaxed)
    }

    pub fn private_data(&self) -> &rpma_conn_private_data {
        self.pdata.view()
    }

    pub fn disconnect(&self) -> Result<()> {
        self.res.id.disconnect().map_err(|failed| provider_error!(failed, ""))?;
        log_notice!(
            about Subject { connection: Some(self.qp_num()), ..self.peer().subject() };
            "{}disconnection requested",
            self.peer()
        );
        Ok(())
    }

    /// Gets the next event of the connection.
    pub fn next_event(&self) -> Result<rpma_conn_event> {
        next_cm_event(&self.events, |event| self.take_event(event))
    }

    fn take_event(&self, event: CmEvent) -> Result<rpma_conn_event> {
        use rpma_conn_event::*;
        let (kind, status) = (event.kind(), event.status());
        if kind == rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED {
            // The active side receives private data with the event; the passive side has received them with
            // the request. SAFETY: the event's private data live until it is acknowledged.
            unsafe { self.pdata.receive(event.private_data()) }?;
        }
        if is_no_connection(kind) {
            return self.take_failure(event);
        }
        event.acknowledge().map_err(|failed| {
            self.pdata.lose();
            provider_error!(failed, "event={}", cm_event_name(kind))
        })?;
        match translate(kind) {
            Some(event) => {
                // An established or closed connection is logged only if level NOTICE is enabled.
                if log::enabled(rpma_log_level::RPMA_LOG_LEVEL_NOTICE) || event == RPMA_CONN_LOST {
                    self.log_event(kind, event, status);
                }
                if event != RPMA_CONN_ESTABLISHED {
                    self.keep_ending(event, status);
                }
                Ok(event)
            }
            None => {
                log_warning!("unexpected connection event {}, status {status}", cm_event_name(kind));
                Err(Error::Unknown)
            }
        }
    }

    /// Handles the event of a failed connection attempt.
    #[cold]
    fn take_failure(&self, event: CmEvent) -> Result<rpma_conn_event> {
        let (kind, status, reason) = (event.kind(), event.status(), event.reason());
        event.acknowledge().map_err(|failed| {
            self.pdata.lose();
            provider_error!(failed, "event={}", cm_event_name(kind))
        })?;
        let Some(event) = translate(kind) else { unreachable!("a kind that has an event") };
        self.log_event(kind, event, status);
        match (Lossy(reason.as_bytes()), (self.api.likely_reason)(kind, status)) {
            (Lossy(b""), Some(reason)) => self.report(event, format_args!(": {reason}")),
            (Lossy(b""), None) => self.report(event, format_args!(", status {status}")),
            // The reason includes the address.
            (reason, _) => failure::report(NEXT_EVENT, format_args!("{}: {reason}", text_of(event))),
        }
        Ok(event)
    }

    /// Logs an event.
    #[cold]
    fn log_event(&self, kind: rdma_cm_event_type::Type, event: rpma_conn_event, status: c_int) {
        let (peer, text) = (self.peer(), text_of(event));
        let errno = (status < 0).then_some(status);
        let about =
            Subject { connection: Some(self.qp_num()), operation: Some(NEXT_EVENT), errno, ..peer.subject() };
        let reason = if is_no_connection(kind) { (self.api.likely_reason)(kind, status) } else { None };
        match reason {
            // "Rejected" alone does not show that the two peers use different transports.
            Some(reason) => log_warning!(about about; "{peer}{text}: {reason}"),
            // A device reports a value of the kernel's enum ib_cm_rej_reason as the status.
            None if status != 0 => log_notice!(about about; "{peer}{text}, status {status}"),
            None => log_notice!(about about; "{peer}{text}"),
        }
    }

    /// Records for `rpma_err_last` why the connection ended, unless one side closed it.
    #[cold]
    fn keep_ending(&self, event: rpma_conn_event, status: c_int) {
        let mut is_kept = false;
        self.ending(&mut |ending, is_failure| {
            if is_failure {
                is_kept = true;
                failure::report(NEXT_EVENT, format_args!("{}: {ending}", text_of(event)));
            }
        });
        // A device reports no reason.
        if !is_kept && event == rpma_conn_event::RPMA_CONN_LOST {
            self.report(event, format_args!(", status {status}"));
        }
    }

    /// Calls `then` with a text about how the connection ended and whether it failed, that is, neither side
    /// closed it. The reason is available before the first flushed completion is polled. Does not call `then`
    /// while the connection is up, nor on a device, which reports no reason.
    #[cold]
    pub fn ending(&self, then: &mut dyn FnMut(&str, bool)) {
        // SAFETY: the queue is alive as long as the connection.
        unsafe { (self.api.ending)(self.cq().as_ptr(), self.qp_num(), then) }
    }

    fn report(&self, event: rpma_conn_event, what: fmt::Arguments<'_>) {
        failure::report(NEXT_EVENT, format_args!("{}{}{what}", self.peer(), text_of(event)));
    }

    /// The file descriptor of the shared completion channel.
    pub fn compl_fd(&self) -> Result<c_int> {
        // SAFETY: the channel is alive as long as the connection.
        Ok(unsafe { channel_fd(self.shared_channel()?) })
    }

    fn shared_channel(&self) -> Result<*mut rdma_sys::ibv_comp_channel> {
        self.res.channel.as_ref().map(|channel| channel.as_ptr()).ok_or(Error::NotSharedChnl)
    }

    /// Waits for a completion event of either completion queue on the shared channel. Returns the queue,
    /// whether it is the receive completion queue, and whether it could be rearmed.
    pub fn wait(&self) -> Result<(&Cq, bool, Result<()>)> {
        let channel = self.shared_channel()?;
        // SAFETY: the channel is alive as long as the connection.
        unsafe { next_cq_event(self.api, channel, |queue| self.rearm(queue)) }
            .unwrap_or(Err(Error::NoCompletion))
    }

    /// Rearms the completion queue to which an event belongs.
    fn rearm(&self, queue: *mut ibv_cq) -> Result<(&Cq, bool, Result<()>)> {
        let (cq, is_rcq) = match self.rcq() {
            _ if queue == self.cq().as_ptr() => (self.cq(), false),
            Some(rcq) if queue == rcq.as_ptr() => (rcq, true),
            _ => {
                log_error!("completion event of unknown completion queue {queue:p}");
                // SAFETY: an event of this queue was just taken, so the queue is alive.
                unsafe { self.api.ibv_ack_cq_events(queue, 1) };
                return Err(Error::Unknown);
            }
        };
        Ok((cq, is_rcq, cq.rearm()))
    }
}

fn conn_param(pdata: Option<rpma_conn_private_data>) -> rdma_conn_param {
    let (private_data, private_data_len) =
        pdata.map_or((ptr::null(), 0), |pdata| (pdata.ptr.cast_const(), pdata.len));
    rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: MAX_DEPTH,
        initiator_depth: MAX_DEPTH,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_manager_event() {
        use rpma_conn_event::*;
        let expected = [
            (6, RPMA_CONN_LOST),
            (7, RPMA_CONN_UNREACHABLE),
            (8, RPMA_CONN_REJECTED),
            (9, RPMA_CONN_ESTABLISHED),
            (10, RPMA_CONN_CLOSED),
            (11, RPMA_CONN_LOST),
            (15, RPMA_CONN_CLOSED),
        ];
        for kind in 0..100 {
            let event = expected.iter().find(|(known, _)| *known == kind).map(|(_, event)| *event);
            assert_eq!(translate(kind), event, "{kind}");
        }
    }
}
