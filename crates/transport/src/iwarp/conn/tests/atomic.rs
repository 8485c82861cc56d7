// SPDX-License-Identifier: BSD-3-Clause
//! Atomic operations in both roles: their bytes, their order among reads and writes, and what is refused.

use crate::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, Opcode, TermCode};
use crate::iwarp::wire::terminate::Terminate;

use super::host::*;
use crate::access::{Access, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_WRITE};
use crate::host::Durable;
use crate::iwarp::conn::{Framing, Sizes, Terms};
use crate::limits::MAX_READS;
use crate::step::{Budget, Quota, reason};
use crate::wr::{Completion, Local, Op, SendWr, opcode, status};

const FLUSHED: u32 = status::WR_FLUSH_ERR;

/// A signalled request whose result goes to the beginning of the region.
fn atomic(wr_id: u64, op: Op, compare_add: u64, swap: u64) -> SendWr {
    let local = Local::Atomic { addr: BASE, lkey: STAG, compare_add, swap };
    SendWr { local, ..wr(wr_id, op, 8) }
}

fn add(wr_id: u64) -> SendWr {
    atomic(wr_id, Op::FetchAdd, 5, 0)
}

/// The peer's answer, with this MSN of its own, to the request that has `request_id`.
fn answer(msn: u32, request_id: u32, original: u64) -> Vec<u8> {
    let body = AtomicResponse { request_id, original }.encode();
    fpdu(&untagged(Opcode::AtomicResponse, true, msn, 0), &body)
}

fn request(msn: u32, request: &AtomicRequest) -> Vec<u8> {
    fpdu(&untagged(Opcode::AtomicRequest, true, msn, 0), &request.encode())
}

fn word(addr: u64, rights: u32) -> Access {
    Access { stag: STAG, addr, len: 8, rights }
}

fn with_ord(ord: u32) -> Bench {
    Bench::with(Terms { framing: Framing { ord, ..FRAMING }, ..terms() }, Sizes::default())
}

// ---- ours --------------------------------------------------------------------------------------------------------------------------

#[test]
fn requests_have_the_bytes_of_the_standard() {
    let mut bench = with_ord(3);
    bench.host.queues.sends.extend([add(1), wr(2, Op::Read, 8), atomic(3, Op::CompareSwap, 0x22, 0x11)]);
    bench.step(reason::POSTED);
    let sent = segments(&sent(&bench.calls()));
    let header = |opcode, msn| untagged(opcode, true, msn, 0);
    assert_eq!(sent[0].0, header(Opcode::AtomicRequest, 1));
    assert_eq!(sent[0].1, AtomicRequest::fetch_add(1, 0x900, 0x5000, 5).encode());
    assert_eq!(sent[1].0, header(Opcode::ReadRequest, 2), "one row of numbers");
    assert_eq!(sent[2].0, header(Opcode::AtomicRequest, 3));
    assert_eq!(sent[2].1, AtomicRequest::cmp_swap(3, 0x900, 0x5000, 0x22, 0x11).encode());
}

#[test]
fn a_request_completes_when_its_answer_is_stored_in_host_byte_order() {
    for (op, opcode) in [(Op::FetchAdd, opcode::FETCH_ADD), (Op::CompareSwap, opcode::COMP_SWAP)] {
        let mut bench = Bench::ready();
        bench.post(SendWr { wr_id: 1, ..atomic(1, op, 1, 2) });
        bench.post(wr(2, Op::Write, 8));
        assert_eq!(bench.sends_done(), [], "a write behind it waits for its turn to complete");
        bench.receive(&answer(1, 1, 0x0102_0304_0506_0708));
        let done =
            |wr_id, opcode| Completion { wr_id, opcode, byte_len: 8, qp_num: QP, ..Default::default() };
        let expected = [
            Call::Placed(word(BASE, LOCAL_WRITE)),
            Call::Settled,
            Call::SendDone(done(1, opcode)),
            Call::SendDone(done(2, opcode::RDMA_WRITE)),
        ];
        assert_eq!(bench.calls(), expected);
        assert_eq!(bench.host.bytes(BASE, 8), 0x0102_0304_0506_0708u64.to_ne_bytes());
    }
}

