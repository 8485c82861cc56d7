// SPDX-License-Identifier: BSD-3-Clause
//! Owners of librpma's connections: dropping one deletes its object, in the order that librpma requires.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::time::{Duration, Instant};

use super::peer::{Peer, PeerHandle};
use super::{Config, Failed, Library, Memory, RemoteMemory};
use crate::interrupt::{self, Wake};

/// A connection event of librpma.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Established,
    Closed,
    Lost,
    Rejected,
    Unreachable,
    Unknown,
}

impl From<c_int> for Event {
    fn from(number: c_int) -> Self {
        match number {
            0 => Self::Established,
            1 => Self::Closed,
            2 => Self::Lost,
            3 => Self::Rejected,
            4 => Self::Unreachable,
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Established => "the connection is established",
            Self::Closed => "the other side has closed the connection",
            Self::Lost => "the connection is lost",
            Self::Rejected => "the connection is rejected",
            Self::Unreachable => "the other side cannot be reached",
            Self::Unknown => "an unknown event",
        })
    }
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Completion {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    vendor_err: u32,
    pub(super) byte_len: u32,
    /// In network byte order.
    pub(super) imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    pub(super) wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// How long to poll for a completion before sleeping, so that the latency of a fast answer does not include a
/// wake-up.
const SPIN: Duration = Duration::from_micros(100);
pub(super) const RPMA_E_NO_COMPLETION: c_int = -100_005;
pub(super) const RPMA_F_COMPLETION_ALWAYS: c_int = 3;

/// `struct rpma_conn_private_data`.
#[repr(C)]
pub(super) struct PrivateData {
    ptr: *mut c_void,
    len: u8,
}

impl PrivateData {
    pub(super) const NONE: Self = Self { ptr: ptr::null_mut(), len: 0 };

    /// # Safety
    /// `ptr` must be NULL or point to `len` readable bytes.
    pub(super) unsafe fn copied(&self) -> Vec<u8> {
        if self.ptr.is_null() {
            return Vec::new();
        }
        let mut copy = vec![0; self.len.into()];
        // SAFETY: the caller guarantees `len` readable bytes at `ptr`, and the copy has room for them.
        unsafe { ptr::copy_nonoverlapping(self.ptr.cast::<u8>(), copy.as_mut_ptr(), copy.len()) };
        copy
    }
}

impl Peer {
    /// Sends a connection request with up to 255 bytes of private data. An event reports when the connection
    /// is established.
    pub(crate) fn connect(
        &self,
        addr: &str,
        port: u16,
        timeout: Duration,
        private_data: &[u8],
    ) -> Result<Connection, Failed> {
        self.connect_with(&Config::new(self.0.library, timeout)?, addr, port, private_data)
    }

    /// Same as `connect` with a connection configuration.
    pub(crate) fn connect_with(
        &self,
        config: &Config,
        addr: &str,
        port: u16,
        private_data: &[u8],
    ) -> Result<Connection, Failed> {
        let PeerHandle { library, raw } = *self.0;
        let addr = CString::new(addr).map_err(|_| "the address has a NUL byte".to_owned())?;
        let port = CString::new(port.to_string()).map_err(|why| why.to_string())?;
        let mut request = ptr::null_mut();
        // SAFETY: the peer and the configuration are alive; the strings are C strings, and the request is
        // writable.
        library.check(unsafe {
            (library.functions.rpma_conn_req_new)(
                raw,
                addr.as_ptr(),
                port.as_ptr(),
                config.raw(),
                &mut request,
            )
        })?;
        self.complete(request, private_data)
    }

    /// rpma_conn_req_connect(3), which consumes the request even on failure.
    pub(super) fn complete(
        &self,
        mut request: *mut c_void,
        private_data: &[u8],
    ) -> Result<Connection, Failed> {
        let library = self.0.library;
        let len =
            u8::try_from(private_data.len()).map_err(|_| "more than 255 bytes of private data".to_owned())?;
        let data = PrivateData { ptr: private_data.as_ptr().cast_mut().cast(), len };
        let data = if len == 0 { ptr::null() } else { &raw const data };
        let mut raw = ptr::null_mut();
        // SAFETY: the request was returned by librpma for this peer and is consumed here; the private data
        // are copied before the call returns; `raw` is writable.
        library.check(unsafe { (library.functions.rpma_conn_req_connect)(&mut request, data, &mut raw) })?;
        Ok(Connection { peer: self.clone(), raw })
    }
}

/// A `struct rpma_conn`.
pub(crate) struct Connection {
    peer: Peer,
    pub(super) raw: *mut c_void,
}

// SAFETY: another thread than the one that created a connection may use and delete it (THREADS of librpma.h).
unsafe impl Send for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_conn_req_connect and is deleted only here.
        unsafe { (self.library().functions.rpma_conn_delete)(&mut self.raw) };
    }
}

