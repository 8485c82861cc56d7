// SPDX-License-Identifier: BSD-3-Clause
//! The payload of received packets, on its way to registered memory.

use crate::access::Access;
use crate::host::Host;

/// Places `len` bytes of `input`, from byte `from` on, in the ranges.
#[derive(Clone)]
pub(super) struct Piece<R> {
    pub ranges: R,
    pub from: usize,
    pub len: usize,
}

/// Places pieces of a packet in their ranges, or nothing if one of them does not permit it.
pub(super) fn place<R: Iterator<Item = Access> + Clone, const N: usize>(
    host: &mut impl Host,
    pieces: [Piece<R>; N],
    input: &[u8],
) -> Result<(), NotPlaced> {
    let filled = |part: &Access| part.len > 0;
    let mut all = pieces.iter().flat_map(|piece| piece.ranges.clone()).filter(filled);
    if all.any(|part| host.check(part).is_err()) {
        return Err(NotPlaced);
    }
    let mut is_whole = true;
    for Piece { ranges, mut from, len } in pieces {
        let end = from + len;
        for part in ranges.filter(filled) {
            if !is_whole || host.place(part, from).is_err() {
                break;
            }
            from += part.len;
        }
        is_whole &= from == end;
    }
    let settled = host.settle(input);
    if is_whole && settled.is_ok() { Ok(()) } else { Err(NotPlaced) }
}

/// Places payload in the ranges, or nothing if one of them does not permit it.
pub(super) fn place_all(
    host: &mut impl Host,
    ranges: impl Iterator<Item = Access> + Clone,
    payload: &[u8],
) -> Result<(), NotPlaced> {
    place(host, [Piece { ranges, from: 0, len: payload.len() }], payload)
}

/// The memory for payload does not permit it, or is gone.
pub(super) struct NotPlaced;
