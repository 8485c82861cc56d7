// SPDX-License-Identifier: BSD-3-Clause
//! From the words of a comment to roff: functions and constants in bold, parameters in italics, lines filled.

use roff::{Inline, Roff, bold, italic, roman};

use crate::header::Header;

/// Columns of a line of source.
const WIDTH: usize = 79;

/// Parameter names that are also ordinary words. They are marked as parameters only at the start of a phrase
/// or after a word of [`LEADING`].
const ORDINARY: [&str; 13] = [
    "advice",
    "event",
    "flags",
    "level",
    "offset",
    "peer",
    "port",
    "shared",
    "size",
    "supported",
    "threshold",
    "type",
    "usage",
];

/// Words after which an ordinary word is a parameter name.
const LEADING: [&str; 8] = ["", "and", "by", "if", "nor", "or", "unless", "what"];

/// The names that may occur in the text of a page.
pub(crate) struct Names<'a> {
    pub header: &'a Header,
    /// The function of the page; empty if it has none.
    pub own: &'a str,
    /// The parameters of the function, or the members of the struct, of the page.
    pub parameters: Vec<&'a str>,
}

enum Font {
    Roman,
    Bold,
    Italic,
    /// Bold, followed by the section.
    Page,
    /// Bold, followed by parentheses.
    Own,
}

impl Names<'_> {
    /// Appends the text of a paragraph, sentence by sentence.
    pub(crate) fn write(&self, text: &str, to: &mut Roff) {
        let mut line: Vec<Inline> = Vec::new();
        let mut columns = 0;
        let mut before = "";
        for word in text.split_whitespace() {
            let marked = self.word(word, before);
            let length = marked.iter().map(source_len).sum::<usize>();
            let ends_sentence = before.ends_with(['.', '?']) && word.starts_with(char::is_uppercase);
            if !line.is_empty() && (columns + 1 + length > WIDTH || ends_sentence) {
                to.text(std::mem::take(&mut line));
                columns = 0;
            }
            if !line.is_empty() {
                line.push(roman(" "));
                columns += 1;
            }
            line.extend(marked);
            columns += length;
            before = word;
        }
        if !line.is_empty() {
            to.text(line);
        }
    }

    /// A word with the punctuation around it.
    fn word(&self, word: &str, before: &str) -> Vec<Inline> {
        let core = word.trim_start_matches(['(', '"']);
        let (open, core) = word.split_at(word.len() - core.len());
        let end = core.trim_end_matches([')', '"', '.', ',', ';', ':', '?']);
        let end = end.strip_suffix("'s").unwrap_or(end).len();
        let (core, close) = core.split_at(end);
        let marked = match self.font(core, before) {
            Font::Roman => return vec![roman(word)],
            Font::Bold => vec![bold(core)],
            Font::Italic => vec![italic(core)],
            Font::Page => vec![bold(core), roman("(3)")],
            Font::Own => vec![bold(core), roman("()")],
        };
        let some = |text: &str| (!text.is_empty()).then(|| roman(text));
        some(open).into_iter().chain(marked).chain(some(close)).collect()
    }

    fn font(&self, word: &str, before: &str) -> Font {
        let leads = before.is_empty() || before.ends_with([',', ';', ':', '.']) || LEADING.contains(&before);
        if word == self.own && !word.is_empty() {
            Font::Own
        } else if self.header.function(word).is_some() {
            Font::Page
        } else if word == "NULL" || is_constant(word) {
            Font::Bold
        } else if self.parameters.contains(&word) && (leads || !ORDINARY.contains(&word)) {
            Font::Italic
        } else {
            Font::Roman
        }
    }
}

/// The number of columns of a part of a line in the source, including escapes for roff.
fn source_len(part: &Inline) -> usize {
    let (text, font) = match part {
        Inline::Roman(text) => (text.as_str(), 0),
        Inline::Bold(text) | Inline::Italic(text) => (text.as_str(), r"\fB\fR".len()),
        Inline::LineBreak => ("", 0),
    };
    let escapes = text.matches('-').count() + text.matches('\'').count() * r"\*(A".len();
    text.len() + font + escapes
}

/// Whether a word has the form of a C constant; one that stands for several ends with a star.
fn is_constant(word: &str) -> bool {
    let word = word.strip_suffix('*').unwrap_or(word);
    word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roff(text: &str) -> String {
        let header = "/** Does. */\nint rpma_do(int a);\n";
        let header = Header::parse(header).unwrap();
        let mut roff = Roff::new();
        Names { header: &header, own: "", parameters: vec!["dst", "size"] }.write(text, &mut roff);
        roff.to_roff()
    }

    #[test]
    fn names_are_marked() {
        assert_eq!(roff("with \"dst\", (see rpma_do)."), "with \"\\fIdst\\fR\", (see \\fBrpma_do\\fR(3)).\n");
        assert_eq!(roff("RPMA_MR_USAGE_*, or NULL"), "\\fBRPMA_MR_USAGE_*\\fR, or \\fBNULL\\fR\n");
        assert_eq!(roff("dst's size, size is 0"), "\\fIdst\\fR's size, \\fIsize\\fR is 0\n");
    }

    #[test]
    fn lines_are_filled_and_sentences_begin_them() {
        assert_eq!(roff("One. Two of e.g. that."), "One.\nTwo of e.g. that.\n");
        assert!(roff(&"word-s NULL's ".repeat(40)).lines().all(|line| line.len() <= WIDTH));
    }
}
