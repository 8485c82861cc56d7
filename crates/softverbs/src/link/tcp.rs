// SPDX-License-Identifier: BSD-3-Clause
//! A TCP socket as the link of a connection.
//!
//! The kernel reads and writes registered memory directly, under grants that are held during the system call.
//! It reports EFAULT for memory that is no longer mapped.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::driver::Driver;
use super::linger;
use crate::memory::{self, Grant};
use crate::progress::engine::Engine;
use crate::progress::liveness::{Liveness, LivenessCheck};
use crate::progress::watch::Watch;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use transport::access::{Access, Accessor, Denied, Unreachable};
use transport::direct::Part;
use transport::iwarp::link::LinkError;

/// Parts sent in one system call: those of 64 FPDUs.
pub(super) const MAX_PARTS: usize = 192;

pub(crate) struct Tcp {
    // Before the socket, which is closed after it.
    liveness: LivenessCheck,
    socket: Socket,
    token: u64,
    watch: Arc<Watch>,
    engine: Arc<Engine>,
    /// The queue pair.
    accessor: Accessor,
    grants: Vec<Grant>,
    /// The send buffer of the socket was full; the watch reports when it has room.
    awaits_room: bool,
}

/// The local memory of parts, for one system call.
pub(super) type Pieces = ArrayVec<libc::iovec, MAX_PARTS>;

/// Adds the first parts to `pieces`, as many as fit, and the grants of those in registered memory to
/// `grants`. On error no grant is left.
pub(super) fn gather<const N: usize>(
    pieces: &mut ArrayVec<libc::iovec, N>,
    parts: &[Part<'_>],
    accessor: Accessor,
    grants: &mut Vec<Grant>,
) -> Result<(), LinkError> {
    for (i, part) in parts.iter().take(N - pieces.len()).enumerate() {
        match locate(part, accessor) {
            Ok((piece, grant)) => {
                pieces.push(piece);
                grants.extend(grant);
            }
            Err(denied) => {
                grants.clear();
                return Err(LinkError::Memory(i, Unreachable::Denied(denied)));
            }
        }
    }
    Ok(())
}

/// The local memory of a part, and its grant if it is registered memory.
#[inline(always)]
pub(super) fn locate(part: &Part<'_>, accessor: Accessor) -> Result<(libc::iovec, Option<Grant>), Denied> {
    Ok(match part {
        Part::Bytes(bytes) => {
            (libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }, None)
        }
        Part::Memory(access) => {
            let grant = memory::acquire(*access, accessor)?;
            (libc::iovec { iov_base: grant.addr() as *mut libc::c_void, iov_len: access.len }, Some(grant))
        }
    })
}

pub(super) fn link_error(e: Errno) -> LinkError {
    match e {
        libc::EAGAIN => LinkError::Blocked,
        libc::EFAULT => LinkError::Memory(0, Unreachable::Fault),
        e => LinkError::Broken(e),
    }
}

impl Tcp {
    /// Adds a connected socket to the watch.
    pub(crate) fn open(socket: Socket, driver: Driver) -> Result<Self, Errno> {
        let Driver { watch, engine, accessor, connection, .. } = driver;
        let as_weak = Arc::downgrade(&connection);
        let token = watch.add(&socket, connection)?;
        let liveness = Liveness::begin(&engine, &socket, as_weak);
        Ok(Self {
            liveness,
            socket,
            token,
            watch,
            engine,
            accessor,
            grants: Vec::with_capacity(MAX_PARTS),
            awaits_room: false,
        })
    }

    /// Sends as much of `parts` as the socket accepts. `boundary`: bytes sent later start a new TCP segment.
    pub(crate) fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        let mut pieces = Pieces::new();
        gather(&mut pieces, parts, self.accessor, &mut self.grants)?;
        let sent = sys::send_parts(&self.socket, &pieces, boundary);
        self.grants.clear();
        // After a partial send the socket is as full as before.
        let full = match sent {
            Err(libc::EAGAIN) => true,
            Ok(n) => self.awaits_room && n < pieces.iter().map(|piece| piece.iov_len).sum(),
            Err(_) => self.awaits_room,
        };
        if full != self.awaits_room {
            self.awaits_room = full;
            self.watch.await_room(&self.socket, self.token, full);
        }
        self.or_lost(sent)
    }

    /// If the peer's host is lost, a socket without bytes will never get any.
    fn or_lost(&self, result: Result<usize, Errno>) -> Result<usize, LinkError> {
        result
            .map_err(|e| if e == libc::EAGAIN && self.liveness.is_lost() { libc::ETIMEDOUT } else { e })
            .map_err(link_error)
    }

    /// Receives bytes; 0 is the end of the stream.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let received = sys::recv(&self.socket, into);
        self.or_lost(received)
    }

    /// As [`Tcp::receive`], but first into registered memory, then into `rest`.
    pub(crate) fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        let grant = memory::acquire(to, self.accessor)
            .map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        // SAFETY: `grant` permits writing the range `to` and is held until the call has returned.
        let received = unsafe { sys::recv_into(&self.socket, grant.addr(), to.len, rest) };
        drop(grant);
        self.or_lost(received)
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Closes the socket: with `Some`, after these bytes and the FIN have been sent ([`linger`]), else
    /// immediately.
    pub(crate) fn close(self, last: Option<&[u8]>) {
        let Self { liveness, socket, token, watch, engine, awaits_room, .. } = self;
        watch.remove(&socket, token, awaits_room);
        drop(liveness);
        if let Some(last) = last {
            linger::start(&engine, socket, last);
        }
    }
}
