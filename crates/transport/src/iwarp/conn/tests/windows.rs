// SPDX-License-Identifier: BSD-3-Clause
//! Requests that bind and invalidate windows: in their turn among those that send something, and what comes
//! of a wrong one.

use super::host::*;
use crate::access::{Bind, Denied};
use crate::iwarp::wire::rdmap::Opcode;
use crate::step::reason;
use crate::wr::{Local, Op, SendWr, opcode, status};

fn bind(wr_id: u64, rkey: u32) -> SendWr {
    let local = Local::Window { region: 0x77, access: 6, len: 1 << 40 };
    SendWr { local, rkey, ..wr(wr_id, Op::BindMw, 0) }
}

fn invalidate(wr_id: u64, rkey: u32) -> SendWr {
    SendWr { rkey, ..wr(wr_id, Op::LocalInv, 0) }
}

fn bound(rkey: u32) -> Call {
    Call::Bound(Bind { rkey, region: 0x77, addr: 0x5000, len: 1 << 40, access: 6 })
}

#[test]
fn windows_change_in_order_and_nothing_goes_out_for_them() {
    let mut bench = Bench::ready();
    let body = bench.host.bytes(BASE, 8).to_vec();
    let unsignaled = SendWr { signaled: false, ..bind(3, 0x302) };
    bench.host.queues.sends.extend([wr(1, Op::Send, 8), bind(2, 0x301), unsignaled, invalidate(4, 0x201)]);
    bench.host.queues.sends.push_back(wr(5, Op::Send, 8));
    bench.step(reason::POSTED);
    let calls = bench.calls();
    let send = |msn| fpdu(&untagged(Opcode::Send, true, msn, 0), &body);
    assert_eq!(calls[..3], [bound(0x301), bound(0x302), Call::Invalidated(0x201)]);
    assert_eq!(calls[3], Call::Sent([send(1), send(2)].concat(), false));
    let opcodes: Vec<_> = calls[4..]
        .iter()
        .map(|call| match call {
            Call::SendDone(c) => (c.wr_id, c.status, c.opcode, c.byte_len),
            Call::Released => (3, 0, 0, 0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        opcodes,
        [
            (1, 0, opcode::SEND, 8),
            (2, 0, opcode::BIND_MW, 0),
            (3, 0, 0, 0),
            (4, 0, opcode::LOCAL_INV, 0),
            (5, 0, opcode::SEND, 8)
        ]
    );
}

#[test]
fn alone_they_complete_without_the_link() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    for round in 0..100 {
        bench.host.queues.sends.extend((0..8).map(|i| bind(8 * round + i, 0x100)));
        bench.step(reason::POSTED);
        let done: Vec<_> = (0..8).map(|i| (8 * round + i, status::SUCCESS)).collect();
        assert_eq!(bench.sends_done(), done);
    }
}

#[test]
fn a_fenced_one_waits_for_reads() {
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Read, 8));
    bench.post(SendWr { fence: true, ..invalidate(2, 0x201) });
    bench.post(bind(3, 0x301));
    let changes = |calls: &[Call]| calls.iter().any(|c| matches!(c, Call::Bound(_) | Call::Invalidated(_)));
    assert!(!changes(&bench.calls()));
    bench.receive(&response(1, true, 0, b"8 bytes."));
    let calls = bench.calls();
    let order: Vec<_> = calls
        .iter()
        .filter_map(|call| match call {
            Call::SendDone(c) => Some(c.wr_id),
            Call::Invalidated(0x201) => Some(102),
            Call::Bound(_) => Some(103),
            _ => None,
        })
        .collect();
    let at = |what| order.iter().position(|seen| *seen == what);
    assert!(at(102) < at(103) && at(1) < at(2) && at(2) < at(3), "{order:?}");
    assert!(at(102).is_some() && at(1).is_some());
}

#[test]
fn a_wrong_one_ends_the_connection_behind_what_was_posted_before() {
    for request in [bind(2, 0x301), invalidate(2, 0x201)] {
        let mut bench = Bench::ready();
        bench.host.windows = Err(Denied::Bounds);
        let body = bench.host.bytes(BASE, 8).to_vec();
        bench.host.queues.sends.extend([wr(1, Op::Send, 8), request, wr(3, Op::Send, 8)]);
        bench.step(reason::POSTED);
        let calls = bench.calls();
        assert_eq!(sent(&calls), fpdu(&untagged(Opcode::Send, true, 1, 0), &body));
        assert_eq!(calls.last(), Some(&Call::Ended));
        assert_eq!(
            sends_done(&calls),
            [(1, status::SUCCESS), (2, status::MW_BIND_ERR), (3, status::WR_FLUSH_ERR)]
        );
    }
}
