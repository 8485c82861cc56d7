// SPDX-License-Identifier: BSD-3-Clause
//! The connection of rpma-core: work requests, completions and events.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use rdma_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, wc_status_text};
use rpma_core::abi::{RPMA_F_COMPLETION_ALWAYS, rpma_conn_event, rpma_conn_private_data, rpma_flush_type};
use rpma_core::conn::Conn;
use rpma_core::error::Error as Code;
use rpma_core::failure::Fail;
use rpma_core::mr::MrLocal;
use rpma_core::peer_cfg::PeerCfg;
use rpma_core::post::{self, At};

use crate::buf::Buf;
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};
use crate::remote::Flush;
use crate::table::Arrived;
use crate::work::{self, Kept, Request, Single};

/// A completion: the slot of its operation, and the result or the status.
pub(crate) struct Completion {
    pub slot: u32,
    pub result: std::result::Result<Arrived, ibv_wc_status::Type>,
}

/// Room for completions, the same for all polls: it is cleared once.
pub(crate) struct Entries(Box<[MaybeUninit<ibv_wc>; Self::LEN]>);

impl Entries {
    pub(crate) const LEN: usize = 16;

    /// A completion that [`Link::poll`] has taken.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Completion {
        // SAFETY: all zero is a valid completion, and the provider writes only valid ones; an adapter need
        // not write all members.
        completion(unsafe { self.0[index].assume_init_ref() })
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self(Box::new([const { MaybeUninit::zeroed() }; Self::LEN]))
    }
}

/// The connection of rpma-core, made non-blocking.
pub(crate) struct Link {
    conn: ManuallyDrop<Box<Conn>>,
    /// What posted requests own when the connection is dropped.
    pub(crate) posted: Vec<Kept>,
}

// SAFETY: its objects are those of verbs, which all threads may use at once; the fields that change are
// atomic.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

#[inline(always)]
fn local(buf: &Buf) -> At<'_, MrLocal> {
    At { mr: Some(buf.home().region().mr()), offset: buf.offset() }
}

impl Link {
    pub(crate) fn new(conn: Box<Conn>) -> Result<Self> {
        let this = Self { conn: ManuallyDrop::new(conn), posted: Vec::new() };
        // Whether memory may be flushed to persistence is checked for each region: `Remote` knows.
        let cfg = PeerCfg::from_descriptor(&[1]).map_err(|code| Error::of("a connection", code))?;
        this.conn.apply_remote_peer_cfg(&cfg);
        for fd in this.fds() {
            rustix::io::ioctl_fionbio(fd, true)
                .map_err(|errno| Error::new(ErrorKind::Provider, format_args!("FIONBIO failed: {errno}")))?;
        }
        Ok(this)
    }

    /// Sends the request, or accepts it if it is `incoming`.
    pub(crate) fn begin(&mut self, call: &str, incoming: bool, data: &[u8]) -> Result<()> {
        let len = u8::try_from(data.len()).map_err(|_| {
            Error::new(
                ErrorKind::Invalid,
                format_args!("{call}: {} bytes of private data; 255 fit", data.len()),
            )
        })?;
        let data = (len > 0).then(|| rpma_conn_private_data { ptr: data.as_ptr().cast_mut().cast(), len });
        // SAFETY: the private data are readable during the call.
        unsafe { self.conn.begin(incoming, data) }.map_err(|code| Error::of(call, code))
    }

    /// The descriptors of completions and of events.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.raw_fds().map(|fd| {
            // SAFETY: both are open as long as the connection.
            unsafe { BorrowedFd::borrow_raw(fd) }
        })
    }

    pub(crate) fn raw_fds(&self) -> [RawFd; 2] {
        [self.conn.cq().fd(), self.conn.event_fd()]
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.peer_addr()
    }

    /// The private data of the peer.
    pub(crate) fn private_data(&self) -> Vec<u8> {
        // SAFETY: the bytes are valid as long as the connection, and are not written.
        unsafe { bytes_of(self.conn.private_data()) }.to_vec()
    }

    /// Posts one request. True: the call has executed it, and there is no completion. Otherwise what it owns
    /// must be kept until its completion has come, or this object is dropped.
    #[inline(always)]
    pub(crate) fn post<R: Post>(&self, request: &R, slot: u32) -> Result<bool> {
        let context = ptr::without_provenance(slot as usize);
        request.post(&self.conn, context).map_err(|fail| self.not_posted(R::CALL, fail))
    }

    /// The same for a request of any kind.
    pub(crate) fn post_any(&self, request: &Request, slot: u32) -> Result<bool> {
        match request {
            Request::Read(one) => self.post(one, slot),
            Request::Write(one) => self.post(one, slot),
            Request::Send(one) => self.post(one, slot),
            Request::Receive(one) => self.post(one, slot),
            Request::Flush(one) => self.post(one, slot),
            Request::Store(one) => self.post(one, slot),
        }
    }

    #[cold]
    fn not_posted(&self, call: Call, fail: Fail) -> Error {
        Error::of(name_of(self.peer_addr(), call.name()), Code::from(fail))
    }

    /// Takes the completions that are there, at most [`Entries::LEN`]; their number.
    #[inline(always)]
    pub(crate) fn poll(&self, entries: &mut Entries) -> Result<usize> {
        // SAFETY: the buffer has room for this number of completions.
        match unsafe { self.conn.cq().poll(Entries::LEN as i32, entries.0.as_mut_ptr().cast()) } {
            Ok(count) => Ok(count as usize),
            Err(Code::NoCompletion) => Ok(0),
            Err(code) => Err(not_polled(code)),
        }
    }

    /// Takes a completion event and arms the queue again; whether there was one.
    pub(crate) fn take_completion_event(&self) -> Result<bool> {
        match self.conn.cq().wait() {
            Ok(()) => Ok(true),
            Err(Code::NoCompletion) => Ok(false),
            Err(code) => Err(Error::of("waiting for completions", code)),
        }
    }

    /// The next event, if there is one.
    pub(crate) fn next_event(&self) -> Result<Option<(rpma_conn_event, String)>> {
        loop {
            match self.conn.next_event() {
                Ok(event) => return Ok(Some((event, reason_of_event()))),
                Err(Code::NoEvent) => return Ok(None),
                // It is acknowledged, and does not end the connection: RDMA_CM_EVENT_ADDR_CHANGE, when
                // another port of a bond becomes active.
                Err(Code::Unknown) => {}
                Err(code) => return Err(Error::of("the connection", code)),
            }
        }
    }

    /// How the connection ended, and whether that was a failure, that is, neither side closed it. A device
    /// does not say.
    pub(crate) fn ending(&self) -> Option<(String, bool)> {
        let mut ending = None;
        self.conn.ending(&mut |text, is_failure| ending = Some((text.to_owned(), is_failure)));
        ending
    }

    pub(crate) fn disconnect(&self) -> Result<()> {
        self.conn.disconnect().map_err(|code| Error::of("Conn::close", code))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: taken once, here; nothing uses the field after it.
        let conn = unsafe { ManuallyDrop::take(&mut self.conn) };
        if conn.close().is_err() {
            // The queue pair may still exist: a completion queue that is in use cannot be destroyed. So the
            // device may still access the buffers.
            std::mem::forget(std::mem::take(&mut self.posted));
        }
    }
}

