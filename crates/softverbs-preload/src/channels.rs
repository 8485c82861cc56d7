// SPDX-License-Identifier: BSD-3-Clause
//! Delayed destruction of event channels.
//!
//! Some programs, rping for example, destroy a channel while another thread still calls rdma_get_cm_event(3)
//! on it. With librdmacm this does no visible harm, because that function reads only the descriptor number.
//! Therefore the most recently destroyed channels are kept: such a thread finds an empty channel and waits,
//! as with librdmacm.

use rdma_sys::rdma_event_channel;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The number of destroyed channels that are kept, each with its descriptor.
const KEPT: usize = 16;

static DESTROYED: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());

/// Marks a channel as destroyed, and frees the one that was destroyed first if more than [`KEPT`] are kept.
/// Does nothing for NULL.
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
        // SAFETY: the program has passed `oldest` to this function, and rdma_destroy_event_channel(3)
        // requires that it does so once and does not use the channel afterwards. The thread of an incorrect
        // program that still waits has had time to leave: [`KEPT`] further channels were created and
        // destroyed since.
        unsafe { softverbs::rdma::rdma_destroy_event_channel(oldest as *mut rdma_event_channel) };
    }
}
