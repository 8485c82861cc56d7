// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a schedule of connection management: faults of the network, and actions of the programs.

use super::query::QueryPlan;
use crate::sim::random::Draw;
use crate::units::Micros;

pub(super) const MS: Micros = 1_000;
pub(super) const S: Micros = 1_000 * MS;
/// The packet life time of rdma_cm, code 16: the network delivers nothing later.
pub(super) const PACKET_LIFE_US: Micros = (4_096 << 16) / 1_000;
/// The interval at which a process checks whether those of its peers exist.
pub(super) const WATCH_US: Micros = 100 * MS;
/// Programs destroy what is left.
pub(super) const END_US: Micros = 600 * S;

/// What the program of the passive side does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accept,
    Reject,
    Destroy,
    /// It does not fetch the event.
    Nothing,
}

/// What a program does with an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It waits for the peer to end it.
    Wait,
    Disconnect,
    Destroy,
    /// Its process is killed.
    Kill,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptPlan {
    /// The hosts of the active and the passive side.
    pub hosts: [usize; 2],
    pub connect_at: Micros,
    /// The active side destroys its identifier this long after the call, or is killed.
    pub destroy_after: Option<Micros>,
    pub kill: bool,
    pub answer: Answer,
    pub answer_after: Micros,
    /// The passive side disconnects or destroys this long after it has accepted.
    pub accepted: End,
    pub accepted_after: Micros,
    /// The active side rejects the reply.
    pub refuses: bool,
    pub establish_after: Micros,
    /// The active side sends data when it has established the connection.
    pub sends_data: bool,
    pub ends: [End; 2],
    pub end_after: [Micros; 2],
    /// Determines private data, PSNs and queue pairs; different in each connection of a schedule.
    pub seed: u64,
}

impl AttemptPlan {
    fn new(index: u64, draw: &mut Draw) -> Self {
        let is_calm = draw.chance(100);
        let active = draw.below(2);
        let passive = if draw.chance(40) { active } else { 1 - active };
        let answers = [Answer::Accept, Answer::Accept, Answer::Reject, Answer::Destroy, Answer::Nothing];
        let ends = [End::Wait, End::Disconnect, End::Disconnect, End::Destroy, End::Kill];
        let mut attempt = Self {
            hosts: [active, passive],
            connect_at: draw.below(2_000) as Micros * MS,
            destroy_after: (!is_calm && draw.chance(40)).then(|| some_time(draw)),
            kill: draw.chance(128),
            answer: if is_calm { Answer::Accept } else { draw.one_of(&answers) },
            answer_after: some_time(draw),
            accepted: if is_calm || draw.chance(200) { End::Wait } else { draw.one_of(&ends) },
            accepted_after: some_time(draw),
            refuses: !is_calm && draw.chance(30),
            establish_after: if draw.chance(128) { 0 } else { some_time(draw) },
            sends_data: draw.chance(128),
            ends: [draw.one_of(&ends), draw.one_of(&ends)],
            end_after: [some_time(draw), some_time(draw)],
            seed: (draw.below(1 << 30) as u64) << 2 | index,
        };
        if attempt.ends == [End::Wait; 2] {
            attempt.ends[draw.below(2)] = End::Disconnect;
        }
        attempt
    }
}

/// From a millisecond to a minute, most often short.
pub(super) fn some_time(draw: &mut Draw) -> Micros {
    let most = draw.one_of(&[2, 20, 300, 300, 6_000, 60_000]);
    draw.between(1, most) as Micros * MS
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The rates at which the network loses, duplicates or delays a message.
    pub lose: u32,
    pub duplicate: u32,
    pub delay: u32,
    /// The rate of forged messages, for each that is sent.
    pub forge: u32,
    /// The network loses everything in between.
    pub outage: Option<(Micros, Micros)>,
    /// Timers are late by up to this.
    pub late: usize,
    pub backlog: u32,
    pub attempts: Vec<AttemptPlan>,
    pub queries: Vec<QueryPlan>,
}

impl Plan {
    pub(super) fn new(draw: &mut Draw) -> Self {
        let outage = draw.chance(64).then(|| {
            let from = draw.below(4_000) as Micros * MS;
            (from, from + if draw.chance(64) { END_US } else { some_time(draw) })
        });
        let attempts = draw.one_of(&[1, 1, 2, 4]);
        let queries = draw.one_of(&[0, 0, 1, 3]);
        Self {
            // One in five: 20 repetitions in a row are lost in no schedule.
            lose: draw.rate(51),
            duplicate: draw.rate(128),
            delay: draw.rate(256),
            forge: draw.rate(64),
            outage,
            late: draw.one_of(&[0, 0, 5, 50]),
            backlog: draw.one_of(&[1, 128]),
            attempts: (0..attempts).map(|index| AttemptPlan::new(index, draw)).collect(),
            queries: (0..queries).map(|index| QueryPlan::new(index, draw)).collect(),
        }
    }

    pub(super) fn is_out(&self, now: Micros) -> bool {
        self.outage.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Each message arrives in the end, and a listener always has room.
    pub(super) fn is_answered(&self) -> bool {
        let has_room = self.backlog > 1 || self.attempts.len() == 1;
        let is_fetched = |attempt: &AttemptPlan| attempt.answer != Answer::Nothing;
        self.outage.is_none() && has_room && self.attempts.iter().all(is_fetched)
    }
}
