// SPDX-License-Identifier: BSD-3-Clause
//! Connection management of iWARP: the MPA handshake, as values.
//!
//! [`exchange`] decides what follows from each byte of the handshake and each timeout; [`negotiate`] decides
//! on the parameters of the connection.

pub mod exchange;
pub mod negotiate;
