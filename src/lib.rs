// SPDX-License-Identifier: BSD-3-Clause
//! librpma in Rust: remote persistent memory access with the C interface of every librpma release.
//!
//! This package is the C surface only. [`capi`] holds the exported functions: each checks its pointers in the
//! header's order, calls one function of the [`rpma_core`] crate and turns the `Result` into a C int once. It
//! decides nothing. The numbers and layouts that a caller sees are in [`rpma_core::abi`]; `include/librpma.h`
//! is generated from both.

pub mod capi;

/// Running out of memory fails the call instead of aborting the program.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;
