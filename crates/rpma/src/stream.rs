// SPDX-License-Identifier: BSD-3-Clause
//! A byte stream over the messages of a connection, for protocols that are written for TCP.
//!
//! ```
//! use rpma::stream::{Acceptor, Stream};
//! use rpma::{Peer, Provider};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
//! let acceptor = Acceptor::new(peer.listen("127.0.0.1:0")?);
//! let addr = acceptor.local_addr().unwrap();
//! let echo = tokio::spawn(async move {
//!     let (mut reader, mut writer) = tokio::io::split(acceptor.accept().await?);
//!     tokio::io::copy(&mut reader, &mut writer).await?;
//!     writer.shutdown().await
//! });
//!
//! let mut stream = Stream::connect(&peer, addr).await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?; // half of it: the answer can still be read
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "hello");
//! # echo.await?
//! # }
//! ```
//!
//! Protocols that are written for TCP run over it: `tests/grpc.rs` of this crate has a client and a server of
//! gRPC by tonic.
//!
//! # Messages
//!
//! Both ends have to be a [`Stream`]. A message has a header of 8 bytes, little-endian: how many data
//! messages of the receiver's its sender has read since the last header, 4 bytes; 1 if this is the end of the
//! data, else 0, 4 bytes. Its data follow.
//!
//! Each end posts a receive for each data message that the other one may send before it gets their number
//! back (16), and 3 more for messages without data: so a message always finds a receive, on
//! any device. A message that only returns credits needs none itself. It is sent when half a window has been
//! read, so two of them, and the end, are unread at most.

#![forbid(unsafe_code)]

mod acceptor;
mod waiters;
mod wakers;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buf::Buf;
use crate::conn::Conn;
use crate::connect::{Connect, Receives};
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Op, Received};
use crate::peer::Peer;
use crate::pool::Pool;
pub use acceptor::Acceptor;
use wakers::{Side, Wakers};

/// How many data messages one end may send before the other one has read some.
const WINDOW: u32 = 16;

/// Receives for messages without data: two that return credits, and the end.
const CONTROL: u32 = 3;

/// The longest message.
const MESSAGE: usize = 16 * 1024;

/// The length of the header.
const HEADER: usize = 8;

/// The sizes of the queues: all data messages, and those without data, may be under way at once.
const QUEUE: u32 = WINDOW + CONTROL + 1;

/// The private data of both ends: another version has others.
const VERSION: &[u8] = b"stream1";

/// A byte stream to a peer, with [`AsyncRead`] and [`AsyncWrite`].
///
/// What is written is sent at once, in messages of up to 16 KiB; a program with small writes uses
/// [`BufWriter`](https://docs.rs/tokio/latest/tokio/io/struct.BufWriter.html). A peer that does not read
/// stops the writer when it has 16 messages.
///
/// [`poll_shutdown`](AsyncWrite::poll_shutdown) ends the data of this side, and completes when they have been
/// sent (iWARP) or acknowledged (RoCE); the other direction stays open. A stream that is dropped without it
/// is cut off, and reads of the peer fail with [`io::ErrorKind::UnexpectedEof`], unless the peer has ended
/// its data, too. When the connection is lost, reads and writes fail; the error has the [`Error`] with the
/// cause as its source.
///
/// Two tasks may use it, one to read and one to write, by `tokio::io::split`.
pub struct Stream {
    conn: Conn,
    /// Posted, in the order in which messages arrive.
    receives: VecDeque<Op<Received>>,
    /// Arrived and not read yet, with the position of the next byte.
    arrived: VecDeque<(Received, usize)>,
    /// How many data messages may be sent.
    credits: u32,
    /// How many data messages were read that the peer does not know of.
    unreturned: u32,
    /// For data messages, and for those without data.
    data: Pool,
    control: Pool,
    end: End,
    peer_ended: bool,
    failed: Option<(ErrorKind, Box<str>)>,
    wakers: Arc<Wakers>,
    /// Wakes both sides.
    waker: Waker,
}

