// SPDX-License-Identifier: BSD-3-Clause
//! Which slots belong to processes of this user, according to /proc/net/udp.
//!
//! A process sends packets to the loopback port of a slot, and accepts datagrams from it, only if the socket
//! bound to that port belongs to this user. Results are cached for a short time, for each slot: a read of the
//! table may miss some. [`Claims`] distinguish the processes that have a slot one after another.
//!
//! All users without a mapping in a user namespace have the same overflow UID: a process with that UID trusts
//! no slot, and relies on the filter alone.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::slot;
use super::socket::Family;
use crate::cancel::whole;
use crate::limits::OWNER_READS;
use crate::lock;
use transport::roce::wire::UDP_PORT;

/// How long a positive result is cached.
const TRUSTED_FOR: Duration = Duration::from_millis(200);
/// How long a negative result is cached.
const ABSENT_FOR: Duration = Duration::from_millis(20);
/// The maximum number of reads of the table for a slot that is claimed but missing in it.
const READS: usize = 4;
/// The UDP sockets of this network namespace over IPv4, as the kernel lists them.
const TABLE: &str = "/proc/thread-self/net/udp";
/// The state of a listening socket (include/net/tcp_states.h).
const TCP_LISTEN: &str = "0A";
/// The overflow UID (/proc/sys/kernel/overflowuid).
const NOBODY: u32 = 65534;

struct Known {
    /// By slot. A vector is never on the stack: threads with small stacks open the port.
    slots: Vec<Cached>,
    reads: Rate<OWNER_READS>,
}

/// What is known of a slot.
#[derive(Clone, Copy, Default)]
struct Cached {
    /// When it was last in the table, if it belonged to this user then.
    ours: Option<Instant>,
    /// When it was last looked up without that result.
    looked_for: Option<Instant>,
}

/// A limit on an operation: `LIMIT` times in an interval of [`ABSENT_FOR`].
#[derive(Default)]
pub(super) struct Rate<const LIMIT: u32> {
    /// Start of the current interval.
    interval: Option<Instant>,
    count: u32,
}

impl<const LIMIT: u32> Rate<LIMIT> {
    /// Counts operations, all of them or none. False: they would exceed the limit of the interval.
    pub(super) fn permits(&mut self, operations: usize, now: Instant) -> bool {
        if self.interval.is_none_or(|since| now.duration_since(since) >= ABSENT_FOR) {
            *self = Self { interval: Some(now), count: 0 };
        }
        let count = u32::try_from(operations).ok().and_then(|operations| self.count.checked_add(operations));
        let Some(count) = count.filter(|count| *count <= LIMIT) else { return false };
        self.count = count;
        true
    }
}

pub(super) struct Owners {
    user: Option<u32>,
    known: Mutex<Known>,
}

impl Owners {
    pub(super) fn new(user: u32) -> Self {
        let user = Some(user).filter(|&user| trusts_itself(user));
        Self { user, known: Mutex::default() }
    }

    /// The user whose processes are trusted.
    pub(super) fn user(&self) -> Option<u32> {
        self.user
    }

    /// Whether a slot belongs to a process of this user.
    pub(super) fn is_ours(&self, slot: u8) -> bool {
        self.user.is_some_and(|user| lock(&self.known).is_ours(slot, user, Instant::now(), table))
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { slots: vec![Cached::default(); 256], reads: Rate::default() }
    }
}

impl Known {
    fn is_ours(&mut self, slot: u8, user: u32, now: Instant, read: impl FnMut() -> String) -> bool {
        let is_within =
            |since: Option<Instant>, time| since.is_some_and(|since| now.duration_since(since) < time);
        let at = usize::from(slot);
        let cached = self.slots[at];
        if is_within(cached.ours, TRUSTED_FOR) {
            return true;
        }
        if is_within(cached.looked_for, ABSENT_FOR) {
            return false;
        }
        let Some(text) = table_with(slot, || self.reads.permits(1, now), read) else { return false };
        for (slot, socket) in slots(&text) {
            self.slots[usize::from(slot)].ours = (socket.user == user).then_some(now);
        }
        let cached = &mut self.slots[at];
        let is_ours = is_within(cached.ours, TRUSTED_FOR);
        cached.looked_for = (!is_ours).then_some(now);
        is_ours
    }
}

