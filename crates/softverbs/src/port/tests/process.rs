// SPDX-License-Identifier: BSD-3-Clause
//! The processes that tests start: members, and hostile processes, which violate the protocol.

use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::{WORLD, sender_to};
use crate::cm_peer::{HERE, cm_packet, dreq, flow};
use crate::config::Transport;
use crate::port::drops::Reason;
use crate::port::offer::name_of_slot;
use crate::port::order::Query;
use crate::port::socket::Family;
use crate::port::{
    Agent, Claim, Delivered, Endpoint, Full, ListenerSocket, Port, allocate_number, forward, release_number,
    service, slot,
};
use crate::progress::By;
use crate::sys::{Errno, IpFields};
use crate::{choice, fork, lock, rendezvous, unix};
use transport::roce::cm::Bound;
use transport::roce::wire::cm::{Mad, PortSpace, ServiceId};
use transport::roce::wire::{UDP_PORT, icrc};

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
    fn arrived(&self, arrived: Delivered) {
        let mut packets = lock(&self.packets);
        for packet in (0..arrived.count()).map(|index| arrived.packet(index).unwrap()) {
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            if word(12) != self.num {
                packets.1 += 1;
            } else if word(20) >= self.floor.load(Ordering::Relaxed) {
                packets.0.insert((word(16), word(20)));
            }
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

/// Counts messages of connection management.
#[derive(Default)]
struct Messages(AtomicU32);

impl Agent for Messages {
    fn received(&self, _: &Mad, _: IpAddr, _: IpAddr) -> Result<bool, Full> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

/// A DREQ for the process of a queue pair, between loopback addresses.
fn disconnection(num: u32) -> Vec<u8> {
    let message = dreq(1, num << 8, num);
    cm_packet(&flow(HERE, HERE, UDP_PORT), &Mad { transaction: 1, message })
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
    port.attach(num, Some((address, address)), weak);
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
    let agent = Arc::new(Messages::default());
    let weak: Weak<Messages> = Arc::downgrade(&agent);
    port.set_agent(weak);
    let (mut sent, mut held, mut silent) = (0, Vec::new(), Vec::new());
    for (command, numbers) in commands() {
        match command.as_str() {
            "send" => {
                for to in &numbers[1..] {
                    let mut sender = sender_to(&port, num, address, address, 0);
                    for _ in 0..numbers[0] {
                        sent += 1;
                        while !sender.push_bytes(&packet(*to, num, sent, 1024)) {
                            std::thread::yield_now();
                        }
                    }
                    sender.flush();
                }
                println!("@");
            }
            "mix" => {
                let mut sender = sender_to(&port, num, address, address, 0);
                for to in (0..numbers[0]).flat_map(|_| &numbers[1..]) {
                    sent += 1;
                    while !sender.push_bytes(&packet(*to, num, sent, 1024)) {
                        std::thread::yield_now();
                    }
                }
                sender.flush();
                println!("@");
            }
            // Sends an unsolicited confirmation to the process of a queue pair.
            "confirm" => {
                port.send_to_slot((numbers[0] >> 16) as u8, &forward::Message::Confirmed);
                println!("@");
            }
            // Calls exit(3) as a signal handler would that has interrupted a poll.
            "interrupt" => {
                let _receiver = lock(&port.receiver);
                std::process::exit(0);
            }
            // Sends packets and exits at once.
            "leave" => {
                let mut sender = sender_to(&port, num, address, address, 0);
                for number in 1..=numbers[0] {
                    assert!(sender.push_bytes(&packet(numbers[1], num, number, 1024)));
                }
                sender.flush();
                std::process::exit(0);
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
                port.attach_filter(Family::of(address), &table, (sent % 5) as u8);
                println!("@");
            }
            "steer" => {
                let table: Vec<_> = (1..=254).map(|slot| (slot, numbers[0] as u8)).collect();
                port.attach_filter(Family::of(address), &table, numbers[0] as u8);
                println!("@");
            }
            // A filter with the right positions and another default.
            "default" => {
                let table = lock(&port.order).attached(Family::of(address)).to_vec();
                port.attach_filter(Family::of(address), &table, numbers[0] as u8);
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
            // Whether a request for this port of rdma_cm would be passed on.
            "find" => {
                let service = ServiceId::new(PortSpace::Tcp, numbers[0] as u16);
                let wanted = service::addresses(service, address).unwrap();
                let found = service::Lookup::default().find(port.owners.user(), &wanted);
                println!("@{}", u32::from(found.is_some()));
            }
            // Listens on a port of rdma_cm; EADDRINUSE and so on.
            "listen" => match Claim::new(PortSpace::Tcp, numbers[0] as u16, Bound::Any) {
                Ok(claim) => {
                    held.push((ListenerSocket::open(&port, &claim).unwrap(), claim));
                    println!("@0");
                }
                Err(e) => println!("@{e}"),
            },
            "messages" => println!("@{}", agent.0.load(Ordering::Relaxed)),
            // Connects to the Unix socket of a slot, and offers nothing.
            "connect" => {
                let namespace = unix::namespace(port.slot.socket());
                let slot = name_of_slot((numbers[0] >> 16) as u8);
                silent.push(rendezvous::connect(namespace, slot).unwrap());
                println!("@");
            }
            // From now on there are no descriptors for this process.
            "exhaust" => {
                let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) };
                setrlimit(Resource::Nofile, limit).unwrap();
                println!("@");
            }
            // The milliseconds of processor time that the process uses in 300 ms without a command.
            "use" => {
                let used = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
                let before = used();
                std::thread::sleep(Duration::from_millis(300));
                println!("@{}", (used() - before).as_millis());
            }
            "exec" => {
                println!("@");
                panic!("{}", Command::new("sleep").arg("100").exec());
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

/// A process that claims its slot, and binds the port later.
#[test]
#[ignore = "started by other tests"]
fn late() {
    let Some(address) = loopback() else { return };
    println!("@{}", allocate_number().unwrap());
    let mut members = Vec::new();
    for (command, _) in commands() {
        assert_eq!(command, "bind");
        match set_up(address) {
            Ok(member) => {
                println!("@{}", member.0);
                members.push(member);
            }
            Err(e) => println!("@0 {e}"),
        }
    }
}

/// A process with SOFTVERBS_TRANSPORT=auto: its transport, 1 for iWARP and 2 for RoCE.
#[test]
#[ignore = "started by other tests"]
fn chooser() {
    if loopback().is_none() {
        return;
    }
    let number = |transport| match transport {
        Transport::Iwarp => 1,
        Transport::Roce => 2,
    };
    println!("@{}", number(choice::transport()));
    for (command, _) in commands() {
        match command.as_str() {
            "transport" => println!("@{}", number(choice::transport())),
            "is-bound" => println!("@{}", u32::from(Port::bound().is_some())),
            "child" => {
                let mine = choice::transport();
                assert!(fork::tests::in_child(|| choice::transport() == mine));
                println!("@");
            }
            other => panic!("{other}"),
        }
    }
}

/// A process that violates the protocol.
#[test]
#[ignore = "started by other tests"]
fn hostile() {
    if loopback().is_none() {
        return;
    }
    println!("@1");
    let (mut held, mut ports) = (Vec::new(), Vec::new());
    for (command, numbers) in commands() {
        match command.as_str() {
            "hold" => {
                let slots = numbers[0] as u8..=numbers[1] as u8;
                held.extend(slots.map(|slot| std::net::UdpSocket::bind(slot::address(slot)).unwrap()));
            }
            "forge" => {
                let num = numbers[0];
                let mut datagram = packet(num, 77, u32::MAX, 64);
                let sum = icrc::icrc(&flow(HERE, HERE, 50_000), 0, &[&datagram]);
                datagram.extend(sum);
                let [source, destination] = [Ipv4Addr::LOCALHOST.into(); 2];
                let message = forward::Message::Packet {
                    source,
                    source_port: 50_000,
                    destination,
                    ip: IpFields::default(),
                    datagram: &datagram,
                };
                let bytes = [&message.header()[..], &datagram].concat();
                held[0].send_to(&bytes, slot::address((num >> 16) as u8)).unwrap();
            }
            // A message of connection management, as if it were passed on to the listener at this port.
            "forge-message" => {
                let message = disconnection(numbers[0]);
                let address = Ipv4Addr::LOCALHOST.into();
                let passed_on = forward::Message::Packet {
                    source: address,
                    source_port: UDP_PORT,
                    destination: address,
                    ip: IpFields::default(),
                    datagram: &message,
                };
                let service = ServiceId::new(PortSpace::Tcp, numbers[1] as u16);
                let [.., to] = service::addresses(service, address).unwrap();
                held[0].send_to(&[&passed_on.header()[..], &message].concat(), to).unwrap();
            }
            // A query, which only a process at the port may send.
            "query" => {
                let slot = slot::at(held[0].local_addr().unwrap()).unwrap();
                for position in [0, 1, 255] {
                    let query = Query::new(position, 77, slot).encode();
                    held[0].send_to(&query, ("127.0.0.1", UDP_PORT)).unwrap();
                }
            }
            "answers" => {
                held[0].set_nonblocking(true).unwrap();
                let mut count = 0;
                while held[0].recv(&mut [0; 512]).is_ok() {
                    count += 1;
                }
                println!("@{count}");
                continue;
            }
            "port" => {
                let address = [IpAddr::from([0; 4]), Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let address = SocketAddr::new(address[numbers[0] as usize], UDP_PORT);
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = socket(family, SocketType::DGRAM, None).unwrap();
                set_socket_reuseport(&socket, true).unwrap();
                set_socket_reuseaddr(&socket, true).unwrap();
                bind(&socket, &address).unwrap();
                ports.push(socket);
            }
            "release" => ports.clear(),
            "service" => {
                let service = ServiceId::new(PortSpace::Tcp, numbers[0] as u16);
                let [.., any] = service::addresses(service, Ipv4Addr::LOCALHOST.into()).unwrap();
                held.push(std::net::UdpSocket::bind(any).unwrap());
            }
            "garbage" => {
                let (slot, mut random) = (numbers[0] >> 16, fastrand::Rng::with_seed(numbers[1].into()));
                for _ in 0..2_000 {
                    let mut bytes: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
                    if let (true, Some(magic)) = (random.bool(), bytes.first_chunk_mut()) {
                        *magic = [0x53, 0x56, 0x50, 1, random.u8(1..4), if random.bool() { 4 } else { 6 }];
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
