// SPDX-License-Identifier: BSD-3-Clause
//! The reason why a connection was not established, if the event of a device indicates one.
#![forbid(unsafe_code)]

use std::ffi::c_int;

use libc::ETIMEDOUT;
use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, Type};

/// `IB_CM_REJ_INVALID_SERVICE_ID`: nothing is listening there. A rejection by a program has another status.
const REJ_INVALID_SERVICE_ID: c_int = 8;

/// The likely reason, for the log; None for events that need no explanation.
pub(super) fn likely_reason(event: Type, status: c_int) -> Option<&'static str> {
    match (event, status) {
        (RDMA_CM_EVENT_REJECTED, REJ_INVALID_SERVICE_ID) => Some(
            "no program is listening on this port of the remote RDMA device; a program that uses the soft provider listens \
             on TCP only and is reached with RPMA_PROVIDER=soft",
        ),
        (RDMA_CM_EVENT_UNREACHABLE, status) if status == -ETIMEDOUT => Some(
            "no response: the host is down or has no RDMA device with this address; a program there that uses the soft \
             provider is reached with RPMA_PROVIDER=soft",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;

    #[test]
    fn only_what_the_status_tells() {
        let says = |event, status| likely_reason(event, status).unwrap_or_default();
        assert!(says(RDMA_CM_EVENT_REJECTED, 8).starts_with("no program is listening"));
        assert!(says(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT).starts_with("no response"));
        // 28 is the status of a rejection by the program
        for (event, status) in [
            (RDMA_CM_EVENT_REJECTED, 28),
            (RDMA_CM_EVENT_REJECTED, 0),
            (RDMA_CM_EVENT_UNREACHABLE, 0),
            (RDMA_CM_EVENT_ESTABLISHED, -ETIMEDOUT),
        ] {
            assert_eq!(likely_reason(event, status), None, "{event} {status}");
        }
    }
}