/// Whether the processes of a user trust each other.
fn trusts_itself(user: u32) -> bool {
    user != NOBODY
}

/// Why this process trusts no other one, if that is so.
pub(super) fn distrust(user: u32) -> Option<String> {
    if !trusts_itself(user) {
        return Some(format!(
            "processes of the user {user} do not trust each other, since it stands for all users without a \
             mapping in a user namespace"
        ));
    }
    // The socket that claims the slot of this process need not be in it yet, but its first line is.
    table()
        .is_empty()
        .then(|| format!("without {TABLE} (is /proc mounted?) this process trusts no other one"))
}

/// The claims of the slots by processes of all users: the inode of each socket, which no later socket has.
pub(crate) struct Claims([u64; 256]);

impl Claims {
    /// `None`: they cannot be read. One may be missing if sockets are closed at the same time.
    pub(super) fn read() -> Option<Self> {
        let text = table();
        (!text.is_empty()).then(|| Self::of_text(&text))
    }

    fn of_text(text: &str) -> Self {
        let mut claims = [0; 256];
        slots(text).for_each(|(slot, socket)| claims[usize::from(slot)] = socket.inode);
        Self(claims)
    }

    /// The inode of the socket that claims a slot.
    pub(crate) fn of(&self, slot: u8) -> Option<u64> {
        Some(self.0[usize::from(slot)]).filter(|inode| *inode != 0)
    }
}

/// The text of [`TABLE`]; empty if it cannot be read. The kernel lists the sockets in pieces, and skips some
/// if others are closed in between.
fn table() -> String {
    whole(|| std::fs::read_to_string(TABLE)).unwrap_or_default()
}

/// As [`table`], but reads it again if the socket that claims this slot is missing. `None`: no read is
/// permitted.
fn table_with(
    slot: u8,
    mut permits: impl FnMut() -> bool,
    mut read: impl FnMut() -> String,
) -> Option<String> {
    let mut text = None;
    for _ in 0..READS {
        if !permits() {
            break;
        }
        let new = text.insert(read());
        if new.is_empty() || Claims::of_text(new).of(slot).is_some() || slot::is_unclaimed(slot) {
            break;
        }
    }
    text
}

/// The slots in the text of /proc/net/udp, each with the socket that claims it.
fn slots(text: &str) -> impl Iterator<Item = (u8, Line<'_>)> {
    let sockets = text.lines().filter_map(Line::parse);
    sockets.filter_map(|socket| Some((slot::at(socket.addr()?.into())?, socket)))
}

/// The UDP sockets of a user, or of all users, at loopback addresses; none if they cannot be read.
pub(super) fn loopback_sockets(user: Option<u32>) -> Vec<SocketAddrV4> {
    let text = table();
    let is_wanted = |socket: &Line<'_>| user.is_none_or(|user| socket.user == user);
    let ours = text.lines().filter_map(Line::parse).filter(is_wanted);
    ours.filter_map(|socket| socket.addr()).filter(|addr| addr.ip().is_loopback()).collect()
}

/// The number of sockets in the group of a family; `None` if the table cannot be read.
pub(super) fn members(family: Family) -> Option<usize> {
    let path = match family {
        Family::V4 => TABLE,
        Family::V6 => "/proc/thread-self/net/udp6",
    };
    Some(members_in(&whole(|| std::fs::read_to_string(path)).ok()?))
}

fn members_in(text: &str) -> usize {
    let is_member =
        |line: &Line<'_>| line.port == UDP_PORT && line.address.bytes().all(|digit| digit == b'0');
    text.lines().filter_map(Line::parse).filter(is_member).count()
}

