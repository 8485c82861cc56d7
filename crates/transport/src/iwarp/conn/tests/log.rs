// SPDX-License-Identifier: BSD-3-Clause
//! The log messages about the end of a connection.

use crate::iwarp::wire::WireError;
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode};
use crate::iwarp::wire::terminate::Terminate;

use crate::access::Denied;
use crate::iwarp::conn::ending::{Cause, End, Refusal};
use crate::wr::{Local, Op, SendWr, status};

fn request(op: Op) -> SendWr {
    SendWr {
        wr_id: 0x77,
        op,
        signaled: true,
        fence: false,
        solicited: false,
        imm: [0; 4],
        local: Local::Memory { addr: 0x1000, lkey: 0x201 },
        len: 64,
        remote_addr: 0x7000,
        rkey: 0x300,
        to: None,
    }
}

#[test]
fn every_end_has_its_words() {
    let unknown = TermCode { layer: 9, etype: 9, code: 9 };
    let write = Header::Tagged { opcode: Opcode::Write, last: true, stag: 0x105, to: 0xfff8 };
    let read = ReadRequest { sink_stag: 1, sink_to: 0, size: 8, src_stag: 0x105, src_to: 0x10 };
    for (end, is_failure, expected) in [
        (End::Local, false, "connection closed by this side"),
        (End::PeerClosed, false, "connection closed by the remote peer"),
        (
            End::Terminated(Terminate::new(TermCode::MPA_CRC)),
            true,
            "the remote peer ended the connection: MPA: CRC error",
        ),
        (
            End::Terminated(Terminate::new(unknown)),
            true,
            "the remote peer ended the connection: a code that no standard defines",
        ),
        (
            End::Refused(None, Refusal::Segment(write, 64, Cause::Denied(Denied::Bounds))),
            true,
            "connection ended: RDMA write from the remote peer, 64 bytes at 0xfff8, key 0x105: the range is not in the \
             memory region",
        ),
        (
            End::Refused(None, Refusal::Read(read, Cause::Denied(Denied::Rights))),
            true,
            "connection ended: RDMA read from the remote peer, 8 bytes at 0x10, key 0x105: the memory region has not \
             been registered for this access",
        ),
        (
            End::Refused(None, Refusal::Unmapped(Opcode::Send)),
            true,
            "connection ended: send from the remote peer: the registered memory is not mapped any more",
        ),
        (
            End::Refused(None, Refusal::Durability),
            true,
            "connection ended: flush to persistence from the remote peer: the data could not be made durable",
        ),
        (End::Link(libc::ETIMEDOUT), true, "connection lost: Connection timed out (os error 110)"),
    ] {
        let ending = end.describe(None);
        assert_eq!((ending.is_failure, ending.why.to_string().as_str()), (is_failure, expected));
    }
    let error = WireError::UnexpectedOpcode(Opcode::Terminate);
    let text = End::Refused(None, Refusal::Protocol(error)).to_string();
    assert!(text.ends_with(&error.to_string()), "{text}");
}

#[test]
fn a_request_that_fails_is_named() {
    let end = End::Request { position: 3, status: status::LOC_PROT_ERR };
    for (op, expected) in [
        (
            Op::Write,
            "RDMA write, 64 bytes, local address 0x1000, lkey 0x201, remote address 0x7000, rkey 0x300, wr_id 0x77",
        ),
        (Op::Send, "send, 64 bytes, local address 0x1000, lkey 0x201, wr_id 0x77"),
    ] {
        let wr = request(op);
        let ending = end.describe(Some((&wr, status::LOC_PROT_ERR)));
        assert_eq!((wr.to_string().as_str(), ending.operation), (expected, Some(op.name())));
        assert_eq!((ending.why.to_string().as_str(), ending.errno), ("connection ended", None));
    }
    let wr = SendWr { local: Local::inline(b"12345678").unwrap(), ..request(Op::Write) };
    let text = wr.to_string();
    assert!(text.starts_with("RDMA write, 64 bytes, remote address 0x7000,"), "{text}");
}