#[test]
fn they_count_among_the_reads_that_the_peer_takes_and_fences_wait_for_them() {
    let mut bench = with_ord(2);
    let fenced = SendWr { fence: true, ..wr(4, Op::Write, 8) };
    bench.host.queues.sends.extend([add(1), wr(2, Op::Read, 8), add(3), fenced]);
    bench.step(reason::POSTED);
    let opcodes = |bench: &mut Bench| -> Vec<Opcode> {
        segments(&sent(&bench.calls())).iter().map(|(header, _)| header.opcode()).collect()
    };
    assert_eq!(opcodes(&mut bench), [Opcode::AtomicRequest, Opcode::ReadRequest]);
    bench.receive(&answer(1, 1, 0));
    assert_eq!(opcodes(&mut bench), [Opcode::AtomicRequest]);
    bench.receive(&response(2, true, 0, b"8 bytes."));
    assert_eq!(opcodes(&mut bench), [], "the fenced one waits for the second");
    bench.receive(&answer(2, 3, 0));
    assert_eq!(opcodes(&mut bench), [Opcode::Write]);
}

#[test]
fn without_outstanding_reads_there_are_none() {
    let mut bench = with_ord(0);
    bench.post(add(1));
    assert_eq!(bench.sends_done(), [(1, status::LOC_QP_OP_ERR)]);
}

#[test]
fn a_result_that_cannot_be_stored() {
    for (lkey, gone, expected) in [
        (0xbad, u64::MAX, status::LOC_PROT_ERR),
        (BARE, u64::MAX, status::LOC_PROT_ERR),
        (STAG, BASE, FLUSHED),
    ] {
        let mut bench = Bench::ready();
        bench.host.memory.mapped_to = gone;
        let local = Local::Atomic { addr: BASE, lkey, compare_add: 1, swap: 0 };
        bench.post(SendWr { local, ..add(1) });
        bench.receive(&answer(1, 1, 0));
        assert_eq!(bench.sends_done(), [(1, expected)]);
    }
}

#[test]
fn answers_that_nobody_asked_for_are_refused() {
    let refused = |mut bench: Bench, bytes: &[u8], header, len, code| {
        bench.calls();
        bench.receive(bytes);
        let calls = bench.calls();
        assert!(!calls.iter().any(|call| matches!(call, Call::Placed(_))), "{calls:?}");
        bench.host.calls = calls;
        bench.assert_refused_with(&about(code, &header, len));
    };
    let header = |msn| untagged(Opcode::AtomicResponse, true, msn, 0);
    let outstanding = |wr| {
        let mut bench = Bench::ready();
        bench.post(wr);
        bench
    };
    refused(Bench::ready(), &answer(1, 1, 7), header(1), 12, TermCode::DDP_UNTAGGED_NO_BUFFER);
    // A read is not answered like this, nor an atomic operation with bytes of a read.
    refused(
        outstanding(wr(1, Op::Read, 8)),
        &answer(1, 1, 7),
        header(1),
        12,
        TermCode::DDP_UNTAGGED_NO_BUFFER,
    );
    for to in [0, BASE] {
        let tagged = tagged(Opcode::ReadResponse, true, sink(1), to);
        let bytes = fpdu(&tagged, b"8 bytes.");
        refused(outstanding(add(1)), &bytes, tagged, 8, TermCode::DDP_TAGGED_INVALID_STAG);
    }
    for id in [0, 2, u32::MAX] {
        let code = TermCode::RDMAP_OP_CATASTROPHIC_STREAM;
        refused(outstanding(add(1)), &answer(1, id, 7), header(1), 12, code);
    }
    refused(outstanding(add(1)), &answer(2, 1, 7), header(2), 12, TermCode::DDP_UNTAGGED_MSN_RANGE);
}

