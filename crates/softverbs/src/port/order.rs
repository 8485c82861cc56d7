// SPDX-License-Identifier: BSD-3-Clause
//! The positions of the processes in the groups, for the filter of [`super::steer`].
//!
//! The kernel appends a socket to its group when it is bound; when a socket is closed, the last one takes its
//! position. No system call returns the positions. A process finds them by queries, one for each position:
//! the filter delivers a query by the position that it contains, and the receiver sends its slot to the
//! loopback port of the sender. Beyond the last position the kernel selects a socket by a hash, so if a
//! process answers for several positions, the lowest is correct.
//!
//! A process sends queries when it joins, and when it receives a packet of another slot. The interval is at
//! least [`INTERVAL`] and doubles up to [`MAX_INTERVAL`] while the result does not change, since a stopped
//! process does not answer. An outdated filter costs only speed, unless it selects a stopped process, which
//! forwards nothing. Therefore a process with queue pairs or listeners sends *checks* every
//! [`CHECK_INTERVAL`], and queries the positions if one is lost: a packet to its own slot must arrive, and a
//! query to the default position, where requests of connection management go, must be answered.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Port;
use super::forward::Message;
use super::owners;
use super::slot::MAX_SLOT;
use super::socket::Family;
use super::steer;
use crate::lock;
use crate::progress::source::Source;
use crate::sys::{self, Route};
use transport::roce::wire::{QPN_AT, UDP_PORT};

/// Minimum interval between two rounds of queries.
const INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a query. The engine of a process answers it, so only a busy or stopped process takes longer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(50);
/// Interval between two checks: with usual timeouts a queue pair has several retries left by then.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A packet that identifies the process at a position: a BTH to a queue pair that cannot exist, then the
/// nonce and the slot of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    position: u8,
    nonce: u32,
    slot: u8,
}

/// As a position: the default of the filter. Positions are below [`MAX_SLOT`].
const DEFAULT: u8 = 0xff;
/// A slot that no process has, whose packets go to the default position.
pub(super) const NO_SLOT: u8 = MAX_SLOT + 1;

/// A manufacturer-specific opcode, which no adapter sends by default.
const QUERY_OPCODE: u8 = 0xff;
const QUERY_LEN: usize = 20;

impl Query {
    #[cfg(test)]
    pub(super) fn new(position: u8, nonce: u32, slot: u8) -> Self {
        Self { position, nonce, slot }
    }

    pub(super) fn encode(&self) -> [u8; QUERY_LEN] {
        let mut bytes = [0; QUERY_LEN];
        bytes[0] = QUERY_OPCODE;
        match self.position {
            DEFAULT => bytes[QPN_AT] = NO_SLOT,
            position => bytes[QPN_AT + 1] = position,
        }
        bytes[12..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16] = self.slot;
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; QUERY_LEN] = bytes.try_into().ok()?;
        let nonce = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        let position = if bytes[QPN_AT] == NO_SLOT { DEFAULT } else { bytes[QPN_AT + 1] };
        let query = Self { position, nonce, slot: bytes[16] };
        (query.encode() == *bytes && (1..=MAX_SLOT).contains(&query.slot)).then_some(query)
    }
}

/// The answers to the queries of a round in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Answers {
    /// The number of queried positions.
    queried: usize,
    answered: Vec<(u8, u8)>,
}

impl Answers {
    fn add(&mut self, slot: u8, position: u8) {
        let is_new =
            usize::from(position) < self.queried && !self.answered.iter().any(|(_, of)| *of == position);
        if is_new {
            self.answered.push((slot, position));
        }
    }

    fn are_all(&self) -> bool {
        self.answered.len() == self.queried
    }

    /// The lowest position of each slot.
    fn table(&self) -> Vec<(u8, u8)> {
        let mut table = self.answered.clone();
        table.sort_unstable();
        table.dedup_by_key(|(slot, _)| *slot);
        table
    }

    /// A process has answered for two positions: the group has no filter, or fewer members than expected.
    fn is_ambiguous(&self) -> bool {
        self.table().len() < self.answered.len()
    }
}

/// A round of queries.
struct Round {
    nonce: u32,
    /// When the round times out.
    ends: Instant,
    answers: [Answers; 2],
}

/// The state of querying.
#[derive(Default)]
pub(super) struct Order {
    round: Option<Round>,
    /// Another round is needed after this one.
    again: bool,
    /// When the last round began.
    began: Option<Instant>,
    /// When the next round begins; its timer is set.
    next: Option<Instant>,
    /// The table of the filter that was attached last.
    attached: [Vec<(u8, u8)>; 2],
    /// A check of the family has not arrived yet.
    unchecked: [bool; 2],
    /// The nonce of the query to the default position of the family that was not answered yet.
    unanswered: [Option<u32>; 2],
    /// When the next checks are sent; `None`: there are neither queue pairs nor listeners.
    check_at: Option<Instant>,
    /// The number of consecutive rounds that confirmed the attached tables.
    unchanged: u32,
}

