// SPDX-License-Identifier: BSD-3-Clause
//! The numbers that verbs give the states of a queue pair.
#![forbid(unsafe_code)]

use rdma_sys::ibv_qp_state::*;

use crate::qp::State;

/// The state with this number; `None` if there is none.
pub(super) fn state_of(number: Type) -> Option<State> {
    Some(match number {
        IBV_QPS_RESET => State::Reset,
        IBV_QPS_INIT => State::Init,
        IBV_QPS_RTR => State::Rtr,
        IBV_QPS_RTS => State::Rts,
        IBV_QPS_SQD => State::Sqd,
        IBV_QPS_SQE => State::Sqe,
        IBV_QPS_ERR => State::Err,
        _ => return None,
    })
}

/// The number of a state.
pub(super) fn number_of(state: State) -> Type {
    match state {
        State::Reset => IBV_QPS_RESET,
        State::Init => IBV_QPS_INIT,
        State::Rtr => IBV_QPS_RTR,
        State::Rts => IBV_QPS_RTS,
        State::Sqd => IBV_QPS_SQD,
        State::Sqe => IBV_QPS_SQE,
        State::Err => IBV_QPS_ERR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_numbers_of_verbs() {
        for (number, state) in (0..).zip(State::ALL) {
            assert_eq!((state_of(number), number_of(state)), (Some(state), number));
        }
        assert_eq!(state_of(7), None);
    }
}
