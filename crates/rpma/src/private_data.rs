// SPDX-License-Identifier: BSD-3-Clause
//! The private data of a connection: what one side offers, and its program's own bytes.

#![forbid(unsafe_code)]

use crate::error::{Error, ErrorKind, Result};
use crate::exposed::Offer;
use crate::remote::Remote;

/// The first byte, by which private data of this crate are recognized: a program in C may send any bytes.
const MARK: u8 = 0xa7;

/// A byte each for the mark, the number of offers and the number of the program's own bytes; the offers; the
/// own bytes. RoCE appends zeros up to a fixed length.
pub(crate) fn encode(offers: &[Offer], own: &[u8]) -> Result<Vec<u8>> {
    let too_long = || {
        Error::new(
            ErrorKind::Invalid,
            format_args!("{} offers and {} bytes do not fit into 255 bytes", offers.len(), own.len()),
        )
    };
    let len = |bytes: usize| u8::try_from(bytes).map_err(|_| too_long());
    let mut bytes = vec![MARK, len(offers.len())?, len(own.len())?];
    bytes.extend(offers.iter().flat_map(Offer::to_bytes));
    bytes.extend(own);
    len(bytes.len())?;
    Ok(bytes)
}

/// The memory that was offered, and the program's own bytes: all of them if the peer is no program of this
/// crate.
pub(crate) fn decode(bytes: &[u8]) -> (Vec<Remote>, &[u8]) {
    let parsed = || {
        let [MARK, count, own_len, rest @ ..] = bytes else { return None };
        let (offers, rest) = rest.split_at_checked(usize::from(*count) * Offer::SIZE)?;
        let remotes = offers.chunks_exact(Offer::SIZE).map(|offer| Remote::from_bytes(offer).ok());
        Some((remotes.collect::<Option<Vec<_>>>()?, rest.get(..usize::from(*own_len))?))
    };
    parsed().unwrap_or((Vec::new(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpma_core::descriptor::Descriptor;

    #[test]
    fn private_data_of_others_is_theirs() {
        for bytes in [
            &[][..],
            b"hello",
            &[0xa7],
            &[0xa7, 1, 2],
            &[0xa7, 255, 0],
            &[0xa7, 0, 1],
            &[&[0xa7, 1, 0][..], &[0; 22]].concat(),
        ] {
            let (remotes, own) = decode(bytes);
            assert!(remotes.is_empty() && own == bytes, "{bytes:?}");
        }
        let mut offer = Descriptor { addr: 0x1000, size: 64, rkey: 7, usage: 9 }.encode().to_vec();
        offer.push(1);
        let bytes = [&[0xa7, 1, 3][..], &offer, b"own", &[0; 30]].concat();
        let (remotes, own) = decode(&bytes);
        assert!(remotes[0].is_durable() && remotes[0].len() == 64 && own == b"own");
    }
}