impl Order {
    /// The positions in the filter that was attached last.
    #[cfg(test)]
    pub(super) fn attached(&self, family: Family) -> &[(u8, u8)] {
        &self.attached[family as usize]
    }

    fn interval(&self) -> Duration {
        (INTERVAL * (1 << self.unchanged.min(10))).min(MAX_INTERVAL)
    }
}

/// An unpredictable number. `None`: the kernel has none.
fn nonce() -> Option<u32> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).ok()?;
    Some(u32::from_ne_bytes(random))
}

impl Port {
    /// The process has joined the groups.
    pub(super) fn joined(&self) {
        for family in Family::ALL {
            if self.sockets.get(family).is_some() && owners::members(family) == Some(1) {
                self.attach_filter(family, &[(self.slot.number(), 0)], 0);
            }
        }
        self.begin_round();
    }

    /// A packet of another slot has arrived.
    pub(super) fn misdelivered(&self) {
        let wait = {
            let mut order = lock(&self.order);
            if order.round.is_some() {
                order.again = true;
                return;
            }
            if order.next.is_some() {
                return;
            }
            let wait = order.began.and_then(|began| order.interval().checked_sub(began.elapsed()));
            order.next = wait.map(|wait| Instant::now() + wait);
            wait
        };
        match wait {
            Some(wait) => self.schedule(wait),
            None => self.begin_round(),
        }
    }

    pub(super) fn schedule(&self, wait: Duration) {
        if let Some(this) = self.this.upgrade() {
            let this: Arc<dyn Source> = this;
            self.engine.schedule(wait, &this).detach();
        }
    }

    /// Sends a query to each position.
    fn begin_round(&self) {
        let Some(nonce) = nonce() else { return };
        let count = |family: Family| match self.sockets.get(family) {
            None => 0,
            Some(_) => {
                owners::members(family).map_or(usize::from(MAX_SLOT), |n| n.min(usize::from(MAX_SLOT)))
            }
        };
        let answers = Family::ALL.map(|family| Answers { queried: count(family), ..Answers::default() });
        let queried = answers.each_ref().map(|answers| answers.queried);
        {
            let mut order = lock(&self.order);
            if order.round.is_some() {
                return;
            }
            let now = Instant::now();
            order.round = Some(Round { nonce, ends: now + ANSWERS_WITHIN, answers });
            (order.began, order.next) = (Some(now), None);
        }
        for (family, queried) in Family::ALL.into_iter().zip(queried) {
            for position in (0..queried).filter_map(|position| u8::try_from(position).ok()) {
                let query = Query { position, nonce, slot: self.slot.number() }.encode();
                self.send_to_group(family, &query);
            }
        }
        self.schedule(ANSWERS_WITHIN);
    }

    /// Answers a query.
    pub(super) fn answer(&self, family: Family, query: &Query) {
        if query.slot == self.slot.number() {
            return self.answered(query.slot, family, query.position, query.nonce);
        }
        let Query { position, nonce, .. } = *query;
        // A lost answer is like a lost query.
        let _ = self.send_to_slot(query.slot, &Message::Answer { family, position, nonce });
    }

    /// A process has answered a query of this process.
    pub(super) fn answered(&self, slot: u8, family: Family, position: u8, nonce: u32) {
        let are_all = {
            let mut order = lock(&self.order);
            if position == DEFAULT {
                order.unanswered[family as usize].take_if(|of| *of == nonce);
                return;
            }
            let Some(round) = order.round.as_mut().filter(|round| round.nonce == nonce) else { return };
            round.answers[family as usize].add(slot, position);
            round.answers.iter().all(Answers::are_all)
        };
        if are_all {
            self.end_round(nonce);
        }
    }

