// SPDX-License-Identifier: BSD-3-Clause
//! Whether something listens on a port of the other side, and whether it speaks the protocol of this side's
//! provider.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use transport::iwarp::wire::mpa::{self, Decoded, Enhanced, Frame, Kind, MAX_FRAME_LEN};

use super::network::Route;
use super::provider::Chosen;
use super::report::{Remedy, Report};
use crate::library::{Event, Library, Peer, Side};
use crate::messages::Messages;

/// How long to wait for each reply of the other side.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Reads that this side would have outstanding.
const DEPTH: u16 = 1;

pub(super) fn check(
    route: Route,
    chosen: Option<Chosen>,
    library: &'static Library,
    messages: &Messages,
    report: &mut Report,
) {
    if route.address.port.is_none() {
        return;
    }
    match chosen {
        None => {}
        Some(Chosen::Soft) => over_tcp(&route, report),
        Some(Chosen::RdmaCore) => over_device(&route, library, messages, report),
    }
}

/// The reaction of the other side to an MPA Request.
#[derive(Debug)]
enum Answer {
    Accepts { frame: Frame, private_data: usize },
    Rejects { private_data: usize },
    Other(Vec<u8>),
    Closes,
    Silent,
}

fn over_tcp(route: &Route, report: &mut Report) {
    let name = route.address.to_string();
    let began = Instant::now();
    let mut stream = match TcpStream::connect_timeout(&route.target, REPLY_TIMEOUT) {
        Ok(stream) => stream,
        Err(why) => return no_connection(route.target, &why, report),
    };
    let rtt = began.elapsed().as_micros();
    report.ok("tcp", format!("{name} accepts TCP connections ({rtt} us)"));
    match ask(&mut stream) {
        Ok(Answer::Accepts { frame, private_data }) => {
            let crc = if frame.crc { "on" } else { "off" };
            let depths = frame.enhanced.map_or(String::new(), |e| format!(", ird/ord {}/{}", e.ird, e.ord));
            let text = format!(
                "{name} speaks iWARP: it accepts an MPA Request with revision {}, CRC {crc}{depths}, {private_data} bytes of private data",
                frame.revision
            );
            if frame.markers {
                report.fail("peer", format!("{text}, but requires markers, which the soft provider does not support"), Remedy::hint("configure the other side without MPA markers"));
            } else {
                report.ok("peer", text);
            }
        }
        Ok(Answer::Rejects { private_data }) => report.warn(
            "peer",
            format!("{name} speaks iWARP, but rejects the connection, with {private_data} bytes of private data"),
            Remedy::hint("find out why the program there rejects it: it may require private data"),
        ),
        Ok(Answer::Other(bytes)) => report.fail(
            "peer",
            format!("{name} does not speak iWARP: it answers \"{}\"", bytes.escape_ascii()),
            format!("ss -ltnp 'sport = :{}'  # on that host: which program listens", route.target.port()),
        ),
        Ok(Answer::Closes) => report.fail(
            "peer",
            format!("{name} closes the connection without an answer: it does not speak iWARP, or its program drops the request"),
            format!("ss -ltnp 'sport = :{}'  # on that host: which program listens", route.target.port()),
        ),
        Ok(Answer::Silent) => report.fail(
            "peer",
            format!(
                "{name} does not answer an MPA Request within {} s: it speaks another protocol, or its program does not call rpma_ep_next_conn_req",
                REPLY_TIMEOUT.as_secs()
            ),
            format!("ss -ltnp 'sport = :{}'  # on that host: which program listens", route.target.port()),
        ),
        Err(why) => report.fail("peer", format!("{name}: {why}"), format!("ping -c 3 {}", route.target.ip())),
    }
}

fn no_connection(target: SocketAddr, why: &std::io::Error, report: &mut Report) {
    let port = target.port();
    match why.kind() {
        ErrorKind::ConnectionRefused => report.fail(
            "tcp",
            format!("nothing listens on TCP port {port} of {}", target.ip()),
            Remedy::hint("start the server; if that host has an adapter, start it with RPMA_PROVIDER=soft"),
        ),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => report.fail(
            "tcp",
            format!("{target} does not answer: the host is down, or a firewall drops TCP port {port}"),
            format!("nft add rule inet filter input tcp dport {port} accept  # on that host, as root"),
        ),
        _ => report.fail("tcp", format!("{target}: {why}"), format!("ip route get {}", target.ip())),
    }
}

