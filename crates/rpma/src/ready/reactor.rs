// SPDX-License-Identifier: BSD-3-Clause
//! The reactors of runtimes: that of tokio belongs to a runtime, that of async-io to the process.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use crate::error::Result;

/// A reactor that can watch descriptors for the current task.
#[derive(Clone, Copy)]
pub(super) enum Reactor {
    #[cfg(feature = "tokio")]
    Tokio,
    #[cfg(feature = "async-io")]
    AsyncIo,
}

impl Reactor {
    /// That of the tokio runtime that this thread is in, else that of async-io.
    pub(super) fn current() -> Option<Self> {
        #[cfg(feature = "tokio")]
        if tokio::runtime::Handle::try_current().is_ok() {
            return Some(Self::Tokio);
        }
        #[cfg(feature = "async-io")]
        return Some(Self::AsyncIo);
        #[cfg(not(feature = "async-io"))]
        None
    }

    /// Registers a descriptor, which is non-blocking.
    pub(super) fn register(self, fd: OwnedFd) -> io::Result<Readable> {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => {
                // SAFETY: the AsyncFd owns the descriptor, so it is open until that is dropped, and always
                // the same.
                let registered = unsafe {
                    tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE)
                };
                registered.map(Readable::Tokio).map_err(|error| error.into_parts().1)
            }
            #[cfg(feature = "async-io")]
            Self::AsyncIo => async_io::Async::new_nonblocking(fd).map(Readable::AsyncIo),
        }
    }

    /// Runs a call on a thread of the runtime that may block.
    pub(super) async fn unblock<T: Send + 'static>(
        self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => tokio::task::spawn_blocking(call).await.map_err(|error| {
                use crate::error::{Error, ErrorKind};
                Error::new(ErrorKind::Closed, format_args!("Peer::connect: {error}"))
            }),
            #[cfg(feature = "async-io")]
            Self::AsyncIo => Ok(blocking::unblock(call).await),
        }
    }
}

/// A descriptor that a reactor watches.
pub(super) enum Readable {
    #[cfg(feature = "tokio")]
    Tokio(tokio::io::unix::AsyncFd<OwnedFd>),
    #[cfg(feature = "async-io")]
    AsyncIo(async_io::Async<OwnedFd>),
}

impl Readable {
    /// Ready if the descriptor has become readable, and so the caller polls again; else the waker is woken
    /// when it does. An error means that the reactor has ended.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio(fd) => {
                use std::future::{Future, poll_fn};
                // Not from the budget of a task: without any left, this waker would be woken at once, by the
                // poll itself.
                let ready = tokio::task::coop::unconstrained(poll_fn(|context| fd.poll_read_ready(context)));
                std::pin::pin!(ready).poll(context).map_ok(|mut guard| guard.clear_ready())
            }
            #[cfg(feature = "async-io")]
            Self::AsyncIo(fd) => fd.poll_readable(context),
        }
    }
}
