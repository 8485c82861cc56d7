// SPDX-License-Identifier: BSD-3-Clause
//! `libsoftverbs.so`, preloaded, gives every program that calls libibverbs and librdmacm the device `soft0`.
//!
//! It exports the functions of both libraries that take an object, each with the version node that programs
//! ask for; [`verbs`] and [`rdma`] are the tables, and the version script is generated from them. A function
//! looks whose object it was given. One of `soft0` goes to softverbs, which has a function of the same name.
//! Any other goes to the real library, so a device keeps working beside `soft0`. What takes no object (names
//! of events, rates, fork support) is not exported: the real library does it.
//!
//! Identifiers and event channels of rdma_cm belong to no device when they are created. In a program with
//! this library they are those of softverbs, which serves every address of the host.
//!
//! Loading it starts no thread, opens no descriptor and prints nothing; the real libraries are loaded when
//! one of their functions is needed.
//!
//! The node IBVERBS_1.0 of functions that also have IBVERBS_1.1 is left to the real library. Programs of that
//! time have objects of another layout, which they get from functions of the same node.

/// Out of memory is an error of a call, not the end of the program.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;

#[macro_use]
mod real;
mod channels;
mod counters;
mod devices;
mod messages;
mod rdma;
mod regions;
mod rsockets;
mod unreached;
mod verbs;
mod whose;
