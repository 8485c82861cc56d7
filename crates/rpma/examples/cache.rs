// SPDX-License-Identifier: BSD-3-Clause
//! A key-value cache that many clients read without the server's processor.
//!
//! ```text
//! cargo run --example cache -- serve 127.0.0.1:7204 color=blue fruit=apple
//! cargo run --example cache -- 127.0.0.1:7204 color
//! ```
//!
//! The server exposes an array of slots; the hash of a key selects its slot. It changes values at any time:
//! the version of a slot is odd meanwhile and larger afterwards, so that a client that reads a slot during a
//! change detects it, and reads again (a sequence lock).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rpma::{Access, Conn, Exposed, Peer, Pool, Provider, Result};

/// A slot: a version of 8 bytes, the lengths of key and value in 2 bytes each, both, and the version again.
/// Both versions are odd while the data between them changes, so a read that goes through the slot in either
/// direction detects the change. A device may read in another order: for such a one, add a checksum.
const SLOT: usize = 128;
const SLOTS: usize = 1024;
const ROOM: usize = SLOT - 8 - 4 - 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", addr, ref pairs @ ..] => {
            let peer = Peer::open(addr, Provider::from_env()?)?;
            let cache = peer.expose(SLOT * SLOTS, Access::READ)?;
            for (key, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
                put(&cache, key, value.as_bytes())?;
            }
            serve(&peer, &cache, addr).await
        }
        [addr, key] => {
            let peer = Peer::open_to(addr, Provider::from_env()?)?;
            let conn = peer.connect(addr).await?;
            match get(&conn, &peer.pool(SLOT, 4)?, key).await? {
                Some(value) => println!("{}", String::from_utf8_lossy(&value)),
                None => println!("(no value)"),
            }
            conn.close().await
        }
        _ => {
            eprintln!("usage: cache serve ADDR:PORT KEY=VALUE... | cache ADDR:PORT KEY");
            std::process::exit(2);
        }
    }
}

async fn serve(peer: &Peer, cache: &Exposed, addr: &str) -> Result<()> {
    let listener = peer.listen(addr)?;
    println!("serving on {addr}");
    let mut seconds = 0_u64;
    loop {
        tokio::select! {
            incoming = listener.accept() => {
                let (incoming, offer) = (incoming?, cache.offer());
                tokio::spawn(async move {
                    if let Ok(conn) = incoming.accept(&[offer]).await {
                        conn.closed().await;
                    }
                });
            }
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                seconds += 1;
                put(cache, "seconds", seconds.to_string().as_bytes())?;
            }
        }
    }
}

/// The offset of a key's slot. A key replaces another one in the same slot: this is a cache.
fn place(key: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % SLOTS * SLOT
}

/// Sets a value. Only one task may call it.
fn put(cache: &Exposed, key: &str, value: &[u8]) -> Result<()> {
    assert!(key.len() + value.len() <= ROOM, "key and value of at most {ROOM} bytes");
    let at = place(key);
    let (first, last) = (cache.word(at)?, cache.word(at + SLOT - 8)?);
    let version = first.load(Ordering::Relaxed);
    first.store(version + 1, Ordering::Relaxed);
    last.store(version + 1, Ordering::Relaxed);
    fence(Ordering::Release);
    cache.copy_in(at + 8, &(key.len() as u16).to_le_bytes())?;
    cache.copy_in(at + 10, &(value.len() as u16).to_le_bytes())?;
    cache.copy_in(at + 12, key.as_bytes())?;
    cache.copy_in(at + 12 + key.len(), value)?;
    last.store(version + 2, Ordering::Release);
    first.store(version + 2, Ordering::Release);
    Ok(())
}

/// The value of a key, read from the server's memory.
async fn get(conn: &Conn, pool: &Pool, key: &str) -> Result<Option<Vec<u8>>> {
    let at = place(key) as u64;
    loop {
        let slot = conn.read(conn.remote(0)?.slice(at..at + SLOT as u64)?, pool.take().await).await?;
        let version = |at: usize| slot[at..at + 8].try_into().map(u64::from_ne_bytes).unwrap_or_default();
        if version(0) % 2 == 1 || version(0) != version(SLOT - 8) {
            continue; // it is being changed
        }
        let len = |at: usize| usize::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
        let (key_len, value_len) = (len(8), len(10));
        let found = slot.get(12..12 + key_len) == Some(key.as_bytes());
        return Ok(slot.get(12 + key_len..12 + key_len + value_len).filter(|_| found).map(<[u8]>::to_vec));
    }
}
