// SPDX-License-Identifier: BSD-3-Clause
//! The transitions between the states of a queue pair, and the attributes that each requires and permits
//! (IBTA 11.2.5.2; the table `qp_state_table` of Linux).
#![forbid(unsafe_code)]

use std::fmt;

use rdma_sys::ibv_qp_attr_mask as Mask;

use crate::qp::{Kind, State};
use State::*;

pub(super) const STATE: u32 = Mask::IBV_QP_STATE.0;
pub(super) const CUR_STATE: u32 = Mask::IBV_QP_CUR_STATE.0;
pub(super) const EN_SQD_ASYNC_NOTIFY: u32 = Mask::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;
pub(super) const ACCESS_FLAGS: u32 = Mask::IBV_QP_ACCESS_FLAGS.0;
pub(super) const PKEY_INDEX: u32 = Mask::IBV_QP_PKEY_INDEX.0;
pub(super) const PORT: u32 = Mask::IBV_QP_PORT.0;
pub(super) const QKEY: u32 = Mask::IBV_QP_QKEY.0;
pub(super) const AV: u32 = Mask::IBV_QP_AV.0;
pub(super) const PATH_MTU: u32 = Mask::IBV_QP_PATH_MTU.0;
pub(super) const TIMEOUT: u32 = Mask::IBV_QP_TIMEOUT.0;
pub(super) const RETRY_CNT: u32 = Mask::IBV_QP_RETRY_CNT.0;
pub(super) const RNR_RETRY: u32 = Mask::IBV_QP_RNR_RETRY.0;
pub(super) const RQ_PSN: u32 = Mask::IBV_QP_RQ_PSN.0;
pub(super) const MAX_QP_RD_ATOMIC: u32 = Mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
pub(super) const ALT_PATH: u32 = Mask::IBV_QP_ALT_PATH.0;
pub(super) const MIN_RNR_TIMER: u32 = Mask::IBV_QP_MIN_RNR_TIMER.0;
pub(super) const SQ_PSN: u32 = Mask::IBV_QP_SQ_PSN.0;
pub(super) const MAX_DEST_RD_ATOMIC: u32 = Mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
pub(super) const PATH_MIG_STATE: u32 = Mask::IBV_QP_PATH_MIG_STATE.0;
pub(super) const CAP: u32 = Mask::IBV_QP_CAP.0;
pub(super) const DEST_QPN: u32 = Mask::IBV_QP_DEST_QPN.0;
pub(super) const RATE_LIMIT: u32 = Mask::IBV_QP_RATE_LIMIT.0;

/// All attributes, with their names without `IBV_QP_`.
const NAMES: [(u32, &str); 22] = [
    (STATE, "STATE"),
    (CUR_STATE, "CUR_STATE"),
    (EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"),
    (ACCESS_FLAGS, "ACCESS_FLAGS"),
    (PKEY_INDEX, "PKEY_INDEX"),
    (PORT, "PORT"),
    (QKEY, "QKEY"),
    (AV, "AV"),
    (PATH_MTU, "PATH_MTU"),
    (TIMEOUT, "TIMEOUT"),
    (RETRY_CNT, "RETRY_CNT"),
    (RNR_RETRY, "RNR_RETRY"),
    (RQ_PSN, "RQ_PSN"),
    (MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"),
    (ALT_PATH, "ALT_PATH"),
    (MIN_RNR_TIMER, "MIN_RNR_TIMER"),
    (SQ_PSN, "SQ_PSN"),
    (MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"),
    (PATH_MIG_STATE, "PATH_MIG_STATE"),
    (CAP, "CAP"),
    (DEST_QPN, "DEST_QPN"),
    (RATE_LIMIT, "RATE_LIMIT"),
];

/// A set of attributes, displayed as their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Names(pub(super) u32);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut unnamed = self.0;
        for (bit, name) in NAMES {
            if self.0 & bit != 0 {
                write!(f, "{separator}IBV_QP_{name}")?;
                separator = ", ";
                unnamed &= !bit;
            }
        }
        if unnamed != 0 {
            write!(f, "{separator}{unnamed:#x}")?;
        }
        Ok(())
    }
}

/// The attributes of a transition, other than IBV_QP_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    required: u32,
    optional: u32,
}

