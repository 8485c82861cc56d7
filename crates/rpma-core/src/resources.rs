// SPDX-License-Identifier: BSD-3-Clause
//! The verbs objects that a connection has from its request on: identifier, queue pair and completion queues.

use std::ptr;

use super::conn_cfg::ConnCfg;
use super::cq::Cq;
use super::native::{self, Native};
use super::peer::Domain;
use crate::error::{Error, Result, first_error};
use crate::provider::handles::{CmId, CompChannel, Failed, QpCaps, QueuePair, provider_error};
use crate::provider::native::QP_WITH_ATOMIC_WRITE;

/// The requested inline data size: enough for an atomic write.
const INLINE_SIZE: u32 = super::bounce::SIZE as u32;

/// The verbs objects of a connection. The order of the fields is the tear-down order.
pub struct Resources {
    pub qp: QueuePair,
    pub rcq: Option<Box<Cq>>,
    pub cq: Box<Cq>,
    pub id: CmId,
    /// The completion channel of both queues, if they share one.
    pub channel: Option<CompChannel>,
    /// The maximum number of outstanding send work requests.
    pub max_send_wr: u32,
    /// Whether the queue pair supports [`INLINE_SIZE`] bytes of inline data.
    pub inline: bool,
    /// The native operations of the queue pair.
    pub native: Native,
}

impl Resources {
    /// Creates them for an identifier that is bound to a device. On failure the identifier is destroyed too.
    ///
    /// # Safety
    /// The domain's peer and the configured shared receive queue must be alive and outlive the resources.
    pub unsafe fn new(domain: Domain, id: CmId, cfg: &ConnCfg) -> Result<Self> {
        let api = id.api();
        let ctx = id.context();
        // SAFETY: the caller guarantees that the configured shared receive queue, if it is not NULL, outlives
        // the resources.
        let srq = ptr::NonNull::new(cfg.srq()).map(|srq| unsafe { srq.as_ref() });
        let srq_rcq = srq.and_then(|srq| srq.rcq());
        let channel = if cfg.shared_comp_channel() {
            if srq_rcq.is_some() {
                log_error!(
                    "a shared completion channel cannot be combined with the completion queue of a shared receive queue"
                );
                return Err(Error::Inval);
            }
            // SAFETY: the identifier's context is alive as long as the identifier.
            let channel = unsafe { CompChannel::create(api, ctx) };
            Some(channel.map_err(|failed| provider_error!(failed, "context={ctx:p}"))?)
        } else {
            None
        };
        // SAFETY: the identifier keeps its context alive; the channel outlives both queues, in this function
        // and later by the order of the fields.
        let (cq, rcq) = unsafe {
            let cq = Cq::new(api, ctx, cfg.cq_size(), channel.as_ref())?;
            let rcq = match cfg.rcq_size() {
                size if size != 0 && srq_rcq.is_none() => Some(Cq::new(api, ctx, size, channel.as_ref())?),
                _ => None,
            };
            (cq, rcq)
        };
        let recv_cq = srq_rcq.or(rcq.as_deref()).unwrap_or(&cq);
        let srq_ptr = srq.map_or(ptr::null_mut(), |srq| srq.as_ptr());
        let sizes = (cfg.sq_size(), cfg.rq_size());
        // SAFETY: the caller guarantees that the peer and the shared receive queue outlive the queue pair,
        // and the completion queues are declared after it.
        let create = |caps: &mut QpCaps| unsafe {
            id.create_queue_pair(domain.pd, cq.as_ptr(), recv_cq.as_ptr(), srq_ptr, caps)
        };
        let (qp, caps) = queue_pair(sizes, native::ops(domain.native), create)?;
        let QpCaps { max_send_wr, max_inline_data, native_ops, .. } = caps;
        // SAFETY: the queue pair was just created, with these operations.
        let native = unsafe { Native::of(&id, native_ops, domain.native) };
        Ok(Self { qp, rcq, cq, id, channel, max_send_wr, inline: max_inline_data == INLINE_SIZE, native })
    }

    /// Destroys everything even if a step fails; returns the first error.
    pub fn close(self) -> Result<()> {
        let Self { qp, rcq, cq, id, channel, .. } = self;
        drop(qp);
        let rcq = rcq.map_or(Ok(()), |rcq| rcq.close());
        let cq = cq.close();
        let id = id.close().map_err(|failed| provider_error!(failed, ""));
        let channel = match channel {
            Some(channel) => channel.close().map_err(|failed| provider_error!(failed, "")),
            None => Ok(()),
        };
        first_error([rcq, cq, id, channel])
    }
}

/// Creates a queue pair with inline data for an atomic write and with the native operations. If the device or
/// its driver supports only part of this, it is created without inline data, or with fewer native operations,
/// down to none. The first failure is reported.
fn queue_pair(
    (max_send_wr, max_recv_wr): (u32, u32),
    wanted: u64,
    create: impl Fn(&mut QpCaps) -> std::result::Result<QueuePair, Failed>,
) -> Result<(QueuePair, QpCaps)> {
    let attempt = |native_ops, max_inline_data| {
        let mut caps = QpCaps { max_send_wr, max_recv_wr, max_inline_data, native_ops };
        create(&mut caps).map(|qp| (qp, caps))
    };
    let inline_or_not = |ops| attempt(ops, INLINE_SIZE).or_else(|first| attempt(ops, 0).map_err(|_| first));
    let made = inline_or_not(wanted).or_else(|first| {
        // A driver may support the atomic write, which is older, but not the flush.
        let mut refused = wanted;
        for ops in [wanted & QP_WITH_ATOMIC_WRITE, 0] {
            if ops == refused {
                continue;
            }
            refused = ops;
            if let Ok(made) = inline_or_not(ops) {
                log_notice!(
                    "queue pair with native operations {wanted:#x} not supported ({}), created with {ops:#x} instead",
                    first.why
                );
                return Ok(made);
            }
        }
        Err(first)
    });
    let (qp, caps) = made.map_err(|first| {
        provider_error!(
            first,
            "max_send_wr={max_send_wr}, max_recv_wr={max_recv_wr}, max_inline_data={INLINE_SIZE}"
        )
    })?;
    if caps.max_inline_data == 0 {
        log_info!("the queue pair does not support inline data");
    }
    Ok((qp, caps))
}
