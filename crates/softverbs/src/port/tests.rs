// SPDX-License-Identifier: BSD-3-Clause
//! The port with real sockets and processes.
//!
//! A test runs its body, a *world*, in a new process with a network namespace of its own; the world starts
//! *members*, which are processes with a queue pair number each and obey commands. All of them are this test
//! binary with another test of this file, which is ignored otherwise.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use transport::roce::wire::{Addresses, Flow, ICRC_LEN, UDP_PORT, icrc};

use super::drops::Reason;
use super::*;
use crate::policy::trust::WORST;

/// Says which world the process is.
const WORLD: &str = "SOFTVERBS_TEST_WORLD";
/// The variable that repeats a run with its seed.
const SEED: &str = "SEED";

fn this_binary(test: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let test = format!("port::tests::{test}");
    [&binary, "--exact", &test, "--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// Runs a world in a network namespace of its own; false if the host does not permit it.
fn in_namespace(world: &str) {
    let begin = ["-n", "-rn"].into_iter().find(|flags| {
        let tried = Command::new("unshare").args([flags, "ip", "link", "set", "lo", "up"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    });
    let Some(flags) = begin else {
        eprintln!("skipped: no network namespace permitted (unshare -rn ip link set lo up)");
        return;
    };
    let up = "ip link set lo up && exec \"$@\"";
    let status = Command::new("unshare")
        .args([flags, "sh", "-c", up, "sh"])
        .args(this_binary("world"))
        .env(WORLD, world)
        .status()
        .unwrap();
    assert!(status.success(), "{world}: {status}");
}

#[test]
#[ignore = "started by other tests"]
fn world() {
    let Ok(world) = std::env::var(WORLD) else { return };
    match world.as_str() {
        "two" => two(),
        "many" => many(),
        "broken" => broken(),
        "stopped" => stopped(),
        "containers" => containers(),
        "users" => users(),
        "hostile" => hostile(),
        "forked" => forked(),
        "writable" => writable(),
        "polling" => polling(),
        "stops" => stops(),
        other => panic!("{other}"),
    }
}

#[test]
fn two_processes_exchange_packets() {
    in_namespace("two");
}

fn two() {
    for family in Family::ALL {
        let mut members = start(family, 2);
        assert_ne!(members[0].num >> 16, members[1].num >> 16, "a slot each");
        exchange(&mut members, 100);
    }
    nothing_is_left();
}

#[test]
fn sixty_four_processes_exchange_packets_while_some_are_killed() {
    in_namespace("many");
}

fn many() {
    let seed = std::env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut members = start(Family::V4, 64);
    for _ in 0..10 {
        // All send at once, and some die meanwhile.
        let nums: Vec<_> = members.iter().map(|member| member.num).collect();
        members.iter_mut().for_each(|member| member.begin_send(1, &nums));
        random.shuffle(&mut members);
        let killed = random.usize(1..20);
        for member in members.drain(..killed) {
            std::thread::sleep(Duration::from_micros(random.u64(..2_000)));
            drop(member);
        }
        members.iter_mut().for_each(Member::end_send);
        members.extend(start(Family::V4, killed));
    }
    assert_eq!(members.len(), 64);
    exchange(&mut members, 1);
    // By now the program knows all.
    let before: u32 = members.iter_mut().map(|member| member.report().forwarded).sum();
    exchange(&mut members, 2);
    let after: u32 = members.iter_mut().map(|member| member.report().forwarded).sum();
    assert!(after - before < 64 * 64, "{} of {} packets were forwarded", after - before, 64 * 64 * 2);
    drop(members);
    nothing_is_left();
}

#[test]
fn packets_arrive_whatever_the_program_says() {
    in_namespace("broken");
}

fn broken() {
    let mut members = start(Family::V4, 5);
    exchange(&mut members, 1);
    for _ in 0..20 {
        members[0].command("scramble");
        exchange(&mut members, 3);
    }
    let forwarded =
        |members: &mut [Member]| members.iter_mut().map(|member| member.report().forwarded).sum::<u32>();
    assert_ne!(forwarded(&mut members), 0);
    // It is repaired, after a while also if nothing more arrives.
    let begin = Instant::now();
    loop {
        let before = forwarded(&mut members);
        exchange(&mut members, 1);
        if forwarded(&mut members) == before {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stopped_process_costs_others_nothing_but_a_moment() {
    in_namespace("stopped");
}

fn stopped() {
    let mut members = start(Family::V4, 6);
    exchange(&mut members, 1);
    let signal = |member: &Member, signal: &str| {
        let pid = member.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let mut stopped = members.remove(3);
    let position = stopped.position();
    signal(&stopped, "-STOP");
    // All packets go to its position.
    members[0].command(&format!("steer {position}"));
    // Nobody can forward them, until a check fails.
    std::thread::sleep(Duration::from_millis(2_500));
    exchange(&mut members, 10);
    signal(&stopped, "-CONT");
    members.push(stopped);
    exchange(&mut members, 10);
}

#[test]
fn containers_of_one_network_namespace_share_the_port() {
    in_namespace("containers");
}

fn containers() {
    let inside = |command: &[String]| {
        let flags =
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"].map(str::to_owned);
        Member::spawn_as(&[&flags, command].concat(), Family::V4, None)
    };
    let mut members: Vec<_> = (0..3).map(|_| inside(&this_binary("member"))).collect();
    members.extend((0..2).map(|_| Member::spawn_as(&this_binary("member"), Family::V4, None)));
    members.iter_mut().for_each(|member| member.started().unwrap());
    exchange(&mut members, 50);
    drop(members);
    nothing_is_left();
}

/// A user of no process here.
const OTHER_USER: u32 = 54_321;

/// Whether this process may start others as another user.
fn may_change_user() -> bool {
    let may = Command::new(std::env::current_exe().unwrap()).arg("--list").uid(OTHER_USER).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: no other user permitted");
    }
    may
}

#[test]
fn the_port_and_slots_of_another_user_are_left_alone() {
    in_namespace("users");
}

fn users() {
    if !may_change_user() {
        return;
    }
    // Slots are skipped.
    let mut hog = Member::spawn_as(&this_binary("stranger"), Family::V4, Some(OTHER_USER));
    hog.started().unwrap();
    hog.command("hold 1 200");
    let mut members = start(Family::V4, 8);
    assert!(members.iter().all(|member| member.num >> 16 > 200));
    exchange(&mut members, 10);
    // The port is of the user who has it.
    let mut other = Member::spawn_as(&this_binary("member"), Family::V4, Some(OTHER_USER));
    assert_eq!(other.started(), Err(libc::EADDRINUSE));
    drop((members, other));
    nothing_is_left();
    // No slot.
    hog.command("hold 201 254");
    let mut member = Member::spawn_as(&this_binary("member"), Family::V4, None);
    assert_eq!(member.started(), Err(libc::EAGAIN));
}

#[test]
fn a_datagram_of_another_user_is_not_believed() {
    in_namespace("hostile");
}

fn hostile() {
    let mut random = fastrand::Rng::with_seed(4791);
    let mut members = start(Family::V4, 2);
    exchange(&mut members, 1);
    let (num, peer) = (members[0].num, members[1].num);
    let free: Vec<_> = (1..=254).filter(|slot| ![num >> 16, peer >> 16].contains(slot)).collect();
    let users = if may_change_user() { &[None, Some(OTHER_USER)][..] } else { &[None] };
    for user in users {
        let mut stranger = Member::spawn_as(&this_binary("stranger"), Family::V4, *user);
        stranger.started().unwrap();
        let slot = free[random.usize(..free.len())];
        stranger.command(&format!("hold {slot} {slot}"));
        let before = members[0].report();
        let count = before.got + u32::from(user.is_none());
        stranger.command(&format!("forge {num}"));
        // What was sent before it has arrived.
        members[1].send(1, &[num]);
        members[0].expects(count + 1);
        assert_eq!(members[0].report().distrusted - before.distrusted, u32::from(user.is_some()));
        // Garbage does no harm.
        stranger.command(&format!("garbage {num} {}", random.u32(..)));
        members[1].send(1, &[num]);
        members[0].expects(count + 2);
    }
}

#[test]
fn a_child_after_fork_has_a_slot_and_a_port_of_its_own() {
    in_namespace("forked");
}

fn forked() {
    let mut parent = Member::start(Family::V4);
    parent.command("fork");
    exchange(std::slice::from_mut(&mut parent), 10);
}

#[test]
fn endpoints_are_called_when_the_socket_takes_packets() {
    in_namespace("writable");
}

fn writable() {
    let (num, port) = (allocate_number().unwrap(), Port::get().unwrap());
    assert!(Port::bound().is_some_and(|bound| Arc::ptr_eq(&bound, &port)));
    let inbox = Arc::new(Inbox { num, ..Inbox::default() });
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let weak: Weak<dyn Endpoint> = Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>));
    port.attach(num, address, address, weak);
    for _ in 0..3 {
        let before = inbox.writable.load(Ordering::Relaxed);
        port.sockets.await_writable(Family::V4, num);
        wait_until(|| inbox.writable.load(Ordering::Relaxed) > before);
    }
    // A program that polls receives in its own thread, or the engine was first.
    let mut sender = port.sender(num, address, SocketAddr::new(address, 0), 0x68, 0);
    for (number, len) in [(0, 1024), (1, 1024), (2, 500), (3, 1024), (4, 4112), (5, 24)] {
        assert!(sender.push(&packet(num, num, number, len)));
    }
    sender.flush();
    wait_until(|| {
        port.poll();
        lock(&inbox.packets).0.len() == 6
    });
    wait_until(|| inbox.received.load(Ordering::Relaxed) > 0);
    // Without UDP_SEGMENT.
    sender.segments = false;
    for number in 10..20 {
        assert!(sender.push(&packet(num, num, number, 256)));
    }
    sender.flush();
    wait_until(|| lock(&inbox.packets).0.len() == 16);
    // Addresses other than those of the peer, and no endpoint.
    port.attach(
        num,
        address,
        "127.0.0.9".parse().unwrap(),
        Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>)),
    );
    assert!(sender.push(&packet(num, num, 30, 256)));
    sender.flush();
    wait_until(|| port.drops.get(Reason::WrongAddress) == 1);
    port.detach(num);
    assert!(sender.push(&packet(num, num, 31, 256)));
    sender.flush();
    wait_until(|| port.drops.get(Reason::UnknownQp) == 1);
    assert_eq!((port.drops.get(Reason::Icrc), port.drops.get(Reason::Malformed)), (0, 0));
    // A wrong checksum, and connection management.
    let mut wrong = packet(num, num, 32, 256);
    wrong.extend([0; ICRC_LEN]);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    port.attach(num, address, address, Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>)));
    socket.send_to(&wrong, ("127.0.0.1", UDP_PORT)).unwrap();
    wait_until(|| port.drops.get(Reason::Icrc) == 1);
    socket.send_to(&packet(1, num, 32, 256), ("127.0.0.1", UDP_PORT)).unwrap();
    wait_until(|| port.drops.get(Reason::Management) == 1);
    // More than the MTU: lost and counted.
    let mut elsewhere = port.sender(num, address, SocketAddr::new("192.0.2.1".parse().unwrap(), 0), 0, 0);
    assert!(elsewhere.push(&packet(num, num, 33, 256)));
    elsewhere.flush();
    assert_eq!(port.drops.get(Reason::NotSent), 1);
    assert_eq!(lock(&inbox.packets).0.len(), 16);
    release_number(num);
}

#[test]
fn members_that_poll_get_packets_at_all_sockets() {
    in_namespace("polling");
}

fn polling() {
    for family in Family::ALL {
        let mut members = start(family, 3);
        for member in &mut members {
            member.command("poll");
        }
        exchange(&mut members, 30);
        // Packets are forwarded, few at a time: the sockets of the slots have small buffers.
        for _ in 0..50 {
            members[0].command("scramble");
            exchange(&mut members, 3);
            exchange(&mut members, 3);
        }
    }
    nothing_is_left();
}

#[test]
fn a_program_that_stops_polling_gets_its_packets_from_the_engine() {
    in_namespace("stops");
}

fn stops() {
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (num, port, inbox) = set_up(address).unwrap();
    let mut sender = port.sender(num, address, SocketAddr::new(address, 0), 0, 0);
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        assert!(sender.push(&packet(num, num, sent, 64)));
        sender.flush();
        sent as usize
    };
    let got = || lock(&inbox.packets).0.len();
    let mut waits = Vec::new();
    for round in 0..30 {
        // The program polls until the engine leaves the sockets to it.
        let by_engine = wait_until_quiet(&port, || {
            let sent = send();
            wait_until(|| {
                port.polls();
                port.poll();
                got() == sent
            });
            inbox.by_engine.load(Ordering::Relaxed)
        });
        let begin = Instant::now();
        let sent = send();
        if round % 3 == 2 {
            // Before it sleeps.
            port.arm();
        }
        wait_until(|| got() == sent);
        wait_until(|| inbox.by_engine.load(Ordering::Relaxed) > by_engine);
        waits.push(begin.elapsed());
    }
    // Other processes of the host may delay some of them.
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < 25 * WORST, "{waits:?}");
    release_number(num);
}