impl Connection {
    pub(super) fn library(&self) -> &'static Library {
        self.peer.0.library
    }

    /// The descriptor that becomes readable when an event is pending.
    pub(crate) fn event_fd(&self) -> Result<RawFd, Failed> {
        let mut fd = -1;
        // SAFETY: the connection is alive, and `fd` is writable.
        let ret = unsafe { (self.library().functions.rpma_conn_get_event_fd)(self.raw, &mut fd) };
        self.library().check(ret)?;
        Ok(fd)
    }

    /// rpma_conn_next_event(3). `None`: the time expired, or the wait was interrupted.
    pub(crate) fn next_event(&self, until: Instant) -> Result<Option<Event>, Failed> {
        let fd = self.event_fd()?;
        match interrupt::wait(&[fd], Some(until)).map_err(|why| why.to_string())? {
            Wake::Timeout | Wake::Interrupted => return Ok(None),
            Wake::Ready => {}
        }
        let mut event = 0;
        // SAFETY: the connection is alive, and `event` is writable.
        let ret = unsafe { (self.library().functions.rpma_conn_next_event)(self.raw, &mut event) };
        self.library().check(ret)?;
        Ok(Some(event.into()))
    }

    /// The private data that the other side sent with its answer.
    pub(crate) fn private_data(&self) -> Result<Vec<u8>, Failed> {
        let mut data = PrivateData::NONE;
        // SAFETY: the connection is alive, and `data` is writable.
        let ret = unsafe { (self.library().functions.rpma_conn_get_private_data)(self.raw, &mut data) };
        self.library().check(ret)?;
        // SAFETY: rpma_conn_get_private_data returned the address and length of bytes that live as long as
        // the connection.
        Ok(unsafe { data.copied() })
    }

    /// Reads `len` bytes from the beginning of `from` to that of `to`; both must live until the completion,
    /// or the connection's end.
    pub(crate) fn post_read(&self, to: &Memory, from: &RemoteMemory, len: usize) -> Result<(), Failed> {
        // SAFETY: the connection and both regions are alive; the library checks the ranges against the
        // regions.
        let ret = unsafe {
            (self.library().functions.rpma_read)(
                self.raw,
                to.raw(),
                0,
                from.raw(),
                0,
                len,
                RPMA_F_COMPLETION_ALWAYS,
                ptr::null(),
            )
        };
        self.library().check(ret)
    }

    /// Waits for the next completion; an error if its request failed. `None`: the time expired, or the wait
    /// was interrupted.
    pub(crate) fn completion(&self, until: Instant) -> Result<Option<()>, Failed> {
        let library = self.library();
        let (mut cq, mut fd) = (ptr::null_mut(), -1);
        // SAFETY: the connection is alive, and `cq` and `fd` are writable; the queue lives as long as the
        // connection.
        unsafe {
            library.check((library.functions.rpma_conn_get_cq)(self.raw, &mut cq))?;
            library.check((library.functions.rpma_cq_get_fd)(cq, &mut fd))?;
        }
        let sleep = until.min(Instant::now() + SPIN);
        loop {
            let (mut completion, mut got) = (Completion::default(), 0);
            // SAFETY: the queue is alive, and there is room for one completion.
            match unsafe { (library.functions.rpma_cq_get_wc)(cq, 1, &mut completion, &mut got) } {
                0 if completion.status == 0 => return Ok(Some(())),
                0 => return Err(format!("the request failed: {}", status_name(completion.status))),
                RPMA_E_NO_COMPLETION => {}
                other => library.check(other)?,
            }
            if Instant::now() < sleep {
                std::hint::spin_loop();
                continue;
            }
            match interrupt::wait(&[fd], Some(until)).map_err(|why| why.to_string())? {
                Wake::Timeout | Wake::Interrupted => return Ok(None),
                // SAFETY: the queue is alive. An event is pending, so the call does not block.
                Wake::Ready => library.check(unsafe { (library.functions.rpma_cq_wait)(cq) })?,
            }
        }
    }

    /// rpma_conn_disconnect(3). Its result is ignored, because the connection is not used any more.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the connection is alive.
        unsafe { (self.library().functions.rpma_conn_disconnect)(self.raw) };
    }
}

/// The names of the most frequent completion statuses of verbs.h.
pub(super) fn status_name(status: u32) -> String {
    match status {
        5 => "IBV_WC_WR_FLUSH_ERR, the connection has ended".to_owned(),
        9 => "IBV_WC_REM_INV_REQ_ERR, the other side refuses the request".to_owned(),
        10 => "IBV_WC_REM_ACCESS_ERR, the other side refuses the access".to_owned(),
        12 => "IBV_WC_RETRY_EXC_ERR, the other side does not answer".to_owned(),
        other => format!("status {other} of ibv_poll_cq"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_verbs() {
        assert_eq!((size_of::<Completion>(), std::mem::offset_of!(Completion, status)), (48, 8));
        assert_eq!(size_of::<PrivateData>(), 16);
    }
}
