// SPDX-License-Identifier: BSD-3-Clause
//! The page of one function.

use std::collections::BTreeSet;

use roff::{Inline, Roff, bold, italic, roman};

use crate::Release;
use crate::doc::{Block, Doc};
use crate::example::Example;
use crate::groups::Group;
use crate::header::{Function, Header, Named, Type};
use crate::text::Names;

/// Columns of a prototype.
const WIDTH: usize = 72;

/// A function's page, in roff. `group` is the group of the function.
pub(crate) fn page(
    function: &Function,
    group: &Group<'_>,
    header: &Header,
    example: Option<Example>,
    release: &Release,
) -> Result<String, String> {
    for heading in ["RETURN VALUE", "ERRORS", "THREADS"] {
        if function.doc.section(heading).is_empty() {
            return Err(format!("{} says nothing under {heading}", function.name));
        }
    }
    let page = Page {
        function,
        header,
        names: Names {
            header,
            own: &function.name,
            parameters: function.parameters.iter().map(|p| p.name.as_str()).collect(),
        },
    };
    let mut to = Roff::new();
    let (title, version) = (function.name.to_uppercase(), format!("librpma {}", release.version));
    to.control("TH", [title.as_str(), "3", &release.date, &version, "Library Functions Manual"]);
    // No hyphenation of names, and no justification.
    to.control("nh", []);
    to.control("ad", ["l"]);
    to.control("SH", ["NAME"]);
    let plain = Names { header: &Header::default(), own: "", parameters: Vec::new() };
    plain.write(&format!("{} - {}", function.name, summary(&function.doc)), &mut to);
    page.synopsis(&mut to);
    page.description(&mut to);
    to.control("SH", ["RETURN VALUE"]);
    page.blocks(function.doc.section("RETURN VALUE"), &mut to);
    to.control("SH", ["ERRORS"]);
    page.blocks(function.doc.section("ERRORS"), &mut to);
    to.control("SH", ["THREAD SAFETY"]);
    page.blocks(function.doc.section("THREADS"), &mut to);
    if !function.doc.section("SECURITY").is_empty() {
        to.control("SH", ["SECURITY"]);
        page.blocks(function.doc.section("SECURITY"), &mut to);
    }
    if let Some(example) = example {
        example.write(&mut to);
    }
    to.control("SH", ["SEE ALSO"]);
    page.see_also(group, &mut to);
    Ok(format!(".\\\" SPDX-License-Identifier: BSD-3-Clause\n{}", to.render()))
}

/// The summary of a function: its first sentence without capital and full stop.
pub(crate) fn summary(doc: &Doc) -> String {
    let lead = doc.lead();
    uncapitalised(lead.split_once(". ").map_or(lead, |(first, _)| first).trim_end_matches('.'))
}

fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

struct Page<'a> {
    function: &'a Function,
    header: &'a Header,
    names: Names<'a>,
}

