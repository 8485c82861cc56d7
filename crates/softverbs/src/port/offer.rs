// SPDX-License-Identifier: BSD-3-Clause
//! The offer of shared memory that one RoCE queue pair makes to another one: a message over the Unix socket
//! of the peer's slot.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};

use crate::evidence::{self, Evidence};
use crate::fork;
use crate::socket::Socket;
use crate::unix;
use transport::roce::wire::gid;

/// The beginning of an offer: the version of the layout of the memory and of the packets in it. The evidence
/// of the listener follows, the number of the descriptor that is the evidence of the initiator, the numbers
/// and the GIDs of both queue pairs, those of the initiator first.
const OFFER: &[u8] = b"softverbs roce 2";
const GID_LEN: usize = 16;
const OFFER_LEN: usize =
    OFFER.len() + evidence::LEN + size_of::<RawFd>() + 2 * size_of::<u32>() + 2 * GID_LEN;

/// The name of the Unix socket of a slot, in its network namespace.
pub(crate) fn name_of_slot(slot: u8) -> String {
    format!("slot-{slot}")
}

/// The two queue pairs of a connection: number and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The end that makes the offer.
    pub from: (u32, IpAddr),
    pub to: (u32, IpAddr),
}

impl Ends {
    fn encode(&self) -> Vec<u8> {
        let ((from, near), (to, far)) = (self.from, self.to);
        [&from.to_ne_bytes()[..], &to.to_ne_bytes(), &gid(near), &gid(far)].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (from, rest) = bytes.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (near, far) = rest.split_first_chunk::<GID_LEN>()?;
        let ip = |gid: [u8; GID_LEN]| IpAddr::from(gid).to_canonical();
        let (from, to) = (u32::from_ne_bytes(*from), u32::from_ne_bytes(*to));
        Some(Self { from: (from, ip(*near)), to: (to, ip(far.try_into().ok()?)) })
    }
}

/// The offer of these ends; `listener`: the evidence of the peer, `number`: the descriptor that is that of
/// this process.
pub(crate) fn message(listener: Evidence, number: RawFd, ends: &Ends) -> Vec<u8> {
    [OFFER, &listener.0, &number.to_ne_bytes(), &ends.encode()].concat()
}

/// Memory that a peer has offered.
pub(crate) struct Offer {
    pub memory: Socket,
    /// The Unix socket to the peer.
    pub notify: Socket,
    /// The descriptor that is the evidence of the initiator.
    pub initiator: RawFd,
    pub ends: Ends,
}

/// The result of reading an offer.
pub(crate) enum Read {
    NotYet(Socket),
    Invalid,
    Offer(Offer),
}

impl Offer {
    /// Reads an offer, which is one message, from the Unix socket of a peer.
    pub(crate) fn read(notify: Socket) -> Read {
        // Outside `undivided`, because it may have to create a descriptor itself.
        let Ok((_, own)) = Evidence::own() else { return Read::Invalid };
        let received = fork::undivided(|| {
            let mut bytes = [0; OFFER_LEN + 1];
            let (n, fds) = unix::receive_with(&notify, &mut bytes)?;
            let Ok([memory]) = <[OwnedFd; 1]>::try_from(fds) else { return Err(libc::EPROTO) };
            let parsed = parse(&bytes[..n], own).ok_or(libc::EPROTO)?;
            // Last, because the drop of a socket would wait for this function.
            Ok((Socket::note(memory), parsed))
        });
        match received {
            Ok((memory, (initiator, ends))) => Read::Offer(Self { memory, notify, initiator, ends }),
            Err(libc::EAGAIN) => Read::NotYet(notify),
            Err(_) => Read::Invalid,
        }
    }
}

/// The initiator's descriptor number and the ends in an offer; `None` if it does not contain the evidence of
/// this process, `own`.
fn parse(message: &[u8], own: Evidence) -> Option<(RawFd, Ends)> {
    let (number, ends) = message.strip_prefix(OFFER)?.strip_prefix(&own.0)?.split_first_chunk()?;
    Some((RawFd::from_ne_bytes(*number), Ends::decode(ends)?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::sys;

    #[test]
    fn an_offer_names_both_ends_and_proves_its_sender() {
        let ends = Ends {
            from: (0x11_0001, "10.0.0.1".parse().unwrap()),
            to: (0x22_0002, "fe80::1".parse().unwrap()),
        };
        let own = Evidence([7; evidence::LEN]);
        let message = message(own, 5, &ends);
        assert_eq!(message.len(), OFFER_LEN);
        assert_eq!(parse(&message, own), Some((5, ends)));
        assert_eq!(parse(&message, Evidence([8; evidence::LEN])), None);
        assert_eq!(parse(&message[..OFFER_LEN - 1], own), None);
        assert_eq!(parse(&[&message[..], b"x"].concat(), own), None);
        let other_version = [b"softverbs roce 1", &message[OFFER.len()..]].concat();
        assert_eq!(parse(&other_version, own), None);
    }
    /// An offer that is not one is closed, descriptor and all; later sockets are created and closed as
    /// before.
    #[test]
    fn an_invalid_offer_with_a_descriptor_is_closed() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let (far, passed) = (OwnedFd::from(far), sys::event_flag().unwrap());
        unix::send_with(&far, &[0; OFFER_LEN], &[passed.as_fd()]).unwrap();
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let near = Socket::noted(|| Ok(OwnedFd::from(near))).unwrap();
            let is_invalid = matches!(Offer::read(near), Read::Invalid);
            done.send(is_invalid).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
