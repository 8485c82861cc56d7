// SPDX-License-Identifier: BSD-3-Clause
//! What librpma's functions mean, one noun a file.
//!
//! An object is a `Box` that C holds the pointer of. Objects take from each other what they need later (a
//! provider, a context, a raw handle) and never keep a reference to another object: C decides the order in which
//! they are deleted. Tear-down order within an object is the order of its fields.

pub mod access;
pub mod bounce;
pub mod completion;
pub mod conn;
pub mod conn_cfg;
pub mod conn_req;
pub mod cq;
pub mod descriptor;
pub mod device;
pub mod ep;
pub mod flush;
pub mod mapping;
pub mod mr;
pub mod native;
pub mod peer;
pub mod peer_cfg;
pub mod post;
pub mod private_data;
pub mod refusal;
pub mod resources;
pub mod srq;
pub mod utils;
