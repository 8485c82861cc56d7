// SPDX-License-Identifier: BSD-3-Clause
//! The environment, read in one place.
//!
//! | variable | values | default | meaning |
//! |---|---|---|---|
//! | `RPMA_PROVIDER` | `auto`, `rdma-core`, `soft` | `auto` | the provider that `rpma_utils_get_ibv_context` selects |
//! | `RPMA_NATIVE` | some of `atomic-write`, `flush`, `flush-visibility`, `flush-persistent`, with commas between | none | the operations that the connections of a peer execute natively if the device supports them |

use std::ffi::CStr;
use std::fmt::{self, Write};

use crate::log::{Lossy, Text};

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
pub const PROVIDER_VALUES: &str = "auto, rdma-core, soft";

/// A value as shown in messages, possibly truncated.
pub type Shown = Text<64>;

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
pub const NATIVE_WORDS: &str = "atomic-write, flush, flush-visibility, flush-persistent";

/// The operations in the words of `RPMA_NATIVE`.
impl fmt::Display for NativeOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NativeOps { atomic_write, flush_visibility, flush_persistent } = *self;
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

/// Passes the value of a variable, or an empty string if it is not set, to `parse`.
fn value_of<T>(name: &CStr, parse: impl FnOnce(&CStr) -> T) -> T {
    // Not through std, which would allocate.
    // SAFETY: the name is a C string. The value stays as it is until someone changes the environment, which a
    // program with several threads must not do while this library looks at it.
    parse(unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() { c"" } else { CStr::from_ptr(value) }
    })
}

/// The value of `RPMA_PROVIDER`, or the invalid text.
pub fn provider() -> Result<ProviderChoice, Shown> {
    value_of(c"RPMA_PROVIDER", parse_provider)
}

/// The value of `RPMA_NATIVE`, or the invalid word in it.
pub fn native() -> Result<NativeOps, Shown> {
    value_of(c"RPMA_NATIVE", parse_native)
}

/// A text as shown in messages.
fn shown(text: &[u8]) -> Shown {
    let mut shown = Shown::new();
    // Text never fails; what does not fit is cut.
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
