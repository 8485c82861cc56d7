// SPDX-License-Identifier: BSD-3-Clause
//! The EXAMPLE section of a page: the lines of `examples/` that call the function. They are from programs
//! that each test compiles without warnings and runs, so the code in the manual works.

use std::fs;
use std::path::Path;

use roff::{Roff, bold, roman};

/// The width of a line of code on a page, without the indentation of the section.
const WIDTH: usize = 70;

/// The number of lines above which a shorter place is preferred.
const LONG: usize = 16;

/// Exceptions, where the first call in reading order is not the best example: function, program, and which of
/// its calls.
const BETTER: [(&str, &str, usize); 11] = [
    ("rpma_atomic_write", "06-atomic-write/client", 1),
    ("rpma_conn_cfg_new", "13-shared-completion-channel/server", 0),
    ("rpma_conn_get_event_fd", "05-many-connections/server", 1),
    ("rpma_conn_get_private_data", "02-read/client", 0),
    ("rpma_conn_req_recv", "07-message-ping-pong/server", 0),
    ("rpma_cq_get_fd", "05-many-connections/server", 1),
    ("rpma_err_2str", "common/common", 0),
    ("rpma_flush", "04-flush-to-persistent/client", 1),
    ("rpma_mr_reg", "02-read/server", 0),
    ("rpma_recv", "07-message-ping-pong/client", 0),
    ("rpma_write", "04-flush-to-persistent/client", 0),
];

/// A source file of the examples.
struct Program {
    /// Without the suffix: "02-read/client".
    name: String,
    lines: Vec<String>,
}

/// All programs, in reading order; the shared code is last.
pub(crate) struct Examples(Vec<Program>);

/// The code that a page shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Example {
    program: String,
    /// Declarations of the local variables that the code uses.
    declarations: Vec<String>,
    code: Vec<String>,
}

impl Examples {
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let broken = |e: std::io::Error| format!("{}: {e}", directory.display());
        let mut programs = Vec::new();
        for entry in fs::read_dir(directory).map_err(broken)? {
            let path = entry.map_err(broken)?.path();
            if !path.is_dir() {
                continue;
            }
            for file in fs::read_dir(&path).map_err(broken)? {
                let file = file.map_err(broken)?.path();
                if file.extension().is_none_or(|suffix| suffix != "c") {
                    continue;
                }
                let name = file.strip_prefix(directory).expect("a file is below its directory");
                let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
                programs.push(Program {
                    name: name.with_extension("").display().to_string(),
                    lines: text.lines().map(str::to_owned).collect(),
                });
            }
        }
        programs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self(programs))
    }

    /// The example for the page of a function; None if no example calls it.
    pub(crate) fn of(&self, function: &str) -> Result<Option<Example>, String> {
        if let Some((_, name, which)) = BETTER.iter().find(|(name, ..)| *name == function) {
            let program = self.0.iter().find(|program| program.name == *name);
            let found = program.and_then(|program| program.calls(function).into_iter().nth(*which));
            return match found {
                Some(example) => Ok(Some(example)),
                None => Err(format!("examples/{name}.c has no call {which} of {function}")),
            };
        }
        let mut found: Vec<Example> = self.0.iter().flat_map(|program| program.calls(function)).collect();
        // The sort is stable, so the programs stay in reading order.
        found.sort_by_key(|example| (example.code.len() > LONG, example.is_shared()));
        Ok(found.into_iter().next())
    }
}

impl Program {
    /// Each paragraph that calls the function, with the declarations that it needs.
    fn calls(&self, function: &str) -> Vec<Example> {
        let mut found: Vec<Example> = Vec::new();
        let mut shown_to = 0;
        for (i, line) in self.lines.iter().enumerate() {
            let called = words(line).any(|(word, after)| word == function && after.starts_with('('));
            if i < shown_to || !called || !line.starts_with('\t') || is_comment(line) {
                continue;
            }
            let (from, to) = self.paragraph(i);
            shown_to = to;
            found.push(Example {
                program: self.name.clone(),
                declarations: self.declarations(from, to),
                code: dedented(&self.lines[from..to]),
            });
        }
        found
    }

