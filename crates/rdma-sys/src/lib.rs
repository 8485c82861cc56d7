// SPDX-License-Identifier: BSD-3-Clause
//! The types, constants and functions of `infiniband/verbs.h` and `rdma/rdma_cma.h`. What they mean is in the
//! manual pages of rdma-core; the headers' inline functions are not here. [`wc_status_text`] is ours.
//!
//! They are those of `bindings/verbs.rs`, made from the headers of rdma-core 44 (`make bindings`).
//! libibverbs.so.1 and librdmacm.so.1 keep what is declared there in every later release, on all 64-bit Linux
//! systems alike, so a build needs neither libclang nor bindgen. With the feature `bindgen` they are made
//! from the installed headers when this crate is built.
//!
//! Flags are newtypes over an integer, other enumerations a module with constants and a `Type`. Anonymous
//! unions have the names that bindgen gives them: `__bindgen_anon_1` and so on, in the order in which they
//! stand in the struct.
#![no_std]
#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, unsafe_op_in_unsafe_fn)]

mod status;

pub use status::wc_status_text;

use libc::{
    pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, timespec,
};

#[cfg(not(feature = "bindgen"))]
include!("../bindings/verbs.rs");
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/verbs.rs"));

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the declarations are those of 64-bit systems");