/// How far the end of this side's data is.
enum End {
    Open,
    Sent(Op<Buf>),
    Complete,
    /// `failed` says why.
    Failed,
}

/// The buffers of a stream.
pub(crate) struct Pools {
    receives: Pool,
    data: Pool,
    control: Pool,
}

impl Pools {
    const RECEIVES: usize = (WINDOW + CONTROL) as usize;

    pub(crate) fn new(peer: &Peer) -> Result<Self> {
        Ok(Self {
            receives: peer.pool(MESSAGE, Self::RECEIVES)?,
            data: peer.pool(MESSAGE, WINDOW as usize)?,
            control: peer.pool(HEADER, CONTROL as usize)?,
        })
    }

    pub(crate) fn receives(&self) -> Receives<'_> {
        Some((&self.receives, Self::RECEIVES))
    }
}

impl Stream {
    /// Connects to an [`Acceptor`].
    ///
    /// # Errors
    /// As for [`Peer::connect`]; [`ErrorKind::Invalid`] if the listener does not accept streams.
    pub async fn connect(peer: &Peer, addr: impl ToSocketAddrs) -> Result<Self> {
        let pools = Pools::new(peer)?;
        let connect = Self::prepared(peer, addr);
        let (conn, receives) = connect.receiving(&pools.receives, Pools::RECEIVES).await?;
        if conn.private_data() != VERSION {
            return Err(Error::new(ErrorKind::Invalid, "Stream::connect: the peer accepts no streams"));
        }
        Ok(Self::new(conn, receives, pools))
    }

    /// The attempt, with the settings of a stream.
    pub(crate) fn prepared(peer: &Peer, addr: impl ToSocketAddrs) -> Connect {
        peer.connect(addr).queues(QUEUE, QUEUE).private_data(VERSION)
    }

    pub(crate) fn new(conn: Conn, receives: Vec<Op<Received>>, Pools { data, control, .. }: Pools) -> Self {
        let wakers = Arc::new(Wakers::default());
        Self {
            conn,
            receives: receives.into(),
            arrived: VecDeque::new(),
            credits: WINDOW,
            unreturned: 0,
            data,
            control,
            end: End::Open,
            peer_ended: false,
            failed: None,
            waker: Waker::from(wakers.clone()),
            wakers,
        }
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.conn.peer_addr()
    }

    /// Takes the messages that have arrived, on behalf of one side.
    fn poll_arrived(&mut self, side: Side) {
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        while let (Some(first), None) = (self.receives.front_mut(), &self.failed) {
            let Poll::Ready(received) = Pin::new(first).poll(&mut context) else { return };
            self.receives.pop_front();
            let taken = match received {
                Ok(received) => self.take(received, side),
                Err(failed) => Err(failed.error),
            };
            if let Err(error) = taken {
                self.failed = Some((error.kind(), error.to_string().into()));
                self.wakers.wake_side(side.other());
            }
        }
    }