    /// The range of lines between two blank ones around a line of a function's body, extended until braces
    /// match.
    fn paragraph(&self, at: usize) -> (usize, usize) {
        let outside = |line: &String| line.trim().is_empty() || !line.starts_with('\t');
        let mut from = self.lines[..at].iter().rposition(outside).map_or(0, |i| i + 1);
        let mut to = from;
        let mut depth = 0;
        for (i, line) in self.lines.iter().enumerate().skip(from) {
            let done = i > at && depth == 0;
            let in_body = line.starts_with('\t') || line.is_empty();
            if (done && line.is_empty()) || !in_body {
                break;
            }
            depth += braces(line);
            if depth < 0 && i > at {
                // the enclosing block ends here
                break;
            }
            if depth < 0 {
                (from, depth) = (i + 1, 0);
            }
            to = i + 1;
        }
        (from, to)
    }

    /// The declarations of local variables that these lines use without declaring them; the last one of each
    /// name.
    fn declarations(&self, from: usize, to: usize) -> Vec<String> {
        let code = &self.lines[from..to];
        let start = self.lines[..from].iter().rposition(|line| line == "{").unwrap_or(from);
        let mut names: Vec<&str> = code.iter().filter_map(|line| declared(line)).collect();
        let mut found = Vec::new();
        // the number of blocks in between that have ended
        let mut ended = 0;
        for line in self.lines[start..from].iter().rev() {
            ended = (ended - braces(line)).max(0);
            let Some(name) = declared(line).filter(|name| ended == 0 && !names.contains(name)) else {
                continue;
            };
            if code.iter().any(|line| uses(line, name)) {
                names.push(name);
                found.push(line.trim().to_owned());
            }
        }
        found.reverse();
        found
    }
}

impl Example {
    fn is_shared(&self) -> bool {
        self.program.starts_with("common/")
    }

    /// Writes the section, with an explanation of the macros.
    pub(crate) fn write(&self, to: &mut Roff) {
        to.control("SH", ["EXAMPLE"]);
        let (directory, program) = self.program.split_once('/').unwrap_or(("", &self.program));
        let file = bold(format!("{directory}/{program}.c"));
        to.text([roman("In "), file, roman(" of the installed examples (see")]);
        to.control("BR", ["librpma", "(7)):"]);
        to.control("PP", []);
        to.control("RS", ["4"]);
        to.control("nf", []);
        let between = (!self.declarations.is_empty()).then(String::new);
        let lines = self.declarations.iter().chain(&between).chain(&self.code);
        for line in joined(lines).iter().flat_map(|line| wrapped(line)) {
            to.text([roman(line)]);
        }
        to.control("fi", []);
        to.control("RE", []);
        for (name, what) in [
            ("CHECK", "prints the error and exits unless the call returns 0."),
            ("REQUIRE", "prints the message and exits unless the condition holds."),
        ] {
            if self.code.iter().any(|line| words(line).any(|(word, _)| word == name)) {
                to.control("PP", []);
                to.control("B", [name]);
                to.text([roman(what)]);
            }
        }
    }
}

/// The words of a line of C, each with the text that follows it.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !is_part(c));
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        (!word.is_empty()).then_some((word, after))
    })
}

/// Whether a line of C uses a variable, as opposed to a member of that name or a word in a comment or string.
fn uses(line: &str, name: &str) -> bool {
    let code = if is_comment(line) { "" } else { line };
    code.split('"').step_by(2).any(|code| {
        words(code).any(|(word, after)| {
            let before = &code[..code.len() - after.len() - word.len()];
            word == name && !before.ends_with(['.', '>'])
        })
    })
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("/*") || line.starts_with("* ")
}

fn braces(line: &str) -> i32 {
    line.chars().map(|c| i32::from(c == '{') - i32::from(c == '}')).sum()
}

/// The name that a line declares, if the line is the declaration of a single local variable.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim().split("/*").next().unwrap_or_default().trim_end();
    let statement = match line.strip_prefix("for (") {
        Some(header) => header.split_once(';')?.0,
        None => line.strip_suffix(';')?,
    };
    let left = statement.split(" = ").next().unwrap_or(statement);
    let left = left.split('[').next().unwrap_or(left);
    if line.starts_with("return") || left.contains(['(', '.', '-', '+', ',', '<']) {
        return None;
    }
    let start = left.rfind([' ', '*'])? + 1;
    let (of, name) = left.split_at(start);
    let is_type = !of.trim_end_matches('*').trim().is_empty();
    (is_type && words(name).next().is_some_and(|(word, _)| word == name)).then_some(name)
}

/// The lines without their common indentation, with four spaces per tab.
fn dedented(lines: &[String]) -> Vec<String> {
    let tabs = |line: &String| line.len() - line.trim_start_matches('\t').len();
    let common = lines.iter().filter(|line| !line.is_empty()).map(tabs).min().unwrap_or(0);
    lines.iter().map(|line| line.get(common..).unwrap_or_default().replace('\t', "    ")).collect()
}