/// How a request is posted.
pub(crate) trait Post: Single {
    /// Posts it with this `wr_id`. True: the call has executed it, and there is no completion.
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool>;
}

const FLAGS: c_int = RPMA_F_COMPLETION_ALWAYS;

impl Post for work::Read {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        let (from, offset) = (*self.from.mr(), self.from.offset());
        let from = At { mr: Some(&from), offset };
        post::read_at_once(conn, local(&self.to), from, self.to.len(), context)
    }
}

impl Post for work::Write {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        // A copy, so that no function but the rare ones needs the request in memory.
        let (to, offset) = (*self.to.mr(), self.to.offset());
        let to = At { mr: Some(&to), offset };
        let (from, len) = (local(&self.from), self.from.len());
        match self.imm {
            None => post::write_at_once(conn, to, from, len, context),
            imm => post::write(conn, to, from, len, FLAGS, imm, context).map(|()| false),
        }
    }
}

impl Post for work::Send {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        post::send(conn, local(&self.from), self.from.len(), FLAGS, self.imm, context).map(|()| false)
    }
}

impl Post for work::Receive {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        post::recv(conn, local(&self.to), self.to.len(), context).map(|()| false)
    }
}

impl Post for work::Flush {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        let how = match self.how {
            Flush::Visible => rpma_flush_type::RPMA_FLUSH_TYPE_VISIBILITY,
            Flush::Persistent => rpma_flush_type::RPMA_FLUSH_TYPE_PERSISTENT,
        };
        let (offset, len) = self.range.flushed();
        post::flush_at_once(conn, self.range.mr(), offset, len, how as _, context)
    }
}

impl Post for work::Store {
    #[inline(always)]
    fn post(&self, conn: &Conn, context: *const c_void) -> post::Result<bool> {
        let from = ptr::from_ref(&self.value).cast();
        // SAFETY: the value is readable for its 8 bytes, which are copied before the call returns.
        unsafe { post::atomic_write_at_once(conn, self.to.mr(), self.to.offset(), from, context) }
    }
}

/// The text that an event left for `rpma_err_last`, without the function, which is one in C.
fn reason_of_event() -> String {
    let text = rpma_core::failure::last();
    // SAFETY: a terminated text of this thread, which only a later failure of the thread changes.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
    text.strip_prefix("rpma_conn_next_event: ").unwrap_or(&text).to_owned()
}

#[cold]
fn not_polled(code: Code) -> Error {
    Error::of("polling completions", code)
}

#[inline(always)]
fn completion(entry: &ibv_wc) -> Completion {
    let result = if entry.status == ibv_wc_status::IBV_WC_SUCCESS {
        let has_imm = entry.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: a number of either kind, initialised by the provider.
        let imm = has_imm.then(|| u32::from_be(unsafe { entry.__bindgen_anon_1.imm_data }));
        let is_write = entry.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        Ok(Arrived { len: entry.byte_len, imm, is_write })
    } else {
        Err(entry.status)
    };
    Completion { slot: entry.wr_id as u32, result }
}

/// The failure of an operation whose completion has this status.
pub(crate) fn failure(peer: Option<SocketAddr>, call: &str, status: ibv_wc_status::Type) -> Error {
    let kind = match status {
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR => ErrorKind::Lost,
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => ErrorKind::NotPermitted,
        other => ErrorKind::Status(other),
    };
    Error::new(kind, format_args!("{}: {}", name_of(peer, call), wc_status_text(status)))
}

/// A call with its peer, as errors begin.
pub(crate) fn name_of(peer: Option<SocketAddr>, call: &str) -> String {
    peer.map_or_else(|| format!("Conn::{call}"), |peer| format!("{peer}: Conn::{call}"))
}

/// The bytes of private data.
///
/// # Safety
/// Unless it is NULL, `view.ptr` must be valid for `view.len` bytes, which are not written as long as `view`
/// is borrowed.
pub(crate) unsafe fn bytes_of(view: &rpma_conn_private_data) -> &[u8] {
    if view.ptr.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(view.ptr.cast::<u8>(), view.len.into()) }
}

#[cfg(all(test, feature = "soft"))]
mod tests;
