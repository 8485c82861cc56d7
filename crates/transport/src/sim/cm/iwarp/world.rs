// SPDX-License-Identifier: BSD-3-Clause
//! Two identifiers, the link between them, and the programs.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::plan::{MS, S};
use super::identifier::Identifier;
use crate::cm::{EventKind, Phase};
use crate::iwarp::cm::exchange::{Initiator, Next, Responder};
use crate::iwarp::cm::negotiate::{self, Offer};
use crate::iwarp::wire::mpa::{self, Frame};
use crate::policy::mode::Mode;
use crate::sim::random::{Draw, mix};
use crate::units::Micros;

const CONNECT_TIMEOUT_US: Micros = 500 * MS;
const REPLY_TIMEOUT_US: Micros = 800 * MS;
const REQUEST_TIMEOUT_US: Micros = 700 * MS;
const OFFER: Offer = Offer { ird: 8, ord: 8, crc: false };
/// Stands for the first FPDU of the initiator.
const FPDU: u8 = 0xfd;

/// One direction of the link.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// No more bytes are sent: the end follows.
    is_closed: bool,
}

/// The faults of a schedule.
#[derive(Debug)]
pub(super) struct Faults {
    refusals: usize,
    /// From this time on the link loses everything.
    lost_at: Option<Micros>,
    /// The link is reset at this time.
    reset_at: Option<Micros>,
    /// The programs may reject, disconnect or destroy.
    impatient: bool,
    /// Everything takes so long that timeouts may expire.
    slow: bool,
}

impl Faults {
    fn is_calm(&self) -> bool {
        let Self { refusals, lost_at, reset_at, impatient, slow } = *self;
        refusals == 0 && lost_at.is_none() && reset_at.is_none() && !impatient && !slow
    }
}

