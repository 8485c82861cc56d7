// SPDX-License-Identifier: BSD-3-Clause
//! The state of a queue pair (IBTA 10.3.1).
//!
//! [`Current`] is one word: the threads that post read it without a lock. Transitions that depend on the
//! connection are made with the lock of the session.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// A state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// No work requests can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Requests of the peer are carried out.
    Rtr,
    /// Sends can be posted, too.
    Rts,
    /// Sends can be posted, but no request is begun.
    Sqd,
    /// A send has failed; not entered by the reliable connections here.
    Sqe,
    /// What is posted completes with a flush error.
    Err,
}

/// In the word of [`Current`]: the queue pair is destroyed.
const DESTROYED: u8 = State::Err as u8 + 1;

impl State {
    /// All states, in the order of verbs.
    pub(crate) const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// The state that a queue pair is in.
#[derive(Debug)]
pub(super) struct Current(AtomicU8);

impl Current {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(State::Reset as u8))
    }

    /// The state; ERR if the queue pair is destroyed.
    pub(super) fn get(&self) -> State {
        let word = self.0.load(Ordering::Acquire);
        State::ALL.get(usize::from(word)).copied().unwrap_or(State::Err)
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.0.load(Ordering::Acquire) == DESTROYED
    }

    #[inline]
    pub(super) fn is_reset(&self) -> bool {
        self.0.load(Ordering::Relaxed) == State::Reset as u8
    }

    /// Whether sends can be posted: in RTS, SQD, SQE and ERR.
    #[inline]
    pub(super) fn takes_sends(&self) -> bool {
        (State::Rts as u8..DESTROYED).contains(&self.0.load(Ordering::Acquire))
    }

    /// Moves to `to` from one of the states `from`. False: it is in another one.
    pub(super) fn advance(&self, from: &[State], to: State) -> bool {
        self.update(|state| from.iter().any(|from| *from as u8 == state), to)
    }

    /// Any state to RESET.
    pub(super) fn reset(&self) {
        self.update(|state| state != DESTROYED, State::Reset);
    }

    /// Any state to ERR.
    pub(super) fn fail(&self) {
        self.update(|state| state != DESTROYED, State::Err);
    }

    /// The connection has ended.
    pub(super) fn ended(&self) {
        self.advance(&[State::Rtr, State::Rts, State::Sqd, State::Sqe], State::Err);
    }

    /// The queue pair is destroyed: no state follows.
    pub(super) fn destroy(&self) {
        self.0.store(DESTROYED, Ordering::Release);
    }

    fn update(&self, from: impl Fn(u8) -> bool, to: State) -> bool {
        let next = |state| from(state).then_some(to as u8);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue pair in this state.
    fn at(state: State) -> Current {
        let current = Current::new();
        assert!(current.advance(&[State::Reset], state));
        current
    }

    #[test]
    fn a_transition_needs_its_state() {
        for state in State::ALL {
            let current = at(state);
            assert_eq!(current.get(), state);
            let moves = current.advance(&[State::Init, State::Rtr], State::Rts);
            assert_eq!(moves, [State::Init, State::Rtr].contains(&state), "{state}");
            assert_eq!(current.get(), if moves { State::Rts } else { state });
        }
    }

    #[test]
    fn sends_are_taken_from_rts_on() {
        let taking: Vec<_> = State::ALL.into_iter().filter(|state| at(*state).takes_sends()).collect();
        assert_eq!(taking, [State::Rts, State::Sqd, State::Sqe, State::Err]);
        assert!(at(State::Reset).is_reset() && !at(State::Init).is_reset());
    }

    #[test]
    fn the_end_of_a_connection_leads_to_err_and_no_further() {
        for state in State::ALL {
            let current = at(state);
            current.ended();
            let unconnected = [State::Reset, State::Init].contains(&state);
            assert_eq!(current.get(), if unconnected { state } else { State::Err });
            current.fail();
            assert_eq!(current.get(), State::Err);
            current.reset();
            assert_eq!(current.get(), State::Reset);
        }
    }

    #[test]
    fn no_state_follows_destruction() {
        let current = at(State::Rts);
        current.destroy();
        current.fail();
        current.reset();
        assert!(!current.advance(&State::ALL, State::Init));
        assert!(current.is_destroyed() && !current.takes_sends() && !current.is_reset());
        assert_eq!(current.get(), State::Err);
    }
}
