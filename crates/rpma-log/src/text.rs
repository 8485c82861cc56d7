// SPDX-License-Identifier: BSD-3-Clause
//! Text without allocation: of bounded length, from bytes that may be invalid UTF-8, from type names.

use std::ffi::CStr;
use std::fmt::{self, Write};

/// The name of the function that contains an item with this `type_name`.
pub fn function_of(item: &'static str) -> &'static str {
    let mut parts = item.rsplit("::").skip(1).filter(|part| !part.starts_with('{'));
    parts.next().unwrap_or(item)
}

/// A C string from a literal that ends with NUL; evaluated at compile time.
pub const fn c_literal(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a literal with exactly one NUL, at its end"),
    }
}

/// Displays bytes as text in messages, replacing invalid UTF-8. Allocates nothing.
#[derive(Clone, Copy)]
pub struct Lossy<'a>(pub &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

/// Text of bounded length, always a valid C string; longer text is truncated.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// The text without the terminator.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text with the terminator.
    pub fn as_c_str(&self) -> &CStr {
        // There is always a NUL: push leaves the last byte alone.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    fn push(&mut self, more: &[u8], keep_free: usize) {
        let n = more.len().min((self.room() + 1).saturating_sub(keep_free));
        self.bytes[self.len..self.len + n].copy_from_slice(&more[..n]);
        self.len += n;
    }

    /// How many more bytes fit.
    pub fn room(&self) -> usize {
        N.saturating_sub(2 + self.len)
    }

    /// Appends a newline, for which `write_str` has reserved space.
    pub fn end_line(&mut self) {
        self.push(b"\n", 0);
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes(), 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_the_last_named_part() {
        assert_eq!(function_of("rpma::capi::mr::rpma_mr_reg::here"), "rpma_mr_reg");
        assert_eq!(function_of("rpma::core::mr::reg::{{closure}}::here"), "reg");
    }

    #[test]
    fn long_text_is_cut_and_still_ends_its_line() {
        let mut t = Text::<8>::new();
        t.write_str("0123456789").unwrap();
        t.end_line();
        assert_eq!(t.as_bytes(), b"012345\n");
        assert_eq!(t.as_c_str().to_bytes(), b"012345\n");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(Lossy(b"a\xff\xfeb").to_string(), "a\u{fffd}\u{fffd}b");
        assert_eq!(Lossy("\u{e4}".as_bytes()).to_string(), "\u{e4}");
    }
}
