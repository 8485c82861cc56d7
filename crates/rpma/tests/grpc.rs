// SPDX-License-Identifier: BSD-3-Clause
//! gRPC by tonic over `rpma::stream`, with a service that is written by hand: messages are bytes.
#![cfg(feature = "stream")]

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut};
use futures_lite::{Stream as Items, StreamExt, stream};
use hyper_util::rt::TokioIo;
use rpma::stream::{Acceptor, Stream};
use rpma::testing::{Faults, streams};
use rpma::{Peer, Provider};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;

/// A codec of messages that are bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

const ONE: PathAndQuery = PathAndQuery::from_static("/test.Echo/One");
const EACH: PathAndQuery = PathAndQuery::from_static("/test.Echo/Each");
const MISSING: PathAndQuery = PathAndQuery::from_static("/test.Echo/Missing");

/// A service that returns what it gets: one message, or each of a stream.
#[derive(Clone)]
struct Echo;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw);
            let path = request.uri().path().to_owned();
            Ok(if path == ONE.path() {
                let one = |request: Request<Vec<u8>>| ready(Ok(Response::new(request.into_inner())));
                grpc.unary(service_fn(one), request).await
            } else if path == EACH.path() {
                let each =
                    |request: Request<Streaming<Vec<u8>>>| ready(Ok(Response::new(request.into_inner())));
                grpc.streaming(service_fn(each), request).await
            } else {
                Status::unimplemented("no such method").into_http()
            })
        })
    }
}

/// The stream of a server; a handler gets the address of the peer.
struct Io(Stream);

impl Connected for Io {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.0.peer_addr()
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, to)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A server of these streams.
fn serve(incoming: impl Items<Item = rpma::Result<Stream>> + Send + 'static) {
    let incoming = incoming.map(|stream| stream.map(Io));
    tokio::spawn(Server::builder().serve_with_incoming(Echo, incoming));
}

/// A client of a stream.
async fn client(stream: Stream) -> Grpc<Channel> {
    let mut stream = Some(TokioIo::new(stream));
    let connector =
        service_fn(move |_| ready(stream.take().ok_or(io::Error::from(io::ErrorKind::NotConnected))));
    let channel = Endpoint::from_static("http://rpma").connect_with_connector(connector).await;
    Grpc::new(channel.unwrap())
}

async fn one(client: &mut Grpc<Channel>, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    Ok(client.unary(Request::new(message), ONE, Raw).await?.into_inner())
}

/// Bytes that differ in each message.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it waits for ever")
}

#[tokio::test]
async fn messages_of_any_length() {
    let (near, far) = streams(1, Faults::none()).unwrap();
    serve(stream::once(Ok(far)));
    let mut client = in_time(client(near)).await;
    for len in [0, 1, 1000, 16 * 1024, 100_000, 3_000_000] {
        let message = bytes(len, len);
        assert!(in_time(one(&mut client, message.clone())).await.unwrap() == message, "{len} bytes");
    }
    in_time(client.ready()).await.unwrap();
    let missing = in_time(client.unary(Request::new(Vec::new()), MISSING, Raw)).await.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::Unimplemented, "no such method"));
}

/// Each answer comes before the next message is sent, so both directions are open.
#[tokio::test]
async fn a_stream_in_both_directions() {
    let (near, far) = streams(1, Faults::none()).unwrap();
    serve(stream::once(Ok(far)));
    let mut client = in_time(client(near)).await;
    in_time(client.ready()).await.unwrap();
    let (messages, from_here) = tokio::sync::mpsc::unbounded_channel();
    let outgoing = stream::unfold(from_here, async |mut from| Some((from.recv().await?, from)));
    messages.send(bytes(10, 0)).unwrap();
    let mut answers =
        in_time(client.streaming(Request::new(outgoing), EACH, Raw)).await.unwrap().into_inner();
    for number in 0..200 {
        let answer = in_time(answers.message()).await.unwrap().unwrap();
        assert!(answer == bytes(10 + 400 * number, number), "answer {number}");
        messages.send(bytes(10 + 400 * (number + 1), number + 1)).unwrap();
    }
    drop(messages);
    in_time(answers.message()).await.unwrap().unwrap();
    assert!(in_time(answers.message()).await.unwrap().is_none());
}

/// Many calls at once, on two connections to one listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time() {
    let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0").unwrap());
    let addr = acceptor.local_addr().unwrap();
    serve(stream::unfold(acceptor, async |acceptor| Some((acceptor.accept().await, acceptor))));
    let mut calls = Vec::new();
    for number in 0..2 {
        let client = in_time(client(in_time(Stream::connect(&peer, addr)).await.unwrap())).await;
        for call in 0..50 {
            let mut client = client.clone();
            calls.push(tokio::spawn(async move {
                let message = bytes(20_000, number * 50 + call);
                assert!(one(&mut client, message.clone()).await.unwrap() == message);
            }));
        }
    }
    for call in calls {
        in_time(call).await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_is_lost() {
    let (near, far) = streams(1, Faults::none().client("peer:kill@op=60")).unwrap();
    serve(stream::once(Ok(far)));
    let mut client = in_time(client(near)).await;
    let mut calls = 0;
    let lost = loop {
        match in_time(one(&mut client, bytes(100, calls))).await {
            Ok(answer) => assert!(answer == bytes(100, calls)),
            Err(lost) => break lost,
        }
        calls += 1;
    };
    assert!(calls > 5 && matches!(lost.code(), Code::Unavailable | Code::Unknown), "{calls} calls, {lost:?}");
}
