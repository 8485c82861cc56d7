// SPDX-License-Identifier: BSD-3-Clause
//! `rpma wait`: waits until a program of this host listens on a port.
//!
//! It reads the lists of sockets of the kernel. A connection attempt would reach the program: one that serves
//! a single client, as many test programs do, would serve this one.

use clap::Args;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::seconds::seconds;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// Exit statuses.
const TIMED_OUT: u8 = 1;
const FAILED: u8 = 2;
/// The state of a listening TCP socket (include/net/tcp_states.h).
const TCP_LISTEN: &str = "0A";

/// Wait until a program on this host listens on a port
///
/// For scripts that start a server and then a client. A program listens if it accepts TCP connections, as one
/// with iWARP does and one that exchanges queue pair numbers over TCP, or if it has the port in rdma_cm over
/// RoCE. No connection is made. A program that listens on an RDMA device of the kernel is not found. The exit
/// status is 0: a program listens, 1: none did in time, 2: the arguments are wrong.
#[derive(Args)]
pub(crate) struct Wait {
    /// The port, at an address of this host or at any address
    #[arg(value_name = "[ADDR:]PORT")]
    target: Target,
    /// Give up after this time
    #[arg(short, long, value_name = "SECONDS", default_value = "30", value_parser = seconds::<0>)]
    timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// `None`: any address.
    address: Option<IpAddr>,
    port: u16,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(port) if port > 0 => Ok(Self { address: None, port }),
                _ => Err(format!("\"{text}\" is not a port number from 1 to 65535")),
            };
        }
        let named: Address = text.parse()?;
        let port = named.port.ok_or("no port given")?;
        let address = named.resolve().map_err(|why| format!("{}: {why}", named.host))?.ip();
        // Only the sockets of this host can be listed.
        UdpSocket::bind((address, 0)).map_err(|_| format!("{address} is not an address of this host"))?;
        Ok(Self { address: Some(address), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.port)?;
        self.address.map_or(Ok(()), |address| write!(f, " of {address}"))
    }
}

impl Wait {
    pub(crate) fn run(&self) -> ExitCode {
        let began = Instant::now();
        loop {
            match self.target.is_listened_on() {
                Ok(true) => return ExitCode::SUCCESS,
                Ok(false) if began.elapsed() < self.timeout => sleep(INTERVAL),
                Ok(false) => {
                    let time = self.timeout.as_secs_f64();
                    eprintln!("rpma wait: no program listens on {} after {time} seconds", self.target);
                    return ExitCode::from(TIMED_OUT);
                }
                Err(why) => {
                    eprintln!("rpma wait: {why}");
                    return ExitCode::from(FAILED);
                }
            }
        }
    }
}

impl Target {
    fn is_listened_on(&self) -> Result<bool, String> {
        let read = |name: &str| {
            let path = format!("/proc/self/net/{name}");
            std::fs::read_to_string(&path).map_err(|why| format!("{path}: {why}"))
        };
        // Without IPv6 there is no such file.
        let tcp6 = read("tcp6").unwrap_or_default();
        let tcp = read("tcp")?;
        let mut tcp = tcp.lines().chain(tcp6.lines()).filter_map(Socket::parse).collect::<Vec<_>>();
        tcp.retain(|socket| socket.state == TCP_LISTEN && socket.port == self.port);
        Ok(tcp.iter().any(|socket| self.includes(socket.address))
            || read("udp")?.lines().filter_map(Socket::parse).any(|socket| socket.claims(self.port)))
    }

    /// Whether a socket at `bound` receives what is sent to this address.
    fn includes(&self, bound: IpAddr) -> bool {
        let Some(address) = self.address else { return true };
        // A wildcard socket of IPv6 receives what is sent to IPv4 addresses, too.
        match bound.is_unspecified() {
            true => bound.is_ipv6() || address.is_ipv4(),
            false => address == bound.to_canonical(),
        }
    }
}

/// A line of these lists.
struct Socket<'a> {
    address: IpAddr,
    port: u16,
    state: &'a str,
}

impl<'a> Socket<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (address, port) = words.next()?.split_once(':')?;
        let state = words.nth(1)?;
        // Words of 32 bits, of which the kernel prints the value.
        let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok();
        let address = if address.len() == 8 {
            Ipv4Addr::from(word(0)?.to_ne_bytes()).into()
        } else {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).into()
        };
        Some(Self { address, port: u16::from_str_radix(port, 16).ok()?, state })
    }

    /// Whether the socket claims a port of rdma_cm over RoCE, in any port space: the second byte of its
    /// address is the class of the local address, the others are the port (`port/service.rs` of softverbs).
    fn claims(&self, wanted: u16) -> bool {
        let IpAddr::V4(address) = self.address else { return false };
        let [first, class, high, low] = address.octets();
        let is_claim = first == 127 && (1..=192).contains(&class) && (24_700..24_955).contains(&self.port);
        is_claim && u16::from_be_bytes([high, low]) == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_target_is_a_port_or_an_address_of_this_host_with_a_port() {
        let of = |text: &str| text.parse::<Target>();
        assert_eq!(of("7174"), Ok(Target { address: None, port: 7174 }));
        assert_eq!(
            of("127.0.0.1:7174"),
            Ok(Target { address: Some(Ipv4Addr::LOCALHOST.into()), port: 7174 })
        );
        for wrong in ["", "0", "70000", "127.0.0.1", "127.0.0.1:x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(of("192.0.2.1:7174").unwrap_err(), "192.0.2.1 is not an address of this host");
    }

    #[test]
    fn a_listening_socket_is_found_at_its_address_and_at_a_wildcard_address() {
        let of = |address: &str, port| Target { address: Some(address.parse().unwrap()), port };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(Target { address: None, port }.is_listened_on().unwrap());
        assert!(of("127.0.0.1", port).is_listened_on().unwrap());
        assert!(!of("127.0.0.2", port).is_listened_on().unwrap());
        drop(listener);
        assert!(!of("127.0.0.1", port).is_listened_on().unwrap());
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(of("127.0.0.2", port).is_listened_on().unwrap());
        assert!(!of("::1", port).is_listened_on().unwrap());
    }

    #[test]
    fn a_claim_of_a_port_of_rdma_cm_is_found() {
        let claims = |text: &str, port| {
            let (address, own) = text.split_once(':').unwrap();
            Socket { address: address.parse().unwrap(), port: own.parse().unwrap(), state: "07" }.claims(port)
        };
        assert!(claims("127.1.28.6:24700", 7174) && claims("127.128.28.6:24954", 7174));
        assert!(claims("127.129.28.6:24700", 7174), "a service for datagrams");
        // Another port, a slot, other programs.
        for other in [
            "127.1.28.7:24700",
            "127.193.28.6:24700",
            "127.0.28.6:24700",
            "127.1.28.6:24699",
            "10.1.28.6:24700",
        ] {
            assert!(!claims(other, 7174), "{other}");
        }
    }
}
