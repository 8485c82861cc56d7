// SPDX-License-Identifier: BSD-3-Clause
//! What programs get from a peer and hand to the library: descriptors of memory regions, peer configurations,
//! private data.
#![no_main]

mod random;

use libfuzzer_sys::fuzz_target;
use std::sync::Once;

use transport::iwarp::wire::mpa::{self, Decoded, Enhanced, Frame, Kind};
use rpma_core::descriptor::{self, Descriptor};
use rpma_core::error::Error;
use rpma_core::mr::MrRemote;
use rpma_core::peer_cfg::PeerCfg;
use rpma_core::private_data::PrivateData;

fuzz_target!(|bytes: &[u8]| {
    static QUIET: Once = Once::new();
    QUIET.call_once(rpma_core::log::switch_off);
    region(bytes);
    // At any alignment.
    if let Some((_, rest)) = bytes.split_first() {
        region(rest);
    }
    peer_configuration(bytes);
    private_data(bytes);
    in_a_handshake(bytes);
});

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn region(bytes: &[u8]) {
    let decoded = Descriptor::decode(bytes);
    let remote = MrRemote::from_descriptor(bytes);
    let valid = bytes.len() >= descriptor::SIZE && {
        let (addr, size) = (le(&bytes[..8]), le(&bytes[8..16]));
        bytes[20] != 0 && (size == 0 || u128::from(addr) + u128::from(size) <= 1 << 64)
    };
    assert_eq!(decoded.is_ok(), valid);
    match remote {
        Ok(remote) => {
            assert!(valid);
            let (addr, size, rkey) = (le(&bytes[..8]), le(&bytes[8..16]), le(&bytes[16..20]));
            assert_eq!((remote.size() as u64, u64::from(remote.rkey())), (size, rkey));
            assert_eq!(remote.flush_type(), i32::from(bytes[20] & 0x30));
            for offset in [0, 1, size / 2, size.saturating_sub(1)] {
                assert_eq!(remote.addr(offset as usize), addr.wrapping_add(offset));
            }
            let decoded = decoded.expect("a valid descriptor");
            assert_eq!(decoded.encode(), bytes[..descriptor::SIZE]);
        }
        Err(error) => assert!(!valid && error == Error::Inval),
    }
}

fn peer_configuration(bytes: &[u8]) {
    match (PeerCfg::from_descriptor(bytes), bytes.first()) {
        (Ok(cfg), Some(first)) => {
            assert_eq!(cfg.direct_write_to_pmem(), *first != 0);
            assert_eq!(cfg.descriptor(), [u8::from(*first != 0)]);
            let again = PeerCfg::from_descriptor(&cfg.descriptor()).expect("a descriptor of our own");
            assert_eq!(again.descriptor(), cfg.descriptor());
        }
        (Err(error), None) => assert_eq!(error, Error::Inval),
        (result, first) => panic!("{first:?} gives {result:?}"),
    }
}

fn private_data(bytes: &[u8]) {
    let len = bytes.len().min(255) as u8;
    // SAFETY: as many bytes are readable.
    let copy = unsafe { PrivateData::copy((bytes.as_ptr().cast(), len)) }.expect("memory for 255 bytes");
    let view = copy.view();
    assert_eq!(view.len, len);
    assert_eq!(view.ptr.is_null(), len == 0);
    if len > 0 {
        // SAFETY: the view of a copy that is still there.
        let seen = unsafe { std::slice::from_raw_parts(view.ptr.cast::<u8>(), len.into()) };
        assert_eq!(seen, &bytes[..usize::from(len)]);
        // SAFETY: C programs may write there.
        unsafe { view.ptr.cast::<u8>().write(!bytes[0]) };
    }
}

/// Private data of up to 508 bytes come out of a handshake as they went in.
fn in_a_handshake(bytes: &[u8]) {
    let Some((&flags, data)) = bytes.split_first() else { return };
    let frame = Frame {
        kind: if flags & 1 != 0 { Kind::Request } else { Kind::Reply },
        markers: flags & 2 != 0,
        crc: flags & 4 != 0,
        reject: flags & 9 == 8,
        revision: 1 + (flags >> 4 & 1),
        enhanced: (flags & 0x30 == 0x30).then(Enhanced::default),
    };
    let mut out = Vec::new();
    let most = mpa::MAX_PRIVATE_DATA - if frame.enhanced.is_some() { mpa::ENHANCED_LEN } else { 0 };
    match mpa::encode(&frame, data, &mut out) {
        Ok(()) => {
            assert!(data.len() <= most);
            let consumed = out.len();
            assert_eq!(
                mpa::decode(frame.kind, &out),
                Ok(Decoded::Frame { frame, private_data: data, consumed })
            );
        }
        Err(_) => assert!(data.len() > most && out.is_empty()),
    }
}
