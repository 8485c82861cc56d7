// SPDX-License-Identifier: BSD-3-Clause
//! FPDUs to be sent.

use crate::iwarp::wire::codes::QN_TERMINATE;
use crate::iwarp::wire::ddp::{FIRST_MSN, Header};
use crate::iwarp::wire::rdmap::Opcode;
use crate::iwarp::wire::stream::{self, MAX_CONTROL_FPDU};
use crate::iwarp::wire::terminate::Terminate;

use crate::access::Access;
use crate::direct::Part;
use crate::limits::MAX_SGE;
use crate::wr::SHORT_INLINE;

const _: () = assert!(MAX_CONTROL_FPDU >= stream::MAX_HEADER_LEN + SHORT_INLINE + stream::MAX_TRAILER_LEN);

/// The maximum number of parts of an FPDU: header, payload ranges, trailer.
pub(super) const MAX_PARTS: usize = MAX_SGE + 2;

/// The FPDU of a Terminate message.
pub fn terminate_fpdu(terminate: &Terminate, crc: bool) -> Vec<u8> {
    let mut body = [0; Terminate::MAX_LEN];
    let len = terminate.encode(&mut body);
    let header = Header::Untagged {
        opcode: Opcode::Terminate,
        last: true,
        inv_stag: 0,
        qn: QN_TERMINATE,
        msn: FIRST_MSN,
        mo: 0,
    };
    let mut out = [0; MAX_CONTROL_FPDU];
    let len = stream::encode_fpdu(&header, &body[..len], crc, &mut out);
    out[..len].to_vec()
}

/// What an FPDU belongs to. `last`: it is the last FPDU of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Request { position: u64, last: bool },
    Response,
    Control,
}

/// The payload of an FPDU that is not part of `head`.
pub(super) enum Payload {
    None,
    Memory(Access),
    /// Several ranges, in order.
    Gathered(Vec<Access>),
    /// A copy, maybe followed by unused bytes: the bytes that the CRC covers, or inline data too long for
    /// `head`.
    Copied(Vec<u8>),
}

pub(super) struct Fpdu {
    head: [u8; MAX_CONTROL_FPDU],
    head_len: usize,
    pub payload: Payload,
    payload_len: usize,
    tail: [u8; 8],
    tail_len: usize,
    /// The number of bytes after which the peer can process the FPDU: without a CRC it need not wait for the
    /// trailer.
    effective: usize,
    /// Bytes that the link has accepted.
    pub sent: usize,
    pub origin: Origin,
}

impl Fpdu {
    /// An FPDU with its body in `head`.
    pub(super) fn short(header: &Header, body: &[u8], crc: bool, origin: Origin) -> Self {
        let mut head = [0; MAX_CONTROL_FPDU];
        let head_len = stream::encode_fpdu(header, body, crc, &mut head);
        Self {
            head,
            head_len,
            payload: Payload::None,
            payload_len: 0,
            tail: [0; 8],
            tail_len: 0,
            effective: if crc { head_len } else { stream::LENGTH_LEN + header.len() + body.len() },
            sent: 0,
            origin,
        }
    }

    /// An FPDU with a separate payload. With a CRC the payload must be a copy.
    pub(super) fn new(
        header: &Header,
        payload: Payload,
        payload_len: usize,
        crc: bool,
        origin: Origin,
    ) -> Self {
        let mut head = [0; MAX_CONTROL_FPDU];
        let head_len = stream::encode_fpdu_header(header, payload_len, &mut head);
        let ulpdu_len = head_len - stream::LENGTH_LEN + payload_len;
        let sum = crc.then(|| {
            let body: &[u8] = if let Payload::Copied(bytes) = &payload { &bytes[..payload_len] } else { &[] };
            stream::fpdu_crc([&head[..head_len], body])
        });
        let mut tail = [0; 8];
        let tail_len = stream::trailer(sum, ulpdu_len, &mut tail);
        let effective = head_len + payload_len + if crc { tail_len } else { 0 };
        Self { head, head_len, payload, payload_len, tail, tail_len, effective, sent: 0, origin }
    }

    pub(super) fn len(&self) -> usize {
        self.head_len + self.payload_len + self.tail_len
    }

    /// Bytes that the link has not accepted yet.
    pub(super) fn left(&self) -> usize {
        self.len() - self.sent
    }

    /// Whether the peer has received enough to process the FPDU, and so may respond.
    pub(super) fn is_effective(&self) -> bool {
        self.sent >= self.effective
    }

    /// The bytes that the link has not accepted yet, part by part.
    pub(super) fn rest(&self) -> impl Iterator<Item = Part<'_>> {
        let mut skip = self.sent;
        let (copied, ranges): (&[u8], &[Access]) = match &self.payload {
            Payload::None => (&[], &[]),
            Payload::Memory(access) => (&[], std::slice::from_ref(access)),
            Payload::Gathered(ranges) => (&[], ranges),
            Payload::Copied(bytes) => (&bytes[..self.payload_len], &[]),
        };
        let before = [Part::Bytes(&self.head[..self.head_len]), Part::Bytes(copied)];
        let after = Part::Bytes(&self.tail[..self.tail_len]);
        let pieces = before.into_iter().chain(ranges.iter().map(|range| Part::Memory(*range))).chain([after]);
        pieces.filter_map(move |piece| {
            let len = piece.byte_len();
            let skipped = skip.min(len);
            skip -= skipped;
            (len > skipped).then(|| match piece {
                Part::Bytes(bytes) => Part::Bytes(&bytes[skipped..]),
                Part::Memory(access) => Part::Memory(Access {
                    addr: access.addr.wrapping_add(skipped as u64),
                    len: len - skipped,
                    ..access
                }),
            })
        })
    }
}