#[test]
fn what_the_peer_refuses_has_a_status_of_its_own() {
    let codes = [
        (TermCode::RDMAP_PROT_INVALID_STAG, status::REM_ACCESS_ERR, status::REM_ACCESS_ERR),
        (TermCode::RDMAP_PROT_ACCESS, status::REM_ACCESS_ERR, status::REM_ACCESS_ERR),
        (TermCode::RDMAP_PROT_BOUNDS, status::REM_ACCESS_ERR, status::REM_ACCESS_ERR),
        // Not aligned; a peer that knows no atomic operations.
        (TermCode::RDMAP_OP_CATASTROPHIC_STREAM, status::REM_INV_REQ_ERR, status::REM_OP_ERR),
        (TermCode::RDMAP_OP_OPCODE, status::REM_INV_REQ_ERR, status::REM_OP_ERR),
        (TermCode::RDMAP_OP_UNSPECIFIED, status::REM_OP_ERR, status::REM_OP_ERR),
        (TermCode::LOCAL_CATASTROPHIC, FLUSHED, FLUSHED),
    ];
    for (code, of_atomic, of_read) in codes {
        for (wr, expected) in [(add(1), of_atomic), (wr(1, Op::Read, 8), of_read)] {
            let mut bench = Bench::ready();
            bench.post(wr);
            bench.receive(&terminate_fpdu(&Terminate::new(code)));
            assert_eq!(bench.sends_done(), [(1, expected)], "{code}");
        }
    }
    // As siw sends it: the nibbles of its first byte are exchanged, and it has no flags.
    let mut bench = Bench::ready();
    bench.post(add(1));
    bench.receive(&fpdu(&untagged(Opcode::Terminate, true, 1, 0), &[0x20, 6, 0, 0]));
    assert_eq!(bench.sends_done(), [(1, status::REM_INV_REQ_ERR)]);
}

// ---- the peer's --------------------------------------------------------------------------------------------------------------------

#[test]
fn a_request_is_carried_out_behind_what_came_before_and_answered() {
    let mut bench = Bench::ready();
    bench.receive(
        &[
            write(STAG, BASE + 16, &7u64.to_ne_bytes()),
            request(1, &AtomicRequest::fetch_add(0xaaaa, STAG, BASE + 16, 3)),
            write(STAG, BASE + 24, b"8 bytes."),
            request(2, &AtomicRequest::cmp_swap(0xbbbb, STAG, BASE + 16, 10, 99)),
            request(3, &AtomicRequest::cmp_swap(0xcccc, STAG, BASE + 16, 10, 98)),
        ]
        .concat(),
    );
    let calls = bench.calls();
    let moved: Vec<_> =
        calls.iter().filter(|call| matches!(call, Call::Placed(_) | Call::Changed(_))).collect();
    let expected = [
        Call::Placed(word(BASE + 16, REMOTE_WRITE)),
        Call::Changed(word(BASE + 16, REMOTE_ATOMIC)),
        Call::Placed(word(BASE + 24, REMOTE_WRITE)),
        Call::Changed(word(BASE + 16, REMOTE_ATOMIC)),
        Call::Changed(word(BASE + 16, REMOTE_ATOMIC)),
    ];
    assert_eq!(moved, expected.iter().collect::<Vec<_>>());
    let answers = [answer(1, 0xaaaa, 7), answer(2, 0xbbbb, 10), answer(3, 0xcccc, 99)].concat();
    assert_eq!(sent(&calls), answers);
    assert_eq!(bench.host.bytes(BASE + 16, 8), 99u64.to_ne_bytes());
    assert_eq!(bench.host.served, [(2, 16), (0, 0), (3, 24)]);
}

#[test]
fn answers_keep_their_place_among_those_to_reads() {
    let mut bench = Bench::ready();
    bench.host.durable = Durable::Later;
    bench.receive(&read(1, &read_request(STAG, BASE + 16, 8)));
    bench.receive(&request(2, &AtomicRequest::fetch_add(5, STAG, BASE + 16, 1)));
    let calls = bench.calls();
    assert!(calls.contains(&Call::Changed(word(BASE + 16, REMOTE_ATOMIC))), "it is carried out at once");
    assert_eq!(sent(&calls), [], "but the read before it waits for the medium");
    bench.conn.durable(&mut bench.host, 0, true);
    bench.step(reason::DURABLE);
    let opcodes: Vec<_> = segments(&sent(&bench.calls())).iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(opcodes, [Opcode::ReadResponse, Opcode::AtomicResponse]);
    // A flush behind it covers what it has changed.
    bench.host.link.arrives(request(3, &AtomicRequest::fetch_add(6, STAG, BASE + 16, 1)));
    bench.receive(&read(4, &read_request(STAG, BASE, 1)));
    let calls = bench.calls();
    let changed = calls.iter().position(|call| matches!(call, Call::Changed(_))).unwrap();
    let flushed = calls.iter().position(|call| matches!(call, Call::Flushed(..))).unwrap();
    assert!(changed < flushed);
}

