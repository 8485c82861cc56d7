// SPDX-License-Identifier: BSD-3-Clause
//! What librpma's functions mean, one noun a file, and what carries them out.
//!
//! ```text
//! C program ─ librpma.h ─▶ librpma::capi ─▶ rpma ─▶ provider          (control path: one trait, two implementations)
//!                                            │         ├─ rdma_core ─▶ libibverbs, librdmacm
//!                                            │         └─ soft      ─▶ the softverbs crate
//!                                            └── data path: provider::hot, straight through ibv_context.ops, for both
//! ```
//!
//! An object is a `Box` that C holds the pointer of. Objects take from each other what they need later (a provider, a context, a raw
//! handle) and never keep a reference to another object: C decides the order in which they are deleted. Tear-down order within an
//! object is the order of its fields.
//!
//! * [`abi`]: the numbers and layouts that a caller sees, which are also the values of [`error::Error`].
//! * [`provider`]: the control-path trait, the choice between its implementations, the owning handles, and the data path: five inline
//!   calls, and the native operations that only newer devices have.
//! * [`error`], [`log`], [`config`], [`alloc`]: one error enum, the logging thresholds and sink, the environment, fallible allocation.
//!
//! Who a context belongs to is decided by its address, never by looking inside, and an object made from a context stays with that
//! context's provider. Handles that verbs gives us (protection domains, channels) are opaque here and are not dereferenced; what is read
//! of the others is what `verbs.h` itself reads inline.
//!
//! A panic aborts: it must not unwind into C. Nothing starts a thread or opens a descriptor at load time.
#![allow(
    missing_docs,
    reason = "the contract of each function is documented where C programs see it, in librpma::capi"
)]

#[cfg(not(any(feature = "rdma-core", feature = "soft")))]
compile_error!("at least one of the features `rdma-core` and `soft` is needed");

#[macro_use]
pub mod log;

pub mod abi;
mod access;
mod alloc;
mod bounce;
pub mod completion;
mod config;
pub mod conn;
pub mod conn_cfg;
pub mod conn_req;
pub mod cq;
pub mod descriptor;
mod device;
pub mod ep;
pub mod error;
mod flush;
mod log_default;
mod mapping;
pub mod mr;
mod native;
pub mod peer;
pub mod peer_cfg;
pub mod post;
mod private_data;
mod provider;
mod refusal;
mod resources;
pub mod srq;
pub mod utils;