pub(super) struct World {
    draw: Draw,
    now: Micros,
    pub faults: Faults,
    initiator: Identifier,
    exchange: Option<Initiator>,
    try_at: Option<Micros>,
    timer_at: Option<Micros>,
    /// The initiator's queue pair has the socket.
    is_open: bool,
    target: Option<Identifier>,
    responder: Option<(Responder, Micros)>,
    /// The connect request that the target's program has not fetched.
    unfetched: Option<Frame>,
    target_is_open: bool,
    accepted: bool,
    forth: Pipe,
    back: Pipe,
    is_connected: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let later = |draw: &mut Draw| draw.chance(64).then(|| draw.below(1_500) as Micros * MS);
        let faults = Faults {
            refusals: if draw.chance(64) { draw.between(1, 8) } else { 0 },
            lost_at: later(&mut draw),
            reset_at: later(&mut draw),
            impatient: draw.chance(128),
            slow: draw.chance(64),
        };
        let mode = draw.one_of(&[Mode::Adaptive, Mode::Never, Mode::Random(seed)]);
        let exchange = Initiator::new(OFFER, 0, Duration::from_micros(CONNECT_TIMEOUT_US), mode);
        let mut initiator = Identifier::new(Phase::Idle);
        initiator.phase.connect().unwrap();
        initiator.phase.started(());
        Self {
            draw,
            now: 0,
            faults,
            initiator,
            exchange: Some(exchange),
            try_at: Some(0),
            timer_at: Some(CONNECT_TIMEOUT_US),
            is_open: false,
            target: None,
            responder: None,
            unfetched: None,
            target_is_open: false,
            accepted: false,
            forth: Pipe::default(),
            back: Pipe::default(),
            is_connected: false,
        }
    }

    fn is_lost(&self) -> bool {
        self.faults.lost_at.is_some_and(|at| at <= self.now)
    }

    /// Takes what arrives: a fragment of the bytes sent, the end (empty), or nothing yet.
    fn receive(draw: &mut Draw, pipe: &mut Pipe) -> Option<Vec<u8>> {
        if !pipe.bytes.is_empty() {
            let n = if draw.chance(128) { pipe.bytes.len() } else { draw.between(1, pipe.bytes.len()) };
            return Some(pipe.bytes.drain(..n).collect());
        }
        pipe.is_closed.then(Vec::new)
    }

    fn proceed(&mut self, next: Next) {
        match next {
            Next::Wait => {}
            Next::TryAgain(after) => self.try_at = Some(self.now + after.as_micros() as Micros),
            // The library calls connect(2) immediately.
            Next::TryNow => self.connect(),
            Next::Established(accepted) => {
                assert!(self.accepted, "the target has accepted");
                self.exchange = None;
                self.is_open = true;
                // The initiator announced that it sends the first FPDU, so the target has sent nothing.
                assert!(accepted.early.is_empty());
                self.forth.bytes.push_back(FPDU);
                // The engine thread may see the end of a new connection before the establishing thread has
                // reported ESTABLISHED.
                let breaks = self.faults.reset_at.is_some() && self.draw.chance(128);
                if breaks {
                    self.is_open = false;
                    self.initiator.ended();
                }
                self.initiator.report(EventKind::Established);
                if breaks {
                    self.reset();
                }
            }
            Next::Failed(failure) => {
                self.exchange = None;
                self.forth.is_closed = true;
                self.initiator.report(failure.event);
            }
        }
    }

    fn connect(&mut self) {
        self.try_at = None;
        let is_lost = self.is_lost();
        let Some(exchange) = &mut self.exchange else { return };
        if self.faults.refusals > 0 {
            self.faults.refusals -= 1;
            let next = exchange.failed(libc::ECONNREFUSED, self.now);
            return self.proceed(next);
        }
        if is_lost {
            return;
        }
        self.is_connected = true;
        let mut request = Vec::new();
        mpa::encode(&negotiate::request(OFFER), b"private", &mut request).unwrap();
        self.forth.bytes.extend(request);
        exchange.sent(self.now, Duration::from_micros(REPLY_TIMEOUT_US));
        self.timer_at = Some(self.now + REPLY_TIMEOUT_US);
        self.responder = Some((Responder::default(), self.now + REQUEST_TIMEOUT_US));
    }

    fn initiator_receives(&mut self) {
        let Some(bytes) = Self::receive(&mut self.draw, &mut self.back) else { return };
        if let Some(exchange) = &mut self.exchange {
            let next = exchange.received(&bytes);
            self.proceed(next);
        } else if self.is_open && bytes.is_empty() {
            self.is_open = false;
            self.forth.is_closed = true;
            self.initiator.ended();
        }
    }

    fn target_receives(&mut self) {
        let Some(bytes) = Self::receive(&mut self.draw, &mut self.forth) else { return };
        if let Some((responder, _)) = &mut self.responder {
            match responder.received(&bytes) {
                Ok(None) => {}
                Ok(Some((frame, private_data))) => {
                    assert_eq!(private_data, b"private");
                    self.responder = None;
                    self.unfetched = Some(frame);
                }
                Err(_) => self.close_at_target(),
            }
        } else if self.target_is_open {
            let target = self.target.as_mut().unwrap();
            if bytes.is_empty() {
                self.target_is_open = false;
                target.ended();
                self.back.is_closed = true;
            } else {
                assert_eq!(bytes, [FPDU], "nothing else was sent");
                target.report(EventKind::Established);
            }
        } else if bytes.is_empty() && self.unfetched.take().is_some() {
            self.close_at_target();
        }
    }

    fn close_at_target(&mut self) {
        self.responder = None;
        self.back.is_closed = true;
    }

    /// The target's program fetches the request, or answers the one that it has fetched.
    fn target_acts(&mut self) {
        if let Some(frame) = self.unfetched.take() {
            self.target = Some(Identifier::new(Phase::Requested(frame)));
            return;
        }
        let Some(target) = &mut self.target else { return };
        let rejects = self.faults.impatient && self.draw.chance(64);
        if rejects {
            match target.phase.reject() {
                Ok(frame) => {
                    let mut reply = Vec::new();
                    mpa::encode(&negotiate::rejection(&frame), b"no", &mut reply).unwrap();
                    self.back.bytes.extend(reply);
                    self.back.is_closed = true;
                }
                Err(e) => assert_eq!(e, libc::EINVAL),
            }
        } else if let Ok((frame, awaits)) = target.phase.accept(|frame| frame.enhanced.unwrap().peer_to_peer)
        {
            assert!(awaits);
            let (reply, _) = negotiate::accept(&frame, OFFER);
            let mut bytes = Vec::new();
            mpa::encode(&reply, b"yes", &mut bytes).unwrap();
            self.back.bytes.extend(bytes);
            self.accepted = true;
            self.target_is_open = true;
        }
    }

    /// A program disconnects or destroys its identifier.
    fn end(&mut self, at_initiator: bool) {
        if at_initiator {
            if self.draw.chance(128) && self.initiator.phase.disconnect().is_ok() && self.is_open {
                self.initiator.ended();
            } else {
                self.initiator.destroy();
                self.exchange = None;
            }
            self.is_open = false;
            self.forth.is_closed |= self.exchange.is_none();
        } else if let Some(target) = &mut self.target {
            if self.draw.chance(128) && target.phase.disconnect().is_ok() && self.target_is_open {
                target.ended();
            } else {
                target.destroy();
            }
            self.target_is_open = false;
            self.back.is_closed = true;
        }
    }

    fn reset(&mut self) {
        self.faults.reset_at = None;
        if !self.is_connected {
            return;
        }
        (self.forth, self.back) = (Pipe::default(), Pipe::default());
        (self.forth.is_closed, self.back.is_closed) = (true, true);
        if let Some(exchange) = &mut self.exchange {
            let next = exchange.failed(libc::ECONNRESET, self.now);
            self.proceed(next);
        }
        if std::mem::take(&mut self.is_open) {
            self.initiator.ended();
        }
        if std::mem::take(&mut self.target_is_open) {
            self.target.as_mut().unwrap().ended();
        }
        self.unfetched = None;
        self.close_at_target();
    }

    fn expire(&mut self) {
        if self.try_at.is_some_and(|at| at <= self.now) && !self.is_connected {
            self.try_at = None;
            match self.exchange.as_mut().map(|exchange| exchange.expired(self.now)) {
                // The first call of connect(2) does not come from a timer.
                Some(Next::Wait) => self.connect(),
                Some(next) => self.proceed(next),
                None => {}
            }
        }
        if self.timer_at.is_some_and(|at| at <= self.now) {
            self.timer_at = None;
            if let Some(exchange) = &mut self.exchange {
                let next = exchange.expired(self.now);
                self.proceed(next);
            }
        }
        if self.responder.as_ref().is_some_and(|(_, until)| *until <= self.now) {
            self.close_at_target();
        }
        if self.faults.reset_at.is_some_and(|at| at <= self.now) {
            self.reset();
        }
        // The keepalive of an open connection detects that the link is lost.
        if self.is_lost() && self.now > 4 * S {
            self.reset_by_keepalive();
        }
    }

    fn reset_by_keepalive(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.initiator.ended();
        }
        if std::mem::take(&mut self.target_is_open) {
            self.target.as_mut().unwrap().ended();
        }
    }

    fn step(&mut self) {
        let longest = match self.now {
            late if late > 3 * S => 200_000,
            _ if self.faults.slow => 50_000,
            _ => 4_000,
        };
        self.now += self.draw.between(1, longest) as Micros;
        self.expire();
        match self.draw.below(8) {
            0 | 1 if !self.is_lost() => self.initiator_receives(),
            2 | 3 if !self.is_lost() => self.target_receives(),
            4 | 5 => self.target_acts(),
            6 if self.faults.impatient && self.draw.chance(16) => {
                let at_initiator = self.draw.chance(128);
                self.end(at_initiator);
            }
            _ => {}
        }
        self.check();
    }

    fn check(&self) {
        self.initiator.check();
        if self.initiator.saw(EventKind::Established) {
            assert!(self.accepted, "established, but the target has not accepted");
        }
        let Some(target) = &self.target else { return };
        target.check();
        assert!(!target.saw(EventKind::Rejected) && !target.saw(EventKind::Unreachable));
        if target.saw(EventKind::Established) {
            assert!(
                self.initiator.saw(EventKind::Established),
                "established at the target, but not at the initiator"
            );
        }
    }

    /// Runs the schedule. Returns the outcome at the initiator, and a digest.
    pub(super) fn run(mut self, trace: bool) -> (Option<EventKind>, u64) {
        let is_calm = self.faults.is_calm();
        while self.now < 6 * S {
            self.step();
            if trace {
                let target = self.target.as_ref().map(|target| &target.events);
                println!("{:9} {:?} {target:?}", self.now, self.initiator.events);
            }
        }
        let initiator = &self.initiator;
        assert!(
            initiator.is_destroyed || !initiator.events.is_empty(),
            "rdma_connect has no outcome: the program waits for ever"
        );
        assert!(self.is_open || !initiator.phase.may_report(), "an ended identifier may report something");
        if let Some(target) = &self.target {
            let has_outcome = target.is_destroyed || !target.events.is_empty() || !self.accepted;
            assert!(has_outcome, "rdma_accept has no outcome: {:?}", self.initiator.events);
            assert!(self.target_is_open || !target.phase.may_report());
        }
        let outcome = initiator.events.first().copied();
        let both = self.target.as_ref().is_some_and(|target| target.saw(EventKind::Established));
        assert!(!is_calm || both, "a calm schedule did not establish the connection");
        (outcome, mix(self.now ^ self.draw.below(1 << 30) as u64))
    }
}
