// SPDX-License-Identifier: BSD-3-Clause
//! The environment, read in one place.
//!
//! | variable | values | default | meaning |
//! |---|---|---|---|
//! | `RPMA_PROVIDER` | `auto`, `rdma-core`, `soft` | `auto` | the provider that `rpma_utils_get_ibv_context` selects |
//! | `RPMA_LOG` | a level, optionally `stderr`, `syslog` or a path, and optionally `json`, in any order, separated by commas | none | what is logged, and where, until the program changes it; [`rpma_log`] reads it |
//! | `RPMA_METRICS` | `unix:PATH`, `file:PATH,SECONDS` | none | where the counters of the process are served; [`rpma_metrics`] reads it |
//! | `RPMA_NATIVE` | some of `atomic-write`, `flush`, `flush-visibility`, `flush-persistent`, separated by commas | none | the operations that the connections of a peer execute natively if the device supports them |

use std::ffi::CStr;
use std::fmt::{self, Write};

use rpma_log::text::{Lossy, Text};
use rpma_log::value_of;

/// The provider that the user selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderChoice {
    /// An RDMA device if one serves the address, otherwise software.
    Auto,
    /// libibverbs and librdmacm only.
    RdmaCore,
    /// Software only.
    Soft,
}

/// The valid values, for messages.
const PROVIDER_VALUES: &str = "auto, rdma-core, soft";

/// A value as shown in messages, possibly truncated.
pub(crate) type Shown = Text<64>;

/// Operations that newer devices support natively; on others they are executed as reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeOps {
    /// The write of 8 bytes.
    pub atomic_write: bool,
    /// The flush to visibility.
    pub flush_visibility: bool,
    /// The flush to persistence.
    pub flush_persistent: bool,
}

/// The valid words, for messages.
pub(crate) const NATIVE_WORDS: &str = "atomic-write, flush, flush-visibility, flush-persistent";

/// Displays the operations as the words of `RPMA_NATIVE`.
impl fmt::Display for NativeOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { atomic_write, flush_visibility, flush_persistent } = *self;
        let words = [
            (atomic_write, "atomic-write"),
            (flush_visibility, "flush-visibility"),
            (flush_persistent, "flush-persistent"),
        ];
        let mut between = "";
        for (_, word) in words.into_iter().filter(|(is, _)| *is) {
            write!(f, "{between}{word}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// The value of `RPMA_PROVIDER`. An invalid one is logged.
pub fn provider() -> crate::error::Result<ProviderChoice> {
    value_of(c"RPMA_PROVIDER", parse_provider).map_err(|value| {
        log_error!(
            "invalid value \"{}\" of RPMA_PROVIDER; valid values: {PROVIDER_VALUES}",
            Lossy(value.as_bytes())
        );
        crate::error::Error::Provider
    })
}

/// The value of `RPMA_NATIVE`, or the invalid word in it.
pub(crate) fn native() -> Result<NativeOps, Shown> {
    value_of(c"RPMA_NATIVE", parse_native)
}

/// A text as shown in messages.
fn shown(text: &[u8]) -> Shown {
    let mut shown = Shown::new();
    // Writing to a Text never fails; what does not fit is truncated.
    let _ = write!(shown, "{}", Lossy(text));
    shown
}

fn parse_provider(value: &CStr) -> Result<ProviderChoice, Shown> {
    match value.to_bytes() {
        b"" | b"auto" => Ok(ProviderChoice::Auto),
        b"rdma-core" => Ok(ProviderChoice::RdmaCore),
        b"soft" => Ok(ProviderChoice::Soft),
        other => Err(shown(other)),
    }
}

fn parse_native(value: &CStr) -> Result<NativeOps, Shown> {
    let mut ops = NativeOps::default();
    if value.is_empty() {
        return Ok(ops);
    }
    for word in value.to_bytes().split(|byte| *byte == b',') {
        match word {
            b"atomic-write" => ops.atomic_write = true,
            b"flush-visibility" => ops.flush_visibility = true,
            b"flush-persistent" => ops.flush_persistent = true,
            b"flush" => (ops.flush_visibility, ops.flush_persistent) = (true, true),
            other => return Err(shown(other)),
        }
    }
    Ok(ops)
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

    #[test]
    fn native_words() {
        let ops = |atomic_write, flush_visibility, flush_persistent| NativeOps {
            atomic_write,
            flush_visibility,
            flush_persistent,
        };
        for (value, expected) in [
            (c"", ops(false, false, false)),
            (c"atomic-write", ops(true, false, false)),
            (c"flush-visibility", ops(false, true, false)),
            (c"flush-persistent", ops(false, false, true)),
            (c"flush", ops(false, true, true)),
            (c"flush,atomic-write", ops(true, true, true)),
            (c"flush-visibility,flush-visibility,atomic-write", ops(true, true, false)),
        ] {
            assert_eq!(parse_native(value).ok(), Some(expected), "{value:?}");
        }
        for (value, word) in [
            (c"all", "all"),
            (c"flush,", ""),
            (c",flush", ""),
            (c"flush, atomic-write", " atomic-write"),
            (c"Flush", "Flush"),
            (c"1", "1"),
        ] {
            assert_eq!(parse_native(value).err().unwrap().as_bytes(), word.as_bytes(), "{value:?}");
        }
    }
}
