// SPDX-License-Identifier: BSD-3-Clause
//! The provider for machines without an RDMA device: the softverbs crate.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Api, Provider, control_path, provider};
use crate::abi::rpma_log_level;
use crate::failure;

/// The soft provider. The first call connects softverbs' messages to this library's log, and its failed
/// completions to `rpma_err_last`.
pub(super) fn api() -> Api {
    // Not a `Once`: a child that is forked during the first call would block on it forever.
    static LOG_CONNECTED: AtomicBool = AtomicBool::new(false);
    // This fails in a Rust program that has installed its own logger, which is then kept.
    if !LOG_CONNECTED.swap(true, Ordering::Relaxed) {
        softverbs::on_failed_completion(|text| failure::report("rpma_cq_get_wc", format_args!("{text}")));
        if log::set_logger(&ForwardLog).is_ok() {
            log::set_max_level(log::LevelFilter::Debug);
        }
    }
    static SOFT: Provider = control_path!(provider calls
        name: "soft",
        has_flush_access: true,
        pins_memory: false,
        // softverbs has logged the reason, with details that are not available here.
        likely_reason: |_, _| None,
        event_reason,
        ending,
        post_denied: softverbs::post_denied,
        post_at_once: softverbs::post_at_once,
        flushes_by: softverbs::flushes_by,
        own_memory: softverbs::own_memory,
    );
    &SOFT
}

/// # Safety
/// `event` must not have been acknowledged.
unsafe fn event_reason(event: *mut rdma_sys::rdma_cm_event, out: &mut dyn Write) {
    // SAFETY: the caller guarantees an event that has not been acknowledged.
    let reason = unsafe { softverbs::event_reason(event) };
    // A reason that does not fit is truncated.
    let _ = reason.map(|reason| out.write_str(reason));
}

/// # Safety
/// `cq` must be alive.
unsafe fn ending(cq: *mut rdma_sys::ibv_cq, qp_num: u32, then: &mut dyn FnMut(&str, bool)) {
    // SAFETY: the caller guarantees a live completion queue.
    if let Some((text, is_failure)) = unsafe { softverbs::ending(cq, qp_num) } {
        then(&text, is_failure);
    }
}

/// The calls of the list as C functions.
mod calls {
    use std::ffi::{c_char, c_int, c_uint, c_void};

    use libc::sockaddr;
    use rdma_sys::*;

    use super::super::{c_functions, control_path};
    use super::functions;

    control_path!(c_functions functions);
}

/// The calls of the list by name: softverbs' own, except one.
mod functions {
    use std::ffi::{c_int, c_uint};

    use rdma_sys::{ibv_context, ibv_pd, ibv_sge};
    pub(super) use softverbs::rdma::*;
    pub(super) use softverbs::verbs::*;

    /// Same as softverbs' function, which needs no context.
    pub(super) unsafe fn ibv_advise_mr(
        _: *mut ibv_context,
        pd: *mut ibv_pd,
        advice: c_uint,
        flags: u32,
        sg_list: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int {
        // SAFETY: the caller guarantees a live `pd` and `num_sge` ranges at `sg_list`.
        unsafe { softverbs::verbs::ibv_advise_mr(pd, advice, flags, sg_list, num_sge) }
    }
}

/// Forwards softverbs' log messages to this library's log function, subject to its thresholds.
struct ForwardLog;

impl log::Log for ForwardLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        crate::log::enabled(level(metadata))
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = level(record.metadata());
        if crate::log::enabled(level) {
            rpma_log::with_record(record, |place, subject| {
                crate::log::emit(level, place, subject, *record.args());
            });
        }
    }

    fn flush(&self) {}
}

fn level(of: &log::Metadata<'_>) -> rpma_log_level {
    rpma_log::level_of(of, softverbs::NOTICE).into()
}
