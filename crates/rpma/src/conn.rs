// SPDX-License-Identifier: BSD-3-Clause
//! Connections.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::buf::Buf;
use crate::closed::Closed;
use crate::error::{Error, ErrorKind, Result};
use crate::link::Post;
use crate::op::{Batch, Op, Output, Received};
use crate::private_data;
use crate::ready::Driven;
use crate::remote::{Flush, Remote, RemoteSlice};
use crate::shared::{Shared, State};
use crate::work;

/// A connection to a peer. A clone is the same connection; it ends when it is closed, or with the last clone
/// and the last [`Op`]. In the latter case operations that still wait for room are discarded;
/// [`close`](Self::close) waits for them.
///
/// Operations of a connection are executed in the order of the calls, with one exception: a read, and a
/// flush, may be executed while earlier reads are not complete. All methods may be called by all threads and
/// tasks.
#[derive(Clone)]
pub struct Conn {
    shared: Arc<Shared>,
    about: Arc<About>,
}

struct About {
    remotes: Vec<Remote>,
    private_data: Box<[u8]>,
}

impl Conn {
    /// A connection that is established.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let bytes = shared.link.private_data();
        let (remotes, own) = private_data::decode(&bytes);
        let about = Arc::new(About { private_data: own.into(), remotes });
        Self { shared, about }
    }

    /// The connection, once it is established.
    pub(crate) async fn established(shared: Arc<Shared>) -> Result<Self> {
        shared.until(State::is_established).await?;
        Ok(Self::new(shared))
    }

    /// The same on a thread.
    pub(crate) fn wait_established(shared: Arc<Shared>) -> Result<Self> {
        shared.block_until(State::is_established)??;
        Ok(Self::new(shared))
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.shared.link.peer_addr()
    }

    /// The memory that the peer offered with the connection, by its position.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it offered less.
    pub fn remote(&self, index: usize) -> Result<Remote> {
        let remotes = &self.about.remotes;
        remotes.get(index).copied().ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format_args!("Conn::remote({index}): the peer offered {} memory regions", remotes.len()),
            )
        })
    }

    /// The bytes that the peer's program sent with the connection, besides its offers.
    pub fn private_data(&self) -> &[u8] {
        &self.about.private_data
    }

    #[inline(always)]
    fn make<T: Output>(&self, request: impl Post, check: Result<()>) -> Op<T> {
        Op::make(&self.shared, request, check)
    }

    /// Reads a range of the peer's memory into a buffer of the same length.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if the lengths differ; [`ErrorKind::NotPermitted`] if the peer did not
    /// expose the memory for reading, or has revoked it; [`ErrorKind::Closed`] and [`ErrorKind::Lost`].
    pub fn read(&self, from: RemoteSlice, to: Buf) -> Op<Buf> {
        let check = from.readable("read").and_then(|()| from.fits("read", to.len()));
        self.make(work::Read { to, from }, check)
    }

    /// Writes a buffer to a range of the same length of the peer's memory. When it is complete, the buffer is
    /// free; what was written is visible to the peer's program behind a [`flush`](Self::flush) or a later
    /// message.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn write(&self, from: Buf, to: RemoteSlice) -> Op<Buf> {
        let check = check_write(&to, from.len());
        self.make(work::Write { from, to, imm: None }, check)
    }

    /// The same, and completes a receive of the peer with these immediate data, behind what was written.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`ErrorKind::NotSupported`] by the kernel's soft-iWARP.
    pub fn write_with_imm(&self, from: Buf, to: RemoteSlice, imm: u32) -> Op<Buf> {
        let check = check_write(&to, from.len());
        self.make(work::Write { from, to, imm: Some(imm) }, check)
    }

    /// Sends a message to a receive that the peer has posted or will post.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] and [`ErrorKind::Lost`]; [`ErrorKind::Status`] if the peer's receive is too
    /// short.
    pub fn send(&self, message: Buf) -> Op<Buf> {
        self.make(work::Send { from: message, imm: None }, Ok(()))
    }

    /// The same with immediate data.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_with_imm(&self, message: Buf, imm: u32) -> Op<Buf> {
        self.make(work::Send { from: message, imm: Some(imm) }, Ok(()))
    }

    /// Receives one message of at most the buffer's length. Messages are delivered to receives in posting
    /// order. A receive that is dropped, cancelled or timed out stays posted and consumes the next message;
    /// keep its [`Op`] and wait again. A write with immediate data also consumes a receive
    /// ([`Received::written`]).
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] and [`ErrorKind::Lost`]; [`ErrorKind::Status`] if the message is longer, which
    /// ends the connection.
    pub fn recv(&self, to: Buf) -> Op<Received> {
        self.make(work::Receive { to }, Ok(()))
    }

    /// Waits until everything written before is visible at the peer, or persistent there.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] or [`ErrorKind::NotDurable`] if the peer did not expose the memory for it;
    /// otherwise as for [`read`](Self::read).
    pub fn flush(&self, range: RemoteSlice, how: Flush) -> Op<()> {
        let check = range.flushable(how);
        self.make(work::Flush { range, how }, check)
    }

    /// Writes 8 bytes atomically, in the byte order of this host, after everything written before: a program
    /// that reads the new value sees those writes, too.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if the range is not 8 bytes long, [`ErrorKind::Invalid`] unless its offset
    /// and its address at the peer are multiples of 8; otherwise as for [`read`](Self::read).
    pub fn store(&self, value: u64, to: RemoteSlice) -> Op<()> {
        let check = check_store(&to);
        self.make(work::Store { value, to }, check)
    }

    /// Several reads, writes, flushes and stores with one result.
    pub fn batch(&self) -> Batch {
        Batch::new(self.shared.clone())
    }

    /// How the connection ended, once it has.
    pub async fn closed(&self) -> Closed {
        self.shared.until(State::how).await
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if there is no descriptor to wait with.
    pub fn wait_closed(&self) -> Result<Closed> {
        self.shared.block_until(State::how)
    }

    /// Waits for all operations but receives, then closes the connection: the peer gets an event, and posted
    /// receives fail with [`ErrorKind::Closed`]. On a device it completes when the peer's program has taken
    /// the event, after about a minute at the latest.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the connection broke.
    pub async fn close(self) -> Result<()> {
        self.shared.until(State::is_quiet).await?;
        if self.shared.begin_close()? {
            self.shared.until(State::how).await;
        }
        Ok(())
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// As for [`close`](Self::close).
    pub fn wait_close(self) -> Result<()> {
        self.shared.block_until(State::is_quiet)??;
        if self.shared.begin_close()? {
            self.shared.block_until(State::how)?;
        }
        Ok(())
    }

    /// Takes completions and events, and posts the operations that wait for room in a queue. For programs
    /// without a runtime, when the descriptor of [`AsFd`] is readable.
    pub fn process(&self) {
        self.shared.drive();
    }

    /// A descriptor that is readable when [`process`](Self::process) must be called.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if no descriptor is free.
    pub fn try_as_fd(&self) -> Result<BorrowedFd<'_>> {
        self.shared.registration().joint(&self.shared.link.fds())
    }
}

