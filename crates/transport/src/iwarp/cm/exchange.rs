// SPDX-License-Identifier: BSD-3-Clause
//! The handshake that establishes a connection (RFC 5044, RFC 6581), as two values: [`Initiator`] and
//! [`Responder`].
//!
//! The results of socket calls and the time go in; the next action comes out. Neither owns a socket, a timer
//! or a lock: their driver does, and a simulation tests the two values against each other.
//!
//! An initiator produces exactly one outcome, [`Next::Established`] or [`Next::Failed`], at its deadline at
//! the latest. A responder never replies to a malformed request.

use std::time::Duration;

use crate::iwarp::wire::mpa::{self, Decoded, Frame, Kind};
use crate::iwarp::wire::rdmap::TermCode;

use super::negotiate::{self, Agreed, Offer, Refusal};
use crate::cm::EventKind;
use crate::limits::MAX_READS;
use crate::policy::Policy;
use crate::policy::backoff::Backoff;
use crate::policy::mode::Mode;
use crate::units::{Errno, Micros};

/// The stage of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The TCP connection is being established.
    Connecting,
    /// The TCP connection was refused; the next attempt is due at this time.
    Refused(Micros),
    /// The MPA Request has been sent.
    AwaitingReply,
}

/// Why an attempt failed, as its event reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The event that reports it.
    pub event: EventKind,
    /// A negative errno.
    pub status: i32,
    /// From the MPA Reply of the peer.
    pub private_data: Vec<u8>,
    /// A protocol violation of the peer, or a requirement that softverbs does not support.
    pub wrong: Option<String>,
    /// The Terminate code to send before the connection is closed, and whether its FPDU has a CRC.
    pub terminate: Option<(TermCode, bool)>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        let event = match errno {
            libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE => EventKind::Rejected,
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => {
                EventKind::Unreachable
            }
            _ => EventKind::ConnectError,
        };
        Self { event, status: -errno, private_data: Vec::new(), wrong: None, terminate: None }
    }
}

impl Failure {
    fn protocol(wrong: String) -> Self {
        Self { event: EventKind::ConnectError, wrong: Some(wrong), ..Self::from(libc::EPROTO) }
    }
}

/// A reply that accepts the request.
#[derive(Debug)]
pub struct Accepted {
    /// The parameters of the connection.
    pub agreed: Agreed,
    /// The reply.
    pub frame: Frame,
    /// From the reply.
    pub private_data: Vec<u8>,
    /// Bytes that arrived after the reply: the beginning of the peer's first FPDU.
    pub early: Vec<u8>,
}

/// The next action of an initiator.
#[derive(Debug)]
pub enum Next {
    /// Wait for the next event or timeout.
    Wait,
    /// Call connect(2) again after this time.
    TryAgain(Duration),
    /// Call connect(2) now.
    TryNow,
    /// The connection is established.
    Established(Accepted),
    /// The attempt has failed.
    Failed(Failure),
}

/// The initiator.
pub struct Initiator {
    stage: Stage,
    offer: Offer,
    deadline: Micros,
    received: Vec<u8>,
    /// Whether a refused TCP connection is retried.
    backoff: Backoff,
}

impl Initiator {
    /// An initiator whose TCP connection must be established within `timeout`. A refused one is retried as
    /// [`Backoff`] decides in this mode.
    pub fn new(offer: Offer, now: Micros, timeout: Duration, mode: Mode) -> Self {
        Self {
            stage: Stage::Connecting,
            offer,
            deadline: after(now, timeout),
            received: Vec::new(),
            backoff: Backoff::new(mode),
        }
    }

    /// Its stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The MPA Request has been sent; the reply must arrive within `timeout`.
    pub fn sent(&mut self, now: Micros, timeout: Duration) {
        self.stage = Stage::AwaitingReply;
        self.deadline = after(now, timeout);
    }

