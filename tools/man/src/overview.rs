// SPDX-License-Identifier: BSD-3-Clause
//! The pages of sections 1 and 7: written by hand in `man/`, with lists from the source and the examples
//! inserted at the lines that name them.

use roff::{Roff, bold, italic, roman};

use crate::Release;
use crate::doc::Block;
use crate::function::summary;
use crate::groups::Group;
use crate::header::Header;
use crate::text::Names;

/// Completes a page from its text.
pub(crate) fn page(
    text: &str,
    header: &Header,
    groups: &[Group<'_>],
    examples: &str,
    release: &Release,
) -> Result<String, String> {
    let mut page = String::new();
    for line in text.lines() {
        match line {
            "@FUNCTIONS@" => page.push_str(&functions(header, groups)),
            "@EXAMPLES@" => page.push_str(&programs(examples, header)?),
            "@ERRORS@" => page.push_str(&errors(header)),
            "@EVENTS@" => page.push_str(&values_of("enum rpma_conn_event", header)?),
            "@NOT_THREAD_SAFE@" => page.push_str(&threads(header, |class| class == "Not thread safe.")),
            "@DIFFERENT_OBJECTS@" => {
                page.push_str(&threads(header, |class| class.starts_with("Thread safe for different")));
            }
            "@SOFT_SETTINGS@" => page.push_str(&soft_settings(header)),
            _ => {
                page.push_str(&line.replace("@DATE@", &release.date).replace("@VERSION@", &release.version));
                page.push('\n');
            }
        }
    }
    match page.split_once('@') {
        Some((_, rest)) => Err(format!("nothing to put in for @{}", rest.lines().next().unwrap_or_default())),
        None => Ok(page),
    }
}

/// All functions with their summaries, in a subsection for each group.
fn functions(header: &Header, groups: &[Group<'_>]) -> String {
    let mut to = Roff::new();
    let names = Names { header, own: "", parameters: Vec::new() };
    for group in groups {
        to.control("SS", [group.title.as_str()]);
        for function in &group.functions {
            to.control("TP", []);
            to.text([bold(&function.name), roman("(3)")]);
            names.write(&summary(&function.doc), &mut to);
        }
    }
    to.to_roff()
}

/// The topic of each example, from the table in `examples/README.md`.
fn programs(readme: &str, header: &Header) -> Result<String, String> {
    let rows =
        readme.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows: Vec<_> = rows.filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_digit())).collect();
    if rows.is_empty() {
        Err("examples/README.md has no table".into())
    } else {
        Ok(list(header, rows.into_iter()))
    }
}

fn errors(header: &Header) -> String {
    let errors = header.constants.iter().filter(|constant| constant.name.starts_with("RPMA_E_"));
    list(header, errors.map(|error| (error.name.as_str(), error.doc.lead())))
}

fn values_of(name: &str, header: &Header) -> Result<String, String> {
    let values = header.types.iter().find(|t| t.name == name).ok_or_else(|| format!("there is no {name}"))?;
    Ok(list(header, values.members.iter().map(|value| (value.name.as_str(), value.doc.lead()))))
}

fn list<'a>(header: &Header, items: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut to = Roff::new();
    let names = Names { header, own: "", parameters: Vec::new() };
    for (name, text) in items {
        to.control("TP", []);
        to.text([bold(name)]);
        names.write(text, &mut to);
    }
    to.to_roff()
}

/// The functions of a class of thread safety.
fn threads(header: &Header, is_of: impl Fn(&str) -> bool) -> String {
    let of_class = header.functions.iter().filter(|function| {
        matches!(function.doc.section("THREADS").first(), Some(Block::Paragraph(class)) if is_of(class))
    });
    let names: Vec<&str> = of_class.map(|function| function.name.as_str()).collect();
    let mut to = Roff::new();
    for (i, name) in names.iter().enumerate() {
        to.control("BR", [*name, if i + 1 == names.len() { "(3)." } else { "(3)," }]);
    }
    to.to_roff()
}

/// The environment variables of the soft provider, from the list with which it reads them.
fn soft_settings(header: &Header) -> String {
    let mut to = Roff::new();
    let names = Names { header, own: "", parameters: Vec::new() };
    for knob in softverbs::config::KNOBS {
        to.control("TP", []);
        let mut heading = vec![bold(knob.name), roman("=")];
        for (i, word) in knob.words.iter().enumerate() {
            heading.extend((i > 0).then(|| roman("|")));
            match word.split_once(':') {
                Some((word, argument)) => {
                    heading.extend([bold(word), bold(":"), italic(argument.to_lowercase())]);
                }
                None => heading.push(bold(*word)),
            }
        }
        let range = if !knob.text.is_empty() {
            heading.push(italic(knob.text));
            "Default none.".to_owned()
        } else if knob.words.is_empty() {
            heading.push(italic("number"));
            format!("From {} to {}; default {}.", knob.min, knob.max, knob.default)
        } else {
            format!("Default {}.", knob.shown_default())
        };
        to.text(heading);
        names.write(&format!("{}. {range}", knob.help), &mut to);
    }
    to.to_roff()
}

#[cfg(test)]
mod tests {
    /// docs/configuration.md repeats the settings for readers without the manual, with the same words and
    /// defaults.
    #[test]
    fn the_configuration_page_has_the_settings_as_they_are() {
        let page = include_str!("../../../docs/configuration.md");
        for knob in softverbs::config::KNOBS {
            let row = format!("| `{}` | {} | {} |\n", knob.name, knob.shown_default(), knob.help);
            assert!(page.contains(&row), "docs/configuration.md must have this row: {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `SOFTVERBS_")).count();
        assert_eq!(rows, softverbs::config::KNOBS.len());
    }
}
