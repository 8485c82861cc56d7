// SPDX-License-Identifier: BSD-3-Clause
//! Comments on separate lines: removes their marks, fills the text, and puts the marks back.

use crate::Kind;
use crate::lexer::comments;
use crate::paragraph::{columns, fence_of, fill, may_be_long};

/// Consecutive lines with one text.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// The first line, and how many there are.
    first: usize,
    len: usize,
    style: Style,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Style {
    /// Lines that begin with this.
    Line(String),
    /// `/*`, `/**` or `/*!` after this indentation, which has a line of its own where there are several.
    Block(String, String),
    /// A page of Markdown.
    Page,
}

/// The text with its long paragraphs filled.
pub(crate) fn wrap(text: &str, kind: Kind) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    for run in runs(text, &lines, kind) {
        out.extend(lines[at..run.first].iter().map(|&line| line.to_owned()));
        at = run.first + run.len;
        out.extend(wrapped(&lines[run.first..at], &run.style, kind.width()));
    }
    out.extend(lines[at..].iter().map(|&line| line.to_owned()));
    let mut joined = out.join("\n");
    if text.ends_with('\n') {
        joined.push('\n');
    }
    joined
}

/// The lines with a comment, or of Markdown, that are too long and could be shorter: their numbers and
/// columns.
pub(crate) fn too_long(text: &str, kind: Kind) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut has_text = vec![false; lines.len()];
    match kind {
        Kind::Markdown => has_text.fill(true),
        Kind::Script => has_text.iter_mut().zip(&lines).for_each(|(has, line)| *has = is_comment(line)),
        Kind::Rust | Kind::C => {
            for range in comments(text, kind) {
                let first = text[..range.start].matches('\n').count();
                has_text[first..=first + text[range].matches('\n').count()].fill(true);
            }
        }
    }
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !has_text[index] {
            fenced = false;
            continue;
        }
        let body = match kind {
            Kind::Markdown => line,
            Kind::Script => text_of(line.trim_start().trim_start_matches('#')),
            Kind::Rust | Kind::C => text_of(line.trim_start().trim_start_matches(['/', '*', '!'])),
        };
        if fence_of(body).is_some() {
            fenced = !fenced;
        }
        if columns(line) > kind.width() && !fenced && !may_be_long(body) {
            found.push((index + 1, columns(line)));
        }
    }
    found
}

fn runs(text: &str, lines: &[&str], kind: Kind) -> Vec<Run> {
    if kind == Kind::Markdown {
        return vec![Run { first: 0, len: lines.len(), style: Style::Page }];
    }
    let mut runs: Vec<Run> = Vec::new();
    let add_line = |runs: &mut Vec<Run>, first, style| match runs.last_mut() {
        Some(run) if run.first + run.len == first && run.style == style => run.len += 1,
        _ => runs.push(Run { first, len: 1, style }),
    };
    if kind == Kind::Script {
        for (first, line) in lines.iter().enumerate().filter(|(_, line)| is_comment(line)) {
            add_line(&mut runs, first, Style::Line(format!("{}#", split(line).0)));
        }
        return runs;
    }
    for range in comments(text, kind) {
        let first = text[..range.start].matches('\n').count();
        let len = text[range.clone()].matches('\n').count() + 1;
        let (indent, comment) = split(lines[first]);
        let last = lines[first + len - 1].trim_end();
        let has_code_before = text[..range.start].rsplit('\n').next() != Some(indent);
        let has_code_behind = comment.starts_with("/*") && !last.ends_with("*/");
        if has_code_before || has_code_behind {
            continue;
        }
        if comment.starts_with("//") {
            let mark = mark_of(comment);
            add_line(&mut runs, first, Style::Line(format!("{indent}{mark}")));
        } else if len == 1 || is_canonical(&lines[first..first + len], indent) {
            let open = if comment.starts_with("/**") { "/**" } else { "/*" };
            runs.push(Run { first, len, style: Style::Block(indent.to_owned(), open.to_owned()) });
        }
    }
    runs
}

/// Whether this line of a script has only a comment, and is not its first one, which names the interpreter.
fn is_comment(line: &str) -> bool {
    let text = line.trim_start();
    text.starts_with('#') && !text.starts_with("#!")
}

/// The indentation of a line, and the rest.
fn split(line: &str) -> (&str, &str) {
    line.split_at(line.len() - line.trim_start().len())
}

fn mark_of(comment: &str) -> &'static str {
    match comment {
        _ if comment.starts_with("////") => "//",
        _ if comment.starts_with("///") => "///",
        _ if comment.starts_with("//!") => "//!",
        _ => "//",
    }
}

/// Whether each line but the first begins with an asterisk below that of the first.
fn is_canonical(lines: &[&str], indent: &str) -> bool {
    lines[1..].iter().all(|line| line.strip_prefix(indent).is_some_and(|rest| rest.starts_with(" *")))
}

