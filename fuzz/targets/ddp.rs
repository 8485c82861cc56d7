// SPDX-License-Identifier: BSD-3-Clause
//! Segment headers, message bodies and Terminate messages: what decodes, encodes to what decodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

use transport::iwarp::wire::ddp::{Header, HeaderCopy, MAX_HEADER_LEN};
use transport::iwarp::wire::inbound::check_segment;
use transport::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, ReadRequest};
use transport::iwarp::wire::terminate::Terminate;

fuzz_target!(|bytes: &[u8]| {
    let decoded = Header::decode(bytes);
    match HeaderCopy::new(bytes) {
        Some(copy) => assert_eq!(copy.decode(), decoded),
        None => assert!(decoded.is_err()),
    }
    match decoded {
        Ok(header) => {
            let mut out = [0; MAX_HEADER_LEN];
            let len = header.encode(&mut out);
            assert_eq!(Header::decode(&out[..len]), Ok(header));
            assert_eq!(HeaderCopy::from(&header).as_bytes(), &out[..len]);
            if let Err(error) = check_segment(&header, bytes.len() - len) {
                let _ = error.to_string();
            }
        }
        Err(error) => assert!(error.terminate().is_some()),
    }
    if let Some(body) = bytes.first_chunk() {
        assert_eq!(ReadRequest::decode(body).encode(), *body);
    }
    if let Some(body) = bytes.first_chunk() {
        let request = AtomicRequest::decode(body);
        assert_eq!(AtomicRequest::decode(&request.encode()), request);
    }
    if let Some(body) = bytes.first_chunk() {
        assert_eq!(AtomicResponse::decode(body).encode(), *body);
    }
    if let Ok(terminate) = Terminate::decode(bytes) {
        let _ = terminate.to_string();
        let mut out = [0; Terminate::MAX_LEN];
        let len = terminate.encode(&mut out);
        let again = Terminate::decode(&out[..len]).expect("an encoded Terminate");
        assert_eq!(again.header, terminate.header);
        assert_eq!(again.read_request, terminate.read_request);
        if terminate.header.is_some() {
            assert_eq!(again.term_code(), terminate.term_code());
        }
    }
});
