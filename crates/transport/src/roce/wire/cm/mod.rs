// SPDX-License-Identifier: BSD-3-Clause
//! The datagrams of connection management (IBTA 12.6, 12.11; MAD header: chapter 13).
//!
//! Each is the payload of a UD SEND to queue pair 1 with [`GSI_QKEY`]: a MAD header and one [`Message`].
//! Reserved fields, the fields of reliable datagram and of redirection are sent as 0 and ignored. The
//! messages of automatic path migration (LAP, APR) are not supported.

mod cma;
mod codes;
mod message;
mod req;

use super::bytes::{be16, be64, put16, put64};
use super::error::Malformed;

pub use cma::{CMA_HEADER_LEN, CmaHeader, PortSpace, ServiceId, UDP_QKEY};
pub use codes::{Answered, Reason, SidrStatus, Transport};
pub use message::{Drep, Dreq, Message, Mra, Rej, Rep, Rtu, SidrRep, SidrReq};
pub use req::{Path, Req};

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;
/// The Q_Key of queue pair 1.
pub const GSI_QKEY: u32 = 0x8001_0000;

const HEADER_LEN: usize = 24;
const BODY_LEN: usize = MAD_LEN - HEADER_LEN;
const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// A management datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The transaction id: chosen by the sender of REQ, DREQ and SIDR_REQ, repeated in all answers.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

impl Mad {
    /// Encodes the datagram. Bits that exceed the width of their field are dropped.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let mut out = [0; MAD_LEN];
        out[0] = BASE_VERSION;
        out[1] = CLASS;
        out[2] = CLASS_VERSION;
        out[3] = METHOD_SEND;
        put64(&mut out, 8, self.transaction);
        put16(&mut out, 16, self.message.attribute());
        out[HEADER_LEN..].copy_from_slice(&self.message.encode());
        out
    }

    /// Decodes the payload of a packet to queue pair 1.
    ///
    /// # Errors
    ///
    /// Any of [`Malformed`] that concerns MADs. All of them are dropped silently.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let Ok(mad) = <&[u8; MAD_LEN]>::try_from(payload) else {
            return Err(Malformed::MadLength(payload.len()));
        };
        let (base, class, version) = (mad[0], mad[1], mad[2]);
        if (base, class, version) != (BASE_VERSION, CLASS, CLASS_VERSION) {
            return Err(Malformed::MadClass { base, class, version });
        }
        if mad[3] != METHOD_SEND {
            return Err(Malformed::MadMethod(mad[3]));
        }
        let Some(body) = mad.last_chunk::<BODY_LEN>() else {
            return Err(Malformed::MadLength(payload.len()));
        };
        Ok(Self { transaction: be64(mad, 8), message: Message::decode(be16(mad, 16), body)? })
    }
}

/// The `N` bytes at an offset of a message.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Copies bytes to an offset of a message.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
