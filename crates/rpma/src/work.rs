// SPDX-License-Identifier: BSD-3-Clause
//! The work requests of operations, with the buffers that they own.
//!
//! Each kind of request is a type, and the usual case of an operation, which is posted at once, is compiled
//! for each of them alone. Those that wait, and batches, are kept as a [`Request`].

#![forbid(unsafe_code)]

use crate::buf::Buf;
use crate::call::Call;
use crate::meter::Began;
use crate::remote::{self, RemoteSlice};
use crate::table::Queue;

pub(crate) struct Read {
    pub to: Buf,
    pub from: RemoteSlice,
}

pub(crate) struct Write {
    pub from: Buf,
    pub to: RemoteSlice,
    pub imm: Option<u32>,
}

pub(crate) struct Send {
    pub from: Buf,
    pub imm: Option<u32>,
}

pub(crate) struct Receive {
    pub to: Buf,
}

pub(crate) struct Flush {
    pub range: RemoteSlice,
    pub how: remote::Flush,
}

pub(crate) struct Store {
    pub value: u64,
    pub to: RemoteSlice,
}

impl Call {
    /// The queue that it is posted to.
    #[inline(always)]
    pub(crate) fn queue(self) -> Queue {
        if self == Self::Receive { Queue::Receive } else { Queue::Send }
    }
}

/// A kind of work request.
pub(crate) trait Single: Into<Request> {
    const CALL: Call;

    /// The buffer that it owns.
    fn buf(&self) -> Option<&Buf>;

    fn into_buf(self) -> Option<Buf>;
}

/// One work request, with what it owns.
pub(crate) enum Request {
    Read(Read),
    Write(Write),
    Send(Send),
    Receive(Receive),
    Flush(Flush),
    Store(Store),
}

macro_rules! single {
    ($kind:ident owns nothing) => { single!($kind, _none => None, _none => None); };
    ($kind:ident owns $buf:ident) => { single!($kind, one => Some(&one.$buf), one => Some(one.$buf)); };
    ($kind:ident, $by_ref:ident => $buf:expr, $by_value:ident => $into_buf:expr) => {
        impl Single for $kind {
            const CALL: Call = Call::$kind;

            #[inline(always)]
            fn buf(&self) -> Option<&Buf> {
                let $by_ref = self;
                $buf
            }

            #[inline(always)]
            fn into_buf(self) -> Option<Buf> {
                let $by_value = self;
                $into_buf
            }
        }

        impl From<$kind> for Request {
            fn from(request: $kind) -> Self {
                Self::$kind(request)
            }
        }
    };
}

single!(Read owns to);
single!(Write owns from);
single!(Send owns from);
single!(Receive owns to);
single!(Flush owns nothing);
single!(Store owns nothing);

/// The same expression for each kind of request.
macro_rules! each {
    ($request:expr, $one:ident => $then:expr) => {
        match $request {
            Request::Read($one) => $then,
            Request::Write($one) => $then,
            Request::Send($one) => $then,
            Request::Receive($one) => $then,
            Request::Flush($one) => $then,
            Request::Store($one) => $then,
        }
    };
}

impl Request {
    pub(crate) fn call(&self) -> Call {
        fn of<R: Single>(_: &R) -> Call {
            R::CALL
        }
        each!(self, one => of(one))
    }

    /// The buffer that it owns.
    pub(crate) fn buf(&self) -> Option<&Buf> {
        each!(self, one => one.buf())
    }

    fn into_buf(self) -> Option<Buf> {
        each!(self, one => one.into_buf())
    }
}

/// What an operation owns until its result is taken.
#[derive(Default)]
pub(crate) struct Kept {
    /// The buffer of one request that was posted at once.
    buf: Option<Buf>,
    /// The requests of an operation that had to wait.
    requests: Option<Box<[Request]>>,
    /// The function of the first request.
    call: Call,
    began: Began,
}

impl Kept {
    #[inline(always)]
    pub(crate) fn posted<R: Single>(request: R, began: Began) -> Self {
        Self { buf: request.into_buf(), requests: None, call: R::CALL, began }
    }

    /// The requests of a batch, or of an operation that cannot be posted yet.
    pub(crate) fn whole(requests: Vec<Request>) -> Self {
        let call = requests.first().map_or(Call::Write, Request::call);
        Self { buf: None, requests: Some(requests.into()), call, began: Began::now() }
    }

    /// Its function, for a batch that of its first.
    pub(crate) fn call(&self) -> Call {
        self.call
    }

    /// The function of the request behind the first `complete` ones, and the bytes that it transfers, unless
    /// it is a receive; when the operation was made.
    #[cfg(feature = "metrics")]
    pub(crate) fn request(&self, complete: u32) -> (Call, usize, Began) {
        let request = self.requests().get(complete as usize);
        let (call, buf) =
            request.map_or((self.call, self.buf.as_ref()), |request| (request.call(), request.buf()));
        let len = if call == Call::Store { 8 } else { buf.map_or(0, |buf| buf.len()) };
        (call, len, self.began)
    }

    /// The requests of one that waits.
    pub(crate) fn requests(&self) -> &[Request] {
        self.requests.as_deref().unwrap_or_default()
    }

    /// Divides what a device may still access: into its buffers, and empty buffers to return.
    pub(crate) fn divided(mut self) -> (Self, Self) {
        let mut bufs = self.take_bufs();
        let empty = bufs.iter_mut().map(|buf| buf.split_to(0)).collect();
        (self.with_bufs(bufs), self.with_bufs(empty))
    }

    /// The same operation with these buffers; which request owns them no longer matters.
    fn with_bufs(&self, bufs: Vec<Buf>) -> Self {
        let requests = bufs.into_iter().map(|to| Receive { to }.into()).collect();
        Self { buf: None, requests: Some(requests), call: self.call, began: self.began }
    }

    /// Takes all buffers.
    pub(crate) fn take_bufs(&mut self) -> Vec<Buf> {
        let waited = self.requests.take().into_iter().flat_map(Vec::from).filter_map(Request::into_buf);
        self.buf.take().into_iter().chain(waited).collect()
    }

    /// Takes the buffer of an operation that has one.
    #[inline(always)]
    pub(crate) fn take_buf(&mut self) -> Buf {
        match self.buf.take() {
            Some(buf) => buf,
            None => self.take_waited(),
        }
    }

    #[cold]
    fn take_waited(&mut self) -> Buf {
        self.take_bufs().pop().unwrap_or_else(|| unreachable!("an operation with one buffer"))
    }
}
