// SPDX-License-Identifier: BSD-3-Clause
//! The GUID of a RoCE device: random, and equal in all processes of a network namespace until reboot.
//!
//! Connection managers identify a remote queue pair by GUID and number. If two hosts had the same GUID, a
//! peer could mistake a new connection for a stale one, so the GUID is not a constant as on iWARP.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::os::unix::fs::MetadataExt;

/// The OUI at the beginning of each GUID: a locally administered one, which belongs to no vendor.
pub(crate) const OUI: [u8; 3] = [0x02, b's', b'o'];

/// The GUID in network byte order.
pub(crate) fn guid() -> u64 {
    static GUID: OnceBox<u64> = OnceBox::new();
    *GUID.get_or_init(|| Box::new(compute()))
}

/// A process that enters another network namespace keeps its GUID, as it keeps the device context.
fn compute() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok();
    let namespace = std::fs::metadata("/proc/self/ns/net").ok();
    match (boot, namespace) {
        (Some(boot), Some(namespace)) => from(&boot, namespace.dev(), namespace.ino()),
        _ => {
            log::warn!("/proc is missing, so the GUID of soft0 is that of this process alone");
            let mut random = [0; 16];
            // An error has no effect here: without random bytes no memory can be registered.
            let _ = getrandom::fill(&mut random);
            from(&random, 0, u64::from(std::process::id()))
        }
    }
}

/// The OUI, then 40 bits of a hash (FNV-1a, with the last step of splitmix64).
fn from(boot: &[u8], device: u64, inode: u64) -> u64 {
    let words = [device.to_le_bytes(), inode.to_le_bytes()];
    let bytes = boot.iter().chain(words.iter().flatten());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let [a, b, c, d, e, ..] = (hash ^ hash >> 31).to_be_bytes();
    let [x, y, z] = OUI;
    u64::from_ne_bytes([x, y, z, a, b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_boot_and_of_the_namespace() {
        let one = from(b"3f0d", 4, 4_026_531_840);
        assert_eq!(one, from(b"3f0d", 4, 4_026_531_840));
        assert_ne!(one, from(b"3f0e", 4, 4_026_531_840));
        assert_ne!(one, from(b"3f0d", 4, 4_026_531_841));
        assert_eq!(one.to_ne_bytes()[..3], OUI);
        assert_eq!(compute(), compute());
    }
}
