// SPDX-License-Identifier: BSD-3-Clause
//! Levels and their names.
#![forbid(unsafe_code)]

/// The level of a message, or the least severe one that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is logged.
    Off,
    /// The library cannot go on.
    Fatal,
    /// A call or an operation has failed.
    Error,
    /// Something that may become an error.
    Warning,
    /// A normal but significant event.
    Notice,
    /// An informational message.
    Info,
    /// Detail for debugging.
    Debug,
}

/// The levels by their names in `RPMA_LOG`.
const LEVELS: [(&str, Level); 7] = [
    ("off", Level::Off),
    ("fatal", Level::Fatal),
    ("error", Level::Error),
    ("warning", Level::Warning),
    ("notice", Level::Notice),
    ("info", Level::Info),
    ("debug", Level::Debug),
];

/// The names, for messages.
pub(crate) const NAMES: &str = "off, fatal, error, warning, notice, info, debug";

impl Level {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        LEVELS[self as usize].0
    }

    /// The level with this name, in upper or lower case.
    pub(crate) fn named(word: &[u8]) -> Option<Self> {
        let found = LEVELS.into_iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
        found.map(|(_, level)| level)
    }
}

/// The name with the longest prefix in common with `word`.
pub(crate) fn nearest(word: &[u8]) -> Option<&'static str> {
    let common = |name: &str| name.bytes().zip(word).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    LEVELS.into_iter().map(|(name, _)| name).filter(|name| common(name) > 0).max_by_key(|name| common(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_name() {
        assert!(LEVELS.into_iter().all(|(name, level)| level.name() == name));
        assert_eq!(LEVELS.map(|(name, _)| name).join(", "), NAMES);
    }
}
