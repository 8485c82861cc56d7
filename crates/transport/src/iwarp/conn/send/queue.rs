// SPDX-License-Identifier: BSD-3-Clause
//! The FPDUs that the link has not accepted yet, and their alignment to TCP segments. `segment` is the length
//! of a TCP segment if no FPDU may span two.

use std::collections::VecDeque;

use crate::iwarp::wire::stream;
use arrayvec::ArrayVec;

use super::super::fpdu::{Fpdu, MAX_PARTS, Origin, Payload};
use crate::direct::Part;
use crate::sq::SendQueue;
use crate::units::Errno;

/// FPDUs sent in one call.
const BATCH: usize = 64;
/// Parts sent in one call: three for each FPDU with one range. If FPDUs have more ranges, fewer FPDUs are
/// sent in one call.
const BATCH_PARTS: usize = BATCH * 3;
const _: () = assert!(BATCH_PARTS >= MAX_PARTS);
/// Payload bytes sent in one call; more would only wait in the kernel.
const BATCH_BYTES: usize = 512 * 1024;
/// At least one eighth of a TCP segment must be free for another FPDU to be put there; less stays empty.
const WORTH_AN_FPDU: usize = 8;

/// The arguments of one call of the link. It has 6 KiB and is filled in place.
pub(super) struct Batch<'a> {
    pub parts: ArrayVec<Part<'a>, BATCH_PARTS>,
    /// For each part the index of its FPDU in the queue.
    owners: ArrayVec<u8, BATCH_PARTS>,
}

impl Batch<'_> {
    pub(super) fn new() -> Self {
        Self { parts: ArrayVec::new(), owners: ArrayVec::new() }
    }

    /// The index of the FPDU that a part belongs to.
    pub(super) fn owner(&self, part: usize) -> usize {
        usize::from(self.owners[part])
    }
}

pub(super) struct FpduQueue {
    fpdus: VecDeque<Fpdu>,
    /// Buffers of copies whose FPDUs were sent.
    spare: Vec<Vec<u8>>,
}

impl FpduQueue {
    pub(super) fn new() -> Self {
        Self { fpdus: VecDeque::new(), spare: Vec::new() }
    }

    /// ENOMEM. The queue does not grow later.
    pub(super) fn open(&mut self) -> Result<(), Errno> {
        self.fpdus.try_reserve(BATCH).map_err(|_| libc::ENOMEM)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fpdus.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.fpdus.len()
    }

    pub(super) fn push(&mut self, fpdu: Fpdu) {
        self.fpdus.push_back(fpdu);
    }

    pub(super) fn front(&self) -> Option<&Fpdu> {
        self.fpdus.front()
    }

    /// The numbers of FPDUs and bytes that may still be queued before the link is called.
    pub(super) fn room(&self) -> (usize, usize) {
        let bytes = self.fpdus.iter().map(Fpdu::len).sum();
        (BATCH.saturating_sub(self.fpdus.len()), BATCH_BYTES.saturating_sub(bytes))
    }

    /// Drops everything but a partly sent FPDU, which it returns.
    pub(super) fn cut(&mut self) -> Option<Fpdu> {
        let begun = self.fpdus.pop_front().filter(|fpdu| fpdu.sent > 0);
        self.fpdus.clear();
        begun
    }

    /// Each FPDU, and the number of bytes used in its TCP segment up to its end. A segment gets as many FPDUs
    /// as fit, at least one.
    fn in_segments(&self, segment: Option<usize>) -> impl Iterator<Item = (&Fpdu, usize)> {
        let segment = segment.unwrap_or(usize::MAX);
        self.fpdus.iter().scan(0, move |used, fpdu| {
            let left = fpdu.left();
            *used = if *used + left > segment { left } else { *used + left };
            Some((fpdu, *used))
        })
    }

    /// The maximum length of the next ULPDU, at most `most`. If the `len` bytes of the message need several
    /// ULPDUs anyway, the first one fills the rest of the TCP segment of the FPDUs before it, so that these
    /// do not leave in a short segment.
    pub(super) fn mulpdu(&self, segment: Option<usize>, most: usize, len: usize) -> usize {
        let Some(bytes) = segment.filter(|_| len > most) else { return most };
        let used = self.in_segments(segment).last().map_or(0, |(_, used)| used);
        let room = bytes.saturating_sub(used);
        let rest = stream::mulpdu(room);
        if room < bytes / WORTH_AN_FPDU || stream::fpdu_len(rest) > room { most } else { most.min(rest) }
    }

    /// Puts the first FPDUs into an empty batch: at most `most`, and no more than fit into a TCP segment.
    pub(super) fn gather<'a>(&'a self, segment: Option<usize>, most: usize, batch: &mut Batch<'a>) {
        for (i, (fpdu, used)) in self.in_segments(segment).take(most.min(BATCH)).enumerate() {
            // This FPDU starts the next segment.
            if i > 0 && used == fpdu.left() {
                break;
            }
            for part in fpdu.rest() {
                if batch.parts.try_push(part).is_err() {
                    return;
                }
                batch.owners.push(i as u8);
            }
        }
    }

    /// The link has taken this many bytes. Each request whose peer may answer from here on is
    /// [sent](SendQueue::sent).
    #[inline]
    pub(super) fn taken(&mut self, mut n: usize, sq: &mut SendQueue) {
        while let Some(fpdu) = self.fpdus.front_mut() {
            let taken = n.min(fpdu.left());
            fpdu.sent += taken;
            n -= taken;
            if let (Origin::Request { position, last: true }, true) = (fpdu.origin, fpdu.is_effective()) {
                sq.sent(position);
            }
            if fpdu.left() > 0 {
                return;
            }
            let Some(fpdu) = self.fpdus.pop_front() else { return };
            if let Payload::Copied(bytes) = fpdu.payload {
                self.spare.push(bytes);
            }
        }
    }

    /// A buffer of at least `len` bytes, reused from a sent FPDU if possible. ENOMEM: an FPDU has up to 64
    /// KiB.
    pub(super) fn copy(&mut self, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.try_reserve_exact(len - bytes.len()).map_err(|_| libc::ENOMEM)?;
            bytes.resize(len, 0);
        }
        Ok(bytes)
    }
}
