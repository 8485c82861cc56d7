// SPDX-License-Identifier: BSD-3-Clause
//! The environment, read in one place.
//!
//! | variable | values | default | what it does |
//! |---|---|---|---|
//! | `RPMA_PROVIDER` | `auto`, `rdma-core`, `soft` | `auto` | which provider `rpma_utils_get_ibv_context` asks for a device |

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

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

const PROVIDER: &str = "RPMA_PROVIDER";

/// The allowed values, for messages.
pub const PROVIDER_VALUES: &str = "auto, rdma-core, soft";

/// The value of `RPMA_PROVIDER`, or the text that is not one.
pub fn provider() -> Result<ProviderChoice, OsString> {
    parse_provider(std::env::var_os(PROVIDER).as_deref())
}

fn parse_provider(value: Option<&OsStr>) -> Result<ProviderChoice, OsString> {
    match value.map(|v| (v, v.to_str())) {
        None | Some((_, Some("" | "auto"))) => Ok(ProviderChoice::Auto),
        Some((_, Some("rdma-core"))) => Ok(ProviderChoice::RdmaCore),
        Some((_, Some("soft"))) => Ok(ProviderChoice::Soft),
        Some((other, _)) => Err(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_values() {
        let parse = |v: Option<&str>| parse_provider(v.map(OsStr::new));
        assert_eq!(parse(None), Ok(ProviderChoice::Auto));
        assert_eq!(parse(Some("")), Ok(ProviderChoice::Auto));
        assert_eq!(parse(Some("auto")), Ok(ProviderChoice::Auto));
        assert_eq!(parse(Some("rdma-core")), Ok(ProviderChoice::RdmaCore));
        assert_eq!(parse(Some("soft")), Ok(ProviderChoice::Soft));
        assert_eq!(parse(Some("Soft")), Err("Soft".into()));
        assert_eq!(parse(Some("verbs")), Err("verbs".into()));
    }
}
