// SPDX-License-Identifier: BSD-3-Clause
//! The processes that tests start: members, and strangers, which violate the protocol.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::WORLD;
use crate::port::drops::Reason;
use crate::port::socket::Family;
use crate::port::{Endpoint, Packet, Port, allocate_number, forward, release_number, slot};
use crate::progress::By;
use crate::sys::Errno;
use crate::{fork, lock};
use transport::roce::wire::{Addresses, Flow, UDP_PORT, icrc};

/// The endpoint of a member.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) num: u32,
    /// Sender and number of each packet, and how many were for another number.
    pub(super) packets: Mutex<(HashSet<(u32, u32)>, u32)>,
    /// Packets below this number belong to an earlier exchange and are not counted.
    pub(super) floor: AtomicU32,
    pub(super) received: AtomicU32,
    pub(super) by_engine: AtomicU32,
    pub(super) writable: AtomicU32,
}

impl Endpoint for Inbox {
    fn arrived(&self, packet: Packet) {
        let word = |at: usize| u32::from_be_bytes(packet.as_ref()[at..at + 4].try_into().unwrap());
        let mut packets = lock(&self.packets);
        if word(12) == self.num {
            if word(20) >= self.floor.load(Ordering::Relaxed) {
                packets.0.insert((word(16), word(20)));
            }
        } else {
            packets.1 += 1;
        }
    }

    fn received(&self, by: By) {
        self.received.fetch_add(1, Ordering::Relaxed);
        self.by_engine.fetch_add(u32::from(by == By::Engine), Ordering::Relaxed);
    }

    fn writable(&self) {
        self.writable.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn packet(to: u32, from: u32, number: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0x04, 0x40, 0xff, 0xff, 0];
    packet.extend(&to.to_be_bytes()[1..]);
    packet.extend([0; 4]);
    for word in [to, from, number] {
        packet.extend(word.to_be_bytes());
    }
    packet.resize(len.max(24), 0x5a);
    packet
}

fn loopback() -> Option<IpAddr> {
    match std::env::var(WORLD).as_deref() {
        Ok("4") => Some(Ipv4Addr::LOCALHOST.into()),
        Ok("6") => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    }
}

pub(super) fn set_up(address: IpAddr) -> Result<(u32, Arc<Port>, Arc<Inbox>), Errno> {
    let num = allocate_number()?;
    let port = Port::get()?;
    let inbox = Arc::new(Inbox { num, ..Inbox::default() });
    let weak: Weak<dyn Endpoint> = Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>));
    port.attach(num, address, address, weak);
    Ok((num, port, inbox))
}

/// The commands that the test sends: a word and numbers.
fn commands() -> impl Iterator<Item = (String, Vec<u32>)> {
    std::io::stdin().lines().map(|line| {
        let line = line.unwrap();
        let mut words = line.split_ascii_whitespace();
        let command = words.next().unwrap().to_owned();
        (command, words.map(|word| word.parse().unwrap()).collect())
    })
}

#[test]
#[ignore = "started by other tests"]
fn member() {
    let Some(address) = loopback() else { return };
    let (num, port, inbox) = match set_up(address) {
        Ok(member) => member,
        Err(e) => return println!("@0 {e}"),
    };
    println!("@{num}");
    let mut sent = 0;
    for (command, numbers) in commands() {
        match command.as_str() {
            "send" => {
                for to in &numbers[1..] {
                    let mut sender = port.sender(num, address, SocketAddr::new(address, 0), 0, 64);
                    for _ in 0..numbers[0] {
                        sent += 1;
                        while !sender.push(&packet(*to, num, sent, 1024)) {
                            std::thread::yield_now();
                        }
                    }
                    sender.flush();
                }
                println!("@");
            }
            "begin" => {
                sent = numbers[0];
                let mut packets = lock(&inbox.packets);
                inbox.floor.store(sent, Ordering::Relaxed);
                packets.0.clear();
                println!("@");
            }
            "report" => {
                let packets = lock(&inbox.packets);
                let (forwarded, distrusted) =
                    (port.drops.get_forwarded(), port.drops.get(Reason::Distrusted));
                println!("@{} {} {forwarded} {distrusted}", packets.0.len(), packets.1);
            }
            "scramble" => {
                let table: Vec<_> = (1..=254).zip((0..5).cycle().skip(sent as usize)).collect();
                port.attach_filter(Family::of(address), &table);
                println!("@");
            }
            "steer" => {
                let table: Vec<_> = (1..=254).map(|slot| (slot, numbers[0] as u8)).collect();
                port.attach_filter(Family::of(address), &table);
                println!("@");
            }
            "poll" => {
                let port = port.clone();
                std::thread::spawn(move || {
                    loop {
                        port.polls();
                        port.poll();
                        std::thread::yield_now();
                    }
                });
                println!("@");
            }
            "position" => println!("@{}", port.position(Family::of(address)).unwrap()),
            "fork" => {
                let is_apart = fork::tests::in_child(|| {
                    let before = Port::bound().is_none();
                    let Ok((own, own_port, _inbox)) = set_up(address) else { return false };
                    release_number(num);
                    before && own >> 16 != num >> 16 && !Arc::ptr_eq(&own_port, &port)
                });
                assert!(is_apart);
                println!("@");
            }
            other => panic!("{other}"),
        }
    }
}

/// A process that violates the protocol.
#[test]
#[ignore = "started by other tests"]
fn stranger() {
    if loopback().is_none() {
        return;
    }
    println!("@1");
    let mut held = Vec::new();
    for (command, numbers) in commands() {
        match command.as_str() {
            "hold" => {
                let slots = numbers[0] as u8..=numbers[1] as u8;
                held.extend(slots.map(|slot| std::net::UdpSocket::bind(slot::address(slot)).unwrap()));
            }
            "forge" => {
                let num = numbers[0];
                let mut datagram = packet(num, 77, u32::MAX, 64);
                let [source, destination] = [Ipv4Addr::LOCALHOST; 2];
                let addresses = Addresses::V4 { source: source.octets(), destination: destination.octets() };
                let flow = Flow { addresses, source_port: 50_000, destination_port: UDP_PORT };
                let sum = icrc::icrc(&flow, 0, &[&datagram]);
                datagram.extend(sum);
                let (source, destination) = (source.into(), destination.into());
                let message = forward::Message::Packet {
                    source,
                    source_port: 50_000,
                    destination,
                    datagram: &datagram,
                };
                let bytes = [&message.header()[..], &datagram].concat();
                held[0].send_to(&bytes, slot::address((num >> 16) as u8)).unwrap();
            }
            "garbage" => {
                let (slot, mut random) = (numbers[0] >> 16, fastrand::Rng::with_seed(numbers[1].into()));
                for _ in 0..2_000 {
                    let mut bytes: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
                    if let (true, Some(magic)) = (random.bool(), bytes.first_chunk_mut()) {
                        *magic = [0x53, 0x56, 0x50, 1, random.u8(1..3), if random.bool() { 4 } else { 6 }];
                    }
                    let _ = held[0].send_to(&bytes, slot::address(slot as u8));
                    if let Some(qpn) = bytes.get_mut(5..8) {
                        let slot = if random.bool() { slot as u8 } else { 0 };
                        qpn[0] = slot;
                    }
                    let _ = held[0].send_to(&bytes, ("127.0.0.1", UDP_PORT));
                }
            }
            other => panic!("{other}"),
        }
        println!("@");
    }
}
