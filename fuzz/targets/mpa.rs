// SPDX-License-Identifier: BSD-3-Clause
//! MPA requests and replies: every prefix of a frame has the same result or is incomplete, and a decoded
//! frame encodes to one that decodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

use transport::iwarp::wire::mpa::{self, Decoded, Kind};

fuzz_target!(|bytes: &[u8]| {
    for kind in [Kind::Request, Kind::Reply] {
        check(kind, bytes);
        // Without this the fuzzer would have to find the key first.
        let with_key = [kind.key(), bytes].concat();
        check(kind, &with_key);
    }
});

fn check(kind: Kind, bytes: &[u8]) {
    let whole = mpa::decode(kind, bytes);
    for len in 0..bytes.len().min(mpa::MAX_FRAME_LEN + 8) {
        match mpa::decode(kind, &bytes[..len]) {
            Ok(Decoded::Need(wanted)) => assert!(wanted > len && wanted <= mpa::MAX_FRAME_LEN),
            decided => assert_eq!(decided, whole),
        }
    }
    let Ok(Decoded::Frame { frame, private_data, consumed }) = whole else {
        return;
    };
    assert!(consumed <= bytes.len());
    let mut again = Vec::new();
    mpa::encode(&frame, private_data, &mut again).expect("a decoded frame can be sent");
    let expected = Decoded::Frame { frame, private_data, consumed: again.len() };
    assert_eq!(mpa::decode(kind, &again), Ok(expected));
}
