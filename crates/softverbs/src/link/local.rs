// SPDX-License-Identifier: BSD-3-Clause
//! The link of a connection whose two ends are on one host: its bytes go through rings in shared memory.
//!
//! The TCP connection stays open. It shows that the peer exists, and it carries the end: its bytes come after
//! all bytes of the ring. So an end that closes sends its final bytes over TCP, whether or not the ring has
//! room, and bytes that a killed peer had put into the ring are still delivered. Only the engine watches the
//! socket, since nothing arrives there before the end. Peer liveness ([`crate::progress::liveness`]) is not
//! checked, as the peer is on this host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;

use super::ahead::Ahead;
use super::direct::{self, DirectCopy};
use super::driver::Driver;
use super::linger;
use super::process::{MOST, RESERVED};
use super::ring::Rings;
use super::shared::{SIZE, Shared};
use super::tcp::{MAX_PARTS, Pieces, gather, link_error, locate};
use crate::instrument::Instruments;
use crate::memory::{self, Grant};
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::watch::{PeerNotify, Watch};
use crate::progress::{By, Driven};
use crate::socket::Socket;
use crate::sys::{self, Errno};
use rpma_metrics::Copies;
use transport::access::{Access, Accessor, Unreachable};
use transport::direct::{MAX_LOCAL_PARTS, Part, WordAccess, ranges};
use transport::host::Served;
use transport::iwarp::link::LinkError;
use transport::step::reason;
use transport::wr::SendWr;

/// The epoll events when the peer has closed the socket or sends its final bytes.
const END: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// Those of a notify socket, when the peer has closed it.
const CLOSED: u32 = (libc::EPOLLRDHUP | libc::EPOLLET) as u32;

/// Shared memory that this end has created for a connection.
pub(crate) struct Mine(Shared);

impl Mine {
    pub(crate) fn create() -> Result<Self, Errno> {
        let shared = Shared::create()?;
        direct::proof().inspect(|proof| shared.show(0, *proof));
        Ok(Self(shared))
    }

    /// The descriptor to pass to the peer.
    pub(crate) fn file(&self) -> &Socket {
        self.0.file()
    }

    /// The peer has accepted the memory; `notify` is the Unix socket to the peer.
    pub(crate) fn share(self, notify: Socket) -> Rings {
        Rings::new(self.0, notify, true)
    }
}

/// Shared memory that the peer has created.
pub(crate) struct Theirs(Shared);

impl Theirs {
    /// Maps the peer's memory. EINVAL if the file is not what [`Mine`] creates.
    pub(crate) fn adopt(file: Socket) -> Result<Self, Errno> {
        let shared = Shared::adopt(file)?;
        direct::proof().inspect(|proof| shared.show(1, *proof));
        Ok(Self(shared))
    }

    /// As [`Mine::share`].
    pub(crate) fn share(self, notify: Socket) -> Rings {
        Rings::new(self.0, notify, false)
    }
}

/// Receives the event that the peer has closed the socket, on the engine thread.
struct End {
    connection: Weak<dyn Driven>,
    has_come: AtomicBool,
}

impl Source for End {
    fn ready(self: Arc<Self>, _events: u32) {
        self.has_come.store(true, Ordering::Release);
        if let Some(connection) = self.connection.upgrade() {
            connection.drive(reason::READABLE | reason::WRITABLE | reason::HANGUP, By::Engine);
        }
    }
}

pub(crate) struct Local {
    /// The TCP connection; of RoCE, which has none, the notify socket.
    socket: Socket,
    end: Arc<End>,
    end_token: u64,
    pub(super) rings: Arc<Rings>,
    token: u64,
    watch: Arc<Watch>,
    engine: Arc<Engine>,
    /// The queue pair.
    pub(super) accessor: Accessor,
    pub(super) grants: Vec<Grant>,
    direct: Option<DirectCopy>,
    /// Whether the last bytes were copied, to the ring or directly, without a system call.
    needed_no_call: bool,
    /// The length of the front part of the ring whose pages have been written to.
    pub(super) written: usize,
    /// Of packets: payload that was written before its headers.
    pub(super) ahead: Ahead,
    instruments: Instruments,
    /// A direct copy requires that the peer has acted on all that is in the ring. Over RoCE it has
    /// acknowledged that.
    is_stream: bool,
}

impl Local {
    /// Adds the notify socket of `rings` to the watch, and the TCP socket to the engine.
    pub(super) fn open(socket: Socket, rings: Rings, driver: Driver) -> Result<Self, Errno> {
        Self::open_until((socket, END), rings, driver)
    }

