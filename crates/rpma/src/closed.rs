// SPDX-License-Identifier: BSD-3-Clause
//! How connections end.

#![forbid(unsafe_code)]

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// One side closed it.
    Closed,
    /// It broke: the peer ended, or does not answer any more.
    Lost,
}
