// SPDX-License-Identifier: BSD-3-Clause
//! The types, constants and functions of `infiniband/verbs.h` and `rdma/rdma_cma.h`, made from the installed headers when this crate is
//! built. What they mean is in the manual pages of rdma-core; the headers' inline functions are not here.
//!
//! Flags are newtypes over an integer, other enumerations a module with constants and a `Type`. Anonymous unions have the names that
//! bindgen gives them: `__bindgen_anon_1` and so on, in the order in which they stand in the struct.
#![no_std]
#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, unsafe_op_in_unsafe_fn)]

use libc::{
    pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, timespec,
};

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
