// SPDX-License-Identifier: BSD-3-Clause
//! The exported functions, one noun a file.
//!
//! A function here checks its pointers in the order of the parameters, calls one function of `rpma`, and turns the
//! result into a C int once, at the end. The documentation is the contract for C callers: `include/librpma.h` and
//! the manual pages are made from it.
//!
//! # What every function relies on
//!
//! A caller promises, and no function can check, that
//!
//! * every pointer is NULL or points to what its type says, alive during the call; an output may be
//!   uninitialised, and a string ends with NUL;
//! * a library object was given out by this library and has not been deleted; what it was made from is still
//!   there (the context of a peer, the peer of everything else, the shared receive queue of a connection);
//! * functions that are not marked thread safe are not called at the same time on the same object;
//! * registered memory stays mapped until it is deregistered.
//!
//! These promises are what the `# Safety` sections refer to and what the `SAFETY` comments build on.

mod convert;

// In the order of the C header: as a program meets them.
pub mod utils;

pub mod peer;

pub mod mr;

pub mod peer_cfg;

pub mod conn_cfg;

pub mod srq;

pub mod ep;

pub mod conn_req;

pub mod conn;

pub mod rma;

pub mod messaging;

pub mod cq;

pub mod log;

pub mod legacy;
