// SPDX-License-Identifier: BSD-3-Clause
//! Finds the comments of Rust and C source, not those in strings.

use std::ops::Range;

use crate::Kind;

/// The byte ranges of all comments, without the line feed that ends a line comment.
pub(crate) fn comments(text: &str, kind: Kind) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let len = match rest {
            [b'/', b'/', ..] => line(rest),
            [b'/', b'*', ..] => block(rest, kind == Kind::Rust),
            [b'"', ..] => quoted(rest, b'"'),
            [b'\'', ..] => character(rest, kind),
            [b'r', b'"' | b'#', ..] if kind == Kind::Rust && !follows_word(bytes, at) => raw(rest),
            _ => 1,
        };
        if rest.starts_with(b"//") || rest.starts_with(b"/*") {
            found.push(at..at + len);
        }
        at += len;
    }
    found
}

fn line(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// A block comment; in Rust it can contain others.
fn block(rest: &[u8], nests: bool) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else if rest[at..].starts_with(b"/*") && (nests || depth == 0) {
            depth += 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character, or the quote of a lifetime.
fn character(rest: &[u8], kind: Kind) -> usize {
    let is_lifetime = kind == Kind::Rust
        && rest.get(1).is_some_and(|&byte| byte.is_ascii_alphabetic() || byte == b'_')
        && rest.get(2) != Some(&b'\'');
    if is_lifetime { 1 } else { quoted(rest, b'\'') }
}

/// A raw string, or an identifier such as `r#type`.
fn raw(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 1;
    }
    let end: Vec<u8> = [b'"'].into_iter().chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = 2 + hashes;
    let len = rest[body..].windows(end.len()).position(|window| window == end);
    len.map_or(rest.len(), |len| body + len + end.len())
}

/// `r` is the end of a longer word; `br` and `cr` begin raw strings, too.
fn follows_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let word = bytes[..at].iter().rev().take_while(|byte| is_word(byte)).count();
    word > 0 && !matches!(&bytes[at - word..at], b"b" | b"c")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, kind: Kind) -> Vec<&str> {
        comments(text, kind).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn comments_are_found() {
        assert_eq!(found("a; // b\n/* c\n */ d // e", Kind::C), ["// b", "/* c\n */", "// e"]);
        assert_eq!(found("/* a /* b */ c */ d", Kind::Rust), ["/* a /* b */ c */"]);
        assert_eq!(found("/* a /* b */ c */ d", Kind::C), ["/* a /* b */"]);
    }

    #[test]
    fn strings_have_none() {
        assert_eq!(found(r#"x("http://a", '"'); // b"#, Kind::C), ["// b"]);
        assert_eq!(found("x(r#\"a\" // b\"#, br\"//\", '\\'', b'/'); // c", Kind::Rust), ["// c"]);
        assert_eq!(found("fn f<'a>(x: &'a str) { } // \" 'b", Kind::Rust), ["// \" 'b"]);
        assert_eq!(found("let r#type = number\"// a\"; // b", Kind::Rust), ["// b"]);
    }
}
