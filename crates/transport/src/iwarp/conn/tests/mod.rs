// SPDX-License-Identifier: BSD-3-Clause
//! Each room of a connection by itself: it is given requests, bytes and moments, and what it calls on its
//! host is compared.

mod atomic;
mod ending;
mod entries;
mod fairness;
mod fpdu;
mod host;
mod log;
mod opening;
mod reasons;
mod recv;
mod send;
mod sq;
mod transfer;
mod windows;
