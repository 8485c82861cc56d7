// SPDX-License-Identifier: BSD-3-Clause
//! Numbers in messages of connection management.

use std::fmt;

/// The transport service of the connection (REQ; IBTA 12.7), 2 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// The one in the field "extended transport".
    Extended = 3,
}

impl Transport {
    pub(super) fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

/// The message that an MRA or a REJ answers (IBTA 12.7), 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// MRA: a LAP. REJ: another message, or none.
    Other = 2,
    /// A reserved value.
    Reserved = 3,
}

impl Answered {
    pub(super) fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
}

macro_rules! numbers {
    ($(#[doc = $type_doc:literal])+ $type:ident($int:ty);
     $($(#[doc = $doc:literal])+ $name:ident = $number:literal: $text:literal),+ $(,)?) => {
        $(#[doc = $type_doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type(
            /// The number, possibly a reserved one.
            pub $int,
        );

        impl $type {
            $($(#[doc = $doc])+ pub const $name: Self = Self($number);)+

            fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)?;
                match self.text() {
                    Some(text) => write!(f, " ({text})"),
                    None => Ok(()),
                }
            }
        }
    };
}

numbers! {
    /// The reason of a REJ (IBTA 12.6.7.2), the status of `RDMA_CM_EVENT_REJECTED`.
    Reason(u16);
    /// No queue pair available.
    NO_QP = 1: "no QP available",
    /// No end-to-end context available (reliable datagram).
    NO_EEC = 2: "no EE context available",
    /// No resources.
    NO_RESOURCES = 3: "no resources available",
    /// The peer did not answer in time.
    TIMEOUT = 4: "timeout",
    /// The request is not supported.
    UNSUPPORTED = 5: "unsupported request",
    /// The communication id is invalid.
    INVALID_COMM_ID = 6: "invalid communication ID",
    /// The communication instance (local id, remote id, QPN) is invalid.
    INVALID_COMM_INSTANCE = 7: "invalid communication instance",
    /// No program listens on the service id.
    INVALID_SERVICE_ID = 8: "invalid service ID",
    /// The transport service is invalid.
    INVALID_TRANSPORT = 9: "invalid transport service type",
    /// The peer still has a connection with this queue pair.
    STALE_CONNECTION = 10: "stale connection",
    /// The RDC does not exist (reliable datagram).
    NO_RDC = 11: "RDC does not exist",
    /// The primary remote GID is invalid.
    INVALID_GID = 12: "primary remote port GID rejected",
    /// The primary remote LID is invalid.
    INVALID_LID = 13: "primary remote port LID rejected",
    /// The primary service level is invalid.
    INVALID_SL = 14: "invalid primary SL",
    /// The primary traffic class is invalid.
    INVALID_TRAFFIC_CLASS = 15: "invalid primary traffic class",
    /// The primary hop limit is invalid.
    INVALID_HOP_LIMIT = 16: "invalid primary hop limit",
    /// The primary packet rate is invalid.
    INVALID_RATE = 17: "invalid primary packet rate",
    /// The alternate remote GID is invalid.
    INVALID_ALT_GID = 18: "alternate remote port GID rejected",
    /// The alternate remote LID is invalid.
    INVALID_ALT_LID = 19: "alternate remote port LID rejected",
    /// The alternate service level is invalid.
    INVALID_ALT_SL = 20: "invalid alternate SL",
    /// The alternate traffic class is invalid.
    INVALID_ALT_TRAFFIC_CLASS = 21: "invalid alternate traffic class",
    /// The alternate hop limit is invalid.
    INVALID_ALT_HOP_LIMIT = 22: "invalid alternate hop limit",
    /// The alternate packet rate is invalid.
    INVALID_ALT_RATE = 23: "invalid alternate packet rate",
    /// The connection manager is elsewhere.
    CM_REDIRECT = 24: "port and CM redirection",
    /// The service is on another port.
    PORT_REDIRECT = 25: "port redirection",
    /// The path MTU is invalid.
    INVALID_MTU = 26: "invalid path MTU",
    /// Not enough responder resources.
    NO_RESPONDER_RESOURCES = 27: "insufficient responder resources",
    /// The program rejects the request.
    CONSUMER = 28: "consumer reject",
    /// The RNR retry count is invalid.
    INVALID_RNR_RETRY = 29: "RNR retry count reject",
    /// The local communication id is in use.
    DUPLICATE_COMM_ID = 30: "duplicate local communication ID",
    /// The class version is not supported.
    INVALID_CLASS_VERSION = 31: "invalid class version",
    /// The primary flow label is invalid.
    INVALID_FLOW_LABEL = 32: "invalid primary flow label",
    /// The alternate flow label is invalid.
    INVALID_ALT_FLOW_LABEL = 33: "invalid alternate flow label",
}

numbers! {
    /// The status of a SIDR_REP (IBTA 12.11), the status of `RDMA_CM_EVENT_UNREACHABLE`.
    SidrStatus(u8);
    /// Queue pair and Q_Key are valid.
    VALID = 0: "valid",
    /// The service id is not supported.
    UNSUPPORTED = 1: "service ID not supported",
    /// The program rejects the request.
    REJECTED = 2: "rejected by the service provider",
    /// No queue pair available.
    NO_QP = 3: "no QP available",
    /// The service is elsewhere.
    REDIRECT = 4: "redirection",
    /// The class version is not supported.
    VERSION = 5: "version not supported",
}
