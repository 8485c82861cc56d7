// SPDX-License-Identifier: BSD-3-Clause
//! Mistakes of programs, and what the errors say about them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;

use rpma::testing::{Faults, pair};
use rpma::{Access, Error, ErrorKind, Flush, Op, Peer, Provider};

fn peer() -> Peer {
    Peer::open("127.0.0.1:0", Provider::Soft).unwrap()
}

#[track_caller]
fn assert_is(error: &Error, kind: ErrorKind, texts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in texts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// A host that has less refuses it at once, and allocates nothing.
#[test]
fn more_memory_than_the_host_has() {
    let overcommits = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if overcommits.is_ok_and(|mode| mode.trim() == "1") {
        return;
    }
    let (peer, len) = (peer(), 1 << 45);
    let size = len.to_string();
    assert_is(&peer.buf(len).unwrap_err(), ErrorKind::OutOfMemory, &["Peer::buf", &size]);
    assert_is(&peer.expose(len, Access::READ).unwrap_err(), ErrorKind::OutOfMemory, &["Peer::expose", &size]);
    assert_is(&peer.pool(len / 2, 2).unwrap_err(), ErrorKind::OutOfMemory, &["Peer::pool", &size]);
}

#[test]
fn empty_memory() {
    let peer = peer();
    let text = "a memory region cannot be empty";
    assert_is(&peer.buf(0).unwrap_err(), ErrorKind::Invalid, &["Peer::buf", text]);
    assert_is(&peer.expose(0, Access::READ).unwrap_err(), ErrorKind::Invalid, &["Peer::expose", text]);
    assert_is(&peer.pool(0, 2).unwrap_err(), ErrorKind::Invalid, &["Peer::pool", text]);
}

#[test]
fn a_file_that_is_not_open_for_reading_and_writing() {
    let path = std::env::temp_dir().join(format!("rpma-mistakes-{}", std::process::id()));
    let peer = peer();
    for len in [0, 8192] {
        let write_only = File::create(&path).unwrap();
        write_only.set_len(len).unwrap();
        for file in [write_only, File::open(&path).unwrap()] {
            let error = peer.expose((file, 4096), Access::READ).unwrap_err();
            let text = "Peer::expose: the file is not open for reading and writing";
            assert_is(&error, ErrorKind::Invalid, &[text]);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), len);
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_address_without_a_port_or_with_none_that_exists() {
    let peer = peer();
    for addr in ["127.0.0.1", "127.0.0.1:99999"] {
        for (call, error) in [
            ("Peer::open", Peer::open(addr, Provider::Soft).unwrap_err()),
            ("Peer::open_to", Peer::open_to(addr, Provider::Soft).unwrap_err()),
            ("Peer::listen", peer.listen(addr).unwrap_err()),
            ("Peer::connect", peer.connect(addr).wait().unwrap_err()),
        ] {
            assert_is(&error, ErrorKind::Invalid, &[call, "the address is not ADDR:PORT"]);
        }
    }
}

#[test]
fn a_host_that_does_not_exist() {
    // No valid name, so no server is asked.
    let (peer, addr) = (peer(), "host..invalid:7204");
    let error = Peer::open_to(addr, Provider::Soft).unwrap_err();
    assert_is(&error, ErrorKind::Unreachable, &["Peer::open_to"]);
    assert_is(&peer.connect(addr).wait().unwrap_err(), ErrorKind::Unreachable, &["Peer::connect"]);
}

#[test]
fn ranges_that_are_outside_the_memory() {
    let kind = ErrorKind::OutOfRange { offset: 4090, len: 910, size: 4096 };
    let text = "910 bytes at offset 4090 are outside the memory of 4096 bytes";
    let memory = peer().expose(4096, Access::READ).unwrap();
    let mut out = [0; 910];
    assert_is(&memory.copy_out(4090, &mut out).unwrap_err(), kind, &["Exposed::copy_out: ", text]);
    assert_is(&memory.copy_in(4090, &out).unwrap_err(), kind, &["Exposed::copy_in: ", text]);
    let remote = rpma::Remote::from_bytes(&memory.offer().to_bytes()).unwrap();
    assert_is(&remote.slice(4090..5000).unwrap_err(), kind, &["Remote::slice: ", text]);
}

#[test]
fn operations_after_the_connection_was_closed() {
    let pair = pair(1, Faults::none()).unwrap();
    let (client, peer) = (&pair.client, &pair.peer);
    let addr = client.peer_addr().unwrap().to_string();
    let at = client.remote(0).unwrap().slice(0..8).unwrap();
    pair.server.wait_close().unwrap();
    client.wait_closed().unwrap();
    let text = "the connection is closed";
    let failed = client.read(at, peer.buf(8).unwrap()).wait().unwrap_err();
    assert_is(&failed.error, ErrorKind::Closed, &["Conn::read", &addr, text]);
    let failed = client.batch().flush(at, Flush::Visible).submit().wait().unwrap_err();
    assert_is(&failed.error, ErrorKind::Closed, &["Conn::flush", &addr, text]);
}

#[test]
fn operations_after_the_connection_was_lost() {
    let pair = pair(1, Faults::none().client("peer:kill@op=1")).unwrap();
    let (client, peer) = (&pair.client, &pair.peer);
    // Over RoCE the reason has the UDP port.
    let addr = client.peer_addr().unwrap().ip().to_string();
    let at = client.remote(0).unwrap().slice(0..8).unwrap();
    // More than the queue has room for: the others wait.
    let writes: Vec<_> = (0..70).map(|_| client.write(peer.buf(8).unwrap(), at)).collect();
    for failed in writes.into_iter().map(Op::wait) {
        assert_is(&failed.unwrap_err().error, ErrorKind::Lost, &["Conn::write", &addr]);
    }
    client.wait_closed().unwrap();
    let failed = client.read(at, peer.buf(8).unwrap()).wait().unwrap_err();
    assert_is(&failed.error, ErrorKind::Lost, &["Conn::read", &addr]);
    assert_is(&pair.client.wait_close().unwrap_err(), ErrorKind::Lost, &["Conn::close", &addr]);
}

#[test]
fn a_port_of_another_protocol() {
    // RoCE does not use TCP.
    if std::env::var_os("SOFTVERBS_TRANSPORT").is_some_and(|name| name == "roce") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        stream
    });
    let error = peer().connect(addr).wait().unwrap_err();
    assert_is(&error, ErrorKind::Lost, &["Peer::connect: ", &addr.to_string(), "is no RDMA peer"]);
    server.join().unwrap();
}

#[test]
fn a_port_where_nobody_listens() {
    let peer = peer();
    let addr = { peer.listen("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let error = peer.connect(addr).wait().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("Peer::connect: ") && text.contains(&addr.to_string()), "{text}");
}
