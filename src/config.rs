// SPDX-License-Identifier: BSD-3-Clause
//! The environment, read in one place.
//!
//! | variable | values | default | what it does |
//! |---|---|---|---|
//! | `RPMA_PROVIDER` | `auto`, `rdma-core`, `soft` | `auto` | which provider `rpma_utils_get_ibv_context` asks for a device |

use std::ffi::CStr;
use std::fmt::Write;

use crate::log::{Lossy, Text};

/// Which provider the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderChoice {
    /// An RDMA device where one serves the address, else software.
    Auto,
    /// libibverbs and librdmacm only.
    RdmaCore,
    /// Software only.
    Soft,
}

/// The allowed values, for messages.
pub const PROVIDER_VALUES: &str = "auto, rdma-core, soft";

/// As much of a value as a message shows.
pub type Shown = Text<64>;

/// The value of `RPMA_PROVIDER`, or the text that is not one.
pub fn provider() -> Result<ProviderChoice, Shown> {
    // Not through std, which would allocate.
    // SAFETY: the name is a C string. The value stays as it is until someone changes the environment, which a
    // program with several threads must not do while this library looks at it.
    let value = unsafe {
        let value = libc::getenv(c"RPMA_PROVIDER".as_ptr());
        if value.is_null() { c"" } else { CStr::from_ptr(value) }
    };
    parse_provider(value)
}

fn parse_provider(value: &CStr) -> Result<ProviderChoice, Shown> {
    match value.to_bytes() {
        b"" | b"auto" => Ok(ProviderChoice::Auto),
        b"rdma-core" => Ok(ProviderChoice::RdmaCore),
        b"soft" => Ok(ProviderChoice::Soft),
        other => {
            let mut shown = Shown::new();
            // Text never fails; what does not fit is cut.
            let _ = write!(shown, "{}", Lossy(other));
            Err(shown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_values() {
        for (value, choice) in [
            (c"", ProviderChoice::Auto),
            (c"auto", ProviderChoice::Auto),
            (c"rdma-core", ProviderChoice::RdmaCore),
            (c"soft", ProviderChoice::Soft),
        ] {
            assert_eq!(parse_provider(value).ok(), Some(choice), "{value:?}");
        }
        for value in [c"Soft", c"verbs", c"soft "] {
            let shown = parse_provider(value).err().unwrap();
            assert_eq!(shown.as_bytes(), value.to_bytes());
        }
    }
}