fn wrapped(lines: &[&str], style: &Style, width: usize) -> Vec<String> {
    let as_they_are = || lines.iter().map(|&line| line.to_owned()).collect();
    match style {
        Style::Page => fill(lines, width),
        Style::Line(mark) => {
            let body: Vec<&str> = lines.iter().map(|line| text_of(&line[mark.len()..])).collect();
            let room = width - columns(mark) - 1;
            let blank = |line: &String| if line.is_empty() { mark.clone() } else { format!("{mark} {line}") };
            let filled = fill(&body, room);
            if filled == body { as_they_are() } else { filled.iter().map(blank).collect() }
        }
        Style::Block(indent, open) => {
            if lines.iter().all(|line| columns(line) <= width) {
                return as_they_are();
            }
            let last = lines.len() - 1;
            let body = lines.iter().enumerate().map(|(index, line)| {
                let line = line.trim();
                let line =
                    if index == 0 { &line[open.len()..] } else { line.strip_prefix('*').unwrap_or(line) };
                let line = if index == last {
                    line.trim_end_matches('/').trim_end_matches('*').trim_end()
                } else {
                    line
                };
                text_of(line)
            });
            let body: Vec<&str> = body.collect();
            let first = usize::from(body[0].is_empty());
            let end = if body.len() > 1 && body[last].is_empty() { last } else { last + 1 };
            let filled = fill(&body[first..end], width - columns(indent) - 3);
            let line = |line: &String| {
                if line.is_empty() { format!("{indent} *") } else { format!("{indent} * {line}") }
            };
            [format!("{indent}{open}")]
                .into_iter()
                .chain(filled.iter().map(line))
                .chain([format!("{indent} */")])
                .collect()
        }
    }
}

/// The text after a mark, without the blank between them.
fn text_of(rest: &str) -> &str {
    rest.strip_prefix(' ').unwrap_or(rest).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "word word word word word word word word word word word word word word word word word word word word \
                        word word word";

    #[test]
    fn a_line_comment_is_wrapped() {
        let text = format!("fn f() {{\n    // SAFETY: {LONG}\n    g(); // h\n}}\n");
        let out = wrap(&text, Kind::Rust);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[1].starts_with("    // SAFETY: word") && lines[2].starts_with("    // word"));
        assert_eq!(too_long(&text, Kind::Rust), [(2, 15 + LONG.len())]);
        assert!(too_long(&out, Kind::Rust).is_empty());
    }

    #[test]
    fn neighbours_of_another_kind_stay_apart() {
        let text = format!("//! {LONG}\n/// short\n// {LONG}\nfn f() {{}}\n");
        let out = wrap(&text, Kind::Rust);
        assert_eq!(out.lines().filter(|line| line.starts_with("//! ")).count(), 2);
        assert_eq!(out.lines().filter(|line| line.starts_with("/// ")).count(), 1);
        assert_eq!(out.lines().filter(|line| line.starts_with("// ")).count(), 2);
    }

    #[test]
    fn a_block_comment_gets_lines() {
        let out = wrap(&format!("\t/* {LONG} */\n\tf();\n"), Kind::C);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "\t/*");
        assert!(lines[1].starts_with("\t * word") && lines[2].starts_with("\t * word"));
        assert_eq!(lines[3..], ["\t */", "\tf();"]);
        assert_eq!(wrap(&out, Kind::C), out);
    }

    #[test]
    fn a_block_comment_that_begins_beside_its_mark_is_the_same_text() {
        let out = wrap(&format!("/** a\n * {LONG}\n *\n * b */\n"), Kind::C);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "/**");
        assert!(lines[1].starts_with(" * a word"));
        assert_eq!(lines[lines.len() - 3..], [" *", " * b", " */"]);
    }

    #[test]
    fn comments_of_scripts_are_lines() {
        let text = format!("#!/bin/bash\n# a\n# {LONG}\n\techo '# {LONG}' # {LONG}\n\t# {LONG}\n");
        let out = wrap(&text, Kind::Script);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[1].starts_with("# a word") && lines[2].starts_with("# word"));
        assert_eq!(lines[3], text.lines().nth(3).unwrap());
        assert!(lines[4].starts_with("\t# word") && lines[5].starts_with("\t# word"));
        assert_eq!(too_long(&text, Kind::Script), [(3, 2 + LONG.len()), (5, 10 + LONG.len())]);
        assert!(too_long(&out, Kind::Script).is_empty());
    }

    #[test]
    fn code_stays() {
        let text = format!("f(\"// {LONG}\"); /* {LONG} */\n");
        assert_eq!(wrap(&text, Kind::C), text);
        assert_eq!(too_long(&text, Kind::C).len(), 1);
        let string = format!("f(\"\n    // {LONG}\n\");\n");
        assert_eq!(wrap(&string, Kind::Rust), string);
        assert!(too_long(&string, Kind::Rust).is_empty());
    }
}
