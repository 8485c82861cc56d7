// SPDX-License-Identifier: BSD-3-Clause
//! An operation whose result nobody wants must say so.

#![deny(unused_must_use)]

use rpma::{Buf, Conn};

fn send(conn: &Conn, message: Buf) {
    conn.send(message);
}

fn main() {}
