// SPDX-License-Identifier: BSD-3-Clause
//! The completion queues that rdma_cm creates for an identifier whose program supplies none
//! (rdma_create_qp(3)).

use libc::c_int;
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, rdma_cm_id};
use std::ptr::{addr_of_mut, null_mut};

use crate::ffi::verbs;
use crate::limits::MAX_CQE;
use crate::sys::{self, Errno};

/// A completion queue and its completion channel.
struct Queue {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Queue {
    /// Creates a queue whose context is the identifier, as the inline functions of `rdma_verbs.h` expect.
    /// EINVAL: `entries` exceeds [`MAX_CQE`]. EMFILE, ENFILE, ENOMEM.
    ///
    /// # Safety
    ///
    /// `verbs` must be the context of `id`.
    unsafe fn create(verbs: *mut ibv_context, id: *mut rdma_cm_id, entries: u32) -> Result<Self, Errno> {
        if entries > MAX_CQE {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller guarantees that `verbs` is the context of an identifier, which is that of
        // softverbs. The channel has just been created, and it is destroyed only if it has no queue.
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

    /// Destroys queue and channel, unless a queue pair still uses the queue.
    ///
    /// # Safety
    ///
    /// The program must not use either afterwards.
    unsafe fn destroy(self) {
        // SAFETY: `create` has created both, and since it takes `self` this function runs once. The channel
        // is destroyed after its only queue.
        unsafe {
            if verbs::ibv_destroy_cq(self.cq) == 0 {
                verbs::ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}

/// The completion queues created for one identifier. Dropping the value does not destroy them: a program that
/// has destroyed the queue pair with ibv_destroy_qp(3) may have destroyed them as well.
#[derive(Default)]
pub(super) struct CreatedQueues {
    send: Option<Queue>,
    recv: Option<Queue>,
}

impl CreatedQueues {
    /// Creates the completion queue for sends.
    ///
    /// # Safety
    ///
    /// As for [`Queue::create`].
    pub(super) unsafe fn send(
        &mut self,
        verbs: *mut ibv_context,
        id: *mut rdma_cm_id,
        entries: u32,
    ) -> Result<*mut ibv_cq, Errno> {
        // SAFETY: the caller guarantees that `verbs` is the context of `id`, which is all that `create`
        // requires.
        Ok(self.send.insert(unsafe { Queue::create(verbs, id, entries) }?).cq)
    }

    /// Creates the completion queue for receives.
    ///
    /// # Safety
    ///
    /// As for [`Queue::create`].
    pub(super) unsafe fn recv(
        &mut self,
        verbs: *mut ibv_context,
        id: *mut rdma_cm_id,
        entries: u32,
    ) -> Result<*mut ibv_cq, Errno> {
        // SAFETY: the caller guarantees that `verbs` is the context of `id`, which is all that `create`
        // requires.
        Ok(self.recv.insert(unsafe { Queue::create(verbs, id, entries) }?).cq)
    }

    /// Stores the queues and their channels in the C structure of the identifier.
    ///
    /// # Safety
    ///
    /// `id` must be an identifier of softverbs that has not been destroyed.
    pub(super) unsafe fn store(&self, id: *mut rdma_cm_id) {
        // SAFETY: the caller guarantees that `id` has not been destroyed. The program reads these fields only
        // after rdma_create_qp has returned.
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

    /// Destroys the queues and their channels, and removes them from the C structure of the identifier.
    ///
    /// # Safety
    ///
    /// As for [`Self::store`], and the program must not use the queues afterwards.
    pub(super) unsafe fn destroy(self, id: *mut rdma_cm_id) {
        // SAFETY: the caller guarantees that `id` has not been destroyed and that the program does not use
        // the queues afterwards.
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
