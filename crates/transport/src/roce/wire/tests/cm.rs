// SPDX-License-Identifier: BSD-3-Clause
//! Messages of connection management: those of the capture, random ones, malformed ones.

use super::super::cm::{
    Answered, CMA_HEADER_LEN, CmaHeader, Drep, Dreq, GSI_QKEY, MAD_LEN, Mad, Message, Mra, Path, PortSpace,
    Reason, Rej, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus, Transport,
};
use super::super::{Addresses, Deth, Extension, GSI_QP, Malformed, Packet, PathMtu, Psn};
use super::random::Random;
use super::{Captured, capture, hex};

/// The MADs of the capture, with the name of their message.
fn mads() -> Vec<(&'static str, Vec<u8>)> {
    let named = |captured: &Captured| {
        let name = captured.fields.split_once(" | CM ")?.1;
        let packet = Packet::parse(captured.packet()).unwrap();
        assert_eq!(packet.bth.dest_qp, GSI_QP);
        assert_eq!(packet.extension, Extension::Deth(Deth { qkey: GSI_QKEY, source_qp: GSI_QP }));
        Some((name, packet.payload.to_vec()))
    };
    let mads: Vec<_> = capture().iter().filter_map(named).collect();
    assert_eq!(mads.len(), 38);
    mads
}

/// The messages of the capture with this name, with their transaction ids.
pub(in crate::roce) fn messages(name: &str) -> Vec<(u64, Message)> {
    let of_name = mads().into_iter().filter(|(of_mad, _)| *of_mad == name);
    let decoded = of_name.map(|(_, payload)| Mad::decode(&payload).unwrap());
    decoded.map(|mad| (mad.transaction, mad.message)).collect()
}

#[test]
fn every_captured_message_encodes_to_the_same_bytes() {
    for (expected, payload) in mads() {
        let mad = Mad::decode(&payload).unwrap();
        assert_eq!(mad.message.name(), expected);
        assert_eq!(mad.encode()[..], payload[..], "{mad:?}");
    }
}

fn gid_of(address: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address);
    gid
}

/// The REQ of session 1.
#[test]
fn a_captured_req() {
    let (transaction, Message::Req(req)) = messages("REQ").remove(0) else { panic!("no REQ") };
    assert_eq!(transaction, 0x2_3a35_fa9e);
    let path = Path {
        local_lid: Path::PERMISSIVE_LID,
        remote_lid: Path::PERMISSIVE_LID,
        local_gid: gid_of([10, 80, 0, 1]),
        remote_gid: gid_of([10, 80, 0, 2]),
        flow_label: 0x9bd6b,
        rate: 0,
        traffic_class: 0,
        hop_limit: 64,
        sl: 0,
        subnet_local: false,
        ack_timeout: 19,
    };
    let expected = Req {
        local_comm_id: 0x9efa_353a,
        service_id: ServiceId::new(PortSpace::Tcp, 7001),
        local_ca_guid: 0x5054_00ff_fe00_0001,
        local_qkey: 0,
        local_qpn: 0x11,
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        transport: Transport::Rc,
        end_to_end_flow_control: false,
        starting_psn: Psn::new(0x2a_f51b),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: PathMtu::Mtu1024.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary: path,
        alternate: Path::default(),
        private_data: req.private_data,
    };
    assert_eq!(req, expected);
    let (header, rest) = CmaHeader::decode(&req.private_data).unwrap();
    let addresses = Addresses::V4 { source: [10, 80, 0, 1], destination: [10, 80, 0, 2] };
    assert_eq!(header, CmaHeader { source_port: 54190, addresses });
    assert_eq!(rest, [0; 56]);
    assert_eq!(header.encode(), req.private_data[..CMA_HEADER_LEN]);
}

