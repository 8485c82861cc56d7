// SPDX-License-Identifier: BSD-3-Clause
//! Connection management of rdma_cm that does not depend on the protocol: the [`phase`] of an identifier. How
//! two sides connect is in [`crate::iwarp::cm`] and [`crate::roce::cm`].

mod phase;

pub use phase::{Disconnect, EventKind, Held, Phase};