    fn take(&mut self, received: Received, side: Side) -> Result<()> {
        let wrong = |what| Error::new(ErrorKind::Invalid, format_args!("the peer's stream: {what}"));
        let Some((header, data)) = received.message().split_first_chunk::<HEADER>() else {
            return Err(wrong("a message without a header"));
        };
        let [a, b, c, d, kind @ ..] = *header;
        let (credits, kind) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(kind));
        let has_data = !data.is_empty();
        if credits > WINDOW - self.credits {
            return Err(wrong("it returns more than it got"));
        }
        self.credits += credits;
        if kind > 1 || (self.peer_ended && (has_data || kind == 1)) {
            return Err(wrong("data behind the end, or a message that is not known"));
        }
        self.peer_ended |= kind == 1;
        if has_data {
            if self.arrived.len() == WINDOW as usize {
                return Err(wrong("more data than it may send"));
            }
            self.arrived.push_back((received, HEADER));
        } else {
            self.receives.push_back(self.conn.recv(received.buf));
        }
        if credits > 0 || has_data || kind == 1 {
            // The other side may wait for this; the one that polls sees it.
            self.wakers.wake_side(side.other());
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(Error::new(*kind, text).into()),
            None => Ok(()),
        }
    }

    /// Writes the header of a message, which returns all credits.
    fn header(&mut self, buf: &mut Buf, is_end: bool) {
        buf[..4].copy_from_slice(&self.unreturned.to_le_bytes());
        buf[4..HEADER].copy_from_slice(&u32::from(is_end).to_le_bytes());
        self.unreturned = 0;
    }

    /// Returns credits when half a window has been read.
    fn return_credits(&mut self) {
        // Behind the end of its data the peer needs none.
        if self.unreturned < WINDOW / 2 || self.peer_ended {
            return;
        }
        let mut context = Context::from_waker(&self.waker);
        if let Poll::Ready(mut buf) = self.control.poll_take(&mut context) {
            self.header(&mut buf, false);
            self.conn.send(buf).detach();
        }
    }

    /// What both sides do first.
    fn progress(&mut self, side: Side, context: &Context<'_>) {
        self.wakers.register(side, context.waker());
        self.poll_arrived(side);
        self.return_credits();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.progress(Side::Reader, context);
        if to.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut is_read = false;
        while let Some((received, at)) = this.arrived.front_mut() {
            let rest = &received.message()[*at..];
            let count = rest.len().min(to.remaining());
            to.put_slice(&rest[..count]);
            (*at, is_read) = (*at + count, true);
            if *at < received.message().len() {
                break;
            }
            if let Some((received, _)) = this.arrived.pop_front() {
                this.receives.push_back(this.conn.recv(received.buf));
                this.unreturned += 1;
            }
        }
        if is_read {
            this.return_credits();
            return Poll::Ready(Ok(()));
        }
        if this.peer_ended {
            return Poll::Ready(Ok(()));
        }
        match &this.failed {
            Some((ErrorKind::Closed, _)) => {
                let error =
                    Error::new(ErrorKind::Closed, "the peer closed the stream before the end of its data");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)))
            }
            Some(_) => Poll::Ready(this.check()),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.progress(Side::Writer, context);
        this.check()?;
        if !matches!(this.end, End::Open) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if from.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.credits == 0 {
            return Poll::Pending;
        }
        let mut buf = ready!(this.data.poll_take(&mut Context::from_waker(&this.waker)));
        let count = from.len().min(MESSAGE - HEADER);
        this.header(&mut buf, false);
        buf[HEADER..HEADER + count].copy_from_slice(&from[..count]);
        // The rest of its block returns to the pool with it.
        drop(buf.split_off(HEADER + count));
        this.credits -= 1;
        this.conn.send(buf).detach();
        Poll::Ready(Ok(count))
    }

    /// Everything written is posted already.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.check())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.progress(Side::Writer, context);
        let waker = this.waker.clone();
        let mut both = Context::from_waker(&waker);
        loop {
            match &mut this.end {
                End::Open => {
                    this.check()?;
                    let mut buf = ready!(this.control.poll_take(&mut both));
                    this.header(&mut buf, true);
                    this.end = End::Sent(this.conn.send(buf));
                }
                End::Sent(sent) => {
                    let sent = ready!(Pin::new(sent).poll(&mut both));
                    this.end = match &sent {
                        Ok(_) => End::Complete,
                        Err(failed) => {
                            let reason = failed.error.to_string().into();
                            this.failed.get_or_insert((failed.error.kind(), reason));
                            End::Failed
                        }
                    };
                }
                End::Complete => return Poll::Ready(Ok(())),
                End::Failed => return Poll::Ready(this.check()),
            }
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.conn)
    }
}