/// The reply to it, with the time of rxe for an acknowledgement.
#[test]
fn a_captured_rep() {
    let (transaction, Message::Rep(rep)) = messages("REP").remove(0) else { panic!("no REP") };
    assert_eq!(transaction, 0x2_3a35_fa9e);
    let expected = Rep {
        local_comm_id: 0x923c_6fd2,
        remote_comm_id: 0x9efa_353a,
        local_qkey: 0,
        local_qpn: 0x11,
        starting_psn: Psn::new(0xf0_55e7),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 0x5054_00ff_fe00_0002,
        private_data: [0; 196],
    };
    assert_eq!(rep, expected);
}

#[test]
fn the_other_captured_messages() {
    let Message::Rtu(rtu) = messages("RTU").remove(0).1 else { panic!("no RTU") };
    let ids = (0x9efa_353a, 0x923c_6fd2);
    assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), ids);
    let Message::Dreq(dreq) = messages("DREQ").remove(0).1 else { panic!("no DREQ") };
    assert_eq!((dreq.local_comm_id, dreq.remote_comm_id), ids);
    assert_eq!(dreq.remote_qpn, 0x11);
    let Message::Drep(drep) = messages("DREP").remove(0).1 else { panic!("no DREP") };
    assert_eq!((drep.remote_comm_id, drep.local_comm_id), ids);

    let Message::Mra(mra) = messages("MRA").remove(0).1 else { panic!("no MRA") };
    assert_eq!((mra.local_comm_id, mra.remote_comm_id), (0x9d3c_6fd2, 0x99fa_353a));
    assert_eq!((mra.answered, mra.service_timeout), (Answered::Req, 24));

    let rejections: Vec<Message> = messages("REJ").into_iter().map(|(_, message)| message).collect();
    let [Message::Rej(by_program), Message::Rej(no_listener)] = &rejections[..] else { panic!("no REJ") };
    assert_eq!((by_program.answered, by_program.reason), (Answered::Req, Reason::CONSUMER));
    assert!(by_program.private_data.starts_with(b"no thanks\0"));
    assert_eq!((no_listener.local_comm_id, no_listener.reason), (0, Reason::INVALID_SERVICE_ID));
}

#[test]
fn captured_service_id_resolution() {
    let requests: Vec<Message> = messages("SIDR_REQ").into_iter().map(|(_, message)| message).collect();
    let [Message::SidrReq(v4), Message::SidrReq(v6)] = &requests[..] else { panic!("no SIDR_REQ") };
    assert_eq!((v4.request_id, v4.pkey), (0x9dfa_353a, 0xffff));
    assert_eq!(v4.service_id.port(), Some((PortSpace::Udp, 7004)));
    let (header, rest) = CmaHeader::decode(&v6.private_data).unwrap();
    let address = |last| {
        let mut address = [0; 16];
        address[..2].copy_from_slice(&[0xfd, 0x80]);
        address[15] = last;
        address
    };
    let addresses = Addresses::V6 { source: address(1), destination: address(2) };
    assert_eq!((header, rest.len()), (CmaHeader { source_port: 59609, addresses }, 180));
    assert_eq!(header.encode(), v6.private_data[..CMA_HEADER_LEN]);

    let Message::SidrRep(reply) = messages("SIDR_REP").remove(0).1 else { panic!("no SIDR_REP") };
    let mut private_data = [0; SidrRep::PRIVATE_DATA_LEN];
    private_data[..7].copy_from_slice(b"private");
    let expected = SidrRep {
        request_id: v4.request_id,
        status: SidrStatus::VALID,
        info_len: 0,
        qpn: 0x13,
        service_id: v4.service_id,
        qkey: 0x0123_4567,
        info: [0; Rej::INFO_LEN],
        private_data,
    };
    assert_eq!(reply, expected);
}

fn path(random: &mut Random) -> Path {
    Path {
        local_lid: random.bits(16) as u16,
        remote_lid: random.bits(16) as u16,
        local_gid: random.array(),
        remote_gid: random.array(),
        flow_label: random.bits(20) as u32,
        rate: random.bits(6) as u8,
        traffic_class: random.bits(8) as u8,
        hop_limit: random.bits(8) as u8,
        sl: random.bits(4) as u8,
        subnet_local: random.flag(),
        ack_timeout: random.bits(5) as u8,
    }
}

