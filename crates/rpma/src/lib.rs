// SPDX-License-Identifier: BSD-3-Clause
//! Safe remote memory access (RDMA): read, write and flush memory of another process or host, without unsafe
//! code and, with the provider soft, without a device.
//!
//! ```
//! use rpma::{Access, Flush, Peer, Provider};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rpma::Result<()> {
//! let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
//! let memory = peer.expose(4096, Access::READ | Access::WRITE | Access::VISIBLE)?;
//! let listener = peer.listen("127.0.0.1:0")?;
//! let addr = listener.local_addr().unwrap();
//!
//! let offer = memory.offer();
//! let server = tokio::spawn(async move { listener.accept().await?.accept(&[offer]).await });
//!
//! let conn = peer.connect(addr).await?;
//! let remote = conn.remote(0)?;
//! let mut buf = peer.buf(5)?;
//! buf.copy_from_slice(b"hello");
//! let buf = conn.write(buf, remote.slice(0..5)?).await?; // the buffer comes back
//! conn.flush(remote.slice(..)?, Flush::Visible).await?;
//!
//! let mut seen = [0; 5];
//! memory.copy_out(0, &mut seen)?;
//! assert_eq!(seen, buf[..]);
//! # drop(server);
//! # Ok(())
//! # }
//! ```
//!
//! # Objects
//!
//! | | |
//! |---|---|
//! | [`Peer`] | a device of this host |
//! | [`Buf`], [`Pool`] | registered memory of this process alone: sources and destinations of operations |
//! | [`Exposed`], [`Offer`] | memory that peers may access, and what they must know for that |
//! | [`Remote`], [`RemoteSlice`] | such memory of a peer |
//! | [`Listener`], [`Incoming`], [`Connect`], [`Conn`] | connections |
//! | [`Op`], [`Batch`] | operations |
//! | `stream::Stream` | a byte stream over messages (feature `stream`) |
//!
//! # What the types rule out
//!
//! * Memory that an operation in flight uses is not freed, and the program cannot access it: an [`Op`] owns
//!   its [`Buf`] and returns it, on success and on failure. A dropped or forgotten `Op` cancels nothing; the
//!   connection keeps the buffer.
//! * Memory that a peer may write is never a `&[u8]`: [`Exposed`] copies, and has atomic words.
//! * A range of a peer's memory is inside of it: [`Remote::slice`] checks.
//! * A flush to persistence fails unless the owner of the memory declared it for that.
//!
//! # Runtimes
//!
//! With the feature `tokio` (default), operations are driven by the reactor of the tokio runtime that first
//! awaits one of the connection; it needs `enable_io`. With the feature `async-io`, the reactor of the crate
//! of this name drives those that are first awaited outside of a tokio runtime: in smol, or in any other
//! executor. Operations, connecting, accepting and closing also have forms for threads: [`Op::wait`],
//! [`Connect::wait`], [`Listener::wait_accept`]. A program with a loop of its own watches the descriptor of a
//! [`Conn`] and calls [`Conn::process`].
//!
//! ```
//! # #[cfg(feature = "async-io")]
//! # fn main() -> rpma::Result<()> {
//! use rpma::{Access, Peer, Provider};
//!
//! async_io::block_on(async {
//!     let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
//!     let memory = peer.expose(4096, Access::READ)?;
//!     let listener = peer.listen("127.0.0.1:0")?;
//!     let accept = async { listener.accept().await?.accept(&[memory.offer()]).await };
//!     let connect = peer.connect(listener.local_addr().unwrap()).into_future();
//!     let (conn, target) = futures_lite::future::try_zip(connect, accept).await?;
//!     let buf = conn.read(conn.remote(0)?.slice(0..5)?, peer.buf(5)?).await?;
//!     # drop((buf, target));
//!     Ok(())
//! })
//! # }
//! # #[cfg(not(feature = "async-io"))]
//! # fn main() {}
//! ```
//!
//! # Reports
//!
//! With the feature `tracing`, each connection has a span `connection` with the address of the peer, inside
//! of the span of its [`Connect`] or [`Incoming::accept`]. Its events: established, and closed, at the level
//! DEBUG; not established, lost, and each operation that fails, with the text of its [`Error`], at the level
//! WARN; operations that fail because the connection has ended, DEBUG; the number of reads, writes, sends,
//! flushes and stores that waited for room when the last handle of the connection was dropped, and so are
//! discarded, WARN. An operation that succeeds reports nothing.
//!
//! With the feature `metrics`, the recorder of the crate [`metrics`](https://docs.rs/metrics) that is
//! installed when a connection is made gets these. `op` is `read`, `write`, `send`, `recv`, `flush` or
//! `store`, each operation of a batch by itself; `kind` is an [`ErrorKind`], in lower case with underscores;
//! `incoming` is `true` of a connection that was accepted, else `false`.
//!
//! | name | labels | |
//! |---|---|---|
//! | `rpma_conn_operations_total` | `op` | counter: operations that succeeded |
//! | `rpma_conn_bytes_total` | `op` | counter, in bytes: what they transferred. Of a receive, the message or what was written with its immediate data |
//! | `rpma_conn_operation_seconds` | `op` | histogram, in seconds: from the call that makes an operation until its completion is polled |
//! | `rpma_conn_operation_errors_total` | `op`, `kind` | counter: operations that failed, were refused, or ended with the connection; a batch that is refused counts once, by its first operation |
//! | `rpma_conns` | `incoming` | gauge: established connections |
//! | `rpma_conns_established_total` | `incoming` | counter: connections that were established |
//! | `rpma_conns_failed_total` | `incoming`, `kind` | counter: connection attempts that failed |
//! | `rpma_conns_ended_total` | `incoming`, `how` | counter: established connections that ended, `closed` or `lost` ([`Closed`]) |
//!
//! [`Peer::open`] and [`Peer::open_to`] give the recorder their units and descriptions. A recorder that is
//! installed later does not see connections that already exist. Metrics cost two readings of the clock and
//! two atomic additions for each operation, besides the histogram. The recorder must not use the connection
//! when it counts an operation.
//!
//! # Tests
//!
//! [`testing::pair`] makes both ends of a connection in one process, without a device, and fails and delays
//! what the test says.
//!
//! # Environment
//!
//! This crate reads no variable but in [`Provider::from_env`]. The providers read theirs, as for C programs:
//! librpma_providers(7) and softverbs(7) list them.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod block;
mod buf;
mod call;
mod closed;
mod conn;
mod connect;
mod error;
mod exposed;
mod link;
mod listen;
mod meter;
mod op;
mod peer;
mod pool;
mod private_data;
mod queues;
mod ready;
mod region;
mod remote;
mod report;
mod shared;
#[cfg(feature = "stream")]
pub mod stream;
mod table;
#[cfg(feature = "soft")]
pub mod testing;
mod trace;
mod words;
mod work;

pub use buf::Buf;
pub use closed::Closed;
pub use conn::Conn;
pub use connect::{Connect, ConnectReceiving};
pub use error::{Error, ErrorKind, Failed, Result};
pub use exposed::{Access, Exposed, Memory, Offer};
pub use listen::{Incoming, Listener};
pub use op::{Batch, Op, Received};
pub use peer::{Peer, Provider};
pub use pool::Pool;
pub use remote::{Flush, Remote, RemoteSlice};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// All threads and tasks may use them.
const _: () = {
    const fn send_sync<T: Send + Sync>() {}
    send_sync::<Peer>();
    send_sync::<Buf>();
    send_sync::<Pool>();
    send_sync::<Exposed>();
    send_sync::<Remote>();
    send_sync::<RemoteSlice>();
    send_sync::<Listener>();
    send_sync::<Incoming>();
    send_sync::<Conn>();
    send_sync::<Op<Buf>>();
    send_sync::<Batch>();
    send_sync::<Error>();
    #[cfg(feature = "stream")]
    send_sync::<stream::Stream>();
};