#[inline(always)]
fn check_write(to: &RemoteSlice, len: usize) -> Result<()> {
    to.writable("write").and_then(|()| to.fits("write", len))
}

fn check_store(to: &RemoteSlice) -> Result<()> {
    to.writable("store").and_then(|()| to.fits("store", 8)).and_then(|()| to.is_aligned("store"))
}

impl Batch {
    /// As [`Conn::write`].
    pub fn write(self, from: Buf, to: RemoteSlice) -> Self {
        let check = check_write(&to, from.len());
        self.with(work::Write { from, to, imm: None }, check)
    }

    /// As [`Conn::read`].
    pub fn read(self, from: RemoteSlice, to: Buf) -> Self {
        let check = from.readable("read").and_then(|()| from.fits("read", to.len()));
        self.with(work::Read { to, from }, check)
    }

    /// As [`Conn::flush`].
    pub fn flush(self, range: RemoteSlice, how: Flush) -> Self {
        let check = range.flushable(how);
        self.with(work::Flush { range, how }, check)
    }

    /// As [`Conn::store`].
    pub fn store(self, value: u64, to: RemoteSlice) -> Self {
        let check = check_store(&to);
        self.with(work::Store { value, to }, check)
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer_addr() {
            Some(peer) => write!(f, "Conn({peer})"),
            None => f.write_str("Conn"),
        }
    }
}

impl AsFd for Conn {
    /// # Panics
    /// If no descriptor is free; [`Conn::try_as_fd`] says so.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.try_as_fd() {
            Ok(fd) => fd,
            Err(error) => panic!("{error}"),
        }
    }
}