#[track_caller]
fn assert_refused(mut bench: Bench, msn: u32, bad: &AtomicRequest, code: TermCode) {
    let before = bench.host.memory.bytes.clone();
    bench.calls();
    bench.receive(&request(msn, bad));
    assert!(bench.host.memory.bytes == before, "{bad:x?} has changed something");
    let header = untagged(Opcode::AtomicRequest, true, msn, 0);
    bench.assert_refused_with(&about(code, &header, AtomicRequest::LEN));
}

/// A peer whose access has been permitted.
fn admitted() -> Bench {
    let mut bench = Bench::ready();
    bench.receive(&write(STAG, BASE, b"8 bytes."));
    bench
}

#[test]
fn requests_that_are_refused() {
    let to = |stag, to| AtomicRequest::fetch_add(1, stag, to, 1);
    for (stag, addr, code) in [
        (0xbad, BASE, TermCode::RDMAP_PROT_INVALID_STAG),
        (0, BASE, TermCode::RDMAP_PROT_INVALID_STAG),
        (FOREIGN, BASE, TermCode::RDMAP_PROT_NOT_OF_STREAM),
        (BARE, BASE, TermCode::RDMAP_PROT_ACCESS),
        (STAG, BASE - 8, TermCode::RDMAP_PROT_BOUNDS),
        (STAG, BASE + SIZE as u64, TermCode::RDMAP_PROT_BOUNDS),
        (STAG, BASE + SIZE as u64 - 4, TermCode::RDMAP_PROT_BOUNDS),
        (STAG, u64::MAX - 3, TermCode::RDMAP_PROT_TO_WRAP),
    ] {
        assert_refused(admitted(), 1, &to(stag, addr), code);
        // A peer that has not made a permitted access gets no other reason.
        assert_refused(Bench::ready(), 1, &to(stag, addr), TermCode::RDMAP_PROT_INVALID_STAG);
    }
    for off in 1..8 {
        assert_refused(admitted(), 1, &to(STAG, BASE + off), TermCode::RDMAP_OP_CATASTROPHIC_STREAM);
    }
    for operation in [1, 3, 15] {
        let unknown = AtomicRequest { operation, ..to(STAG, BASE) };
        assert_refused(admitted(), 1, &unknown, TermCode::RDMAP_OP_OPCODE);
    }
    let mut gone = admitted();
    gone.host.memory.mapped_to = BASE + 8;
    assert_refused(gone, 1, &to(STAG, BASE + 8), TermCode::RDMAP_PROT_BOUNDS);
}

#[test]
fn more_requests_than_were_announced_are_refused_before_they_do_anything() {
    let mut bench = admitted();
    bench.host.link.out.set_room(0);
    bench.post(wr(1, Op::Send, 4));
    let add = |msn| AtomicRequest::fetch_add(msn, STAG, BASE, 1);
    for msn in 1..=u32::from(MAX_READS) {
        match msn % 2 {
            0 => bench.receive(&read(msn, &read_request(STAG, BASE, 8))),
            _ => bench.receive(&request(msn, &add(msn))),
        };
    }
    assert!(!bench.calls().contains(&Call::Ended));
    let msn = u32::from(MAX_READS) + 1;
    assert_refused(bench, msn, &add(msn), TermCode::RDMAP_OP_CATASTROPHIC_STREAM);
}

/// The engine serves others after [`crate::step::ATOMIC_OPERATIONS`] operations for each.
#[test]
fn a_step_carries_out_few_operations_of_the_peer() {
    let mut bench = admitted();
    bench.calls();
    let quota = Quota { bytes: usize::MAX, operations: 256 };
    bench.budget = Budget { send: quota, receive: quota };
    let requests: Vec<u8> =
        (1..=10).flat_map(|msn| request(msn, &AtomicRequest::fetch_add(msn, STAG, BASE, 1))).collect();
    let mut stepped = bench.receive(&requests);
    for carried_out in [4, 4, 2] {
        let calls = bench.calls();
        assert_eq!(calls.iter().filter(|call| matches!(call, Call::Changed(_))).count(), carried_out);
        assert_eq!(stepped.again, carried_out == 4);
        stepped = bench.step(reason::AGAIN);
    }
}
