// SPDX-License-Identifier: BSD-3-Clause
//! Connections with faults: what operations return, and that any schedule of operations, cancellations and
//! faults gives all buffers back.

use std::time::Duration;

use rpma::testing::{Faults, Pair, pair};
use rpma::{Buf, Closed, ErrorKind, Flush, Op, Result};

#[test]
fn without_faults_both_ends_work() -> Result<()> {
    let Pair { client, server, memory, peer } = pair(1, Faults::none())?;
    let receive = server.recv(peer.buf(8)?);
    client.send(peer.buf(8)?).wait()?;
    assert_eq!(receive.wait()?.len, 8);
    let remote = client.remote(0)?;
    let mut buf = peer.buf(4)?;
    buf.copy_from_slice(b"data");
    client
        .batch()
        .write(buf, remote.slice(0..4)?)
        .flush(remote.slice(..)?, Flush::Visible)
        .submit()
        .wait()?;
    let mut seen = [0; 4];
    memory.copy_out(0, &mut seen)?;
    assert_eq!(&seen, b"data");
    client.wait_close()?;
    assert_eq!(server.wait_closed()?, Closed::Closed);
    Ok(())
}

/// The operation that is cut off and those behind it say that the connection was lost, and why; both ends do.
#[test]
fn a_loss_and_its_cause() -> Result<()> {
    let Pair { client, server, peer, memory: _memory } = pair(1, Faults::none().client("peer:kill@op=3"))?;
    let receive = server.recv(peer.buf(8)?);
    let at = client.remote(0)?.slice(0..8)?;
    let mut writes = Vec::new();
    for _ in 0..5 {
        writes.push(client.write(peer.buf(8)?, at));
    }
    let results: Vec<_> = writes.into_iter().map(Op::wait).collect();
    for (number, result) in results.into_iter().enumerate() {
        if number < 2 {
            result?;
            continue;
        }
        let failed = result.unwrap_err();
        assert_eq!((failed.error.kind(), failed.buf.len()), (ErrorKind::Lost, 8), "write {number}");
        let text = failed.error.to_string();
        assert!(text.contains("Conn::write") && text.contains("lost"), "{text}");
    }
    assert_eq!(client.wait_closed()?, Closed::Lost);
    let later = client.write(peer.buf(8)?, at).wait().unwrap_err();
    assert_eq!(later.error.kind(), ErrorKind::Lost);
    let failed = receive.wait().unwrap_err();
    let (kind, how) = (failed.error.kind(), server.wait_closed()?);
    // Over RoCE the peer of a cut connection may get Closed instead of Lost.
    if std::env::var_os("SOFTVERBS_TRANSPORT").is_none_or(|name| name != "roce") {
        assert_eq!((kind, how, failed.buf.len()), (ErrorKind::Lost, Closed::Lost, 8), "{}", failed.error);
    }
    Ok(())
}

#[test]
fn a_request_that_fails_is_the_cause_of_those_behind_it() -> Result<()> {
    let pair = pair(1, Faults::none().client("wc:RETRY_EXC@n=2"))?;
    let (client, peer) = (&pair.client, &pair.peer);
    let at = client.remote(0)?.slice(0..8)?;
    let writes = [0; 4].map(|_| client.write(peer.buf(8).unwrap(), at));
    let [first, second, third, fourth] = writes.map(Op::wait);
    first?;
    for failed in [second, third, fourth] {
        let error = failed.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains("retry"), "{error}");
    }
    Ok(())
}

#[test]
fn the_same_seed_has_the_same_faults() -> Result<()> {
    let run = |seed| -> Result<usize> {
        let pair = pair(seed, Faults::none().client("wc:GENERAL@p=0.02"))?;
        let (client, peer) = (&pair.client, &pair.peer);
        let at = client.remote(0)?.slice(0..8)?;
        let mut buf = peer.buf(8)?;
        for number in 0..1000 {
            buf = match client.write(buf, at).wait() {
                Ok(buf) => buf,
                Err(_) => return Ok(number),
            };
        }
        Ok(1000)
    };
    let seeds: Vec<_> = (0..10).map(run).collect::<Result<_>>()?;
    assert_eq!(seeds, (0..10).map(run).collect::<Result<Vec<_>>>()?);
    assert!(seeds.iter().any(|first| *first != seeds[0]), "{seeds:?}");
    Ok(())
}