    /// Opens a link for packets, whose end is that of the notify socket.
    pub(super) fn open_for_packets(rings: Rings, driver: Driver) -> Result<Self, Errno> {
        let end = (rings.notify_socket().duplicate()?, CLOSED);
        let opened = Self::open_until(end, rings, driver)?;
        Ok(Self { is_stream: false, ..opened })
    }

    /// The link ends with these events of `socket`.
    fn open_until((socket, events): (Socket, u32), rings: Rings, driver: Driver) -> Result<Self, Errno> {
        use std::os::fd::AsRawFd;
        let Driver { watch, engine, accessor, connection, instruments } = driver;
        let rings = Arc::new(rings);
        let end = Arc::new(End { connection: Arc::downgrade(&connection), has_come: AtomicBool::new(false) });
        let token = watch.add_ring(rings.notify_socket(), rings.clone(), connection)?;
        let end_token = engine.token();
        engine
            .add(end_token, socket.as_raw_fd(), events, end.clone())
            .inspect_err(|_| watch.remove_ring(rings.notify_socket(), token))?;
        let grants = Vec::with_capacity(MAX_PARTS);
        let direct = DirectCopy::open(&rings);
        let (written, is_stream) = (0, true);
        instruments.shares(direct.is_some(), || Arc::downgrade(&rings) as Weak<dyn Copies>);
        Ok(Self {
            socket,
            end,
            end_token,
            rings,
            token,
            watch,
            engine,
            accessor,
            grants,
            direct,
            needed_no_call: false,
            written,
            ahead: Ahead::default(),
            instruments,
            is_stream,
        })
    }

