// SPDX-License-Identifier: BSD-3-Clause
//! Drives a connection over a link with a separate socket.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::instrument::Instruments;
use crate::progress::Driven;
use crate::progress::engine::Engine;
use crate::progress::watch::Watch;
use transport::access::Accessor;

pub(crate) struct Driver {
    /// Drives the connection when the link is ready.
    pub watch: Arc<Watch>,
    pub engine: Arc<Engine>,
    /// The queue pair.
    pub accessor: Accessor,
    pub connection: Arc<dyn Driven>,
    /// Those of the queue pair.
    pub instruments: Instruments,
}
