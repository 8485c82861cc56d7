// SPDX-License-Identifier: BSD-3-Clause
//! The end of event channels.
//!
//! Programs destroy a channel while a thread of theirs still calls rdma_get_cm_event(3) on it: rping does
//! when it ends. With librdmacm they get away with it, because all that it looks at is the number of a
//! descriptor. So the last channels that were destroyed stay for a while: such a thread finds an empty
//! channel, and waits as it would there.

use rdma_sys::rdma_event_channel;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Destroyed channels that stay, each with its descriptor.
const KEPT: usize = 16;

static DESTROYED: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());

/// Destroys a channel, unless it is NULL: in fact the one that was destroyed longest ago, when there are more
/// than [`KEPT`].
///
/// # Safety
///
/// As for rdma_destroy_event_channel(3).
pub(crate) unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if channel.is_null() {
        return;
    }
    let oldest = {
        let mut destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
        destroyed.push_back(channel as usize);
        if destroyed.len() > KEPT { destroyed.pop_front() } else { None }
    };
    if let Some(oldest) = oldest {
        // SAFETY: the program has destroyed it, once, and long ago (rdma_destroy_event_channel(3)).
        unsafe { softverbs::rdma::rdma_destroy_event_channel(oldest as *mut rdma_event_channel) };
    }
}
