// SPDX-License-Identifier: BSD-3-Clause
//! A log in a file of another process or host, which survives a crash of either side at any time.
//!
//! ```text
//! cargo run --example log -- serve 127.0.0.1:7204 log.data
//! cargo run --example log -- append 127.0.0.1:7204 "the first record"
//! cargo run --example log -- read 127.0.0.1:7204
//! ```
//!
//! The file begins with the number of records, which is written atomically. A record is persistent before the
//! number that includes it is written, so every record that the number counts is complete. If a writer
//! crashes between the two, the record is not counted, and the next writer overwrites it. The server only
//! accepts connections; it may be killed and started again.

use std::fs::File;

use rpma::{Access, Conn, Flush, Memory, Peer, Provider, Result};

/// The number of records, in a line of its own.
const HEAD: u64 = 64;

/// The size of a record: its length in two bytes, and its text.
const RECORD: u64 = 256;

const RECORDS: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", addr, path] => serve(addr, path).await,
        ["append", addr, text] => {
            let (peer, conn) = connect(addr).await?;
            println!("record {}", append(&peer, &conn, text.as_bytes()).await?);
            conn.close().await
        }
        ["read", addr] => {
            let (peer, conn) = connect(addr).await?;
            read(&peer, &conn).await?;
            conn.close().await
        }
        _ => {
            eprintln!("usage: log serve ADDR:PORT FILE | log append ADDR:PORT TEXT | log read ADDR:PORT");
            std::process::exit(2);
        }
    }
}

async fn serve(addr: &str, path: &str) -> Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
    let peer = Peer::open(addr, Provider::from_env()?)?;
    let memory = Memory::File(file, (HEAD + RECORDS * RECORD) as usize);
    let log = peer.expose(memory, Access::READ | Access::WRITE | Access::PERSISTENT)?;
    let listener = peer.listen(addr)?;
    println!("serving {path} on {addr}");
    loop {
        let incoming = listener.accept().await?;
        let offer = log.offer();
        // A writer that fails while it connects is no reason to stop.
        tokio::spawn(async move {
            if let Ok(conn) = incoming.accept(&[offer]).await {
                conn.closed().await;
            }
        });
    }
}

async fn connect(addr: &str) -> Result<(Peer, Conn)> {
    let peer = Peer::open_to(addr, Provider::from_env()?)?;
    let conn = peer.connect(addr).await?;
    Ok((peer, conn))
}

/// The number of records.
async fn count(peer: &Peer, conn: &Conn) -> Result<u64> {
    let head = conn.read(conn.remote(0)?.slice(0..8)?, peer.buf(8)?).await?;
    Ok(u64::from_ne_bytes(head[..].try_into().unwrap_or_default()))
}

/// Appends a record; its number.
async fn append(peer: &Peer, conn: &Conn, text: &[u8]) -> Result<u64> {
    let (log, number) = (conn.remote(0)?, count(peer, conn).await?);
    let mut record = peer.buf(RECORD as usize)?;
    assert!(number < RECORDS && text.len() + 2 <= record.len(), "no room for the record");
    record[..2].copy_from_slice(&(text.len() as u16).to_le_bytes());
    record[2..2 + text.len()].copy_from_slice(text);
    let at = HEAD + number * RECORD;
    let (at, head) = (log.slice(at..at + RECORD)?, log.slice(0..8)?);
    // In this order: if one of them fails, those behind it are not executed.
    conn.batch()
        .write(record, at)
        .flush(at, Flush::Persistent)
        .store(number + 1, head)
        .flush(head, Flush::Persistent)
        .submit()
        .await?;
    Ok(number)
}

async fn read(peer: &Peer, conn: &Conn) -> Result<()> {
    let log = conn.remote(0)?;
    for number in 0..count(peer, conn).await? {
        let at = HEAD + number * RECORD;
        let record = conn.read(log.slice(at..at + RECORD)?, peer.buf(RECORD as usize)?).await?;
        let len = usize::from(u16::from_le_bytes([record[0], record[1]]));
        let text = record.get(2..2 + len).unwrap_or(b"(damaged)");
        println!("{number}: {}", String::from_utf8_lossy(text));
    }
    Ok(())
}