    /// Sends the next checks, and queries the positions if the last check of a family has not arrived.
    pub(super) fn check(&self) {
        let is_used = !self.table.is_empty() || self.listeners.load(Ordering::Relaxed) > 0;
        let (lost, nonce) = {
            let (mut order, now) = (lock(&self.order), Instant::now());
            if order.check_at.is_some_and(|at| now < at) {
                return;
            }
            if !is_used {
                (order.check_at, order.unchecked, order.unanswered) = (None, [false; 2], [None; 2]);
                return;
            }
            order.check_at = Some(now + CHECK_INTERVAL);
            let nonce = nonce();
            let lost = order.unchecked.contains(&true) || order.unanswered.iter().any(Option::is_some);
            order.unchecked = Family::ALL.map(|family| self.sockets.get(family).is_some());
            order.unanswered = Family::ALL.map(|family| self.sockets.get(family).and(nonce));
            (lost, nonce)
        };
        let mut packet = [0; QUERY_LEN];
        packet[0] = QUERY_OPCODE;
        packet[QPN_AT] = self.slot.number();
        let query = nonce.map(|nonce| Query { position: DEFAULT, nonce, slot: self.slot.number() }.encode());
        for family in Family::ALL {
            self.send_to_group(family, &packet);
            if let Some(query) = &query {
                self.send_to_group(family, query);
            }
        }
        self.schedule(CHECK_INTERVAL);
        if lost {
            self.misdelivered();
        }
    }

    /// A check has arrived.
    pub(super) fn check_arrived(&self, family: Family) {
        lock(&self.order).unchecked[family as usize] = false;
    }

    /// Sends a packet to a socket of the group of a family, over the loopback interface.
    fn send_to_group(&self, family: Family, packet: &[u8]) {
        let Some(socket) = self.sockets.get(family) else { return };
        let route = Route::to(SocketAddr::new(family.loopback(), UDP_PORT));
        // A lost packet is like one that its receiver does not answer.
        let _ = sys::send_datagram(socket, &route, &[IoSlice::new(packet)], None);
    }

    /// A round has timed out, or the next round or check is due.
    pub(super) fn order_timeout(&self) {
        self.check();
        let overdue = {
            let order = lock(&self.order);
            let now = Instant::now();
            match &order.round {
                Some(round) if now >= round.ends => Some(round.nonce),
                // The timer of an earlier round, which was complete before its timeout.
                Some(_) => return,
                None if order.next.is_some_and(|next| now >= next) => None,
                None => return,
            }
        };
        match overdue {
            Some(nonce) => self.end_round(nonce),
            None => self.begin_round(),
        }
    }

    /// Attaches filters with the positions that were found.
    fn end_round(&self, nonce: u32) {
        let (tables, again) = {
            let mut order = lock(&self.order);
            let Some(round) = order.round.take_if(|round| round.nonce == nonce) else { return };
            let tables = round.answers.each_ref().map(Answers::table);
            if tables == order.attached {
                order.unchanged = order.unchanged.saturating_add(1);
            } else {
                order.unchanged = 0;
            }
            order.attached.clone_from(&tables);
            let is_ambiguous = round.answers.iter().any(Answers::is_ambiguous);
            (tables, std::mem::take(&mut order.again) || is_ambiguous)
        };
        for (family, table) in Family::ALL.into_iter().zip(&tables) {
            // If the table lacks this process, the queries failed, and another member may have a better one.
            if let Some((_, own)) = table.iter().find(|(slot, _)| *slot == self.slot.number()) {
                self.attach_filter(family, table, *own);
            }
        }
        if again {
            self.misdelivered();
        }
    }

    /// The position of this process in the last table.
    #[cfg(test)]
    pub(super) fn position(&self, family: Family) -> Option<u8> {
        let order = lock(&self.order);
        let slot = self.slot.number();
        order.attached(family).iter().find(|(of, _)| *of == slot).map(|(_, position)| *position)
    }

    pub(super) fn attach_filter(&self, family: Family, table: &[(u8, u8)], default: u8) {
        let Some(socket) = self.sockets.get(family) else { return };
        if let Err(e) = sys::attach_steering(socket, &steer::filter(table, default)) {
            log::debug!("cannot attach the filter of UDP port {UDP_PORT}: error {e}; packets are forwarded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_parsed_as_it_was_made() {
        let query = Query { position: 0xfe, nonce: 0x1234_5678, slot: 7 };
        assert_eq!(Query::parse(&query.encode()), Some(query));
        let of_default = Query { position: DEFAULT, ..query };
        assert_eq!(Query::parse(&of_default.encode()), Some(of_default));
        assert_eq!(Query::parse(&Query { slot: 0, ..query }.encode()), None);
        assert_eq!(Query::parse(&query.encode()[..19]), None);
    }

    #[test]
    fn of_several_positions_of_a_slot_the_lowest_is_right() {
        let mut answers = Answers { queried: 5, ..Answers::default() };
        for (slot, position) in [(9, 0), (7, 1), (9, 3), (9, 4), (8, 5)] {
            answers.add(slot, position);
        }
        assert_eq!(answers.table(), [(7, 1), (9, 0)]);
        assert!(answers.is_ambiguous() && !answers.are_all());
        answers.add(8, 2);
        assert!(answers.are_all());
    }
}
