// SPDX-License-Identifier: BSD-3-Clause
//! A peer of rdma_cm over RoCE of which the test writes each message.

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketType, bind as bind_socket, socket};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use transport::roce::wire::cm::{
    Answered, CmaHeader, Drep, Dreq, GSI_QKEY, Mad, Message, Path, PortSpace, Reason, Rej, Rep, Req, Rtu,
    ServiceId, Transport,
};
use transport::roce::wire::{
    Addresses, Bth, DEFAULT_PKEY, Deth, Extension, Flow, GSI_QP, ICRC_LEN, Opcode, Operation, Packet, Psn,
    UDP_PORT, icrc,
};

/// The address of the processes that are tested.
pub(crate) const HERE: [u8; 4] = [127, 0, 0, 1];
/// The address of the peer.
pub(crate) const PEER: [u8; 4] = [127, 0, 0, 9];
/// The GUID of the peer.
const CA_GUID: u64 = 0x1234;

/// The peer: a socket that receives the datagrams to its address.
pub(crate) struct Peer(UdpSocket);

impl Peer {
    pub(crate) fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        set_socket_reuseport(&socket, true).unwrap();
        bind_socket(&socket, &SocketAddrV4::new(PEER.into(), UDP_PORT)).unwrap();
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    /// Sends a message to queue pair 1.
    pub(crate) fn send(&self, message: Message) {
        send_from(&self.0, message);
    }

    /// Answers a message that has this transaction id.
    pub(crate) fn answer(&self, transaction: u64, message: Message) {
        send_mad_from(&self.0, &Mad { transaction, message });
    }

    /// Sends a message from another port of the peer, which may be received by another process.
    pub(crate) fn send_from_any_port(message: Message) {
        Self::send_as(PEER, message);
    }

    /// Sends a message from another port of an address.
    pub(crate) fn send_as(address: [u8; 4], message: Message) {
        send_from(&UdpSocket::bind(SocketAddrV4::new(address.into(), 0)).unwrap(), message);
    }

    /// Sends a packet to queue pair 1 with this payload, which may be no message.
    pub(crate) fn send_to_gsi(&self, qkey: u32, payload: &[u8]) {
        let (bth, extension) = gsi_headers(qkey);
        self.send_packet(&bth, &extension, payload);
    }

    pub(crate) fn send_packet(&self, bth: &Bth, extension: &Extension, payload: &[u8]) {
        send_packet_from(&self.0, bth, extension, payload);
    }

    /// Sends a message until it is answered. Ignores a REQ, which the other side may have repeated.
    pub(crate) fn transact(&self, message: &Message) -> Mad {
        self.transact_by(message, |message| self.send(message))
    }

    /// As [`Peer::transact`], each time from another port.
    pub(crate) fn transact_from_any_port(&self, message: &Message) -> Mad {
        self.transact_by(message, Self::send_from_any_port)
    }

    fn transact_by(&self, message: &Message, send: impl Fn(Message)) -> Mad {
        self.0.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
        for _ in 0..20 {
            send(message.clone());
            while self.0.peek_from(&mut [0]).is_ok() {
                let answer = self.receive();
                if !matches!(answer.message, Message::Req(_)) {
                    return answer;
                }
            }
        }
        panic!("no answer to {}", message.name());
    }

    pub(crate) fn receive(&self) -> Mad {
        let packet = self.receive_packet();
        let packet = Packet::parse(&packet).unwrap();
        assert_eq!((packet.bth.dest_qp, packet.bth.pkey), (GSI_QP, DEFAULT_PKEY));
        assert_eq!(packet.extension, Extension::Deth(Deth { qkey: GSI_QKEY, source_qp: GSI_QP }));
        Mad::decode(packet.payload).unwrap()
    }

    /// Whether a packet has arrived.
    pub(crate) fn has_packet(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let has_packet = self.0.peek_from(&mut [0]).is_ok();
        self.0.set_nonblocking(false).unwrap();
        has_packet
    }

    /// The next packet, without its ICRC.
    pub(crate) fn receive_packet(&self) -> Vec<u8> {
        let mut packet = [0; 512];
        let (len, from) = self.0.recv_from(&mut packet).expect("a packet");
        assert_eq!(from, SocketAddr::V4(SocketAddrV4::new(HERE.into(), UDP_PORT)));
        let packet = &packet[..len];
        assert_eq!(icrc::check(&flow(HERE, PEER, UDP_PORT), packet), Ok(Some(0)), "its identification is 0");
        packet[..len - ICRC_LEN].to_vec()
    }
}

/// Sends a message from this socket.
pub(crate) fn send_from(socket: &UdpSocket, message: Message) {
    send_mad_from(socket, &Mad { transaction: 7, message });
}

fn send_mad_from(socket: &UdpSocket, mad: &Mad) {
    let (bth, extension) = gsi_headers(GSI_QKEY);
    send_packet_from(socket, &bth, &extension, &mad.encode());
}

fn send_packet_from(socket: &UdpSocket, bth: &Bth, extension: &Extension, payload: &[u8]) {
    let packet = packet(&flow_of(socket), bth, extension, payload);
    socket.send_to(&packet, SocketAddrV4::new(HERE.into(), UDP_PORT)).unwrap();
}

