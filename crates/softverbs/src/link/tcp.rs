// SPDX-License-Identifier: BSD-3-Clause
//! A TCP socket as the link of a connection.
//!
//! The kernel reads and writes registered memory itself, under grants that are held for the one call; where there is no memory any more it
//! answers EFAULT.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::linger;
use crate::access::{Access, Unreachable};
use crate::conn::host::{LinkError, Part};
use crate::memory::{self, Grant};
use crate::progress::Driven;
use crate::progress::engine::Engine;
use crate::progress::watch::Watch;
use crate::sys::{self, Errno};

/// Pieces sent in one call: those of 32 FPDUs.
const MAX_PARTS: usize = 96;

pub(crate) struct Tcp {
    socket: OwnedFd,
    token: u64,
    watch: Arc<Watch>,
    engine: Arc<Engine>,
    /// The protection domain that accesses to memory are made for.
    pd: u32,
    grants: Vec<Grant>,
    /// The socket was full, and the watch says when it is not.
    awaits_room: bool,
}

fn link_error(e: Errno) -> LinkError {
    match e {
        libc::EAGAIN => LinkError::Blocked,
        libc::EFAULT => LinkError::Memory(0, Unreachable::Fault),
        e => LinkError::Broken(e),
    }
}

impl Tcp {
    /// Takes over a connected socket, which from now on drives `connection` when it has something.
    pub(crate) fn open(
        socket: OwnedFd,
        watch: Arc<Watch>,
        engine: Arc<Engine>,
        pd: u32,
        connection: Arc<dyn Driven>,
    ) -> Result<Self, Errno> {
        let token = watch.add(&socket, connection)?;
        Ok(Self {
            socket,
            token,
            watch,
            engine,
            pd,
            grants: Vec::with_capacity(MAX_PARTS),
            awaits_room: false,
        })
    }

    /// Sends what the socket takes.
    pub(crate) fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_PARTS];
        for (i, (piece, part)) in pieces.iter_mut().zip(parts).enumerate() {
            *piece = match part {
                Part::Bytes(bytes) => {
                    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
                }
                Part::Memory(access) => match memory::acquire(*access, self.pd) {
                    Ok(grant) => {
                        self.grants.push(grant);
                        libc::iovec { iov_base: access.addr as *mut libc::c_void, iov_len: access.len }
                    }
                    Err(denied) => {
                        self.grants.clear();
                        return Err(LinkError::Memory(i, Unreachable::Denied(denied)));
                    }
                },
            };
        }
        let sent = sys::send_parts(&self.socket, &pieces[..parts.len().min(MAX_PARTS)], boundary);
        self.grants.clear();
        let full = sent == Err(libc::EAGAIN);
        if full != self.awaits_room {
            self.awaits_room = full;
            self.watch.await_room(&self.socket, self.token, full);
        }
        sent.map_err(link_error)
    }

    /// Takes what the socket has; 0 is the end of the stream.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        sys::recv(&self.socket, into).map_err(link_error)
    }

    /// As [`Tcp::receive`], first into registered memory.
    pub(crate) fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        let grant = memory::acquire(to, self.pd)
            .map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        // SAFETY: the grant allows writing the range and outlives the call.
        let received = unsafe { sys::recv_into(&self.socket, to.addr, to.len, rest) };
        drop(grant);
        received.map_err(link_error)
    }

    /// Lets go of the socket. `Some`: these bytes still go out, then the end of the stream.
    pub(crate) fn close(self, last: Option<&[u8]>) {
        self.watch.remove(&self.socket, self.token);
        if let Some(last) = last {
            linger::start(&self.engine, self.socket, last);
        }
    }
}