/// Returns what `act` has returned when the engine does not wait for packets any more.
fn wait_until_quiet<T>(port: &Port, mut act: impl FnMut() -> T) -> T {
    let begin = Instant::now();
    loop {
        let result = act();
        if port.attention.is_quiet() {
            return result;
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
}

/// All members send so many packets to all, and get all of them.
fn exchange(members: &mut [Member], count: u32) {
    let nums: Vec<_> = members.iter().map(|member| member.num).collect();
    let before: Vec<_> = members.iter_mut().map(|member| member.report().got).collect();
    for member in members.iter_mut() {
        member.begin_send(count, &nums);
    }
    members.iter_mut().for_each(Member::end_send);
    for (member, before) in members.iter_mut().zip(before) {
        member.expects(before + count * nums.len() as u32);
    }
}

/// Within a second no socket of a process that was killed exists any more.
fn nothing_is_left() {
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string("/proc/net/udp").unwrap();
        let is_ours =
            |line: &&str| line.contains(":12B7 ") || line.contains("0100007F:60") && !line.contains("54321");
        let left: Vec<_> = text.lines().filter(is_ours).collect();
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{left:#?}");
    }
}

/// Starts members, all at once.
fn start(family: Family, count: usize) -> Vec<Member> {
    let mut members: Vec<_> =
        (0..count).map(|_| Member::spawn_as(&this_binary("member"), family, None)).collect();
    members.iter_mut().for_each(|member| member.started().unwrap());
    members
}

/// A process with a queue pair number.
struct Member {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    num: u32,
}

/// What a member has counted.
#[derive(Clone, Copy)]
struct Report {
    /// Packets for its number.
    got: u32,
    forwarded: u32,
    distrusted: u32,
}

impl Member {
    fn start(family: Family) -> Self {
        start(family, 1).remove(0)
    }

    fn spawn_as(command: &[String], family: Family, user: Option<u32>) -> Self {
        let mut start = Command::new(&command[0]);
        if let Some(user) = user {
            start.uid(user);
        }
        let mut process = start
            .args(&command[1..])
            .env(WORLD, if family == Family::V4 { "4" } else { "6" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, commands, answers, num: 0 }
    }

    /// Waits until it has its number, or the error instead.
    fn started(&mut self) -> Result<(), Errno> {
        match self.answer()[..] {
            [0, e] => Err(e as Errno),
            [num] => {
                self.num = num;
                Ok(())
            }
            ref other => panic!("{other:?}"),
        }
    }

    /// The next line of the member that is an answer.
    fn answer(&mut self) -> Vec<u32> {
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the member has ended");
            // libtest begins the line.
            if let Some((_, words)) = line.split_once('@') {
                return words.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
            }
        }
    }

    fn begin_send(&mut self, count: u32, nums: &[u32]) {
        let nums: Vec<_> = nums.iter().map(u32::to_string).collect();
        writeln!(self.commands, "send {count} {}", nums.join(" ")).unwrap();
    }

    fn end_send(&mut self) {
        assert_eq!(self.answer(), []);
    }

    /// Has it send so many packets to each of `nums`.
    fn send(&mut self, count: u32, nums: &[u32]) {
        self.begin_send(count, nums);
        self.end_send();
    }

    fn command(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        assert_eq!(self.answer(), []);
    }

    /// Where the program finds it.
    fn position(&mut self) -> u32 {
        writeln!(self.commands, "position").unwrap();
        self.answer()[0]
    }

    fn report(&mut self) -> Report {
        writeln!(self.commands, "report").unwrap();
        let [got, wrong, forwarded, distrusted] = self.answer().try_into().unwrap();
        assert_eq!(wrong, 0, "packets for another number");
        Report { got, forwarded, distrusted }
    }

    fn expects(&mut self, count: u32) {
        let begin = Instant::now();
        loop {
            let got = self.report().got;
            assert!(got <= count, "{got} of {count}");
            if got == count {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "{got} of {count} for {:#x}", self.num);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The endpoint of a member.
#[derive(Default)]
struct Inbox {
    num: u32,
    /// Sender and number of each packet, and how many were for another number.
    packets: Mutex<(HashSet<(u32, u32)>, u32)>,
    received: AtomicU32,
    by_engine: AtomicU32,
    writable: AtomicU32,
}

impl Endpoint for Inbox {
    fn arrived(&self, packet: Packet) {
        let word = |at: usize| u32::from_be_bytes(packet.as_ref()[at..at + 4].try_into().unwrap());
        let mut packets = lock(&self.packets);
        if word(12) == self.num {
            packets.0.insert((word(16), word(20)));
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

fn packet(to: u32, from: u32, number: u32, len: usize) -> Vec<u8> {
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

fn set_up(address: IpAddr) -> Result<(u32, Arc<Port>, Arc<Inbox>), Errno> {
    let num = allocate_number()?;
    let port = Port::get()?;
    let inbox = Arc::new(Inbox { num, ..Inbox::default() });
    let weak: Weak<dyn Endpoint> = Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>));
    port.attach(num, address, address, weak);
    Ok((num, port, inbox))
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
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split_ascii_whitespace();
        let command = words.next().unwrap();
        let numbers: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
        match command {
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
            "report" => {
                let packets = lock(&inbox.packets);
                let (forwarded, distrusted) =
                    (port.drops.get_forwarded(), port.drops.get(Reason::Distrusted));
                println!("@{} {} {forwarded} {distrusted}", packets.0.len(), packets.1);
            }
            "scramble" => {
                let table: Vec<_> = (1..=254).zip((0..5).cycle().skip(sent as usize)).collect();
                port.attach_program(Family::of(address), &table);
                println!("@");
            }
            "steer" => {
                let table: Vec<_> = (1..=254).map(|slot| (slot, numbers[0] as u8)).collect();
                port.attach_program(Family::of(address), &table);
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

/// A process that does not follow the rules.
#[test]
#[ignore = "started by other tests"]
fn stranger() {
    if loopback().is_none() {
        return;
    }
    println!("@1");
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split_ascii_whitespace();
        let command = words.next().unwrap();
        let numbers: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
        match command {
            "hold" => {
                let slots = numbers[0] as u8..=numbers[1] as u8;
                held.extend(slots.map(|slot| std::net::UdpSocket::bind(slot::address(slot)).unwrap()));
            }
            "forge" => {
                let num = numbers[0];
                let mut datagram = packet(num, 77, 77, 64);
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
