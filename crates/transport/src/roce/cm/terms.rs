// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of calls of connection management, and the attributes of the queue pair that follow from
//! an exchange.

use std::net::IpAddr;

use crate::roce::wire::cm::{
    CMA_HEADER_LEN, Rej, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, Transport,
};
use crate::roce::wire::{Addresses, PathMtu, Psn};
use crate::units::{Errno, Micros};

/// Bytes of private data that rdma_cm leaves to a program in a REQ.
pub const REQUEST_DATA_LEN: usize = Req::PRIVATE_DATA_LEN - CMA_HEADER_LEN;
/// Bytes of private data of a program in a REP.
pub const REPLY_DATA_LEN: usize = Rep::PRIVATE_DATA_LEN;
/// Bytes of private data of a program in a REJ.
pub const REJECT_DATA_LEN: usize = Rej::PRIVATE_DATA_LEN;
/// Bytes of private data that rdma_cm leaves to a program in a SIDR_REQ.
pub const SIDR_REQUEST_DATA_LEN: usize = SidrReq::PRIVATE_DATA_LEN - CMA_HEADER_LEN;
/// Bytes of private data of a program in a SIDR_REP.
pub const SIDR_REPLY_DATA_LEN: usize = SidrRep::PRIVATE_DATA_LEN;

/// A local communication id, the name of an exchange. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommId(
    /// The number, as messages have it.
    pub u32,
);

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(
    /// The number, which is not used again.
    pub u64,
);

/// The addresses of the two sides, from this side's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// The address of this side.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
}

impl Route {
    /// The addresses of a packet to the peer. An IPv4 and an IPv6 address do not form a route: EINVAL.
    pub fn addresses(self) -> Result<Addresses, Errno> {
        Addresses::between(self.local, self.remote).ok_or(libc::EINVAL)
    }

    /// The route of the peer's answers.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }
}

/// The local addresses of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// All addresses: `::` without `RDMA_OPTION_ID_AFONLY`.
    Any,
    /// All IPv4 addresses: `0.0.0.0`.
    AnyV4,
    /// All IPv6 addresses: `::` with `RDMA_OPTION_ID_AFONLY`.
    AnyV6,
    /// This address.
    Address(IpAddr),
}

impl Bound {
    /// Whether requests to an address belong to the listener.
    pub(super) fn includes(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::AnyV4 => address.is_ipv4(),
            Self::AnyV6 => address.is_ipv6(),
            Self::Address(bound) => bound == address,
        }
    }

    /// Among the listeners that include an address, the one with the highest rank gets a request.
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::AnyV4 | Self::AnyV6 => 1,
            Self::Address(_) => 2,
        }
    }
}

/// The part that a process takes in connection management.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The highest byte of the communication ids of the process.
    pub slot: u8,
    /// The GUID of the adapter.
    pub ca_guid: u64,
    /// Timeouts and retries.
    pub timing: Timing,
    /// Limits on pending requests.
    pub limits: Limits,
}

/// Timeouts and retries that a REQ announces. The default is that of `drivers/infiniband/core/cma.c`.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// CM response timeout of both sides: 4.096 us * 2^n.
    pub response_timeout: u8,
    /// How often a message is repeated.
    pub max_retries: u8,
    /// The packet life time of a path: 4.096 us * 2^n.
    pub packet_life: u8,
}

impl Default for Timing {
    fn default() -> Self {
        Self { response_timeout: 20, max_retries: 15, packet_life: 16 }
    }
}

/// The maximum numbers of pending requests: requests whose event the program has not fetched. A REQ above a
/// limit is dropped without an answer; the peer repeats it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the process.
    pub process: usize,
    /// Of one remote host.
    pub address: usize,
}

/// A duration as messages encode it, 4.096 us * 2^n with n of 5 bits, in microseconds.
pub(super) fn duration_us(code: u8) -> Micros {
    (4_096u64 << (code & 31)) / 1_000
}

/// The time after which an unanswered REQ is repeated.
pub(super) fn request_interval_us(response_timeout: u8, packet_life: u8) -> Micros {
    duration_us(response_timeout) + 2 * duration_us(packet_life)
}

/// A request for a connection: rdma_connect(3).
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// What the request is for.
    pub service: ServiceId,
    /// The transport service of the queue pairs: RC or UC.
    pub transport: Transport,
    /// The port of this side, for the header of rdma_cm.
    pub source_port: u16,
    /// The queue pair of this side.
    pub qpn: u32,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The first PSN of the peer, which becomes `rq_psn` of this side: an unpredictable number.
    pub starting_psn: Psn,
    /// The path MTU.
    pub mtu: PathMtu,
    /// The partition.
    pub pkey: u16,
    /// The local ACK timeout of the connection: 4.096 us * 2^n; cma uses 17.
    pub ack_timeout: u8,
    /// Reads and atomic operations that this side accepts at a time.
    pub responder_resources: u8,
    /// Reads and atomic operations that this side may have outstanding.
    pub initiator_depth: u8,
    /// Retry count of the connection, 0 to 7.
    pub retry_count: u8,
    /// RNR retry count of the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit; Linux uses 64.
    pub hop_limit: u8,
    /// At most [`REQUEST_DATA_LEN`] bytes.
    pub private_data: &'a [u8],
}

/// A reply that accepts a request: rdma_accept(3).
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// The queue pair of this side.
    pub qpn: u32,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The first PSN of the peer, which becomes `rq_psn` of this side: an unpredictable number.
    pub starting_psn: Psn,
    /// Reads and atomic operations that this side accepts at a time.
    pub responder_resources: u8,
    /// Reads and atomic operations that this side may have outstanding.
    pub initiator_depth: u8,
    /// RNR retry count of the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// Time that this side needs for an acknowledgement: 4.096 us * 2^n; rxe uses 15.
    pub target_ack_delay: u8,
    /// At most [`REPLY_DATA_LEN`] bytes.
    pub private_data: &'a [u8],
}

