// SPDX-License-Identifier: BSD-3-Clause
//! The transport of a connection.

mod linger;
mod tcp;

pub(crate) use tcp::Tcp;