/// Whether a program of this network namespace accepts TCP connections on a port, at whichever address.
pub(crate) fn accepts_tcp(port: u16) -> bool {
    let is_listener = |line: &Line<'_>| line.port == port && line.state == TCP_LISTEN;
    ["tcp", "tcp6"].iter().any(|name| {
        let text = whole(|| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")));
        text.unwrap_or_default().lines().filter_map(Line::parse).any(|line| is_listener(&line))
    })
}

/// A line of such a file.
struct Line<'a> {
    address: &'a str,
    port: u16,
    state: &'a str,
    user: u32,
    inode: u64,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (address, port) = words.nth(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let state = words.nth(1)?;
        let user = words.nth(3)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self { address, port, state, user, inode })
    }

    /// The local address of an IPv4 socket.
    fn addr(&self) -> Option<SocketAddrV4> {
        let address = Ipv4Addr::from(u32::from_str_radix(self.address, 16).ok()?.to_ne_bytes());
        Some(SocketAddrV4::new(address, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n  \
        100: 0100007F:607D 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5055 2 0000000000000000 0         \n  \
        101: 0100007F:607E 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001        0 5056 2 0000000000000000 0         \n  \
        103: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5057 2 0000000000000000 0         \n  \
        103: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5058 2 0000000000000000 0         \n  \
        103: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5059 2 0000000000000000 0         \n";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_table_of_the_kernel_says_whose_a_slot_is() {
        let owners: Vec<_> = slots(TEXT).map(|(slot, socket)| (slot, socket.user)).collect();
        assert_eq!(owners, [(1, 1000), (2, 1001)]);
        assert_eq!(members_in(TEXT), 2);
        let claims = Claims::of_text(TEXT);
        assert_eq!((claims.of(1), claims.of(2), claims.of(3)), (Some(5055), Some(5056), None));
    }

    #[test]
    fn a_port_that_accepts_tcp_connections_is_in_the_table_of_the_kernel() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(accepts_tcp(port));
        let _connection = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(listener);
        assert!(!accepts_tcp(port));
    }

    #[test]
    fn the_table_is_read_again_if_a_claim_is_missing() {
        let claimed = slot::Slot::claim().unwrap();
        // Number of reads for a slot whose socket is missing in the first `missing` of them.
        let reads = |slot, missing, permitted, found: &str| {
            let (mut permitted, mut reads) = (permitted, 0);
            let permits = || {
                permitted -= 1;
                permitted >= 0
            };
            let text = table_with(slot, permits, || {
                reads += 1;
                if reads <= missing { TEXT.to_owned() } else { found.to_owned() }
            });
            (reads, text.as_deref() == Some(found))
        };
        let (slot, [a, b, c, d]) = (claimed.number(), Ipv4Addr::LOCALHOST.octets());
        let address = u32::from_ne_bytes([a, b, c, d]);
        let port = slot::address(slot).port();
        let line = format!("0: {address:08X}:{port:04X} 0:0 07 0:0 00:0 0 1000 0 5060 2 0 0");
        assert_eq!(reads(slot, 0, 9, &line), (1, true));
        assert_eq!(reads(slot, 2, 9, &line), (3, true));
        assert_eq!(reads(slot, 9, 9, &line), (READS, false));
        assert_eq!(reads(slot, 9, 2, &line), (2, false));
        assert_eq!(reads(slot, 0, 0, &line), (0, false));
        assert_eq!(reads(slot, 0, 9, ""), (1, true), "there is no such file");
        drop(claimed);
        assert_eq!(reads(slot, 9, 9, &line), (1, false), "the slot is free");
    }

    /// Other sockets are closed while the kernel lists them, or the slots have other owners now.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_slot_that_a_read_misses_is_ours_for_its_time() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut known = Known::default();
        let line = |slot: u8, user: u32| {
            format!("0: 0100007F:{:04X} 0:0 07 0:0 00:0 0 {user} 0 5060 2 0 0\n", slot::address(slot).port())
        };
        assert!(known.is_ours(1, 1000, at(0), || line(1, 1000)));
        assert!(known.is_ours(2, 1000, at(100), || line(2, 1000)), "without the first one");
        let unread = || panic!("the table need not be read");
        assert!(known.is_ours(1, 1000, at(199), unread));
        assert!(known.is_ours(2, 1000, at(299), unread));
        // With these, as if they were claimed by processes of others.
        assert!(!known.is_ours(1, 1000, at(300), || line(1, 1001) + &line(2, 1001)));
        assert!(!known.is_ours(2, 1000, at(300), || line(2, 1001)), "it was in that table");
    }

    #[test]
    fn a_slot_of_this_process_is_ours() {
        let slot = slot::Slot::claim().unwrap();
        let owners = Owners::new(slot.user());
        assert!(owners.is_ours(slot.number()) || slot.user() == NOBODY);
        assert!(!Owners::new(slot.user() + 1).is_ours(slot.number()));
    }
}