fn req(random: &mut Random) -> Req {
    Req {
        local_comm_id: random.bits(32) as u32,
        service_id: ServiceId(random.bits(64)),
        local_ca_guid: random.bits(64),
        local_qkey: random.bits(32) as u32,
        local_qpn: random.bits(24) as u32,
        responder_resources: random.bits(8) as u8,
        initiator_depth: random.bits(8) as u8,
        remote_response_timeout: random.bits(5) as u8,
        transport: [Transport::Rc, Transport::Uc, Transport::Rd, Transport::Extended][random.below(4)],
        end_to_end_flow_control: random.flag(),
        starting_psn: Psn::new(random.bits(24) as u32),
        local_response_timeout: random.bits(5) as u8,
        retry_count: random.bits(3) as u8,
        pkey: random.bits(16) as u16,
        path_mtu: random.bits(4) as u8,
        rnr_retry_count: random.bits(3) as u8,
        max_cm_retries: random.bits(4) as u8,
        srq: random.flag(),
        extended_transport: random.bits(3) as u8,
        primary: path(random),
        alternate: path(random),
        private_data: random.array(),
    }
}

/// A random message, one of nine kinds.
pub(in crate::roce) fn message(random: &mut Random, kind: usize) -> Message {
    let (local_comm_id, remote_comm_id) = (random.bits(32) as u32, random.bits(32) as u32);
    let answered = [Answered::Req, Answered::Rep, Answered::Other, Answered::Reserved][random.below(4)];
    let service_id = ServiceId(random.bits(64));
    match kind {
        0 => Message::Req(req(random)),
        1 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            answered,
            service_timeout: random.bits(5) as u8,
            private_data: random.array(),
        }),
        2 => Message::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            answered,
            info_len: random.bits(7) as u8,
            reason: Reason(random.bits(16) as u16),
            info: random.array(),
            private_data: random.array(),
        }),
        3 => Message::Rep(Rep {
            local_comm_id,
            remote_comm_id,
            local_qkey: random.bits(32) as u32,
            local_qpn: random.bits(24) as u32,
            starting_psn: Psn::new(random.bits(24) as u32),
            responder_resources: random.bits(8) as u8,
            initiator_depth: random.bits(8) as u8,
            target_ack_delay: random.bits(5) as u8,
            failover_accepted: random.bits(2) as u8,
            end_to_end_flow_control: random.flag(),
            rnr_retry_count: random.bits(3) as u8,
            srq: random.flag(),
            local_ca_guid: random.bits(64),
            private_data: random.array(),
        }),
        4 => Message::Rtu(Rtu { local_comm_id, remote_comm_id, private_data: random.array() }),
        5 => Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: random.bits(24) as u32,
            private_data: random.array(),
        }),
        6 => Message::Drep(Drep { local_comm_id, remote_comm_id, private_data: random.array() }),
        7 => Message::SidrReq(SidrReq {
            request_id: local_comm_id,
            pkey: random.bits(16) as u16,
            service_id,
            private_data: random.array(),
        }),
        _ => Message::SidrRep(SidrRep {
            request_id: local_comm_id,
            status: SidrStatus(random.bits(8) as u8),
            info_len: random.bits(8) as u8,
            qpn: random.bits(24) as u32,
            service_id,
            qkey: random.bits(32) as u32,
            info: random.array(),
            private_data: random.array(),
        }),
    }
}

#[test]
fn random_messages_come_through() {
    let mut random = Random(0x5eed_0301);
    for round in 0..if cfg!(miri) { 90 } else { 9_000 } {
        let mad = Mad { transaction: random.bits(64), message: message(&mut random, round % 9) };
        assert_eq!(Mad::decode(&mad.encode()), Ok(mad));
    }
}

