// SPDX-License-Identifier: BSD-3-Clause
//! The implementation of librpma's functions, one file per object, and of the providers that execute them.
//!
//! ```text
//! C program ─ librpma.h ─▶ librpma::capi ─▶ rpma_core ─▶ provider   (control path: one table, two providers)
//! Rust program ─ rpma ────────────────────────┘ │            ├─ rdma_core ─▶ libibverbs, librdmacm
//!                                               │            └─ soft      ─▶ the softverbs crate
//!                                               └── data path: provider::hot, by ibv_context.ops, for both
//! ```
//!
//! An object is a `Box` whose pointer C holds. Objects copy from each other what they need later (a provider,
//! a context, a raw handle) and never keep a reference to another object, because C decides the order in
//! which they are deleted. Within an object, the order of the fields is the tear-down order.
//!
//! * [`abi`]: the constants and layouts of the C interface, which are also the values of [`error::Error`].
//! * [`provider`]: the control-path table, the selection of its implementation, the owning handles, and the
//!   data path: five inline calls, and the native operations that only newer devices support.
//! * [`error`], [`failure`], [`log`], [`config`], [`alloc`]: the error enum, the text of the last failure,
//!   the log thresholds and sink, the environment, fallible allocation.
//!
//! The provider of a context is determined by the address of the context, never by its contents, and an
//! object created from a context uses the provider of that context. Some verbs handles (protection domains,
//! channels) are opaque here and never dereferenced; of the others, only the members that `verbs.h` itself
//! reads inline are read.
//!
//! In the C libraries a panic aborts the process, because it must not unwind into C. Loading the library
//! starts no thread and opens no file descriptor.
#![allow(
    missing_docs,
    reason = "the contract of each function is documented where C programs see it, in librpma::capi"
)]

#[cfg(not(any(feature = "rdma-core", feature = "soft")))]
compile_error!("at least one of the features `rdma-core` and `soft` is needed");

// Locks that check their order.
#[cfg(lock_order)]
extern crate lock_order as std;

#[macro_use]
pub mod log;

pub mod abi;
mod access;
pub mod alloc;
mod bounce;
pub mod cancel;
pub mod completion;
pub mod config;
pub mod conn;
pub mod conn_cfg;
pub mod conn_req;
pub mod cq;
mod denied;
pub mod descriptor;
mod device;
pub mod ep;
pub mod error;
mod event;
pub mod failure;
mod flush;
mod log_default;
mod mapping;
pub mod mr;
mod native;
mod not_posted;
pub mod peer;
pub mod peer_cfg;
pub mod post;
#[cfg(fuzzing)]
pub mod private_data;
#[cfg(not(fuzzing))]
mod private_data;
mod provider;
mod refusal;
mod resources;
pub mod srq;
pub mod utils;
pub mod version;
