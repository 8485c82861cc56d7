// SPDX-License-Identifier: BSD-3-Clause
//! A member from the side of the test: a process that executes commands.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{WORLD, this_binary};
use crate::port::socket::Family;
use crate::sys::Errno;

/// How often packets are exchanged until the kernel drops none.
const ATTEMPTS: usize = 10;

/// All members send so many packets to all, and get all of them. Packets that were sent before do not count:
/// a process that waits for a processor receives them late. They may leave no room for those that follow;
/// if the kernel reports that, all are sent again.
pub(super) fn exchange(members: &mut [Member], count: u32) {
    static FLOOR: AtomicU32 = AtomicU32::new(0);
    let nums: Vec<_> = members.iter().map(|member| member.num).collect();
    let expected = count * nums.len() as u32;
    for _ in 0..ATTEMPTS {
        let before = dropped_by_kernel();
        let floor = FLOOR.fetch_add(1 << 20, Ordering::Relaxed) + (1 << 20);
        members.iter_mut().for_each(|member| member.command(&format!("begin {floor}")));
        for member in members.iter_mut() {
            member.begin_send(count, &nums);
        }
        members.iter_mut().for_each(Member::end_send);
        let has_lost = || dropped_by_kernel() != before;
        let missing = members.iter_mut().find_map(|member| member.gets(expected, has_lost).err());
        match missing {
            None => return,
            Some(got) => assert!(has_lost(), "{got} of {expected}, and the kernel has dropped none"),
        }
    }
    panic!("the kernel drops packets each time");
}

/// The number of packets that the kernel has dropped since a receive buffer was full.
fn dropped_by_kernel() -> u64 {
    let of = |table: &str| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        let drops = |line: &str| line.split_ascii_whitespace().last()?.parse::<u64>().ok();
        text.lines().skip(1).filter_map(drops).sum::<u64>()
    };
    of("/proc/net/udp") + of("/proc/net/udp6")
}

/// Within a second no socket of a process that was killed exists any more.
pub(super) fn nothing_is_left() {
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
pub(super) fn start(family: Family, count: usize) -> Vec<Member> {
    let mut members: Vec<_> =
        (0..count).map(|_| Member::spawn_as(&this_binary("process::member"), family, None)).collect();
    members.iter_mut().for_each(|member| member.started().unwrap());
    members
}

/// A process with a queue pair number.
pub(super) struct Member {
    pub(super) process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(super) num: u32,
}

/// What a member has counted.
#[derive(Clone, Copy)]
pub(super) struct Report {
    /// Packets for its number.
    pub(super) got: u32,
    pub(super) forwarded: u32,
    pub(super) distrusted: u32,
}

impl Member {
    pub(super) fn start(family: Family) -> Self {
        start(family, 1).remove(0)
    }

    pub(super) fn spawn_as(command: &[String], family: Family, user: Option<u32>) -> Self {
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
    pub(super) fn started(&mut self) -> Result<(), Errno> {
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
    pub(super) fn answer(&mut self) -> Vec<u32> {
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the member has ended");
            // libtest begins the line.
            if let Some((_, words)) = line.split_once('@') {
                return words.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
            }
        }
    }

    pub(super) fn begin_send(&mut self, count: u32, nums: &[u32]) {
        let nums: Vec<_> = nums.iter().map(u32::to_string).collect();
        writeln!(self.commands, "send {count} {}", nums.join(" ")).unwrap();
    }

    pub(super) fn end_send(&mut self) {
        assert_eq!(self.answer(), []);
    }

    /// Has it send so many packets to each of `nums`.
    pub(super) fn send(&mut self, count: u32, nums: &[u32]) {
        self.begin_send(count, nums);
        self.end_send();
    }

    pub(super) fn command(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        assert_eq!(self.answer(), []);
    }

    /// A command that is answered by a number.
    pub(super) fn query(&mut self, command: &str) -> u32 {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()[0]
    }

    /// Its position in the filter.
    pub(super) fn position(&mut self) -> u32 {
        self.query("position")
    }

    /// Has a process that is late bind the port.
    pub(super) fn bind(&mut self) -> Result<(), Errno> {
        writeln!(self.commands, "bind").unwrap();
        self.started()
    }

    pub(super) fn report(&mut self) -> Report {
        writeln!(self.commands, "report").unwrap();
        let [got, wrong, forwarded, distrusted] = self.answer().try_into().unwrap();
        assert_eq!(wrong, 0, "packets for another number");
        Report { got, forwarded, distrusted }
    }

    /// Makes it send `count` packets to `num` and exit at once. Returns when it has exited.
    pub(super) fn leave(self, count: u32, num: u32) {
        self.exit(&format!("leave {count} {num}"));
    }

    /// Has it execute a command that exits. Returns when it has.
    pub(super) fn exit(mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        assert!(self.process.wait().unwrap().success());
    }

    pub(super) fn expects(&mut self, count: u32) {
        assert_eq!(self.gets(count, || false), Ok(()), "of {count} for {:#x}", self.num);
    }

    /// Waits until the member has received `count` packets. `Err`: the number it has received after 10 s, or
    /// after one second if the kernel has dropped packets.
    fn gets(&mut self, count: u32, has_lost: impl Fn() -> bool) -> Result<(), u32> {
        let begin = Instant::now();
        loop {
            let got = self.report().got;
            assert!(got <= count, "{got} of {count}");
            let elapsed = begin.elapsed();
            if got == count {
                return Ok(());
            }
            if elapsed >= Duration::from_secs(10) || elapsed >= Duration::from_secs(1) && has_lost() {
                return Err(got);
            }
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
