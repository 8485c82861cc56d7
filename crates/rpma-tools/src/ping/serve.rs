// SPDX-License-Identifier: BSD-3-Clause
//! `rpma ping --serve`: lets others read its memory. The program accepts connections, and takes no part in
//! the reads.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::{INTERRUPTED, MAX_SIZE, PORT};
use crate::address::Address;
use crate::interrupt::{self, Wake};
use crate::library::{self, Connection, Event, Listener, Memory, Peer, Side, Usage};
use crate::output::print;

/// The beginning of the private data of an answer; the descriptor of the memory follows.
pub(super) const MAGIC: &[u8] = b"rpma ping 1\n";
/// More connections are refused.
const MAX_CONNECTIONS: usize = 1000;
/// How long to ignore requests after one failed, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The contents of the memory: a missing or misplaced byte is detected.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(0x5bd1_e995).to_be_bytes()[0])
        .collect()
}

pub(super) fn serve(address: &Address, json: bool) -> Result<u8, String> {
    let port = address.port.unwrap_or(PORT);
    let ip = address.resolve().map_err(|why| format!("{}: {why}", address.host))?.ip().to_string();
    let library = library::for_tools()?;
    let peer = Peer::new(library, library.context(&ip, Side::Local)?)?;
    let mut memory = Memory::new(&peer, MAX_SIZE, Usage::READ_SOURCE)?;
    memory.fill(&pattern(MAX_SIZE));
    let private_data = [MAGIC, &memory.descriptor()?].concat();
    let listener = Listener::new(&peer, &ip, port)?;
    let whole = Address { host: address.host.clone(), port: Some(port) };
    match json {
        true => print(&serde_json::json!({ "type": "listening", "address": whole.to_string() }).to_string())?,
        false => print(&format!("listening on {whole}, {MAX_SIZE} bytes"))?,
    }

    let mut connections: Vec<(Connection, RawFd)> = Vec::new();
    let requests = listener.fd()?;
    loop {
        let full = connections.len() >= MAX_CONNECTIONS;
        let fds: Vec<RawFd> =
            (!full).then_some(requests).into_iter().chain(connections.iter().map(|(_, fd)| *fd)).collect();
        if interrupt::wait(&fds, None).map_err(|why| why.to_string())? == Wake::Interrupted {
            return Ok(INTERRUPTED);
        }
        connections.retain(|(connection, _)| goes_on(connection));
        let has_request =
            !full && interrupt::wait(&[requests], Some(Instant::now())).is_ok_and(|wake| wake == Wake::Ready);
        if !has_request {
            continue;
        }
        let accepted = listener
            .accept(&private_data)
            .and_then(|connection| connection.map(|c| c.event_fd().map(|fd| (c, fd))).transpose());
        match accepted {
            Ok(connection) => connections.extend(connection),
            Err(why) => {
                eprintln!("rpma ping: a connection was not accepted: {why}");
                let _ = interrupt::wait(&[], Some(Instant::now() + PAUSE));
            }
        }
    }
}

/// Takes the events of a connection; returns whether it is still open.
fn goes_on(connection: &Connection) -> bool {
    match connection.next_event(Instant::now()) {
        Ok(None | Some(Event::Established)) => true,
        Ok(Some(_)) | Err(_) => {
            connection.disconnect();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_not_constant() {
        let bytes = pattern(MAX_SIZE);
        assert_eq!(bytes.len(), MAX_SIZE);
        assert_eq!(bytes[..64], pattern(64));
        assert!(bytes.windows(2).filter(|two| two[0] == two[1]).count() < MAX_SIZE / 64);
        assert!(bytes[..4096] != bytes[4096..8192]);
    }
}
