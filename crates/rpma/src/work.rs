// SPDX-License-Identifier: BSD-3-Clause
//! The work requests of operations, with the buffers that they own.

#![forbid(unsafe_code)]

use crate::buf::Buf;
use crate::remote::{Flush, RemoteSlice};

/// One work request, with what it owns.
pub(crate) enum Request {
    Read { to: Buf, from: RemoteSlice },
    Write { from: Buf, to: RemoteSlice, imm: Option<u32> },
    Send { from: Buf, imm: Option<u32> },
    Receive { to: Buf },
    Flush { range: RemoteSlice, how: Flush },
    Store { value: u64, to: RemoteSlice },
}

impl Request {
    /// The name of its function.
    pub(crate) fn call(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Send { .. } => "send",
            Self::Receive { .. } => "recv",
            Self::Flush { .. } => "flush",
            Self::Store { .. } => "store",
        }
    }

    /// The buffer that it owns.
    pub(crate) fn buf(&self) -> Option<&Buf> {
        match self {
            Self::Read { to: buf, .. }
            | Self::Write { from: buf, .. }
            | Self::Send { from: buf, .. }
            | Self::Receive { to: buf } => Some(buf),
            Self::Flush { .. } | Self::Store { .. } => None,
        }
    }

    pub(crate) fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Read { to: buf, .. }
            | Self::Write { from: buf, .. }
            | Self::Send { from: buf, .. }
            | Self::Receive { to: buf } => Some(buf),
            Self::Flush { .. } | Self::Store { .. } => None,
        }
    }
}

/// The requests of an operation: most have one.
pub(crate) enum Work {
    One(Request),
    Batch(Vec<Request>),
}

impl Work {
    pub(crate) fn requests(&self) -> &[Request] {
        match self {
            Self::One(request) => std::slice::from_ref(request),
            Self::Batch(requests) => requests,
        }
    }

    fn into_bufs(self) -> Vec<Buf> {
        match self {
            Self::One(request) => request.into_buf().into_iter().collect(),
            Self::Batch(requests) => requests.into_iter().filter_map(Request::into_buf).collect(),
        }
    }
}

/// What an operation owns until its result is taken.
pub(crate) enum Kept {
    /// One request that was posted at once: its buffer, and the name of its function.
    Posted(Option<Buf>, &'static str),
    /// One that had to wait, or a batch.
    Whole(Box<Work>),
}

impl Kept {
    pub(crate) fn posted(request: Request) -> Self {
        let call = request.call();
        Self::Posted(request.into_buf(), call)
    }

    pub(crate) fn whole(work: Work) -> Self {
        Self::Whole(Box::new(work))
    }

    /// The name of its function, for a batch that of its first.
    pub(crate) fn call(&self) -> &'static str {
        match self {
            Self::Posted(_, call) => call,
            Self::Whole(work) => work.requests().first().map_or("batch", Request::call),
        }
    }

    /// The requests of one that waits.
    pub(crate) fn requests(&self) -> &[Request] {
        match self {
            Self::Posted(..) => &[],
            Self::Whole(work) => work.requests(),
        }
    }

    pub(crate) fn into_bufs(self) -> Vec<Buf> {
        match self {
            Self::Posted(buf, _) => buf.into_iter().collect(),
            Self::Whole(work) => work.into_bufs(),
        }
    }

    /// The buffer of an operation that has one.
    #[inline(always)]
    pub(crate) fn into_buf(self) -> Buf {
        let buf = match self {
            Self::Posted(buf, _) => buf,
            Self::Whole(work) => work.into_bufs().pop(),
        };
        buf.unwrap_or_else(|| unreachable!("an operation with one buffer"))
    }
}
