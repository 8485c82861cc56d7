// SPDX-License-Identifier: BSD-3-Clause
//! The types and constants of `infiniband/verbs.h` and `rdma/rdma_cma.h`. The manual pages of rdma-core
//! describe them. The functions are not declared, because nothing is linked with the two libraries: who calls
//! one looks it up at run time. [`wc_status_text`] is an addition.
//!
//! The declarations are in `bindings/verbs.rs`, which `make bindings` generates from the headers of
//! rdma-core 44. Later releases of libibverbs.so.1 and librdmacm.so.1 stay compatible with them on all 64-bit
//! Linux systems, so a build needs neither libclang nor bindgen. With the feature `bindgen` they are
//! generated from the installed headers when this crate is built.
//!
//! Flags are newtypes over an integer; every other enumeration is a module with constants and a `Type`.
//! Anonymous unions have the names that bindgen generates: `__bindgen_anon_1` and so on, in the order of the
//! struct.
#![no_std]
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "bindgen generates the declarations"
)]

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
compile_error!("the declarations are for 64-bit systems only");