/// Sends an MPA Request and reads the answer.
fn ask(stream: &mut TcpStream) -> std::io::Result<Answer> {
    let enhanced = Enhanced { ird: DEPTH, ord: DEPTH, ..Enhanced::default() };
    let request = Frame {
        kind: Kind::Request,
        markers: false,
        crc: false,
        reject: false,
        revision: mpa::REVISION,
        enhanced: Some(enhanced),
    };
    let mut bytes = Vec::new();
    mpa::encode(&request, &[], &mut bytes).map_err(std::io::Error::other)?;
    stream.write_all(&bytes)?;
    let end = Instant::now() + REPLY_TIMEOUT;
    let mut received = Vec::new();
    let mut room = [0; MAX_FRAME_LEN];
    loop {
        match mpa::decode(Kind::Reply, &received) {
            Ok(Decoded::Frame { frame, private_data, .. }) => {
                let private_data = private_data.len();
                return Ok(match frame.reject {
                    true => Answer::Rejects { private_data },
                    false => Answer::Accepts { frame, private_data },
                });
            }
            Ok(Decoded::Need(_)) => {}
            Err(_) => {
                received.truncate(32);
                return Ok(Answer::Other(received));
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Answer::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut room) {
            Ok(0) => return Ok(Answer::Closes),
            Ok(count) => received.extend_from_slice(&room[..count]),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(why) if why.kind() == ErrorKind::ConnectionReset => return Ok(Answer::Closes),
            Err(why) => return Err(why),
        }
    }
}

fn over_device(route: &Route, library: &'static Library, messages: &Messages, report: &mut Report) {
    let name = route.address.to_string();
    let began = Instant::now();
    let outcome = (|| {
        let context = library.context(&route.target.ip().to_string(), Side::Remote)?;
        let peer = Peer::new(library, context)?;
        let connection =
            peer.connect(&route.target.ip().to_string(), route.target.port(), REPLY_TIMEOUT, &[])?;
        messages.new_ones();
        let event = connection.next_event(Instant::now() + 2 * REPLY_TIMEOUT)?;
        let why = messages.reason();
        connection.disconnect();
        Ok::<_, String>((event, why))
    })();
    let time = began.elapsed().as_micros();
    const SOFT: &str =
        "start the server on that host; if it uses the soft provider, set RPMA_PROVIDER=soft on this one";
    match outcome {
        Ok((Some(Event::Established), _)) => {
            report.ok("peer", format!("{name} accepts a connection of the device ({time} us)"))
        }
        Ok((Some(event), why)) => report.fail(
            "peer",
            format!("{name}: {event}: {}", why.unwrap_or("no reason is known".to_owned())),
            Remedy::hint(SOFT),
        ),
        Ok((None, _)) => {
            report.fail("peer", format!("{name} does not answer the device"), Remedy::hint(SOFT))
        }
        Err(why) => report.fail("peer", format!("{name}: {why}"), Remedy::hint(SOFT)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// The report on a server that reads a request and then runs `server`.
    fn say(server: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 24];
            stream.read_exact(&mut request).unwrap();
            assert!(matches!(mpa::decode(Kind::Request, &request), Ok(Decoded::Frame { .. })));
            server(&mut stream);
        });
        let route = Route { address: target.to_string().parse().unwrap(), target };
        let text = text_of(|report| over_tcp(&route, report));
        thread.join().unwrap();
        text
    }

    fn reply(change: impl FnOnce(&mut Frame)) -> Vec<u8> {
        let mut frame = Frame {
            kind: Kind::Reply,
            markers: false,
            crc: true,
            reject: false,
            revision: 2,
            enhanced: Some(Enhanced { ird: 7, ord: 9, ..Enhanced::default() }),
        };
        change(&mut frame);
        let mut bytes = Vec::new();
        mpa::encode(&frame, b"hello", &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn each_answer_is_told() {
        let text = say(|stream| stream.write_all(&reply(|_| {})).unwrap());
        assert!(
            text.contains("ok    peer") && text.contains("revision 2, CRC on, ird/ord 7/9, 5 bytes"),
            "{text}"
        );
        // in pieces
        let text = say(|stream| {
            reply(|_| {}).chunks(10).for_each(|part| {
                stream.write_all(part).unwrap();
                thread::sleep(Duration::from_millis(20));
            })
        });
        assert!(text.contains("ok    peer"), "{text}");
        assert!(
            say(|stream| stream.write_all(&reply(|frame| frame.reject = true)).unwrap())
                .contains("warn  peer")
        );
        assert!(
            say(|stream| stream.write_all(&reply(|frame| frame.markers = true)).unwrap())
                .contains("FAIL  peer")
        );
        let text = say(|stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
        assert!(text.contains("FAIL  peer") && text.contains("\"HTTP/1.1 400 Bad Request\\r\\n\""), "{text}");
        assert!(say(|_| {}).contains("closes the connection without an answer"));
        let text = say(|stream| drop(stream.read(&mut [0])));
        assert!(text.contains("does not answer an MPA Request within 3 s"), "{text}");
    }

    #[test]
    fn a_port_where_nothing_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        drop(listener);
        let route = Route { address: target.to_string().parse().unwrap(), target };
        let text = text_of(|report| over_tcp(&route, report));
        assert!(text.starts_with("FAIL  tcp         nothing listens on TCP port"), "{text}");
    }
}
