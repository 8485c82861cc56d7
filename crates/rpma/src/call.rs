// SPDX-License-Identifier: BSD-3-Clause
//! The kinds of operations.

#![forbid(unsafe_code)]

/// What a work request does, by the function that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Call {
    #[default]
    Read,
    Write,
    Send,
    Receive,
    Flush,
    Store,
}

impl Call {
    /// In the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Send, Self::Receive, Self::Flush, Self::Store];

    /// The name of the function.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Send => "send",
            Self::Receive => "recv",
            Self::Flush => "flush",
            Self::Store => "store",
        }
    }
}
