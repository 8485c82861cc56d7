// SPDX-License-Identifier: BSD-3-Clause
//! The sizes of a connection's queues.

#![forbid(unsafe_code)]

use std::time::Duration;

use rpma_core::conn_cfg::ConnCfg;

use crate::error::{Error, Result};

/// The sizes of a connection's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub send: u32,
    pub receive: u32,
}

impl Default for Queues {
    fn default() -> Self {
        Self { send: 64, receive: 64 }
    }
}

impl Queues {
    /// The configuration of a connection with these queues, whose completion queue cannot overflow.
    pub(crate) fn cfg(self, timeout: Option<Duration>) -> Result<Box<ConnCfg>> {
        let cfg = ConnCfg::new().map_err(|code| Error::of("a connection", code))?;
        cfg.set_sq_size(self.send);
        cfg.set_rq_size(self.receive);
        cfg.set_cq_size(self.send.saturating_add(self.receive));
        if let Some(timeout) = timeout {
            let _ = cfg.set_timeout(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1));
        }
        Ok(cfg)
    }
}
