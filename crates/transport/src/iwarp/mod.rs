// SPDX-License-Identifier: BSD-3-Clause
//! iWARP: RDMA over TCP. [`wire`] has the formats, [`conn`] a connection from its first FPDU to its end,
//! [`link`] the interface to the stream that carries it, [`cm`] the handshake before it.

pub mod cm;
pub mod conn;
pub mod link;
pub mod wire;