/// Why a transition is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The transition does not exist.
    Transition,
    /// These attributes are required and missing.
    Missing(u32),
    /// These attributes are not permitted.
    Superfluous(u32),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Transition => f.write_str("there is no such transition"),
            Self::Missing(mask) => write!(f, "attr_mask lacks {}", Names(mask)),
            Self::Superfluous(mask) => {
                write!(f, "attr_mask has {}, which the transition does not permit", Names(mask))
            }
        }
    }
}

/// Checks the attributes of a transition.
pub(super) fn check(kind: Kind, from: State, to: State, mask: u32) -> Result<(), Wrong> {
    let rule = rule(kind, from, to).ok_or(Wrong::Transition)?;
    let missing = rule.required & !mask;
    if missing != 0 {
        return Result::Err(Wrong::Missing(missing));
    }
    let superfluous = mask & !(rule.required | rule.optional | STATE);
    if superfluous != 0 { Result::Err(Wrong::Superfluous(superfluous)) } else { Ok(()) }
}

fn rule(kind: Kind, from: State, to: State) -> Option<Rule> {
    const NONE: Rule = Rule { required: 0, optional: 0 };
    const RTS_RC: u32 = CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE;
    const RTS_UC: u32 = CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE;
    const RTS_UD: u32 = CUR_STATE | QKEY;
    let init = match kind {
        Kind::Rc | Kind::Uc => PKEY_INDEX | PORT | ACCESS_FLAGS,
        Kind::Ud => PKEY_INDEX | PORT | QKEY,
    };
    let rts = match kind {
        Kind::Rc => RTS_RC,
        Kind::Uc => RTS_UC,
        Kind::Ud => RTS_UD,
    };
    Some(match (from, to) {
        (_, Reset) => NONE,
        (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => NONE,
        (Reset, Init) => Rule { required: init, optional: 0 },
        (Init, Init) => Rule { required: 0, optional: init },
        (Init, Rtr) => match kind {
            Kind::Rc => Rule {
                required: AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
                optional: ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
            },
            Kind::Uc => Rule {
                required: AV | PATH_MTU | DEST_QPN | RQ_PSN,
                optional: ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
            },
            Kind::Ud => Rule { required: 0, optional: PKEY_INDEX | QKEY },
        },
        (Rtr, Rts) => match kind {
            Kind::Rc => {
                Rule { required: SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC, optional: rts }
            }
            Kind::Uc | Kind::Ud => Rule { required: SQ_PSN, optional: rts },
        },
        (Rts | Sqd, Rts) => Rule { required: 0, optional: rts },
        // A queue pair of type RC never enters SQE.
        (Sqe, Rts) => match kind {
            Kind::Rc => return None,
            Kind::Uc => Rule { required: 0, optional: CUR_STATE | ACCESS_FLAGS },
            Kind::Ud => Rule { required: 0, optional: CUR_STATE | QKEY },
        },
        (Rts, Sqd) => Rule { required: 0, optional: EN_SQD_ASYNC_NOTIFY },
        (Sqd, Sqd) => match kind {
            Kind::Rc => Rule {
                required: 0,
                optional: PORT
                    | AV
                    | TIMEOUT
                    | RETRY_CNT
                    | RNR_RETRY
                    | MAX_QP_RD_ATOMIC
                    | MAX_DEST_RD_ATOMIC
                    | ALT_PATH
                    | ACCESS_FLAGS
                    | PKEY_INDEX
                    | MIN_RNR_TIMER
                    | PATH_MIG_STATE,
            },
            Kind::Uc => {
                Rule { required: 0, optional: AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE }
            }
            Kind::Ud => Rule { required: 0, optional: PKEY_INDEX | QKEY },
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transitions of RC in the specification: the required, then the optional attributes.
    const RC: [(State, State, &str, &str); 24] = [
        (Reset, Reset, "", ""),
        (Init, Reset, "", ""),
        (Rtr, Reset, "", ""),
        (Rts, Reset, "", ""),
        (Sqd, Reset, "", ""),
        (Sqe, Reset, "", ""),
        (Err, Reset, "", ""),
        (Init, Err, "", ""),
        (Rtr, Err, "", ""),
        (Rts, Err, "", ""),
        (Sqd, Err, "", ""),
        (Sqe, Err, "", ""),
        (Err, Err, "", ""),
        (Reset, Init, "PKEY_INDEX PORT ACCESS_FLAGS", ""),
        (Init, Init, "", "PKEY_INDEX PORT ACCESS_FLAGS"),
        (
            Init,
            Rtr,
            "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
            "ALT_PATH ACCESS_FLAGS PKEY_INDEX",
        ),
        (
            Rtr,
            Rts,
            "SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC",
            "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
        ),
        (Rts, Rts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
        (Sqd, Rts, "", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
        (Rts, Sqd, "", "EN_SQD_ASYNC_NOTIFY"),
        (
            Sqd,
            Sqd,
            "",
            "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX \
             MIN_RNR_TIMER PATH_MIG_STATE",
        ),
        // Three transitions that do not exist.
        (Reset, Rtr, "-", ""),
        (Reset, Err, "-", ""),
        (Init, Rts, "-", ""),
    ];

    fn bits(names: &str) -> u32 {
        let bit = |name: &str| NAMES.iter().find(|(_, known)| *known == name).expect("a name").0;
        names.split_whitespace().map(bit).fold(0, |all, bit| all | bit)
    }

    /// Checks all masks of the 22 attributes for all pairs of states.
    #[test]
    #[cfg_attr(miri, ignore = "88 million masks")]
    fn rc_takes_what_the_specification_lists_and_nothing_else() {
        let all: u32 = NAMES.iter().map(|(bit, _)| bit).sum();
        for from in State::ALL {
            for to in State::ALL {
                let listed = RC.iter().find(|(f, t, required, _)| (*f, *t) == (from, to) && *required != "-");
                let Some((_, _, required, optional)) = listed else {
                    for mask in [STATE, all, STATE | AV] {
                        assert_eq!(
                            check(Kind::Rc, from, to, mask),
                            Result::Err(Wrong::Transition),
                            "{from} {to}"
                        );
                    }
                    continue;
                };
                let (required, permitted) = (bits(required), bits(required) | bits(optional) | STATE);
                // All subsets of the 22 bits.
                let mut mask = 0u32;
                loop {
                    let expected = required & !mask == 0 && mask & !permitted == 0;
                    assert_eq!(
                        check(Kind::Rc, from, to, mask).is_ok(),
                        expected,
                        "{from} {to} {}",
                        Names(mask)
                    );
                    mask = mask.wrapping_sub(all) & all;
                    if mask == 0 {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn a_refusal_names_the_attributes() {
        let message = |from, to, mask| check(Kind::Rc, from, to, mask).unwrap_err().to_string();
        assert_eq!(
            message(Reset, Init, STATE | PORT),
            "attr_mask lacks IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX"
        );
        let init = STATE | PORT | PKEY_INDEX | ACCESS_FLAGS;
        assert_eq!(
            message(Reset, Init, init | QKEY | 1 << 30),
            "attr_mask has IBV_QP_QKEY, 0x40000000, which the transition does not permit"
        );
        assert_eq!(message(Reset, Rts, STATE), "there is no such transition");
    }

    #[test]
    fn uc_and_ud_have_fewer_attributes() {
        let init = STATE | PORT | PKEY_INDEX;
        assert_eq!(check(Kind::Ud, Reset, Init, init | QKEY), Ok(()));
        assert_eq!(check(Kind::Ud, Reset, Init, init | ACCESS_FLAGS), Result::Err(Wrong::Missing(QKEY)));
        assert_eq!(check(Kind::Ud, Init, Rtr, STATE), Ok(()));
        assert_eq!(check(Kind::Ud, Rtr, Rts, STATE | SQ_PSN), Ok(()));
        let rtr = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
        assert_eq!(check(Kind::Uc, Init, Rtr, rtr), Ok(()));
        assert_eq!(
            check(Kind::Uc, Init, Rtr, rtr | MIN_RNR_TIMER),
            Result::Err(Wrong::Superfluous(MIN_RNR_TIMER))
        );
        assert_eq!(check(Kind::Uc, Sqe, Rts, STATE | ACCESS_FLAGS), Ok(()));
        assert_eq!(check(Kind::Ud, Sqe, Rts, STATE | QKEY), Ok(()));
    }
}
