// SPDX-License-Identifier: BSD-3-Clause
//! The packets of a request: their operation and extension headers; and requests without a packet.

use super::wire::{AtomicEth, Extension, Feth, Operation, Reth, Selectivity};
use crate::access::Bind;
use crate::host::Host;
use crate::wr::{Local, Op, SendWr, status};

/// The operation of a request packet, which is the first or the last one of its message, or both.
pub(super) fn operation_of(op: Op, is_first: bool, is_last: bool) -> Operation {
    use Operation::*;
    match (op, is_first, is_last) {
        (Op::Send | Op::SendWithImm | Op::SendWithInv, true, false) => SendFirst,
        (Op::Send | Op::SendWithImm | Op::SendWithInv, false, false) => SendMiddle,
        (Op::Send, false, true) => SendLast,
        (Op::SendWithImm, false, true) => SendLastImm,
        (Op::SendWithInv, false, true) => SendLastInv,
        (Op::Send, true, true) => SendOnly,
        (Op::SendWithImm, true, true) => SendOnlyImm,
        (Op::SendWithInv, true, true) => SendOnlyInv,
        (Op::Write | Op::WriteWithImm, true, false) => WriteFirst,
        (Op::Write | Op::WriteWithImm, false, false) => WriteMiddle,
        (Op::Write, false, true) => WriteLast,
        (Op::WriteWithImm, false, true) => WriteLastImm,
        (Op::Write, true, true) => WriteOnly,
        (Op::WriteWithImm, true, true) => WriteOnlyImm,
        (Op::Read, ..) => ReadRequest,
        (Op::CompareSwap, ..) => CompareSwap,
        (Op::AtomicWrite, ..) => AtomicWrite,
        (Op::Flush, ..) => Flush,
        // Windows are bound and invalidated without a packet.
        (Op::FetchAdd | Op::BindMw | Op::LocalInv, ..) => FetchAdd,
    }
}

/// Whether the last packet of a message takes a receive of the peer.
pub(super) fn consumes_receive(op: Op) -> bool {
    matches!(op, Op::Send | Op::SendWithImm | Op::SendWithInv | Op::WriteWithImm)
}

/// The extension headers of a request packet.
pub(super) fn extension_of(wr: &SendWr, operation: Operation) -> Extension {
    let reth = Reth { va: wr.remote_addr, rkey: wr.rkey, len: wr.len };
    match operation {
        Operation::WriteFirst | Operation::WriteOnly | Operation::AtomicWrite => Extension::Reth(reth),
        Operation::Flush => flush(wr),
        Operation::CompareSwap | Operation::FetchAdd => atomic(wr),
        Operation::WriteOnlyImm => Extension::RethImm(reth, wr.imm),
        Operation::WriteLastImm | Operation::SendLastImm | Operation::SendOnlyImm => Extension::Imm(wr.imm),
        Operation::SendLastInv | Operation::SendOnlyInv => Extension::Ieth(wr.rkey),
        _ => Extension::None,
    }
}

fn atomic(wr: &SendWr) -> Extension {
    let (compare_add, swap) = match wr.local {
        Local::Atomic { compare_add, swap, .. } => (compare_add, swap),
        _ => (0, 0),
    };
    let (va, rkey) = (wr.remote_addr, wr.rkey);
    Extension::Atomic(match wr.op {
        Op::CompareSwap => AtomicEth { va, rkey, swap_add: swap, compare: compare_add },
        _ => AtomicEth { va, rkey, swap_add: compare_add, compare: 0 },
    })
}

fn flush(wr: &SendWr) -> Extension {
    let (len, rights, whole) = match wr.local {
        Local::Flush { len, rights, whole } => (len, rights, whole),
        _ => (0, 0, false),
    };
    let selectivity = if whole { Selectivity::Region } else { Selectivity::Range };
    let reth = Reth { va: wr.remote_addr, rkey: wr.rkey, len };
    Extension::Flush(Feth { placement: Feth::placement_of(rights), selectivity }, reth)
}

/// Carries out a request that sends nothing; `None` if it is another one.
pub(super) fn local_operation(host: &mut impl Host, wr: &SendWr) -> Option<Result<(), u32>> {
    let changed = match (wr.op, &wr.local) {
        (Op::BindMw, &Local::Window { region, access, len }) => {
            host.bind(Bind { rkey: wr.rkey, region, addr: wr.remote_addr, len, access })
        }
        (Op::BindMw | Op::LocalInv, _) => host.invalidate(wr.rkey),
        _ => return None,
    };
    Some(changed.map_err(|_| status::MW_BIND_ERR))
}
