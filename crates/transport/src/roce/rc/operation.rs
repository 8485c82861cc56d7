// SPDX-License-Identifier: BSD-3-Clause
//! The operation of a packet.

use crate::roce::wire::Operation;
use crate::wr::Op;

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
