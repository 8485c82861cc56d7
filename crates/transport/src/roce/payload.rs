// SPDX-License-Identifier: BSD-3-Clause
//! Payload between packets and registered memory.

use crate::access::{Access, Unreachable};
use crate::host::Host;
use crate::wr::{Local, status};

/// Copies the payload of a packet, which starts at byte `offset` of the request; the status of a request that
/// may not read its memory.
pub(super) fn fetch(
    host: &mut impl Host,
    from: &Local,
    offset: usize,
    mut into: &mut [u8],
) -> Result<(), u32> {
    let len = into.len();
    let inline = match from {
        Local::Inline(bytes) => &bytes[..],
        Local::LongInline(bytes) => &bytes[..],
        _ => {
            // A message without payload needs no memory, and may name none.
            for part in from.parts(offset as u32, len, 0).filter(|part| part.len > 0) {
                let (here, rest) = into.split_at_mut(part.len);
                host.fetch(part, here).map_err(|why| match why {
                    Unreachable::Denied(_) | Unreachable::Fault => status::LOC_PROT_ERR,
                })?;
                into = rest;
            }
            return Ok(());
        }
    };
    into.copy_from_slice(&inline[offset..][..len]);
    Ok(())
}

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
