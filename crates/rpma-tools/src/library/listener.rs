// SPDX-License-Identifier: BSD-3-Clause
//! A listening endpoint and its connection requests.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use super::{Config, Connection, Failed, Peer, PrivateData, Range};

const RPMA_E_NO_EVENT: c_int = -100_006;

/// A `struct rpma_ep`.
pub(crate) struct Listener {
    peer: Peer,
    raw: *mut c_void,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_ep_listen and is shut down only here.
        unsafe { (self.peer.0.library.functions.rpma_ep_shutdown)(&mut self.raw) };
    }
}

impl Listener {
    /// rpma_ep_listen(3).
    pub(crate) fn new(peer: &Peer, addr: &str, port: u16) -> Result<Self, Failed> {
        let library = peer.0.library;
        let addr = CString::new(addr).map_err(|_| "the address has a NUL byte".to_owned())?;
        let port = CString::new(port.to_string()).map_err(|why| why.to_string())?;
        let mut raw = ptr::null_mut();
        // SAFETY: the peer is alive, the strings are C strings, and `raw` is writable.
        let ret =
            unsafe { (library.functions.rpma_ep_listen)(peer.0.raw, addr.as_ptr(), port.as_ptr(), &mut raw) };
        library.check(ret)?;
        Ok(Self { peer: peer.clone(), raw })
    }

    /// The descriptor that becomes readable when a request is pending.
    pub(crate) fn fd(&self) -> Result<RawFd, Failed> {
        let mut fd = -1;
        // SAFETY: the endpoint is alive, and `fd` is writable.
        let ret = unsafe { (self.peer.0.library.functions.rpma_ep_get_fd)(self.raw, &mut fd) };
        self.peer.0.library.check(ret)?;
        Ok(fd)
    }

    /// Accepts the next request with private data. `None`: no request was pending.
    pub(crate) fn accept(&self, private_data: &[u8]) -> Result<Option<Connection>, Failed> {
        self.next(None)?.map(|request| request.accept(private_data)).transpose()
    }

    /// The next request, with the given configuration or the default one. `None`: no request was pending.
    pub(crate) fn next(&self, config: Option<&Config>) -> Result<Option<Request>, Failed> {
        let library = self.peer.0.library;
        let config = config.map_or(ptr::null(), |config| config.raw().cast_const());
        let mut raw = ptr::null_mut();
        // SAFETY: the endpoint is alive, and so is the configuration; NULL selects the default one; `raw` is
        // writable.
        match unsafe { (library.functions.rpma_ep_next_conn_req)(self.raw, config, &mut raw) } {
            RPMA_E_NO_EVENT => Ok(None),
            ret => library.check(ret).map(|()| Some(Request { peer: self.peer.clone(), raw })),
        }
    }
}

/// A `struct rpma_conn_req` of an incoming connection, rejected on drop unless it was accepted.
pub(crate) struct Request {
    peer: Peer,
    raw: *mut c_void,
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_ep_next_conn_req and is deleted only here; it is NULL after the
        // request was accepted, and the call ignores NULL.
        unsafe { (self.peer.0.library.functions.rpma_conn_req_delete)(&mut self.raw) };
    }
}

impl Request {
    /// The private data of the request; the transport may have padded them with zeros.
    pub(crate) fn private_data(&self) -> Result<Vec<u8>, Failed> {
        let library = self.peer.0.library;
        let mut data = PrivateData::NONE;
        // SAFETY: the request is alive, and `data` is writable.
        library.check(unsafe { (library.functions.rpma_conn_req_get_private_data)(self.raw, &mut data) })?;
        // SAFETY: rpma_conn_req_get_private_data returned the address and length of bytes that live as long
        // as the request.
        Ok(unsafe { data.copied() })
    }

    /// Posts a receive in time for the first message; the memory must live until its completion, or the
    /// connection's end.
    pub(crate) fn receive(&self, range: Range<'_>, context: u64) -> Result<(), Failed> {
        let library = self.peer.0.library;
        // SAFETY: the request and the region are alive; the library checks only the length, and the device
        // checks the range.
        library.check(unsafe {
            (library.functions.rpma_conn_req_recv)(
                self.raw,
                range.memory.raw(),
                range.offset,
                range.len,
                ptr::without_provenance(context as usize),
            )
        })
    }

    /// rpma_conn_req_connect(3), which consumes the request even on failure.
    pub(crate) fn accept(mut self, private_data: &[u8]) -> Result<Connection, Failed> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        self.peer.complete(raw, private_data)
    }
}
