// SPDX-License-Identifier: BSD-3-Clause
//! An echo service by messages, and its client.
//!
//! ```text
//! cargo run --example echo -- serve 127.0.0.1:7204
//! cargo run --example echo -- 127.0.0.1:7204 hello
//! ```

use std::time::Duration;

use rpma::{Conn, Peer, Pool, Provider, Result};

/// The longest message.
const MESSAGE: usize = 4096;

/// How many receives each side has posted.
const RECEIVES: usize = 8;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", addr] => {
            let peer = Peer::open(addr, Provider::from_env()?)?;
            let listener = peer.listen(addr)?;
            println!("serving on {addr}");
            loop {
                let incoming = listener.accept().await?;
                let peer = peer.clone();
                tokio::spawn(async move {
                    let from = incoming.peer_addr();
                    if let Err(error) = serve(&peer, incoming.accept(&[]).await).await {
                        eprintln!("{from:?}: {error}");
                    }
                });
            }
        }
        [addr, text] => {
            let peer = Peer::open_to(addr, Provider::from_env()?)?;
            let conn = peer.connect(addr).await?;
            let answer = conn.recv(peer.buf(MESSAGE)?); // posted before the question is sent
            let mut question = peer.buf(text.len())?;
            question.copy_from_slice(text.as_bytes());
            conn.send(question).await?;
            match tokio::time::timeout(Duration::from_secs(5), answer).await {
                Ok(answer) => println!("{}", String::from_utf8_lossy(answer?.message())),
                // The receive stays posted, with its buffer, until the connection ends.
                Err(_) => println!("no answer within 5 s"),
            }
            conn.close().await
        }
        _ => {
            eprintln!("usage: echo serve ADDR:PORT | echo ADDR:PORT TEXT");
            std::process::exit(2);
        }
    }
}

/// Answers each message with the same one, until the client closes the connection.
async fn serve(peer: &Peer, conn: Result<Conn>) -> Result<()> {
    let (conn, pool) = (conn?, peer.pool(MESSAGE, 2 * RECEIVES)?);
    let mut receives = std::collections::VecDeque::new();
    for _ in 0..RECEIVES {
        receives.push_back(receive(&conn, &pool).await);
    }
    while let Some(receive_first) = receives.pop_front() {
        let Ok(mut received) = receive_first.await else { break };
        receives.push_back(receive(&conn, &pool).await);
        let answer = received.buf.split_to(received.len);
        conn.send(answer).detach(); // the buffer returns to the pool when the message is sent
    }
    Ok(())
}

async fn receive(conn: &Conn, pool: &Pool) -> rpma::Op<rpma::Received> {
    conn.recv(pool.take().await)
}
