// SPDX-License-Identifier: BSD-3-Clause
//! The resolutions of service ids (SIDR) of a process.
//!
//! A SIDR_REP belongs to a resolution if addresses, request id and transaction id are right; both ids are
//! unpredictable. A SIDR_REQ is known by the same.

use super::super::event::{Event, Output, SidrRequest};
use super::super::exchange::Outputs;
use super::super::resolution::{Resolution, State};
use super::super::terms::{CommId, Resolve, Route, SIDR_REQUEST_DATA_LEN, SidrAnswer};
use super::{Manager, Received};
use crate::roce::wire::cm::{CmaHeader, Message, SidrRep, SidrReq, SidrStatus};
use crate::units::{Errno, Micros};

/// A SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    route: Route,
    transaction: u64,
    request_id: u32,
}

impl Manager {
    /// Requests the queue pair of a datagram service: sends a SIDR_REQ. EINVAL: the private data is too long,
    /// or the addresses are of two families. EAGAIN: there is no request id.
    pub fn resolve(&mut self, route: Route, call: &Resolve<'_>, now: Micros) -> Result<CommId, Errno> {
        let id = self.allocate().ok_or(libc::EAGAIN)?;
        let transaction = self.transaction(id);
        let timing = self.settings.timing;
        let resolution = Resolution::request(id, timing, transaction, route, call, now, &mut self.outputs)?;
        self.insert_resolution(resolution);
        Ok(id)
    }

    /// Answers the request for a queue pair: sends the SIDR_REP. No event follows. EINVAL: there is no
    /// request, or a value does not fit into its field.
    pub fn answer(&mut self, id: CommId, answer: &SidrAnswer<'_>, now: Micros) -> Result<(), Errno> {
        self.update_resolution(id, |resolution, out| resolution.answer(answer, now, out))
            .unwrap_or(Err(libc::EINVAL))
    }

    pub(super) fn received_sidr_req(&mut self, req: &SidrReq, transaction: u64, route: Route) -> Received {
        let origin = Origin { route, transaction, request_id: req.request_id };
        if let Some(id) = self.sidr_requests.get(&origin).copied() {
            self.update_resolution(id, |resolution, out| resolution.duplicate_req(out));
            return Received::Taken;
        }
        let Some(listener) = self.listeners.find(req.service_id, route.local) else {
            return Received::NoListener;
        };
        let Some((header, private_data)) = check(req, route) else {
            self.send(route, transaction, refusal(req, SidrStatus::REJECTED));
            return Received::Taken;
        };
        if !self.listeners.has_room(listener, route.remote) {
            return Received::Taken;
        }
        let Some(id) = self.allocate() else { return Received::Taken };
        self.sidr_requests.insert(origin, id);
        self.listeners.add_pending(id, listener, route.remote);
        self.insert_resolution(Resolution::requested(id, self.settings.timing, transaction, route, req));
        let request = SidrRequest {
            listener,
            route,
            service: req.service_id,
            source_port: header.source_port,
            private_data,
        };
        self.outputs.push_back(Output::Event { id, event: Event::SidrRequest(Box::new(request)) });
        Received::Taken
    }

    pub(super) fn received_sidr_rep(&mut self, rep: &SidrRep, transaction: u64, route: Route) {
        let id = CommId(rep.request_id);
        let is_answer =
            |resolution: &Resolution| resolution.route == route && resolution.transaction == transaction;
        if self.resolutions.get(&id).is_some_and(is_answer) {
            self.update_resolution(id, |resolution, out| resolution.received_sidr_rep(rep, out));
        }
    }

    fn insert_resolution(&mut self, resolution: Resolution) {
        let id = resolution.id;
        self.deadlines.extend(resolution.deadline().map(|at| (at, id)));
        self.resolutions.insert(id, resolution);
        self.held.insert(id);
    }

    /// Changes a resolution, and what the manager has recorded of it.
    pub(super) fn update_resolution<T>(
        &mut self,
        id: CommId,
        change: impl FnOnce(&mut Resolution, &mut Outputs) -> T,
    ) -> Option<T> {
        let resolution = self.resolutions.get_mut(&id)?;
        let (before, had_ended) = (resolution.deadline(), resolution.has_ended());
        let result = change(resolution, &mut self.outputs);
        let due = resolution.deadline();
        let (is_gone, ends) = (resolution.state == State::Gone, resolution.has_ended() && !had_ended);
        self.record(id, (before, due), is_gone, ends);
        Some(result)
    }

    pub(super) fn remove_resolution(&mut self, id: CommId) {
        if let Some(Resolution { route, transaction, request_id, .. }) = self.resolutions.remove(&id) {
            let origin = Origin { route, transaction, request_id };
            if self.sidr_requests.get(&origin) == Some(&id) {
                self.sidr_requests.remove(&origin);
            }
        }
    }
}

/// The header of rdma_cm and the private data of the program. `None`: the request is not acceptable.
fn check(req: &SidrReq, route: Route) -> Option<(CmaHeader, [u8; SIDR_REQUEST_DATA_LEN])> {
    let (header, data) = CmaHeader::decode(&req.private_data).ok()?;
    let is_right = req.service_id.is_for_datagrams() && Ok(header.addresses) == route.reversed().addresses();
    is_right.then_some((header, data.try_into().ok()?))
}

/// A SIDR_REP for which there is no resolution.
pub(super) fn refusal(req: &SidrReq, status: SidrStatus) -> Message {
    Message::SidrRep(SidrRep {
        request_id: req.request_id,
        status,
        info_len: 0,
        qpn: 0,
        service_id: req.service_id,
        qkey: 0,
        info: [0; SidrRep::INFO_LEN],
        private_data: [0; SidrRep::PRIVATE_DATA_LEN],
    })
}
