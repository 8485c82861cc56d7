// SPDX-License-Identifier: BSD-3-Clause
//! The completion queues that rdma_cm makes for an identifier whose program gives none (rdma_create_qp(3)).

use libc::c_int;
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, rdma_cm_id};
use std::ptr::{addr_of_mut, null_mut};

use crate::ffi::verbs;
use crate::limits::MAX_CQE;
use crate::sys::{self, Errno};

/// A completion queue with a channel of its own.
struct Queue {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Queue {
    /// A queue whose context is the identifier, as the inline functions of `rdma_verbs.h` expect. EINVAL,
    /// EMFILE, ENFILE, ENOMEM.
    ///
    /// # Safety
    ///
    /// `verbs` must be the context of `id`.
    unsafe fn make(verbs: *mut ibv_context, id: *mut rdma_cm_id, entries: u32) -> Result<Self, Errno> {
        if entries > MAX_CQE {
            return Err(libc::EINVAL);
        }
        // SAFETY: `verbs` is the context of an identifier of softverbs, and the channel has just been created
        // and is destroyed once.
        unsafe {
            let channel = verbs::ibv_create_comp_channel(verbs);
            if channel.is_null() {
                return Err(sys::errno());
            }
            let cq = verbs::ibv_create_cq(verbs, entries.max(1) as c_int, id.cast(), channel, 0);
            if cq.is_null() {
                let e = sys::errno();
                verbs::ibv_destroy_comp_channel(channel);
                return Err(e);
            }
            Ok(Self { cq, channel })
        }
    }

    /// Destroys both, unless a queue pair still uses the queue.
    ///
    /// # Safety
    ///
    /// The program must not use them any more.
    unsafe fn destroy(self) {
        // SAFETY: both were created by `make` and are destroyed once, the queue first.
        unsafe {
            if verbs::ibv_destroy_cq(self.cq) == 0 {
                verbs::ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}

/// Those of one identifier. Dropping it leaves them to the program, which has destroyed the queue pair in
/// another way than with rdma_destroy_qp(3), and perhaps them as well.
#[derive(Default)]
pub(super) struct Made {
    send: Option<Queue>,
    recv: Option<Queue>,
}

impl Made {
    /// Makes a queue for completions of sends.
    ///
    /// # Safety
    ///
    /// As for [`Queue::make`].
    pub(super) unsafe fn send(
        &mut self,
        verbs: *mut ibv_context,
        id: *mut rdma_cm_id,
        entries: u32,
    ) -> Result<*mut ibv_cq, Errno> {
        // SAFETY: the caller guarantees that `verbs` is the context of `id`.
        Ok(self.send.insert(unsafe { Queue::make(verbs, id, entries) }?).cq)
    }

    /// Makes a queue for completions of receives.
    ///
    /// # Safety
    ///
    /// As for [`Queue::make`].
    pub(super) unsafe fn recv(
        &mut self,
        verbs: *mut ibv_context,
        id: *mut rdma_cm_id,
        entries: u32,
    ) -> Result<*mut ibv_cq, Errno> {
        // SAFETY: the caller guarantees that `verbs` is the context of `id`.
        Ok(self.recv.insert(unsafe { Queue::make(verbs, id, entries) }?).cq)
    }

    /// Stores them in the C structure of their identifier.
    ///
    /// # Safety
    ///
    /// `id` must be an identifier of softverbs that has not been destroyed.
    pub(super) unsafe fn show(&self, id: *mut rdma_cm_id) {
        // SAFETY: `id` has not been destroyed. The program does not read these fields before the function
        // that sets them has returned.
        unsafe {
            if let Some(queue) = &self.send {
                addr_of_mut!((*id).send_cq).write(queue.cq);
                addr_of_mut!((*id).send_cq_channel).write(queue.channel);
            }
            if let Some(queue) = &self.recv {
                addr_of_mut!((*id).recv_cq).write(queue.cq);
                addr_of_mut!((*id).recv_cq_channel).write(queue.channel);
            }
        }
    }

    /// Destroys them, and removes them from the C structure of their identifier.
    ///
    /// # Safety
    ///
    /// As for [`Self::show`], and the program must not use them any more.
    pub(super) unsafe fn destroy(self, id: *mut rdma_cm_id) {
        // SAFETY: the caller guarantees that `id` has not been destroyed and that the program does not use
        // the queues any more.
        unsafe {
            if let Some(queue) = self.send {
                addr_of_mut!((*id).send_cq).write(null_mut());
                addr_of_mut!((*id).send_cq_channel).write(null_mut());
                queue.destroy();
            }
            if let Some(queue) = self.recv {
                addr_of_mut!((*id).recv_cq).write(null_mut());
                addr_of_mut!((*id).recv_cq_channel).write(null_mut());
                queue.destroy();
            }
        }
    }
}
