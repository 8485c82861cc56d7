// SPDX-License-Identifier: BSD-3-Clause
//! A buffer that an operation has taken cannot be used.

use rpma::{Buf, Conn, RemoteSlice};

fn write(conn: &Conn, mut buf: Buf, to: RemoteSlice) {
    let operation = conn.write(buf, to);
    buf[0] = 1;
    operation.detach();
}

fn main() {}