#[test]
fn a_connection_that_is_refused_and_rules_that_are_wrong() {
    for (rule, kind) in [
        ("connect:reject@n=1", ErrorKind::Rejected),
        ("connect:timeout@n=1", ErrorKind::Unreachable),
        ("write:slow@n=1", ErrorKind::Invalid),
        ("accept:reject@n=1", ErrorKind::Invalid),
    ] {
        assert_eq!(pair(1, Faults::none().client(rule)).unwrap_err().kind(), kind, "{rule}");
    }
    let error = pair(1, Faults::none().server("msync:EIO@n=1")).unwrap_err();
    assert!(error.to_string().contains("server"), "{error}");
}

/// A number from a seed (splitmix64).
fn below(seed: &mut u64, end: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % end as u64) as usize
}

/// What every write and its place contain, so that a buffer which is reused too early shows.
fn filled(mut buf: Buf, number: usize) -> Buf {
    buf.fill(number as u8);
    buf
}

/// Writes, reads and messages that are awaited, cancelled after a while or dropped at once, under faults.
/// Afterwards all buffers are back, and each operation that was complete had its effect.
async fn schedule(seed: u64) -> Result<()> {
    const BLOCK: u64 = 64;
    let seed_of_pair = seed;
    let seed = &mut seed.clone();
    let faults = match below(seed, 5) {
        0 => Faults::none(),
        1 => Faults::none().client(&format!("peer:kill@op={}", 1 + below(seed, 60))),
        2 => Faults::none().client(&format!("wc:REM_OP@n={}", 1 + below(seed, 60))),
        3 => Faults::none().server(&format!("peer:kill@op={}", 1 + below(seed, 20))),
        _ => Faults::none().client("write:delay=200us@p=0.1; read:delay=100us@p=0.1"),
    };
    let Pair { client, server, memory, peer } = pair(seed_of_pair, faults)?;
    let (remote, pool) = (client.remote(0)?, peer.pool(BLOCK as usize, 24)?);
    let mut receives = Vec::new();
    for number in 0..60 {
        let Some(buf) = pool.try_take() else {
            tokio::task::yield_now().await;
            continue;
        };
        let place = remote.slice(BLOCK * number..BLOCK * (number + 1))?;
        let mut op = match below(seed, 6) {
            0 | 1 => client.write(filled(buf, number as usize), place),
            2 => client.read(place, buf),
            3 => client.send(buf),
            4 => {
                receives.push(server.recv(buf));
                continue;
            }
            _ => server.send(buf),
        };
        match below(seed, 4) {
            // One of a few is complete meanwhile.
            0 => drop(tokio::time::timeout(Duration::from_micros(50), &mut op).await),
            1 => op.detach(),
            2 => drop(op),
            // A message may wait for a receive that nobody posts.
            _ => {
                let _ = tokio::time::timeout(Duration::from_millis(2), &mut op).await;
            }
        }
        if below(seed, 8) == 0 {
            receives.pop();
        }
    }
    // One write that is awaited: what is complete is there.
    if let Some(buf) = pool.try_take() {
        let place = remote.slice(0..BLOCK)?;
        let write =
            tokio::time::timeout(Duration::from_millis(5), client.write(filled(buf, 255), place)).await;
        if let Ok(Ok(buf)) = write {
            let flush = client.flush(place, Flush::Visible);
            if let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(5), flush).await {
                let mut seen = [0; BLOCK as usize];
                memory.copy_out(0, &mut seen)?;
                assert_eq!(seen[..], buf[..]);
            }
        }
    }
    drop((client, server, receives));
    let mut back = Vec::new();
    for _ in 0..24 {
        back.push(pool.try_take().unwrap_or_else(|| panic!("{} of 24 buffers are back", back.len())));
    }
    Ok(())
}

#[tokio::test]
async fn any_schedule_of_cancellation_and_faults() -> Result<()> {
    for seed in 0..100 {
        println!("seed {seed}");
        schedule(seed).await?;
    }
    Ok(())
}
