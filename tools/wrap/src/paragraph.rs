// SPDX-License-Identifier: BSD-3-Clause
//! Paragraphs of text without comment marks: their extent, and how they are filled.

/// Fills the paragraphs that have a line of more than `width` columns. The lines are returned as they are
/// where nothing changes.
pub(crate) fn fill(lines: &[&str], width: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut fence = None;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if let Some(mark) = fence_of(line) {
            fence = match fence {
                None => Some(mark),
                Some(open) if open == mark => None,
                open => open,
            };
        }
        let len = if fence.is_some() || stands_alone(line) { 1 } else { paragraph(&lines[at..], width) };
        let part = &lines[at..at + len];
        let can_change = fence.is_none() && !stands_alone(line);
        if can_change && part.iter().any(|line| columns(line) > width) {
            out.extend(filled(part, width));
        } else {
            out.extend(part.iter().map(|&line| line.to_owned()));
        }
        at += len;
    }
    out
}

/// The number of columns of a text.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 })
}

/// Whether a line may be too long because wrapping would change its meaning.
pub(crate) fn may_be_long(line: &str) -> bool {
    stands_alone(line) || line.split_whitespace().filter(|word| marker(word).is_none()).count() <= 1
}

/// Three or more of these characters.
pub(crate) fn fence_of(line: &str) -> Option<char> {
    ['`', '~'].into_iter().find(|&c| line.trim_start().chars().take_while(|&d| d == c).count() >= 3)
}

/// Headings, rows of tables, indented code, text aligned with several blanks, link definitions, and what
/// tools read.
fn stands_alone(line: &str) -> bool {
    let text = line.trim();
    let is_word_of = |set: &str| !text.is_empty() && text.chars().all(|c| set.contains(c));
    text.is_empty()
        || line.starts_with("    ") && marker(text.split(' ').next().unwrap_or("")).is_none()
        || line.starts_with('\t')
        || text.starts_with(['#', '|', '<', '>', '!'])
        || text.starts_with("---")
        || text.starts_with("===")
        || text.starts_with("SPDX-")
        || text.starts_with("shellcheck ")
        || text.starts_with('[') && text.contains("]: ")
        || is_word_of("-=*_")
        || has_columns(text)
        || text.contains(['│', '├', '└', '▶', '▼'])
}

/// Several blanks between words, except at the end of a sentence.
fn has_columns(text: &str) -> bool {
    let text = match text.split_once(' ') {
        Some((first, rest)) if marker(first).is_some() => rest.trim_start(),
        _ => text,
    };
    text.match_indices("  ").any(|(at, _)| !text[..at].ends_with(['.', ' ']))
}

/// The indentation of the lines that follow the first one of a list's item.
fn marker(word: &str) -> Option<usize> {
    let is_number =
        |text: &str| !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    let is_marker = matches!(word, "-" | "*" | "+") || word.strip_suffix(['.', ')']).is_some_and(is_number);
    is_marker.then(|| word.len() + 1)
}

/// How many lines the paragraph has that begins here.
fn paragraph(lines: &[&str], width: usize) -> usize {
    let indent = hanging(lines[0]);
    let mut len = 1;
    while len < lines.len() {
        let (last, next) = (lines[len - 1], lines[len]);
        let begins_item = marker(next.trim_start().split(' ').next().unwrap_or("")).is_some();
        if fence_of(next).is_some() || begins_item {
            break;
        }
        // what continues an item may be indented as code would be
        let next = next.strip_prefix(indent.as_str()).unwrap_or(next);
        if stands_alone(next) || ends_early(last, next, width) {
            break;
        }
        len += 1;
    }
    len
}

/// A line that ends a sentence, although much more would have fitted, ends the paragraph for its author.
fn ends_early(line: &str, next: &str, width: usize) -> bool {
    let word = next.split_whitespace().next().unwrap_or("");
    line.ends_with(['.', ':', ';']) && columns(line) + 1 + columns(word) <= width * 4 / 5
}

/// The blanks before the second line.
fn hanging(first: &str) -> String {
    let indent = first.len() - first.trim_start().len();
    let word = first.trim_start().split(' ').next().unwrap_or("");
    " ".repeat(indent + marker(word).unwrap_or(0))
}

fn filled(lines: &[&str], width: usize) -> Vec<String> {
    let first = lines[0];
    let start = first.len() - first.trim_start().len();
    // the second line shows how the author indents, if there is one
    let hang = match lines.get(1) {
        Some(next) => next[..next.len() - next.trim_start().len()].to_owned(),
        None => hanging(first),
    };
    let mut out = Vec::new();
    let mut line = first[..start].to_owned();
    let mut is_empty = true;
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        if !is_empty && columns(&line) + 1 + columns(word) > width {
            // a marker at the beginning of a line would begin an item
            let keeps = marker(word).is_some() || word.starts_with(['#', '|', '>']);
            let moved = if keeps {
                line.rsplit_once(' ').map(|(rest, last)| (rest.len(), last.to_owned()))
            } else {
                None
            };
            let moved = moved.map(|(len, last)| {
                line.truncate(len);
                last
            });
            out.push(std::mem::replace(&mut line, hang.clone()));
            is_empty = true;
            if let Some(last) = moved {
                line.push_str(&last);
                is_empty = false;
            }
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push(line);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize) -> String {
        fill(&text.lines().collect::<Vec<_>>(), width).join("\n")
    }

    #[test]
    fn a_long_paragraph_is_filled() {
        assert_eq!(wrapped("one two three four\nfive", 10), "one two\nthree four\nfive");
        assert_eq!(wrapped("one\ntwo", 10), "one\ntwo");
        assert_eq!(wrapped("one two\n\nthree four five", 10), "one two\n\nthree four\nfive");
    }

    #[test]
    fn items_keep_their_indentation() {
        assert_eq!(wrapped("* one two three\n  four\n* five", 10), "* one two\n  three\n  four\n* five");
        assert_eq!(wrapped("12. one two", 8), "12. one\n    two");
        assert_eq!(wrapped("* one\n  two three four", 10), "* one two\n  three\n  four");
    }

    #[test]
    fn aligned_text_stays() {
        for text in [
            "```text\none two three four\n```",
            "| one | two | three | four |",
            "one two     three four five",
            "    one two three four five",
            "# one two three four five",
            "[one]: two three four five six",
        ] {
            assert_eq!(wrapped(text, 10), text);
        }
    }

    #[test]
    fn no_line_begins_with_a_marker_by_chance() {
        assert_eq!(wrapped("one two - three", 8), "one\ntwo -\nthree");
    }

    #[test]
    fn the_end_of_a_sentence_on_a_short_line_stays() {
        assert_eq!(wrapped("one:\ntwo three four", 10), "one:\ntwo three\nfour");
        assert_eq!(wrapped("one two:\nthree four five", 10), "one two:\nthree four\nfive");
        assert_eq!(wrapped("one two three:\nfour five", 15), "one two three:\nfour five");
        assert_eq!(
            wrapped("one two three four\nfive six.\nseven", 15),
            "one two three\nfour five six.\nseven"
        );
    }

    #[test]
    fn a_tab_has_eight_columns() {
        assert_eq!(columns("\ta"), 9);
        assert_eq!(columns("ab\tc"), 9);
    }
}