/// Statements and comments, each on one line.
fn joined<'a>(lines: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut open = false;
    for line in lines {
        match joined.last_mut() {
            Some(last) if open => {
                let line = line.trim_start();
                let more = if is_comment(last) { line.trim_start_matches("* ") } else { line };
                last.push_str(if last.ends_with(['(', '*']) && !is_comment(last) { "" } else { " " });
                last.push_str(more);
            }
            _ => joined.push(line.clone()),
        }
        let last = joined.last().expect("one was just added");
        let count = |c| last.matches(c).count();
        open = if is_comment(last) { !last.contains("*/") } else { count('(') > count(')') };
    }
    joined
}

/// Wraps a line of code at spaces outside of strings, preferably after a comma.
fn wrapped(line: &str) -> Vec<String> {
    let blanks = line.len() - line.trim_start().len();
    let indent = " ".repeat(blanks + if is_comment(line) { 3 } else { 4 });
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.len() > WIDTH {
        let mut in_string = false;
        let (mut after_comma, mut at_all) = (None, None);
        for (i, c) in rest.char_indices().take_while(|(i, _)| *i <= WIDTH) {
            in_string ^= c == '"' && !rest[..i].ends_with('\\');
            if c == ' ' && !in_string && !rest[..i].trim().is_empty() {
                at_all = Some(i);
                if rest[..i].ends_with(',') {
                    after_comma = at_all;
                }
            }
        }
        let best = if is_comment(line) { at_all } else { after_comma.or(at_all) };
        let Some(at) = best else { break };
        let (first, after) = rest.split_at(at);
        lines.push(first.to_owned());
        rest = format!("{indent}{}", after.trim_start());
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        Program { name: "01-x/client".to_owned(), lines: text.lines().map(str::to_owned).collect() }
    }

    const TEXT: &str = "\
int
main(void)
{
\tstruct a *a = NULL;
\tint unused;
\tsize_t size = 4;

\t/* rpma_do() is called below */
\tCHECK(rpma_do(a, size));

\tif (a) {
\t\tchar *a = NULL;
\t}
\tfor (;;) {
\t\tint size = 3;

\t\tif (a)
\t\t\trpma_twice(size);
\t}

\twhile (a) {
\t\tone();

\t\trpma_last(a->size);
\t}
\tmore();
}
";

    fn code(function: &str) -> (Vec<String>, Vec<String>) {
        let mut found = program(TEXT).calls(function);
        assert_eq!(found.len(), 1, "{function}");
        let example = found.remove(0);
        (example.declarations, example.code)
    }

    #[test]
    fn a_paragraph_with_its_comment_and_declarations() {
        let (declarations, code) = code("rpma_do");
        assert_eq!(declarations, ["struct a *a = NULL;", "size_t size = 4;"]);
        assert_eq!(code, ["/* rpma_do() is called below */", "CHECK(rpma_do(a, size));"]);
    }

    #[test]
    fn what_encloses_the_paragraph_is_left_out() {
        assert_eq!(code("rpma_twice").0, ["struct a *a = NULL;", "int size = 3;"]);
        assert_eq!(code("rpma_twice").1, ["if (a)", "    rpma_twice(size);"]);
        assert_eq!(code("rpma_last").1, ["rpma_last(a->size);"]);
    }

    #[test]
    fn a_comment_is_no_call_and_a_longer_name_no_other() {
        assert!(program("{\n\t/* rpma_do(a) */\n}\n").calls("rpma_do").is_empty());
        assert!(program("{\n\trpma_done(a);\n}\n").calls("rpma_do").is_empty());
    }

    #[test]
    fn long_lines_are_broken_outside_of_strings() {
        let line = format!("    f(\"{}\", second, third);", "word ".repeat(10));
        let lines = wrapped(&line);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
        assert_eq!(lines.concat().replace(' ', ""), line.replace(' ', ""));
        assert!(lines[0].contains("word word"));
        assert_eq!(wrapped(&"x".repeat(90)), ["x".repeat(90)]);
        assert_eq!(wrapped(&format!("f({});", "x".repeat(90))), [format!("f({});", "x".repeat(90))]);
    }

    #[test]
    fn statements_and_comments_are_filled_again() {
        let lines = ["/*", " * One", " * two.", " */", "f(a,", "    b(c));", "", "g();"].map(str::to_owned);
        assert_eq!(joined(lines.iter()), ["/* One two. */", "f(a, b(c));", "", "g();"]);
    }
}
