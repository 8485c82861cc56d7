// SPDX-License-Identifier: BSD-3-Clause
//! Errors: a kind for programs, and a text for people.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;

use rpma_core::error::Error as Code;
use rpma_core::failure;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call or an operation failed.
///
/// The text names the call, the peer if there is one, and the reason that the provider gave.
// One pointer: results of operations are moved often, and are rarely errors.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    text: Box<str>,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No RDMA device has the address, and software RDMA was not permitted or cannot serve it.
    NoDevice,
    /// The peer rejected the connection, or has no listener at the address.
    Rejected,
    /// The peer does not answer, or the address cannot be resolved.
    Unreachable,
    /// This side or the peer closed the connection; the operation may or may not have been executed.
    Closed,
    /// The connection broke, because the peer ended or does not answer any more; the operation may or may not
    /// have been executed.
    Lost,
    /// The range is not inside the memory region, or the lengths of source and destination differ.
    OutOfRange {
        /// The offset of the range in the region, in bytes.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
        /// The size of what it must fit into, in bytes.
        size: u64,
    },
    /// The memory region was not exposed with this access, or has been revoked.
    NotPermitted,
    /// Flush to persistence of memory that its owner did not declare for it.
    NotDurable,
    /// An argument is invalid; the text names it.
    Invalid,
    /// The device or the provider does not support the operation.
    NotSupported,
    /// There is no memory, or no more of a resource of the system.
    OutOfMemory,
    /// Another failed call of the provider.
    Provider,
    /// The operation failed with this work completion status (`enum ibv_wc_status`).
    Status(u32),
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl fmt::Display) -> Self {
        Self(Box::new(Inner { kind, text: text.to_string().into() }))
    }

    /// The failure of a call of rpma-core on this thread, with the reason that it left.
    pub(crate) fn of(call: impl fmt::Display, code: Code) -> Self {
        let kind = match code {
            Code::NoSupp => ErrorKind::NotSupported,
            Code::NoMem => ErrorKind::OutOfMemory,
            Code::Inval => ErrorKind::Invalid,
            _ => ErrorKind::Provider,
        };
        failure::take(code, |reason| Self::new(kind, format_args!("{call}: {reason}")))
    }

    /// A range outside its memory region.
    #[cold]
    pub(crate) fn outside(call: &str, offset: u64, len: u64, size: u64) -> Self {
        Self::new(
            ErrorKind::OutOfRange { offset, len, size },
            format_args!("{call}: {len} bytes at offset {offset} are outside the memory of {size} bytes"),
        )
    }

    /// The same failure as one of another kind.
    pub(crate) fn with(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NoDevice => io::ErrorKind::AddrNotAvailable,
            ErrorKind::Rejected => io::ErrorKind::ConnectionRefused,
            ErrorKind::Unreachable => io::ErrorKind::HostUnreachable,
            ErrorKind::Closed => io::ErrorKind::NotConnected,
            ErrorKind::Lost => io::ErrorKind::ConnectionReset,
            ErrorKind::OutOfRange { .. } | ErrorKind::NotDurable | ErrorKind::Invalid => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::NotPermitted => io::ErrorKind::PermissionDenied,
            ErrorKind::NotSupported => io::ErrorKind::Unsupported,
            ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Provider | ErrorKind::Status(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// An operation that failed, with its buffer.
pub struct Failed<T> {
    /// Why it failed.
    pub error: Error,
    /// What the operation owned. After a failed read or receive its content is unspecified.
    ///
    /// Buffers are empty, with length 0, if the connection was lost because completions or events could not
    /// be taken: the device may still access the memory, which is released with the connection.
    pub buf: T,
}

impl<T> fmt::Debug for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Display for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for Failed<T> {}

impl<T> From<Failed<T>> for Error {
    fn from(failed: Failed<T>) -> Self {
        failed.error
    }
}

impl<T> From<Failed<T>> for io::Error {
    fn from(failed: Failed<T>) -> Self {
        failed.error.into()
    }
}
