// SPDX-License-Identifier: BSD-3-Clause
//! The exported functions, grouped by the object they operate on.
//!
//! Each function checks its pointers in the order of the parameters, calls one function of `rpma`, and
//! converts the result to a C int once, at the end. The documentation is the contract with C callers:
//! `include/librpma.h` and the manual pages are generated from it.
//!
//! # Requirements on the caller
//!
//! No function can check that the caller meets these requirements:
//!
//! * Every pointer is NULL or valid for its type for the duration of the call. An output may be
//!   uninitialised; a string is NUL-terminated.
//! * A library object was created by this library and has not been deleted. The objects it was created from
//!   still exist: the device context of a peer, the peer of every other object, the shared receive queue of a
//!   connection.
//! * Functions that are not marked thread safe are not called concurrently on the same object, and no object
//!   is in use while it is deleted or consumed.
//! * Registered memory stays mapped until it is deregistered.
//!
//! The `# Safety` sections refer to these requirements, and each `SAFETY` comment names those that it relies
//! on. A live object is one that has been created by this library and not been deleted.

mod convert;

// In the order of the C header, which is the order in which a program uses them.
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
