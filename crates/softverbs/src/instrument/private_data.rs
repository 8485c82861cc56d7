// SPDX-License-Identifier: BSD-3-Clause
//! The length of private data, in strict mode: InfiniBand and RoCE carry less than iWARP.
#![forbid(unsafe_code)]

use super::strict::{self, Rule, Strict};
use crate::logged::Logged;
use crate::sys::Errno;

/// A call passes more private data than an adapter carries in this message: `len` bytes, where it carries
/// `most`. A warning comes once for each kind of message. EINVAL: in adapter mode.
pub(crate) fn long_private_data(rule: Rule, len: usize, most: usize, call: &str) -> Result<(), Errno> {
    check_by(strict::mode(), rule, len, most, call)
}

fn check_by(mode: Strict, rule: Rule, len: usize, most: usize, call: &str) -> Result<(), Errno> {
    static LOGGED: Logged = Logged::new();
    if mode == Strict::Off {
        return Ok(());
    }
    strict::report(
        &LOGGED,
        mode,
        rule,
        format_args!("{len} bytes of private data; InfiniBand and RoCE carry at most {most} in this message"),
        format_args!("pass at most {most} bytes to {call}, and send the rest over the connection"),
    );
    if mode == Strict::Adapter { Err(libc::EINVAL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_adapter_mode_refuses_what_an_adapter_could_not_carry() {
        for (mode, expected) in
            [(Strict::Off, Ok(())), (Strict::Warn, Ok(())), (Strict::Adapter, Err(libc::EINVAL))]
        {
            assert_eq!(check_by(mode, Rule::RequestData, 57, 56, "rdma_connect"), expected);
        }
    }
}