    /// A system call failed.
    pub fn failed(&mut self, errno: Errno, now: Micros) -> Next {
        let is_connecting = matches!(self.stage, Stage::Connecting | Stage::Refused(_));
        let is_refused = errno == libc::ECONNREFUSED && is_connecting;
        let Some(wait) = is_refused.then(|| self.backoff.wait()).flatten() else {
            return Next::Failed(errno.into());
        };
        self.stage = Stage::Refused(after(now, wait));
        Next::TryAgain(wait)
    }

    /// Bytes have arrived. An empty slice means that the peer closed the connection, which rejects the
    /// request.
    pub fn received(&mut self, bytes: &[u8]) -> Next {
        if bytes.is_empty() {
            return Next::Failed(libc::ECONNRESET.into());
        }
        self.received.extend_from_slice(bytes);
        match mpa::decode(Kind::Reply, &self.received) {
            Ok(Decoded::Need(_)) => Next::Wait,
            Ok(Decoded::Frame { frame, private_data, consumed }) => {
                let private_data = private_data.to_vec();
                match negotiate::agree(&frame, self.offer) {
                    Ok(agreed) => {
                        let early = self.received[consumed..].to_vec();
                        Next::Established(Accepted { agreed, frame, private_data, early })
                    }
                    Err(refusal) => Next::Failed(Failure {
                        private_data,
                        ..refused(refusal, frame.crc || self.offer.crc)
                    }),
                }
            }
            Err(e) => Next::Failed(Failure::protocol(e.to_string())),
        }
    }

    /// A timer has expired.
    pub fn expired(&mut self, now: Micros) -> Next {
        match self.stage {
            _ if self.deadline <= now => Next::Failed(libc::ETIMEDOUT.into()),
            Stage::Refused(at) if at <= now => {
                self.stage = Stage::Connecting;
                Next::TryNow
            }
            _ => Next::Wait,
        }
    }
}

fn after(now: Micros, wait: Duration) -> Micros {
    now.saturating_add(Micros::try_from(wait.as_micros()).unwrap_or(Micros::MAX))
}

/// The failure that a refusal leads to, with a Terminate message if there is a code for the reason.
fn refused(refusal: Refusal, crc: bool) -> Failure {
    let terminate = refusal.terminate().map(|code| (code, crc));
    let failure = match refusal {
        Refusal::Rejected => libc::ECONNREFUSED.into(),
        Refusal::Markers => Failure {
            wrong: Some("the peer requires MPA markers, which are not supported".into()),
            ..libc::ECONNREFUSED.into()
        },
        Refusal::FirstMessage => Failure::protocol(
            "the peer does not accept an RDMA Write as the RTR message, and softverbs sends no other".into(),
        ),
        Refusal::Depth => Failure::protocol(format!(
            "the peer requires an IRD of more than {MAX_READS}, which is the maximum"
        )),
    };
    Failure { terminate, ..failure }
}

/// The responder, until the MPA Request is complete.
#[derive(Default)]
pub struct Responder {
    received: Vec<u8>,
}

impl Responder {
    /// Bytes have arrived. An empty slice means that the peer closed the connection. Returns the MPA Request
    /// and its private data when complete. After an error the connection is closed without a reply, as RFC
    /// 5044 requires.
    pub fn received(&mut self, bytes: &[u8]) -> Result<Option<(Frame, Vec<u8>)>, String> {
        if bytes.is_empty() {
            return Err("the peer closed the connection before its MPA Request was complete".into());
        }
        self.received.extend_from_slice(bytes);
        match mpa::decode(Kind::Request, &self.received) {
            Ok(Decoded::Need(_)) => Ok(None),
            Ok(Decoded::Frame { frame, private_data, consumed }) if consumed == self.received.len() => {
                let complete = (frame, private_data.to_vec());
                self.received = Vec::new();
                Ok(Some(complete))
            }
            Ok(Decoded::Frame { .. }) => Err("the peer sent data before the MPA Reply".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}