/// The flow of packets from this source to UDP port 4791.
pub(crate) fn flow(source: [u8; 4], destination: [u8; 4], source_port: u16) -> Flow {
    let addresses = Addresses::V4 { source, destination };
    Flow { addresses, source_port, destination_port: UDP_PORT }
}

/// The flow of packets from a socket to the processes that are tested.
pub(crate) fn flow_of(socket: &UdpSocket) -> Flow {
    let SocketAddr::V4(from) = socket.local_addr().unwrap() else { panic!("IPv6") };
    flow(from.ip().octets(), HERE, from.port())
}

/// A packet with its ICRC. The kernel chooses the IPv4 identification, which the receiver finds.
pub(crate) fn packet(flow: &Flow, bth: &Bth, extension: &Extension, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&Packet::encode_headers(bth, extension)[..], payload].concat();
    let sum = icrc::icrc(flow, 0, &[&packet]);
    packet.extend(sum);
    packet
}

/// The packet of a message to queue pair 1.
pub(crate) fn cm_packet(flow: &Flow, mad: &Mad) -> Vec<u8> {
    let (bth, extension) = gsi_headers(GSI_QKEY);
    packet(flow, &bth, &extension, &mad.encode())
}

fn gsi_headers(qkey: u32) -> (Bth, Extension) {
    let bth = Bth::new(Opcode::Ud(Operation::SendOnly), GSI_QP, Psn::new(0));
    (bth, Extension::Deth(Deth { qkey, source_qp: GSI_QP }))
}

/// A REJ of the peer. One for a timeout is identified by the GUID.
pub(crate) fn rej(local_comm_id: u32, remote_comm_id: u32, reason: Reason) -> Message {
    let mut info = [0; Rej::INFO_LEN];
    info[..8].copy_from_slice(&CA_GUID.to_be_bytes());
    Message::Rej(Rej {
        local_comm_id,
        remote_comm_id,
        answered: Answered::Req,
        info_len: 8,
        reason,
        info,
        private_data: [0; Rej::PRIVATE_DATA_LEN],
    })
}

/// A REQ of the peer for a port of rdma_cm.
pub(crate) fn req(port: u16, comm_id: u32) -> Req {
    req_from(PEER, port, comm_id)
}

/// As [`req`], of the same queue pair at another address.
pub(crate) fn req_from(source: [u8; 4], port: u16, comm_id: u32) -> Req {
    let header = CmaHeader { source_port: 4711, addresses: Addresses::V4 { source, destination: HERE } };
    let mut private_data = [0; Req::PRIVATE_DATA_LEN];
    private_data[..36].copy_from_slice(&header.encode());
    private_data[36..40].copy_from_slice(b"peer");
    let gid = |address: [u8; 4]| std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
    let primary = Path {
        local_lid: Path::PERMISSIVE_LID,
        remote_lid: Path::PERMISSIVE_LID,
        local_gid: gid(source),
        remote_gid: gid(HERE),
        hop_limit: 64,
        ack_timeout: 17,
        ..Path::default()
    };
    Req {
        local_comm_id: comm_id,
        service_id: ServiceId::new(PortSpace::Tcp, port),
        local_ca_guid: CA_GUID,
        local_qkey: 0,
        local_qpn: 0x12_3456,
        responder_resources: 3,
        initiator_depth: 2,
        remote_response_timeout: 20,
        transport: Transport::Rc,
        end_to_end_flow_control: false,
        starting_psn: Psn::new(0x77),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: DEFAULT_PKEY,
        path_mtu: 3,
        rnr_retry_count: 6,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary,
        alternate: Path::default(),
        private_data,
    }
}

/// A REP of the peer.
pub(crate) fn rep(local_comm_id: u32, remote_comm_id: u32) -> Rep {
    Rep {
        local_comm_id,
        remote_comm_id,
        local_qkey: 0,
        local_qpn: 0x12_3456,
        starting_psn: Psn::new(9),
        responder_resources: 4,
        initiator_depth: 5,
        target_ack_delay: 15,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: CA_GUID,
        private_data: [3; Rep::PRIVATE_DATA_LEN],
    }
}

/// An RTU of the peer.
pub(crate) fn rtu(local_comm_id: u32, remote_comm_id: u32) -> Message {
    Message::Rtu(Rtu { local_comm_id, remote_comm_id, private_data: [0; Rtu::PRIVATE_DATA_LEN] })
}

/// A DREQ of the peer.
pub(crate) fn dreq(local_comm_id: u32, remote_comm_id: u32, remote_qpn: u32) -> Message {
    let private_data = [0; Dreq::PRIVATE_DATA_LEN];
    Message::Dreq(Dreq { local_comm_id, remote_comm_id, remote_qpn, private_data })
}

/// A DREP of the peer.
pub(crate) fn drep(local_comm_id: u32, remote_comm_id: u32) -> Message {
    Message::Drep(Drep { local_comm_id, remote_comm_id, private_data: [0; Drep::PRIVATE_DATA_LEN] })
}
