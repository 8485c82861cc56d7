// SPDX-License-Identifier: BSD-3-Clause
//! The FPDUs that the link has not taken, and how they lie in TCP segments. `segment` is the bytes of one,
//! where each FPDU has to lie in one as a whole.

use std::collections::VecDeque;

use crate::iwarp::wire::stream;
use arrayvec::ArrayVec;

use super::super::fpdu::{Fpdu, MAX_PARTS, Origin, Payload};
use crate::host::Part;
use crate::units::Errno;

/// FPDUs given to the link in one call.
const BATCH: usize = 64;
/// Parts of them: three are enough for an FPDU of one range. Where FPDUs are gathered, fewer go out in one
/// call.
const BATCH_PARTS: usize = BATCH * 3;
const _: () = assert!(BATCH_PARTS >= MAX_PARTS);
/// Payload bytes given to the link in one call; more only waits in the kernel.
const BATCH_BYTES: usize = 512 * 1024;
/// This part of a TCP segment is filled by another FPDU; less is left empty.
const WORTH_AN_FPDU: usize = 8;

/// What the link is given in one call. It is filled where it stands: it has 6 KiB.
pub(super) struct Batch<'a> {
    pub parts: ArrayVec<Part<'a>, BATCH_PARTS>,
    /// For each part the place of its FPDU in the queue.
    owners: ArrayVec<u8, BATCH_PARTS>,
}

impl Batch<'_> {
    pub(super) fn new() -> Self {
        Self { parts: ArrayVec::new(), owners: ArrayVec::new() }
    }

    /// The place in the queue of the FPDU that a part belongs to.
    pub(super) fn owner(&self, part: usize) -> usize {
        usize::from(self.owners[part])
    }
}

pub(super) struct FpduQueue {
    fpdus: VecDeque<Fpdu>,
    /// Copies whose FPDUs are gone.
    spare: Vec<Vec<u8>>,
}

impl FpduQueue {
    pub(super) fn new() -> Self {
        Self { fpdus: VecDeque::new(), spare: Vec::new() }
    }

    /// ENOMEM. What is reserved here does not grow later, while the connection is in use.
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

    /// FPDUs and bytes that may still be queued before the link is called.
    pub(super) fn room(&self) -> (usize, usize) {
        let bytes = self.fpdus.iter().map(Fpdu::len).sum();
        (BATCH.saturating_sub(self.fpdus.len()), BATCH_BYTES.saturating_sub(bytes))
    }

    /// Drops everything but the FPDU that the link has begun to take.
    pub(super) fn cut(&mut self) -> Option<Fpdu> {
        let begun = self.fpdus.pop_front().filter(|fpdu| fpdu.sent > 0);
        self.fpdus.clear();
        begun
    }

    /// Each FPDU, and how much of its TCP segment is used up to its end: a segment takes as many as it holds,
    /// and at least one.
    fn in_segments(&self, segment: Option<usize>) -> impl Iterator<Item = (&Fpdu, usize)> {
        let segment = segment.unwrap_or(usize::MAX);
        self.fpdus.iter().scan(0, move |used, fpdu| {
            let left = fpdu.left();
            *used = if *used + left > segment { left } else { *used + left };
            Some((fpdu, *used))
        })
    }

    /// The longest ULPDU, of at most `most` bytes, to cut off a message of `len` that does not fit one
    /// anyway: it lies in the TCP segment that the FPDUs before it have not filled, so that what is left of
    /// them need not go out alone.
    pub(super) fn mulpdu(&self, segment: Option<usize>, most: usize, len: usize) -> usize {
        let Some(bytes) = segment.filter(|_| len > most) else { return most };
        let used = self.in_segments(segment).last().map_or(0, |(_, used)| used);
        let room = bytes.saturating_sub(used);
        let rest = stream::mulpdu(room);
        if room < bytes / WORTH_AN_FPDU || stream::fpdu_len(rest) > room { most } else { most.min(rest) }
    }

    /// Puts the first FPDUs into an empty batch, `most` at the most and no more than a TCP segment takes.
    pub(super) fn gather<'a>(&'a self, segment: Option<usize>, most: usize, batch: &mut Batch<'a>) {
        for (i, (fpdu, used)) in self.in_segments(segment).take(most.min(BATCH)).enumerate() {
            // the first one of the next segment
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

    /// The link has taken this many bytes. `sent` is called for each request whose peer may answer from here
    /// on.
    pub(super) fn taken(&mut self, mut n: usize, mut sent: impl FnMut(u64)) {
        while let Some(fpdu) = self.fpdus.front_mut() {
            let taken = n.min(fpdu.left());
            fpdu.sent += taken;
            n -= taken;
            if let (Origin::Request { position, last: true }, true) = (fpdu.origin, fpdu.is_effective()) {
                sent(position);
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

    /// So many bytes to copy to, or more, if possible those of an FPDU that is gone. Up to 64 KiB for each:
    /// ENOMEM when they cannot be had.
    pub(super) fn copy(&mut self, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.try_reserve_exact(len - bytes.len()).map_err(|_| libc::ENOMEM)?;
            bytes.resize(len, 0);
        }
        Ok(bytes)
    }
}
