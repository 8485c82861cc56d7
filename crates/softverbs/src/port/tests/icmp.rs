// SPDX-License-Identifier: BSD-3-Clause
//! The IP headers of the packets, and ICMP messages about them.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::process::Command;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

use super::process::{packet, set_up};
use super::{in_namespace, sender_to};
use crate::port::drops::Reason;
use crate::port::release_number;
use transport::roce::wire::UDP_PORT;

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 47, 91, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 47, 91, 2);

#[test]
fn a_forged_icmp_message_does_not_stop_packets() {
    in_namespace("icmp");
}

pub(super) fn run(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (!((sum >> 16) + sum) as u16).to_be_bytes()
}

/// Fragmentation needed, but DF is set, for a packet from [`LOCAL`] to [`PEER`].
fn too_big(mtu: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 4, 0x2c, 0, 0, 0x40, 0, 64, 17, 0, 0];
    header.extend(LOCAL.octets());
    header.extend(PEER.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(header);
    for word in [UDP_PORT, UDP_PORT, 1048, 0] {
        message.extend(word.to_be_bytes());
    }
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

pub(super) fn icmp() {
    // No host is at the other end.
    run("ip link add one type veth peer name two && ip addr add 10.47.91.1/24 dev one && \
         ip link set one up && ip link set two up && ip neigh add 10.47.91.2 lladdr 02:00:00:00:47:91 dev one");
    let (num, port, _inbox) = set_up(IpAddr::V4(LOCAL)).unwrap();
    let send = |to: Ipv4Addr| {
        let mut sender = sender_to(&port, num, IpAddr::V4(LOCAL), to.into(), 0);
        for number in 0..3 {
            assert!(sender.push_bytes(&packet(num, num, number, 1024)));
            sender.flush();
        }
    };
    // A raw socket gets the IP headers, too.
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap();
    send(LOCAL);
    for _ in 0..3 {
        let mut bytes = [0; 2048];
        loop {
            recv(&raw, &mut bytes, RecvFlags::empty()).unwrap();
            // Not a query or check of the port itself, which come from the loopback address.
            if bytes[12..16] == LOCAL.octets() {
                break;
            }
        }
        assert_eq!(bytes[4..8], [0, 0, 0x40, 0], "identification 0 and DF");
    }
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    sendto(&raw, &too_big(600), SendFlags::empty(), &SocketAddrV4::new(LOCAL, 0)).unwrap();
    assert!(run("ip route get 10.47.91.2").contains("mtu 600"), "the kernel accepts the message");
    send(PEER);
    assert_eq!(port.drops.get(Reason::NotSent), 0);
    release_number(num);
}
