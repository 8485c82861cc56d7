// SPDX-License-Identifier: BSD-3-Clause
//! librpma in Rust: remote persistent memory access with the C interface of every librpma release.
//!
//! ```text
//! C program ─ librpma.h ─▶ capi ─▶ rpma ─▶ provider          (control path: one trait, two implementations)
//!                            │                ├─ rdma_core ─▶ libibverbs, librdmacm
//!                            │                └─ soft      ─▶ the softverbs crate
//!                            └── data path: provider::hot, straight through ibv_context.ops, for both
//! ```
//!
//! * [`abi`]: the numbers and layouts a caller sees. Only the C header's contents.
//! * [`capi`]: the exported functions. Each checks its pointers in the header's order, calls one function of
//!   `rpma` and turns the `Result` into a C int once. It decides nothing.
//! * `rpma`: what the functions mean, one noun a file. Owns verbs and connection-manager objects through
//!   `provider::handles`; knows nothing of sockets or devices.
//! * `provider`: the control-path trait, the choice between its implementations, the owning handles whose
//!   field order is the tear-down order, and the data path: five inline calls, and the native operations that only
//!   newer devices have.
//! * [`error`], `log`, `config`, `alloc`: one error enum, the logging thresholds and sink, the environment,
//!   allocation that can fail.
//!
//! Who a context belongs to is decided by its address, never by looking inside, and an object made from a
//! context stays with that context's provider. Handles that verbs gives us (protection domains, channels) are
//! opaque here and are not dereferenced; what is read of the others is what `verbs.h` itself reads inline.
//!
//! A panic aborts: it must not unwind into C. Nothing starts a thread or opens a descriptor at load time.

#[cfg(not(any(feature = "rdma-core", feature = "soft")))]
compile_error!("at least one of the features `rdma-core` and `soft` is needed");

#[macro_use]
mod log;

pub mod abi;
mod alloc;
pub mod capi;
mod config;
pub mod error;
mod log_default;
mod provider;
mod rpma;
