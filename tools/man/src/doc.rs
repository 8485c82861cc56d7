// SPDX-License-Identifier: BSD-3-Clause
//! The documentation of a C declaration, in the layout of the header.

/// A piece of text: a paragraph, or an item "name: text" of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Paragraph(String),
    Item(String, String),
}

/// A comment: its introduction, and its sections in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Doc {
    pub text: Vec<Block>,
    sections: Vec<(String, Vec<Block>)>,
}

/// The valid headings of a comment.
const HEADINGS: [&str; 5] = ["PARAMETERS", "RETURN VALUE", "ERRORS", "THREADS", "SECURITY"];

impl Doc {
    /// Reads the lines of a comment, without the stars.
    pub(crate) fn parse(lines: &[String]) -> Self {
        let mut doc = Self::default();
        let mut open = false;
        for line in lines {
            let text = line.trim();
            let blocks = doc.sections.last_mut().map_or(&mut doc.text, |(_, blocks)| blocks);
            if HEADINGS.contains(&text) {
                doc.sections.push((text.to_owned(), Vec::new()));
                open = false;
            } else if text.is_empty() {
                open = false;
            } else if let Some((name, text)) = text.strip_prefix("- ").and_then(|item| item.split_once(": "))
            {
                blocks.push(Block::Item(name.to_owned(), text.to_owned()));
                open = true;
            } else {
                match blocks.last_mut() {
                    Some(Block::Paragraph(last) | Block::Item(_, last)) if open => {
                        last.push(' ');
                        last.push_str(text);
                    }
                    _ => blocks.push(Block::Paragraph(text.to_owned())),
                }
                open = true;
            }
        }
        doc
    }

    /// The section with this heading; empty if there is none.
    pub(crate) fn section(&self, heading: &str) -> &[Block] {
        let section = self.sections.iter().find(|(name, _)| name == heading);
        section.map_or(&[], |(_, blocks)| blocks)
    }

    /// The first paragraph, a summary in one or two sentences.
    pub(crate) fn lead(&self) -> &str {
        match self.text.first() {
            Some(Block::Paragraph(text)) => text,
            _ => "",
        }
    }

    /// All text of the comment, to search in.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let blocks = self.text.iter().chain(self.sections.iter().flat_map(|(_, blocks)| blocks));
        blocks.map(|block| match block {
            Block::Paragraph(text) | Block::Item(_, text) => text.as_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_sections_and_items() {
        let text =
            "Does it.\nAt once.\n\nMore.\n\nERRORS\n- A: when\n  so\n- B: else\n\nTHREADS\nThread safe.";
        let doc = Doc::parse(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(doc.lead(), "Does it. At once.");
        assert_eq!(doc.text.len(), 2);
        let item = |name: &str, text: &str| Block::Item(name.to_owned(), text.to_owned());
        assert_eq!(doc.section("ERRORS"), [item("A", "when so"), item("B", "else")]);
        assert_eq!(doc.section("THREADS"), [Block::Paragraph("Thread safe.".to_owned())]);
        assert_eq!(doc.section("RETURN VALUE"), []);
    }
}
