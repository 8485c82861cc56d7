// SPDX-License-Identifier: BSD-3-Clause
//! Two operations cannot have one buffer, nor can it be copied.

use rpma::{Buf, Conn};

fn send(conn: &Conn, message: Buf) {
    conn.send(message.clone()).detach();
    conn.send(message).detach();
}

fn main() {}
