// SPDX-License-Identifier: BSD-3-Clause
//! The provider for machines without an RDMA device: the softverbs crate.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Api, Provider, control_path, provider};
use crate::abi::rpma_log_level;
use crate::failure;
use crate::log as rpma_log;
use crate::text::{Lossy, Text};

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
        flushes_by: softverbs::flushes_by,
        not_counted: softverbs::not_counted,
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
        rpma_log::enabled(level(metadata))
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = level(record.metadata());
        if rpma_log::enabled(level) {
            let mut file = Text::<128>::new();
            // Writing to a Text never fails; what does not fit is truncated.
            let _ = file.write_str(record.file().unwrap_or(record.target()));
            // A record has no function name; the module is the next best thing.
            let function = record.module_path().and_then(|path| path.rsplit("::").next());
            let place = rpma_log::Place {
                file: file.as_c_str(),
                line: record.line().unwrap_or(0),
                function: function.unwrap_or(record.target()),
            };
            let mut about = About::default();
            // The visitor never fails.
            let _ = record.key_values().visit(&mut about);
            let peer: &dyn std::fmt::Display = &Lossy(about.peer.as_bytes());
            let subject = rpma_log::Subject {
                connection: about.connection,
                peer: (!about.peer.as_bytes().is_empty()).then_some(peer),
                operation: std::str::from_utf8(about.operation.as_bytes())
                    .ok()
                    .filter(|text| !text.is_empty()),
                errno: about.errno,
            };
            rpma_log::emit(level, &place, &subject, *record.args());
        }
    }

    fn flush(&self) {}
}

/// The subject of a message of softverbs.
#[derive(Default)]
struct About {
    connection: Option<u32>,
    peer: Text<64>,
    operation: Text<64>,
    errno: Option<i32>,
}

impl<'kvs> log::kv::VisitSource<'kvs> for About {
    fn visit_pair(
        &mut self,
        key: log::kv::Key<'kvs>,
        value: log::kv::Value<'kvs>,
    ) -> Result<(), log::kv::Error> {
        // Writing to a Text never fails; what does not fit is truncated.
        match key.as_str() {
            "connection" => self.connection = value.to_u64().and_then(|num| u32::try_from(num).ok()),
            "peer" => _ = write!(self.peer, "{value}"),
            "operation" => _ = write!(self.operation, "{value}"),
            // 0 means no errno.
            "errno" => {
                self.errno =
                    value.to_i64().and_then(|errno| i32::try_from(errno).ok()).filter(|errno| *errno != 0)
            }
            _ => {}
        }
        Ok(())
    }
}

fn level(of: &log::Metadata<'_>) -> rpma_log_level {
    match of.level() {
        log::Level::Error => rpma_log_level::RPMA_LOG_LEVEL_ERROR,
        log::Level::Warn => rpma_log_level::RPMA_LOG_LEVEL_WARNING,
        log::Level::Info if of.target() == softverbs::NOTICE => rpma_log_level::RPMA_LOG_LEVEL_NOTICE,
        log::Level::Info => rpma_log_level::RPMA_LOG_LEVEL_INFO,
        log::Level::Debug | log::Level::Trace => rpma_log_level::RPMA_LOG_LEVEL_DEBUG,
    }
}
