// SPDX-License-Identifier: BSD-3-Clause
//! `libsoftverbs.so`: a library to preload, which adds the device `soft0` to every program that calls
//! libibverbs and librdmacm.
//!
//! It exports the functions of both libraries that take an object, each with its version node; the tables are
//! in `verbs.rs` and `rdma.rs`, and the version script is generated from them. Each function determines the
//! owner of the object passed to it. If that is `soft0`, it calls the function of the same name in softverbs;
//! otherwise it calls the real library, so RDMA devices keep working beside `soft0`. Functions that take no
//! object (names of events, rates, fork support) are not exported, and programs call the real ones.
//!
//! Identifiers and event channels of rdma_cm belong to no device when they are created. In a program with
//! this library they all belong to softverbs, which serves every address of the host.
//!
//! Some programs also inspect files of a RoCE device before they use it. So a few functions of the C library
//! are exported, too (`c_library.rs`): they handle the paths of these files, and call the real function for
//! all others.
//!
//! Loading the library starts no thread, leaves no descriptor open and prints nothing; a real library is
//! loaded when one of its functions is called.
//!
//! If a function has the nodes IBVERBS_1.0 and IBVERBS_1.1, only the latter is exported. Programs built for
//! IBVERBS_1.0 have objects of another layout, which only functions of that node create.

/// With the reserve, running out of memory makes a call fail instead of aborting the program.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;

#[macro_use]
mod real;
mod c_library;
mod channels;
mod counters;
mod devices;
mod files;
mod findings;
mod messages;
mod rdma;
mod regions;
mod rsockets;
mod unreached;
mod verbs;
mod whose;