    pub(super) fn peer_notify(&self) -> Weak<dyn PeerNotify> {
        let rings: Arc<dyn PeerNotify> = self.rings.clone();
        Arc::downgrade(&rings)
    }

    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.end.has_come.load(Ordering::Acquire)
    }

    pub(super) fn notify_requested(&self) -> bool {
        self.watch.notify_requested()
    }

    /// Whether the last bytes were copied, to the ring or directly, without a system call.
    #[inline]
    pub(crate) fn needed_no_call(&self) -> bool {
        self.needed_no_call
    }

    /// Puts as much of `parts` into the ring as fits.
    pub(super) fn send(&mut self, parts: &[Part<'_>]) -> Result<usize, LinkError> {
        if self.rings.is_left_behind() {
            return Err(LinkError::Broken(libc::ENOTCONN));
        }
        let room = self.rings.room(1, || self.notify_requested()).map_err(LinkError::Broken)?;
        if room == 0 {
            return Err(LinkError::Blocked);
        }
        let mut pieces = Pieces::new();
        gather(&mut pieces, parts, self.accessor, &mut self.grants)?;
        let mut room = Shared::contiguous(self.rings.target().1, room);
        let mut used = 0;
        for piece in &mut pieces {
            if room == 0 {
                break;
            }
            piece.iov_len = piece.iov_len.min(room);
            room -= piece.iov_len;
            used += 1;
        }
        let n = self.write(&pieces[..used]).map_err(link_error)?;
        self.put(n).map(|()| n)
    }

    /// Puts bytes that were written into the ring.
    pub(super) fn put(&mut self, n: usize) -> Result<(), LinkError> {
        let notified = self.rings.put(n).map_err(LinkError::Broken)?;
        self.needed_no_call &= !notified;
        Ok(())
    }

    /// Writes what was gathered behind the bytes of the ring, where there must be contiguous room: with loads
    /// and stores if none can fault, else by [`Shared::write`]. The grants are released.
    pub(super) fn write(&mut self, pieces: &[libc::iovec]) -> Result<usize, Errno> {
        let (ring, at) = self.rings.target();
        let first = (at % SIZE as u64) as usize;
        let end = first + pieces.iter().map(|piece| piece.iov_len).sum::<usize>();
        self.needed_no_call = end <= self.written && self.grants.iter().all(Grant::is_backed);
        let written = if self.needed_no_call {
            let mut to = at;
            for piece in pieces {
                let (from, len) = (piece.iov_base.cast::<u8>(), piece.iov_len);
                // SAFETY: a piece is a slice, or memory for which there is a grant: it cannot fault.
                unsafe { self.rings.shared.copy_from(ring, to, from, len) };
                to += len as u64;
            }
            Ok(end - first)
        } else {
            self.rings.shared.write(ring, at, pieces)
        };
        self.grants.clear();
        let end = first + written?;
        self.written = self.written.max(end.next_multiple_of(4096).min(SIZE));
        Ok(end - first)
    }

    /// The number of bytes in the ring, at most `wanted`. `Ok(0)`: the ring is empty and the peer has closed,
    /// so the bytes of the socket are next.
    pub(super) fn look(&self, wanted: usize) -> Result<usize, LinkError> {
        if self.rings.is_left_behind() {
            return Err(LinkError::Broken(libc::ENOTCONN));
        }
        // Read before the ring, so that bytes which the peer put there before it closed are seen.
        let ended = self.end.has_come.load(Ordering::Acquire);
        match self.rings.available(wanted, || self.notify_requested()) {
            Err(e) => Err(LinkError::Broken(e)),
            Ok(0) if ended => Ok(0),
            Ok(0) => Err(LinkError::Blocked),
            Ok(there) => Ok(there.min(wanted)),
        }
    }

    /// Receives bytes; 0 is the end of the stream.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let n = self.look(into.len())?;
        if n == 0 {
            return sys::recv(&self.socket, into).map_err(link_error);
        }
        let (ring, at) = self.rings.source();
        self.rings.shared.copy_out(ring, at, &mut into[..n]);
        sys::note_received(n);
        self.rings.took(n).map(|()| n).map_err(LinkError::Broken)
    }

    /// As [`Local::receive`], but first into registered memory, then into `rest`.
    pub(super) fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        let n = self.look(to.len + rest.len())?;
        let grant = memory::acquire(to, self.accessor)
            .map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        if n == 0 {
            // SAFETY: `grant` permits writing the range `to` and is held until the call has returned.
            return unsafe { sys::recv_into(&self.socket, grant.addr(), to.len, rest) }.map_err(link_error);
        }
        let (ring, at) = self.rings.source();
        let placed = n.min(to.len);
        let mut done = 0;
        if grant.is_backed() {
            // SAFETY: `grant` permits writing the range, and stores cannot fault.
            unsafe { self.rings.shared.copy_to(ring, at, grant.addr() as *mut u8, placed) };
            done = placed;
        }
        while done < placed {
            let len = Shared::contiguous(at + done as u64, placed - done);
            let iov_base = (grant.addr() + done as u64) as *mut libc::c_void;
            // SAFETY: `grant` permits writing the range `to`, of which this is a part, and is held until the
            // call has returned.
            let read = unsafe {
                self.rings.shared.read(ring, at + done as u64, &[libc::iovec { iov_base, iov_len: len }])
            };
            match read {
                Ok(read) if read == len => done += read,
                Ok(_) => return Err(LinkError::Memory(0, Unreachable::Fault)),
                Err(e) => return Err(link_error(e)),
            }
        }
        drop(grant);
        self.rings.shared.copy_out(ring, at + placed as u64, &mut rest[..n - placed]);
        sys::note_received(n);
        self.rings.took(n).map(|()| n).map_err(LinkError::Broken)
    }

    /// Whether [`Self::transfer`] is possible at all.
    pub(crate) fn transfers(&self) -> bool {
        self.direct.is_some()
    }

    #[inline]
    fn is_up(&self) -> bool {
        !self.end.has_come.load(Ordering::Acquire) && !self.rings.is_left_behind()
    }

    /// Whether the memory of the peer may be accessed directly now: over a stream, the peer has acted on
    /// everything that it was sent.
    #[inline]
    fn is_ready(&self) -> bool {
        self.is_up() && (!self.is_stream || self.rings.is_settled())
    }

    /// Whether this end can map the memory that an access to a word needs. Only reads what seldom changes.
    pub(crate) fn maps(&self, remote: Access) -> bool {
        self.direct.as_ref().is_some_and(|direct| self.is_up() && direct.maps(remote))
    }

    /// Accesses a word of the peer's memory, if that is mapped; returns the previous number.
    pub(crate) fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        if !self.is_ready() {
            return None;
        }
        self.direct.as_mut()?.access_word(remote, word)
    }

    /// Copies directly between the memory of the peer and `local`; returns the number of bytes copied.
    pub(crate) fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let len = remote.iter().map(|access| access.len).sum::<usize>().min(MOST);
        if len == 0 || !self.is_ready() {
            return 0;
        }
        let Some(direct) = self.direct.as_mut().filter(|direct| direct.is_within_reach(remote[0])) else {
            return 0;
        };
        let mut pieces = ArrayVec::<_, { MAX_LOCAL_PARTS + 1 }>::from_iter([RESERVED]);
        if gather(&mut pieces, local, self.accessor, &mut self.grants).is_err() {
            return 0;
        }
        let (mut left, mut used) = (len, 1);
        for piece in &mut pieces[1..] {
            if left == 0 {
                break;
            }
            piece.iov_len = piece.iov_len.min(left);
            left -= piece.iov_len;
            used += 1;
        }
        let backed = self.grants.iter().all(Grant::is_backed);
        let copied = match left {
            // SAFETY: the pieces but the first one have `grants`, which are held until the call has returned,
            // or are slices in `local`. For a read all have grants: its accesses require write permission,
            // and the transport passes no slices, so none is written to. Slices cannot fault, and with
            // `backed` the others cannot either.
            0 => unsafe { direct.copy(&mut pieces[..used], remote, len, backed) },
            _ => 0,
        };
        self.needed_no_call = direct.was_mapped();
        self.grants.clear();
        copied
    }

    /// As [`Self::transfer`], for one request. A function apart, as it needs all registers.
    #[inline(never)]
    pub(crate) fn transfer_one(&mut self, wr: &SendWr) -> usize {
        let Some((remote, local)) = ranges(wr) else { return 0 };
        let len = remote.len.min(MOST);
        if len == 0 || !self.is_ready() {
            return 0;
        }
        let Some(direct) = self.direct.as_mut().filter(|direct| direct.is_within_reach(remote)) else {
            return 0;
        };
        let Ok((piece, grant)) = locate(&local, self.accessor) else { return 0 };
        let backed = grant.as_ref().is_none_or(Grant::is_backed);
        let mut pieces = [RESERVED, libc::iovec { iov_len: len, ..piece }];
        // SAFETY: the second piece has `grant`, which is held until the call has returned, or is inline data
        // of `wr`, which cannot fault. For a read it has a grant with write permission: `ranges` refuses
        // inline data then, so nothing is written through the shared reference `wr`.
        let copied = unsafe { direct.copy(&mut pieces, &[remote], len, backed) };
        self.needed_no_call = direct.was_mapped();
        copied
    }

    /// Unmaps memory of the peer whose keys it has revoked. Called at the beginning of each step; a
    /// direct copy does so as well.
    #[inline]
    pub(crate) fn forget_revoked(&mut self) {
        if let Some(direct) = self.direct.as_mut().filter(|_| !self.rings.is_left_behind()) {
            direct.forget_revoked();
        }
    }

    /// Counts requests that this end has executed directly, which the peer does not see.
    pub(crate) fn transferred(&self, operation: Served, completed: u64, bytes: u64) {
        let (_, other) = self.rings.ends();
        self.rings.shared.export_page(other).count(operation, completed, bytes);
    }

    /// Whether the peer exports a key for this access, and memory that an atomic operation needs.
    pub(crate) fn may_transfer(&self, remote: Access) -> bool {
        self.direct.as_ref().is_some_and(|direct| self.is_up() && direct.may_access(remote))
    }

    /// Everything received so far has been acted on.
    pub(crate) fn acted(&mut self) {
        if self.direct.is_some() {
            self.rings.acted();
        }
    }

    /// The peer has made an access that was granted.
    pub(crate) fn granted(&mut self, access: Access, grant: &Grant) {
        if let Some(direct) = &mut self.direct {
            direct.export(access, grant);
        }
    }

    /// The peer begins no further direct copy, nor does this end.
    pub(crate) fn end_copies(&mut self) {
        if let Some(direct) = self.direct.take() {
            direct.close();
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Closes the connection: with `Some`, after these bytes and the FIN have been sent ([`linger`]), else
    /// immediately.
    pub(super) fn close(self, last: Option<&[u8]>) {
        use std::os::fd::AsRawFd;
        let Self { socket, end_token, rings, token, watch, engine, direct, instruments, is_stream, .. } =
            self;
        if let Some(direct) = direct {
            direct.close();
        }
        rings.close();
        instruments.shares_no_more(&*rings);
        watch.remove_ring(rings.notify_socket(), token);
        engine.remove(end_token, socket.as_raw_fd());
        if !is_stream && !rings.is_left_behind() {
            // An exporter that waits for a copy of the peer keeps the rings, and their socket, open.
            sys::shutdown(&socket);
        }
        if let Some(last) = last {
            linger::start(&engine, socket, last);
        }
    }
}
