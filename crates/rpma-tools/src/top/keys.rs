// SPDX-License-Identifier: BSD-3-Clause
//! Keys, as a terminal sends them.

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Help,
    Enter,
    /// Back to the table.
    Back,
    /// To the other table.
    Other,
    Up,
    Down,
    PageUp,
    PageDown,
    Sort,
    Reverse,
    /// Ctrl-Z.
    Stop,
}

/// The keys in some input. A sequence that ends with the input, or that has no meaning, is left out.
pub(super) fn parse(mut input: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = input.split_first() {
        input = rest;
        keys.extend(match first {
            b'q' | b'Q' => Some(Key::Quit),
            b'?' | b'h' => Some(Key::Help),
            b'\r' | b'\n' => Some(Key::Enter),
            b'\t' => Some(Key::Other),
            b'k' => Some(Key::Up),
            b'j' => Some(Key::Down),
            b's' => Some(Key::Sort),
            b'r' => Some(Key::Reverse),
            0x1a => Some(Key::Stop),
            0x08 | 0x7f => Some(Key::Back),
            0x1b => {
                // ESC [ or ESC O, parameters, and a final byte; ESC alone is the key.
                let Some((b'[' | b'O', after)) = rest.split_first() else {
                    keys.push(Key::Back);
                    continue;
                };
                let end = after.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let Some(end) = end else { return keys };
                input = &after[end + 1..];
                match &after[..=end] {
                    b"A" => Some(Key::Up),
                    b"B" => Some(Key::Down),
                    b"5~" => Some(Key::PageUp),
                    b"6~" => Some(Key::PageDown),
                    _ => None,
                }
            }
            _ => None,
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_sequences() {
        for (input, keys) in [
            (&b"q"[..], &[Key::Quit][..]),
            (b"?\rs", &[Key::Help, Key::Enter, Key::Sort]),
            (b"\x1b[A\x1bOB\x1b[5~\x1b[6~k", &[Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Up]),
            (b"\x1b", &[Key::Back]),
            (b"\x1bq", &[Key::Back, Key::Quit]),
            (b"\x1b[1;5Cq", &[Key::Quit]),
            (b"\x1b[1;", &[]),
            (b"\xc3\xa4x\0", &[]),
            (b"\x1a\t\x7f", &[Key::Stop, Key::Other, Key::Back]),
        ] {
            assert_eq!(parse(input), keys, "{input:?}");
        }
    }
}
