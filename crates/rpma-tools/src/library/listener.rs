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
        // SAFETY: `raw` was returned by rpma_ep_listen and is shut down here alone.
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
        // SAFETY: the peer is alive, the strings are C strings, and `raw` is written to.
        let ret =
            unsafe { (library.functions.rpma_ep_listen)(peer.0.raw, addr.as_ptr(), port.as_ptr(), &mut raw) };
        library.check(ret)?;
        Ok(Self { peer: peer.clone(), raw })
    }

    /// The descriptor that is readable when there is a request.
    pub(crate) fn fd(&self) -> Result<RawFd, Failed> {
        let mut fd = -1;
        // SAFETY: the endpoint is alive, and `fd` is written to.
        let ret = unsafe { (self.peer.0.library.functions.rpma_ep_get_fd)(self.raw, &mut fd) };
        self.peer.0.library.check(ret)?;
        Ok(fd)
    }

    /// Accepts the next request with private data. `None`: there was none after all.
    pub(crate) fn accept(&self, private_data: &[u8]) -> Result<Option<Connection>, Failed> {
        self.next(None)?.map(|request| request.accept(private_data)).transpose()
    }

    /// The next request, with queues as configured or else of the default length. `None`: there was none
    /// after all.
    pub(crate) fn next(&self, config: Option<&Config>) -> Result<Option<Request>, Failed> {
        let library = self.peer.0.library;
        let config = config.map_or(ptr::null(), |config| config.raw().cast_const());
        let mut raw = ptr::null_mut();
        // SAFETY: the endpoint is alive, and so is the configuration; NULL is the default one; `raw` is
        // written to.
        match unsafe { (library.functions.rpma_ep_next_conn_req)(self.raw, config, &mut raw) } {
            RPMA_E_NO_EVENT => Ok(None),
            ret => library.check(ret).map(|()| Some(Request { peer: self.peer.clone(), raw })),
        }
    }
}

/// A `struct rpma_conn_req` of a peer that connects. It is rejected if it is not accepted.
pub(crate) struct Request {
    peer: Peer,
    raw: *mut c_void,
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_ep_next_conn_req and is deleted here alone; NULL, which
        // accepting leaves, is left alone.
        unsafe { (self.peer.0.library.functions.rpma_conn_req_delete)(&mut self.raw) };
    }
}

impl Request {
    /// What the other side sent with it; the transport may have added zeros.
    pub(crate) fn private_data(&self) -> Result<Vec<u8>, Failed> {
        let library = self.peer.0.library;
        let mut data = PrivateData::NONE;
        // SAFETY: the request is alive, and `data` is written to.
        library.check(unsafe { (library.functions.rpma_conn_req_get_private_data)(self.raw, &mut data) })?;
        // SAFETY: rpma_conn_req_get_private_data gives the address and the length of bytes that live as long
        // as the request.
        Ok(unsafe { data.copied() })
    }

    /// Posts a receive, so that it is there for the first message; the memory must live until its completion,
    /// or the connection's end.
    pub(crate) fn receive(&self, range: Range<'_>, context: u64) -> Result<(), Failed> {
        let library = self.peer.0.library;
        // SAFETY: the request and the region are alive; the library checks nothing but the length, and the
        // device checks the range.
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

    /// rpma_conn_req_connect(3), which takes the request whatever comes of it.
    pub(crate) fn accept(mut self, private_data: &[u8]) -> Result<Connection, Failed> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        self.peer.complete(raw, private_data)
    }
}
