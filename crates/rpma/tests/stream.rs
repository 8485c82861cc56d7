// SPDX-License-Identifier: BSD-3-Clause
//! Byte streams: any sizes and orders of reads and writes, half close, peers that do not read, losses.
#![cfg(feature = "stream")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use rpma::stream::{Acceptor, Stream};
use rpma::{Peer, Provider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn peer() -> Peer {
    Peer::open("127.0.0.1:0", Provider::Soft).unwrap()
}

async fn connected() -> (Stream, Stream) {
    let peer = peer();
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0").unwrap());
    let addr = acceptor.local_addr().unwrap();
    let accepted = tokio::spawn(async move { acceptor.accept().await });
    let client = Stream::connect(&peer, addr).await.unwrap();
    (client, accepted.await.unwrap().unwrap())
}

/// A client that sends its request (MPA, RFC 5044 and RFC 6581) and announces a first message, which it does
/// not send.
async fn stalled(at: SocketAddr) -> TcpStream {
    let mut request = b"MPA ID Req Frame\x10\x02".to_vec();
    request.extend((4_u16 + 10).to_be_bytes());
    request.extend([0x80, 1, 0x80, 1]);
    request.extend(b"\xa7\0\x07stream1");
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(&request).await.unwrap();
    stream
}

/// Bytes that differ in each message.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("it waits for ever")
}

/// A number from a seed (splitmix64).
fn below(seed: &mut u64, end: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % end as u64) as usize
}

/// Both directions at once, in pieces of any size, with tasks of their own for reading and writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_directions_in_any_pieces() {
    const LEN: usize = 3_000_000;
    let (client, server) = connected().await;
    let mut tasks = Vec::new();
    for (stream, seed) in [(client, 1_u64), (server, 2)] {
        let (mut reader, mut writer) = tokio::io::split(stream);
        tasks.push(tokio::spawn(async move {
            let (mut seed, data) = (seed, bytes(LEN, seed as usize));
            let mut rest = &data[..];
            while !rest.is_empty() {
                let len = 1 + below(&mut seed, 40_000).min(rest.len() - 1);
                writer.write_all(&rest[..len]).await.unwrap();
                rest = &rest[len..];
            }
            writer.shutdown().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            let (from, mut seed, mut seen) = (3 - seed, seed + 10, Vec::new());
            let mut buf = vec![0; 50_000];
            loop {
                let len = 1 + below(&mut seed, buf.len() - 1);
                match reader.read(&mut buf[..len]).await.unwrap() {
                    0 => break,
                    count => seen.extend_from_slice(&buf[..count]),
                }
            }
            assert!(seen == bytes(LEN, from as usize), "{} bytes, or others", seen.len());
        }));
    }
    for task in tasks {
        in_time(task).await.unwrap();
    }
}

#[tokio::test]
async fn one_byte_each_way_many_times() {
    let (mut client, mut server) = connected().await;
    let echo = tokio::spawn(async move {
        while let Ok(byte) = server.read_u8().await {
            server.write_u8(byte).await.unwrap();
        }
        server.shutdown().await.unwrap();
    });
    for number in 0..5000 {
        client.write_u8(number as u8).await.unwrap();
        assert_eq!(in_time(client.read_u8()).await.unwrap(), number as u8);
    }
    client.shutdown().await.unwrap();
    assert_eq!(in_time(client.read(&mut [0; 1])).await.unwrap(), 0);
    in_time(echo).await.unwrap();
}

/// A peer that does not read stops the writer of its direction; the other direction goes on for ever.
#[tokio::test]
async fn a_peer_that_only_writes() {
    let (mut client, mut server) = connected().await;
    let chunk = bytes(10_000, 0);
    let mut written = 0;
    while let Ok(count) = timeout(Duration::from_millis(100), client.write(&chunk)).await {
        written += count.unwrap();
    }
    assert_eq!(written, 16 * chunk.len(), "as many messages as the window has");
    let to_client = tokio::spawn(async move {
        let chunk = bytes(10_000, 0);
        for _ in 0..200 {
            server.write_all(&chunk).await.unwrap();
        }
        server
    });
    let mut buf = vec![0; 10_000];
    for _ in 0..200 {
        in_time(client.read_exact(&mut buf)).await.unwrap();
        assert!(buf == chunk);
    }
    let mut server = in_time(to_client).await.unwrap();
    client.shutdown().await.unwrap();
    let mut seen = Vec::new();
    in_time(server.read_to_end(&mut seen)).await.unwrap();
    assert_eq!(seen.len(), written);
}

#[tokio::test]
async fn half_close() {
    let (mut client, mut server) = connected().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(client.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut seen = String::new();
    in_time(server.read_to_string(&mut seen)).await.unwrap();
    assert_eq!((&seen[..], server.read(&mut [0; 1]).await.unwrap()), ("question", 0));
    for _ in 0..100 {
        in_time(server.write_all(&[7; 1000])).await.unwrap();
        in_time(client.read_exact(&mut [0; 1000])).await.unwrap();
    }
    server.shutdown().await.unwrap();
    drop(server);
    assert_eq!(in_time(client.read(&mut [0; 1])).await.unwrap(), 0);
}

/// What was written before the end arrives although the stream is dropped.
#[tokio::test]
async fn dropped_behind_the_end() {
    let (mut client, mut server) = connected().await;
    let data = bytes(200_000, 3);
    let expected = data.clone();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        server.read_to_end(&mut seen).await.unwrap();
        assert!(seen == expected);
    });
    client.write_all(&data).await.unwrap();
    client.shutdown().await.unwrap();
    drop(client);
    in_time(reader).await.unwrap();
}