/// A request for the queue pair of a datagram service: rdma_connect(3) of an identifier for datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Resolve<'a> {
    /// What the request is for.
    pub service: ServiceId,
    /// The port of this side, for the header of rdma_cm.
    pub source_port: u16,
    /// The partition.
    pub pkey: u16,
    /// At most [`SIDR_REQUEST_DATA_LEN`] bytes.
    pub private_data: &'a [u8],
}

/// The answer to such a request: rdma_accept(3) or rdma_reject(3). At most [`SIDR_REPLY_DATA_LEN`] bytes of
/// private data.
#[derive(Clone, Copy, Debug)]
pub enum SidrAnswer<'a> {
    /// The queue pair of the service, and its Q_Key.
    Valid {
        /// Its number.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
        /// Private data.
        private_data: &'a [u8],
    },
    /// There is none for the peer.
    Refused {
        /// Why.
        status: SidrStatus,
        /// Private data.
        private_data: &'a [u8],
    },
}

/// The attributes of a queue pair that follow from an exchange, for the transitions to RTR and RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The addresses: `ah_attr` and the source GID.
    pub route: Route,
    /// `dest_qp_num`.
    pub dest_qp: u32,
    /// `path_mtu`.
    pub mtu: PathMtu,
    /// `rq_psn`.
    pub rq_psn: Psn,
    /// `sq_psn`.
    pub sq_psn: Psn,
    /// `max_dest_rd_atomic`.
    pub responder_resources: u8,
    /// `max_rd_atomic`.
    pub initiator_depth: u8,
    /// `timeout`.
    pub ack_timeout: u8,
    /// `retry_cnt`.
    pub retry_count: u8,
    /// `rnr_retry`.
    pub rnr_retry_count: u8,
    /// The partition.
    pub pkey: u16,
    /// `ah_attr.grh.flow_label`.
    pub flow_label: u32,
    /// `ah_attr.grh.traffic_class`.
    pub traffic_class: u8,
    /// `ah_attr.grh.hop_limit`.
    pub hop_limit: u8,
    /// The queue pair of the peer has a shared receive queue.
    pub peer_srq: bool,
}

impl Terms {
    /// What a call and its route determine before the peer has answered.
    pub(super) fn of_connect(route: Route, call: &Connect<'_>) -> Self {
        Self {
            route,
            dest_qp: 0,
            mtu: call.mtu,
            rq_psn: call.starting_psn,
            sq_psn: Psn::new(0),
            responder_resources: call.responder_resources,
            initiator_depth: call.initiator_depth,
            ack_timeout: call.ack_timeout,
            retry_count: call.retry_count,
            rnr_retry_count: call.rnr_retry_count,
            pkey: call.pkey,
            flow_label: call.flow_label,
            traffic_class: call.traffic_class,
            hop_limit: call.hop_limit,
            peer_srq: false,
        }
    }

    /// What a REQ determines before the program has accepted it.
    pub(super) fn of_request(route: Route, mtu: PathMtu, req: &Req) -> Self {
        Self {
            route,
            dest_qp: req.local_qpn,
            mtu,
            rq_psn: Psn::new(0),
            sq_psn: req.starting_psn,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            pkey: req.pkey,
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            peer_srq: req.srq,
        }
    }

    /// The active side: with a REP. The peer never gets more reads than it accepts.
    #[must_use]
    pub(super) fn with_reply(self, rep: &Rep) -> Self {
        Self {
            dest_qp: rep.local_qpn,
            sq_psn: rep.starting_psn,
            responder_resources: rep.initiator_depth,
            initiator_depth: self.initiator_depth.min(rep.responder_resources),
            ack_timeout: ack_timeout(rep.target_ack_delay, self.ack_timeout),
            rnr_retry_count: rep.rnr_retry_count,
            peer_srq: rep.srq,
            ..self
        }
    }

    /// The passive side: with what the program accepts. The peer never gets more reads than it accepts.
    #[must_use]
    pub(super) fn with_accept(self, call: &Accept<'_>) -> Self {
        Self {
            rq_psn: call.starting_psn,
            responder_resources: call.responder_resources,
            initiator_depth: self.initiator_depth.min(call.initiator_depth),
            ..self
        }
    }
}

/// The local ACK timeout of the active side. That of the REQ is one more than the packet life time, and the
/// delay of the peer is added to it as cma does, as a sum of powers of two rounded up.
fn ack_timeout(target_ack_delay: u8, requested: u8) -> u8 {
    let sum = if requested >= target_ack_delay {
        requested + u8::from(target_ack_delay >= requested.saturating_sub(1))
    } else {
        target_ack_delay + u8::from(requested >= target_ack_delay - 1)
    };
    sum.min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration_us(20), 4_294_967);
        assert_eq!(request_interval_us(20, 16), 4_294_967 + 2 * 268_435);
    }

    #[test]
    fn the_delay_of_the_peer_is_added_to_the_ack_timeout() {
        assert_eq!(ack_timeout(15, 17), 17, "rxe");
        assert_eq!(ack_timeout(16, 17), 18);
        assert_eq!(ack_timeout(17, 17), 18);
        assert_eq!(ack_timeout(18, 17), 19);
        assert_eq!(ack_timeout(20, 17), 20);
        assert_eq!(ack_timeout(31, 31), 31);
        assert_eq!(ack_timeout(0, 0), 1);
    }
}
