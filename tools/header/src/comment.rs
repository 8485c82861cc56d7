// SPDX-License-Identifier: BSD-3-Clause
//! From the documentation of a Rust item to a C comment.
//!
//! Headings become capitals, list items get a dash, `# Safety` is for Rust callers and is left out, and
//! paragraphs are filled to the width of the header.

/// Columns of a comment line, indentation not counted.
const WIDTH: usize = 80;

/// A comment with `indent` in front of every line; nothing if there is no text.
pub(crate) fn format(doc: &[String], indent: &str) -> String {
    let blocks = blocks(doc);
    match blocks.as_slice() {
        [Block::Paragraph(text)] if text.len() + "/**  */".len() <= WIDTH => {
            return format!("{indent}/** {text} */\n");
        }
        _ => {}
    }
    let mut lines = vec!["/**".to_owned()];
    for (i, block) in blocks.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &blocks[i]);
        let list_goes_on = matches!((before, block), (Some(Block::Item(_)), Block::Item(_)));
        let tight = list_goes_on || matches!(before, None | Some(Block::Heading(_)));
        if !tight {
            lines.push(" *".to_owned());
        }
        match block {
            Block::Heading(text) => lines.push(format!(" * {}", text.to_uppercase())),
            Block::Paragraph(text) => fill(text, " * ", " * ", &mut lines),
            Block::Item(text) => fill(text, " * - ", " *   ", &mut lines),
        }
    }
    lines.push(" */".to_owned());
    lines.iter().map(|line| format!("{indent}{line}\n")).collect()
}

enum Block {
    Heading(String),
    Paragraph(String),
    Item(String),
}

fn blocks(doc: &[String]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut for_rust = false;
    let mut open = false;
    for line in doc {
        let text = line.trim();
        if let Some(heading) = text.strip_prefix("# ") {
            for_rust = heading == "Safety";
            if !for_rust {
                blocks.push(Block::Heading(heading.to_owned()));
            }
            open = false;
        } else if for_rust || text.is_empty() {
            open = false;
        } else if let Some(item) = text.strip_prefix("* ") {
            // The name and its text: "name - text" reads as "name: text" after a dash.
            blocks.push(Block::Item(item.replacen(" - ", ": ", 1)));
            open = true;
        } else {
            match blocks.last_mut() {
                Some(Block::Paragraph(last) | Block::Item(last)) if open => {
                    last.push(' ');
                    last.push_str(text);
                }
                _ => blocks.push(Block::Paragraph(text.to_owned())),
            }
            open = true;
        }
    }
    blocks
}

/// Fills lines with the words of `text`.
fn fill(text: &str, first: &str, rest: &str, lines: &mut Vec<String>) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(text: &str) -> String {
        format(&text.lines().map(str::to_owned).collect::<Vec<_>>(), "")
    }

    #[test]
    fn one_short_paragraph_is_one_line() {
        assert_eq!(doc(" Out of memory."), "/** Out of memory. */\n");
    }

    #[test]
    fn sections_lists_and_what_is_left_out() {
        let text = " Does it.\n\n # Errors\n * A - when\n   so\n * B - else\n\n # Safety\n Not for C.";
        assert_eq!(doc(text), "/**\n * Does it.\n *\n * ERRORS\n * - A: when so\n * - B: else\n */\n");
    }

    #[test]
    fn long_text_is_filled() {
        let text = format!(" {}", "word ".repeat(40));
        assert!(doc(&text).lines().all(|line| line.len() <= WIDTH));
        assert_eq!(doc(&text).matches("word").count(), 40);
    }
}