#[tokio::test]
async fn dropped_before_the_end() {
    let (client, mut server) = connected().await;
    drop(client);
    let error = in_time(server.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(server.write(b"x").await.is_err());
}

#[tokio::test]
async fn a_client_that_wants_no_stream() {
    let peer = peer();
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0").unwrap());
    let addr = acceptor.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let error = acceptor.accept().await.unwrap_err();
        (error.kind(), acceptor)
    });
    assert_eq!(peer.connect(addr).await.unwrap_err().kind(), rpma::ErrorKind::Rejected);
    let (kind, acceptor) = in_time(accepted).await.unwrap();
    assert_eq!(kind, rpma::ErrorKind::Invalid);
    let again = tokio::spawn(async move { acceptor.accept().await.unwrap() });
    let _client = Stream::connect(&peer, addr).await.unwrap();
    in_time(again).await.unwrap();
}

#[tokio::test]
async fn a_loss_and_its_cause() {
    use rpma::testing::{Faults, streams};
    use std::error::Error;

    let (mut client, mut server) = streams(1, Faults::none().client("peer:kill@op=40")).unwrap();
    let echo = tokio::spawn(async move {
        let mut buf = [0; 100];
        loop {
            match server.read_exact(&mut buf).await {
                Ok(_) => server.write_all(&buf).await.unwrap(),
                Err(error) => return error,
            }
        }
    });
    let error = loop {
        if let Err(error) = client.write_all(&[1; 100]).await {
            break error;
        }
        if let Err(error) = in_time(client.read_exact(&mut [0; 100])).await {
            break error;
        }
    };
    for error in [error, in_time(echo).await.unwrap()] {
        // Over RoCE the peer of a cut connection may get Closed instead of Lost.
        let is_roce = std::env::var_os("SOFTVERBS_TRANSPORT").is_some_and(|name| name == "roce");
        let is_closed = is_roce && error.kind() == ErrorKind::UnexpectedEof;
        assert!(error.kind() == ErrorKind::ConnectionReset || is_closed, "{error:?}");
        let cause = error.get_ref().and_then(|error| error.downcast_ref::<rpma::Error>()).unwrap();
        assert_eq!(cause.kind() == rpma::ErrorKind::Lost, !is_closed);
        assert!(cause.source().is_none() && !cause.to_string().is_empty());
    }
    // It stays so.
    assert!(client.write(&[1]).await.is_err() && client.read(&mut [0; 1]).await.is_err());
}

#[tokio::test]
async fn a_client_that_stalls_delays_no_other_one() {
    let peer = peer();
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0").unwrap());
    let addr = acceptor.local_addr().unwrap();
    let mut stalled = stalled(addr).await;
    let accepts = async {
        // Without the first stream, an error: the handshake of the other client has failed.
        let mut server = acceptor.accept().await.unwrap();
        server.write_all(b"hello").await.unwrap();
        server.shutdown().await.unwrap();
        server
    };
    let connects = async {
        let mut reply = [0; 20];
        stalled.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[..16], *b"MPA ID Rep Frame");
        let mut client = Stream::connect(&peer, addr).await.unwrap();
        let mut seen = String::new();
        client.read_to_string(&mut seen).await.unwrap();
        seen
    };
    let (_server, seen) = in_time(async { tokio::join!(accepts, connects) }).await;
    assert_eq!(seen, "hello");
    // What has become of the other one is reported, too.
    drop(stalled);
    in_time(acceptor.accept()).await.unwrap_err();
}

#[tokio::test]
async fn a_handshake_goes_on_when_accepting_is_cancelled() {
    let peer = peer();
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0").unwrap());
    let mut client = stalled(acceptor.local_addr().unwrap()).await;
    let mut reply = [0; 20];
    let mut read = std::pin::pin!(client.read_exact(&mut reply));
    let replied = async {
        // Each of these futures is polled once, and dropped.
        while timeout(Duration::from_millis(1), &mut read).await.is_err() {
            assert!(timeout(Duration::ZERO, acceptor.accept()).await.is_err());
        }
    };
    in_time(replied).await;
    assert_eq!(reply[..16], *b"MPA ID Rep Frame");
    // The first message: an RDMA write without data, of DDP and RDMAP version 1, without CRC.
    let mut message = vec![0, 14, 0xc1, 0x40];
    message.extend([0; 16]);
    client.write_all(&message).await.unwrap();
    in_time(acceptor.accept()).await.unwrap();
}

/// Tasks that wait at the same time, of which those that the acceptor polled last are cancelled.
#[tokio::test]
async fn several_tasks_accept_at_once() {
    let peer = peer();
    let acceptor = std::sync::Arc::new(Acceptor::new(peer.listen("127.0.0.1:0").unwrap()));
    let addr = acceptor.local_addr().unwrap();
    let mut tasks: Vec<_> = (0..4)
        .map(|_| {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept().await })
        })
        .collect();
    let mut first = stalled(addr).await;
    first.read_exact(&mut [0; 20]).await.unwrap();
    tasks.drain(2..).for_each(|task| task.abort());
    let (one, two) = tokio::join!(Stream::connect(&peer, addr), Stream::connect(&peer, addr));
    let _clients = (one.unwrap(), two.unwrap());
    for task in tasks {
        in_time(task).await.unwrap().unwrap();
    }
}
