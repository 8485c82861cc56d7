// SPDX-License-Identifier: BSD-3-Clause
//! Connection configurations.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use super::{Failed, Library, SharedReceives, newer};

/// A `struct rpma_conn_cfg`.
pub(crate) struct Config {
    library: &'static Library,
    raw: *mut c_void,
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_conn_cfg_new and is deleted only here.
        unsafe { (self.library.functions.rpma_conn_cfg_delete)(&mut self.raw) };
    }
}

impl Config {
    /// The default configuration with another connection timeout.
    pub(crate) fn new(library: &'static Library, timeout: Duration) -> Result<Self, Failed> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable.
        library.check(unsafe { (library.functions.rpma_conn_cfg_new)(&mut raw) })?;
        let config = Self { library, raw };
        let timeout = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX).max(1);
        // SAFETY: the configuration is alive.
        library.check(unsafe { (library.functions.rpma_conn_cfg_set_timeout)(raw, timeout) })?;
        Ok(config)
    }

    /// Sets the number of entries for sends and receives, and a completion queue with an entry for each.
    pub(crate) fn queues(self, sends: u32, receives: u32) -> Result<Self, Failed> {
        let functions = &self.library.functions;
        // SAFETY: the configuration is alive.
        unsafe {
            self.library.check((functions.rpma_conn_cfg_set_sq_size)(self.raw, sends))?;
            self.library.check((functions.rpma_conn_cfg_set_rq_size)(self.raw, receives))?;
            self.library.check((functions.rpma_conn_cfg_set_cq_size)(self.raw, sends + receives))?;
        }
        Ok(self)
    }

    /// Lets connections take their receives from a shared receive queue, which must outlive them.
    pub(crate) fn shared(self, receives: &SharedReceives) -> Result<Self, Failed> {
        let set = newer(self.library.functions.rpma_conn_cfg_set_srq, "rpma_conn_cfg_set_srq")?;
        // SAFETY: the configuration and the queue are alive.
        self.library.check(unsafe { set(self.raw, receives.raw()) })?;
        Ok(self)
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }
}
