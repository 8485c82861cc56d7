// SPDX-License-Identifier: BSD-3-Clause
//! The operations that a connection executes natively.

use crate::config::NativeOps;
use crate::provider::handles::CmId;
use crate::provider::native::{NativeQp, QP_WITH_ATOMIC_WRITE, QP_WITH_FLUSH};

/// The native operations with which to create a queue pair.
pub(crate) fn ops(wanted: NativeOps) -> u64 {
    let NativeOps { atomic_write, flush_visibility, flush_persistent } = wanted;
    let bit = |is, bit| if is { bit } else { 0 };
    bit(atomic_write, QP_WITH_ATOMIC_WRITE) | bit(flush_visibility || flush_persistent, QP_WITH_FLUSH)
}

/// The native operations of a queue pair, each with the queue pair to post it on.
#[derive(Clone, Copy, Default)]
pub struct Native {
    pub atomic_write: Option<NativeQp>,
    pub flush: Option<NativeFlush>,
}

/// The types of flush that are native.
#[derive(Clone, Copy)]
pub struct NativeFlush {
    pub qp: NativeQp,
    pub visibility: bool,
    pub persistent: bool,
}

impl Native {
    /// # Safety
    /// The identifier must have a queue pair that was created with exactly these operations and outlives the
    /// result.
    pub unsafe fn of(id: &CmId, created_with: u64, wanted: NativeOps) -> Self {
        if created_with == 0 {
            return Self::default();
        }
        // SAFETY: the caller guarantees a queue pair that was created with `created_with` and outlives the
        // result.
        let Some((qp, has)) = (unsafe { id.native_queue_pair(created_with) }) else {
            log_notice!(
                "the queue pair does not support native operations, default methods are used for: {}",
                wanted
            );
            return Self::default();
        };
        let NativeOps { flush_visibility: visibility, flush_persistent: persistent, .. } = wanted;
        Self {
            atomic_write: (has & QP_WITH_ATOMIC_WRITE != 0).then_some(qp),
            flush: (has & QP_WITH_FLUSH != 0).then_some(NativeFlush { qp, visibility, persistent }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_queue_pairs() {
        for (atomic_write, flush_visibility, flush_persistent, bits) in [
            (false, false, false, 0),
            (true, false, false, 0x1000),
            (false, true, false, 0x800),
            (false, false, true, 0x800),
            (true, true, true, 0x1800),
        ] {
            assert_eq!(ops(NativeOps { atomic_write, flush_visibility, flush_persistent }), bits);
        }
    }
}
