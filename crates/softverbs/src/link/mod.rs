// SPDX-License-Identifier: BSD-3-Clause
//! What carries the bytes of a connection.

mod linger;
mod tcp;

pub(crate) use tcp::Tcp;
