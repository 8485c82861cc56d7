// SPDX-License-Identifier: BSD-3-Clause
//! The declarations of `include/librpma.h`. The pages are generated from the header and not from the Rust
//! source, because it has the C declarations and is checked to be up to date with the doc comments in
//! `src/capi`.

use crate::doc::Doc;

/// A macro, a value of an enum, or a member of a struct.
#[derive(Debug)]
pub(crate) struct Named {
    pub name: String,
    pub doc: Doc,
}

/// An enum, a struct, or the type of the log function, with its members.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name in C: "enum rpma_op".
    pub name: String,
    pub doc: Doc,
    /// Empty for an opaque struct.
    pub members: Vec<Named>,
    /// The lines of the declaration, for a page that shows it as C.
    pub source: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    /// The text before the name: "const char *".
    pub before: String,
    pub name: String,
    /// The text after the name: `[8]`.
    pub after: String,
}

#[derive(Debug)]
pub(crate) struct Function {
    /// The result type with its star: "const char *".
    pub result: String,
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub doc: Doc,
}

#[derive(Debug, Default)]
pub(crate) struct Header {
    pub constants: Vec<Named>,
    pub types: Vec<Type>,
    pub functions: Vec<Function>,
}

impl Header {
    /// Reads the text of the header.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut header = Self::default();
        let mut lines = text.lines();
        let mut doc = None;
        while let Some(line) = lines.next() {
            if let Some(comment) = comment(line, &mut lines) {
                doc = Some(comment);
                continue;
            }
            // Only documented declarations are of interest; a comment belongs to the declaration that
            // directly follows it.
            let Some(doc) = doc.take() else { continue };
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["#define", name, ..] => header.constants.push(Named { name: (*name).to_owned(), doc }),
                ["struct" | "enum", _, "{"] => header.types.push(definition(line, doc, &mut lines)?),
                ["struct", name] if name.ends_with(';') => header.types.push(Type {
                    name: line.trim_end_matches(';').to_owned(),
                    doc,
                    members: Vec::new(),
                    source: vec![line.to_owned()],
                }),
                ["typedef", ..] => {
                    let source = until_semicolon(line, &mut lines);
                    let name = source[0].split(['(', ' ']).find(|word| word.starts_with("rpma_"));
                    let name = name.ok_or_else(|| format!("a type without a name: {line}"))?.to_owned();
                    header.types.push(Type { name, doc, members: Vec::new(), source });
                }
                _ => header.functions.push(function(&until_semicolon(line, &mut lines).join(" "), doc)?),
            }
        }
        if header.functions.is_empty() { Err("no function in it".into()) } else { Ok(header) }
    }

    pub(crate) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

/// The comment that starts on a line, if one does.
fn comment<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<Doc> {
    let text = first.trim().strip_prefix("/**")?;
    if let Some(text) = text.strip_suffix("*/") {
        return Some(Doc::parse(&[text.to_owned()]));
    }
    let rest = lines.take_while(|line| line.trim() != "*/");
    let rest: Vec<String> = rest.map(|line| line.trim().trim_start_matches('*').to_owned()).collect();
    Some(Doc::parse(&rest))
}

fn until_semicolon<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all = vec![first.to_owned()];
    while !all.last().is_some_and(|line| line.trim_end().ends_with(';')) {
        match lines.next() {
            Some(line) => all.push(line.to_owned()),
            None => break,
        }
    }
    all
}

/// A struct or an enum, whose first line has been read.
fn definition<'a>(first: &str, doc: Doc, lines: &mut impl Iterator<Item = &'a str>) -> Result<Type, String> {
    let name = first.trim_end_matches('{').trim().to_owned();
    let mut members = Vec::new();
    let mut source = vec![first.to_owned()];
    let mut member = None;
    while let Some(line) = lines.next() {
        if let Some(comment) = comment(line, lines) {
            member = Some(comment);
            continue;
        }
        source.push(line.to_owned());
        if line == "};" {
            return Ok(Type { name, doc, members, source });
        }
        let declared = line.trim().trim_end_matches([';', ',']);
        let own = match declared.split_once(" = ") {
            Some((value, _)) => value,
            None => declared.rsplit([' ', '*']).next().unwrap_or(declared),
        };
        let doc = member.take().ok_or_else(|| format!("{own} of {name} has no comment"))?;
        members.push(Named { name: own.to_owned(), doc });
    }
    Err(format!("{name} does not end"))
}

/// A prototype, on one line.
fn function(prototype: &str, doc: Doc) -> Result<Function, String> {
    let broken = || format!("not a prototype: {prototype}");
    let (head, parameters) =
        prototype.trim_end().strip_suffix(");").and_then(|p| p.split_once('(')).ok_or_else(broken)?;
    let start = head.find("rpma_").ok_or_else(broken)?;
    let (result, name) = head.split_at(start);
    let parameters = parameters.split(',').filter(|parameter| parameter.trim() != "void").map(|parameter| {
        let parameter = parameter.trim();
        let (declared, after) = parameter.split_at(parameter.find('[').unwrap_or(parameter.len()));
        let start = declared.rfind([' ', '*']).ok_or_else(broken)? + 1;
        let (before, name) = declared.split_at(start);
        Ok(Parameter { before: before.to_owned(), name: name.to_owned(), after: after.to_owned() })
    });
    Ok(Function {
        result: result.to_owned(),
        name: name.to_owned(),
        parameters: parameters.collect::<Result<_, String>>()?,
        doc,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
/* not for us */
#define GUARD_H 1
/** One. */
#define RPMA_ONE (1)
/** A thing. */
struct rpma_thing;
/** Kinds. */
enum rpma_kind {
\t/** first */
\tRPMA_KIND_A = 0,
};
/**
 * A pair.
 */
struct rpma_pair {
\t/** where */
\tvoid *ptr;
};
/**
 * Does.
 *
 * ERRORS
 * - RPMA_E_INVAL: when
 *   so
 */
const char *rpma_do(struct rpma_thing **thing_ptr,
\t\t    const char src[8]);
";

    #[test]
    fn everything_that_is_declared() {
        let header = Header::parse(TEXT).unwrap();
        assert_eq!(header.constants[0].name, "RPMA_ONE");
        assert_eq!(header.constants.len(), 1);
        let names: Vec<&str> = header.types.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["struct rpma_thing", "enum rpma_kind", "struct rpma_pair"]);
        assert_eq!(header.types[1].members[0].name, "RPMA_KIND_A");
        assert_eq!(header.types[2].members[0].name, "ptr");
        let function = header.function("rpma_do").unwrap();
        assert_eq!(function.result, "const char *");
        let parts: Vec<_> = function.parameters.iter().map(|p| [&p.before, &p.name, &p.after]).collect();
        assert_eq!(parts, [["struct rpma_thing **", "thing_ptr", ""], ["const char ", "src", "[8]"]]);
        assert_eq!(function.doc.section("ERRORS").len(), 1);
    }

    #[test]
    fn a_member_without_a_comment_is_an_error() {
        assert!(Header::parse("/** S. */\nstruct s {\n\tint a;\n};\n").is_err());
    }
}