impl Page<'_> {
    fn synopsis(&self, to: &mut Roff) {
        to.control("SH", ["SYNOPSIS"]);
        to.control("nf", []);
        to.text([bold("#include <librpma.h>")]);
        // Enums are omitted, because their values are listed below.
        let shown: Vec<&Type> = self.types().filter(|t| !t.name.starts_with("enum")).collect();
        if !shown.is_empty() {
            to.control("PP", []);
            for line in shown.iter().flat_map(|t| &t.source) {
                to.text([bold(line.replace('\t', "    "))]);
            }
        }
        to.control("PP", []);
        let head = format!("{}{}(", self.function.result, self.function.name);
        let mut columns = head.len();
        let mut line = vec![bold(head.clone())];
        for (i, parameter) in self.function.parameters.iter().enumerate() {
            let last = i + 1 == self.function.parameters.len();
            let after = format!("{}{}", parameter.after, if last { ");" } else { "," });
            let length = parameter.before.len() + parameter.name.len() + after.len();
            if i > 0 && columns + 1 + length > WIDTH {
                to.text(std::mem::replace(&mut line, vec![bold(" ".repeat(head.len()))]));
                columns = head.len();
            } else if i > 0 {
                line.push(bold(" "));
                columns += 1;
            }
            columns += length;
            let bold_part = |text: &str| (!text.is_empty()).then(|| bold(text));
            line.extend(bold_part(&parameter.before));
            line.push(italic(&parameter.name));
            line.extend(bold_part(&after));
        }
        if self.function.parameters.is_empty() {
            line.push(bold("void);"));
        }
        to.text(line);
        to.control("fi", []);
    }

    fn description(&self, to: &mut Roff) {
        to.control("SH", ["DESCRIPTION"]);
        let lead = format!("{} {}", self.function.name, uncapitalised(self.function.doc.lead()));
        self.names.write(&lead, to);
        for block in self.function.doc.text.iter().skip(1) {
            to.control("PP", []);
            self.block(block, to);
        }
        for parameter in self.function.doc.section("PARAMETERS") {
            if let Block::Item(name, text) = parameter {
                let (direction, text) = text.split_once(": ").unwrap_or(("", text));
                let direction = if direction.is_empty() { String::new() } else { format!(" ({direction})") };
                self.item(vec![italic(name), roman(direction)], text, to);
            }
        }
        for described in self.types().filter(|t| !t.members.is_empty()) {
            to.control("PP", []);
            to.text([bold(&described.name), roman(":")]);
            let names = Names {
                header: self.header,
                own: &self.function.name,
                parameters: described.members.iter().map(|member| member.name.as_str()).collect(),
            };
            names.write(&uncapitalised(described.doc.lead()), to);
            for member in &described.members {
                to.control("TP", []);
                to.text([bold(&member.name)]);
                names.write(member.doc.lead(), to);
            }
        }
        let constants = self.constants();
        if !constants.is_empty() {
            to.control("PP", []);
            to.text([roman("The constants:")]);
            for constant in constants {
                self.item(vec![bold(&constant.name)], constant.doc.lead(), to);
            }
        }
    }

    /// The library's types in the prototype, in the order of the header.
    fn types(&self) -> impl Iterator<Item = &Type> {
        self.header.types.iter().filter(|t| {
            self.function.parameters.iter().any(|p| {
                let before = p.before.trim_end_matches('*').trim();
                before.strip_prefix("const ").unwrap_or(before) == t.name
            })
        })
    }

    /// The macros that the page names, except the error codes, which have a section.
    fn constants(&self) -> Vec<&Named> {
        let words: BTreeSet<&str> = self
            .function
            .doc
            .texts()
            .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '*')))
            .collect();
        let named = |name: &str| {
            words.iter().any(|word| match word.strip_suffix('*') {
                Some(start) => start.starts_with("RPMA_") && name.starts_with(start),
                None => *word == name,
            })
        };
        let constants = self.header.constants.iter();
        constants.filter(|c| !c.name.starts_with("RPMA_E_") && named(&c.name)).collect()
    }

    fn blocks(&self, blocks: &[Block], to: &mut Roff) {
        for (i, block) in blocks.iter().enumerate() {
            if i > 0 && matches!(block, Block::Paragraph(_)) {
                to.control("PP", []);
            }
            self.block(block, to);
        }
    }

    fn block(&self, block: &Block, to: &mut Roff) {
        match block {
            Block::Paragraph(text) => self.names.write(text, to),
            Block::Item(name, text) => self.item(vec![bold(name)], text, to),
        }
    }

    fn item(&self, tag: Vec<Inline>, text: &str, to: &mut Roff) {
        to.control("TP", []);
        to.text(tag);
        self.names.write(text, to);
    }

    /// Refers to the functions of the group, those that the text names, and the overview.
    fn see_also(&self, group: &Group<'_>, to: &mut Roff) {
        let words = self
            .function
            .doc
            .texts()
            .flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        let named = words.filter(|word| self.header.function(word).is_some());
        let own = group.functions.iter().map(|function| function.name.as_str());
        let mut pages: BTreeSet<&str> = own.chain(group.related.iter().copied()).chain(named).collect();
        pages.remove(self.function.name.as_str());
        for name in pages {
            to.control("BR", [name, "(3),"]);
        }
        to.control("BR", ["librpma", "(7),"]);
        to.control("BR", ["librpma_providers", "(7)"]);
    }
}
