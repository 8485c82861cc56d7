// SPDX-License-Identifier: BSD-3-Clause
//! The C structures and functions of verbs and rdma_cm.

pub(crate) mod context;
mod object;
mod ops;
pub mod rdma;
pub mod verbs;
