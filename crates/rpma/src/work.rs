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

/// What an operation owns: the request of most, those of a batch.
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

    pub(crate) fn into_bufs(self) -> Vec<Buf> {
        match self {
            Self::One(request) => request.into_buf().into_iter().collect(),
            Self::Batch(requests) => requests.into_iter().filter_map(Request::into_buf).collect(),
        }
    }

    /// The buffer of an operation that has one.
    pub(crate) fn into_buf(self) -> Buf {
        match self {
            Self::One(request) => request.into_buf(),
            Self::Batch(_) => None,
        }
        .unwrap_or_else(|| unreachable!("an operation with one buffer"))
    }
}
