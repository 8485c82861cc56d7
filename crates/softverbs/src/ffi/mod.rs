// SPDX-License-Identifier: BSD-3-Clause
//! The C structures, and the functions with the signatures of verbs and rdma_cm.

pub(crate) mod context;
pub(crate) mod object;
mod ops;
pub mod verbs;
