// SPDX-License-Identifier: BSD-3-Clause
//! The world around a connection, for tests.
//!
//! The module is compiled for tests, with `--cfg fuzzing`, and with the feature `testing`, which no library
//! enables.

pub mod stream;