/// Fields that no message uses are ignored.
#[test]
fn random_bodies_are_survived() {
    let mut random = Random(0x5eed_0302);
    for round in 0..if cfg!(miri) { 90 } else { 9_000 } {
        let mut bytes: [u8; MAD_LEN] = random.array();
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, 0x10 + (round % 9) as u8]);
        let mad = Mad::decode(&bytes).unwrap();
        assert_eq!(Mad::decode(&mad.encode()).as_ref(), Ok(&mad));
    }
}

#[test]
fn mads_of_another_length() {
    let bytes = [0x01; MAD_LEN + 4];
    for len in (0..MAD_LEN).chain([MAD_LEN + 4]) {
        assert_eq!(Mad::decode(&bytes[..len]), Err(Malformed::MadLength(len)));
    }
}

#[test]
fn other_classes_methods_and_attributes() {
    let mut random = Random(0x5eed_0303);
    let right = Mad { transaction: 7, message: message(&mut random, 4) }.encode();
    let with = |at: usize, byte: u8| {
        let mut mad = right;
        mad[at] = byte;
        Mad::decode(&mad)
    };
    assert_eq!(with(0, 2), Err(Malformed::MadClass { base: 2, class: 7, version: 2 }));
    assert_eq!(with(1, 4), Err(Malformed::MadClass { base: 1, class: 4, version: 2 }));
    assert_eq!(with(2, 1), Err(Malformed::MadClass { base: 1, class: 7, version: 1 }));
    assert_eq!(with(3, 0x81), Err(Malformed::MadMethod(0x81)));
    for attribute in (0..=255).filter(|attribute| !(0x10..=0x18).contains(attribute)) {
        assert_eq!(with(17, attribute), Err(Malformed::MadAttribute(attribute.into())));
    }
    assert_eq!(with(16, 1), Err(Malformed::MadAttribute(0x114)));
}

#[test]
fn service_ids_of_rdma_cm() {
    let rping = ServiceId(0x0000_0000_0106_1b59);
    assert_eq!(ServiceId::new(PortSpace::Tcp, 7001), rping);
    assert_eq!(rping.port(), Some((PortSpace::Tcp, 7001)));
    for space in [PortSpace::Ipoib, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib] {
        assert_eq!(ServiceId::new(space, 0xffff).port(), Some((space, 0xffff)));
    }
    assert_eq!(ServiceId(0x0107_1b59).port(), None);
    assert_eq!(ServiceId(0x0001_0000_0106_1b59).port(), None);
    assert_eq!(ServiceId(0x1000_0000_0106_1b59).port(), None);
}

#[test]
fn rdma_cm_headers() {
    let right = hex("0040 1234 00*12 0a500001 00*12 0a500002");
    let addresses = Addresses::V4 { source: [10, 80, 0, 1], destination: [10, 80, 0, 2] };
    let header = CmaHeader { source_port: 0x1234, addresses };
    assert_eq!(CmaHeader::decode(&right), Ok((header, &[][..])));
    assert_eq!(header.encode()[..], right[..]);
    for len in 0..CMA_HEADER_LEN {
        assert_eq!(CmaHeader::decode(&right[..len]), Err(Malformed::CmaHeader));
    }
    for (at, byte) in [(0, 1), (1, 0x00), (1, 0x50), (1, 0x70)] {
        let mut wrong = right.clone();
        wrong[at] = byte;
        assert_eq!(CmaHeader::decode(&wrong), Err(Malformed::CmaHeader));
    }
}

#[test]
fn reasons_have_a_text() {
    assert_eq!(Reason::CONSUMER.to_string(), "28 (consumer reject)");
    assert_eq!(Reason(34).to_string(), "34");
    assert!((1..=33).all(|number| Reason(number).to_string().contains(" (")));
    assert_eq!(SidrStatus::NO_QP.to_string(), "3 (no QP available)");
}
