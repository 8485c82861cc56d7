// SPDX-License-Identifier: BSD-3-Clause
//! Writes `include/librpma.h` from the exported functions and their documentation.
//!
//! cbindgen does the translation; this program then gives the text the shape of a C header: comments in C
//! style, macros in parentheses, and the one type that Rust cannot express, the variadic function type of the
//! log function.
//!
//! `cargo run -p header` writes the header in its place, `cargo run -p header -- FILE` to a file.

mod comment;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What stands between the types and the prototypes.
const LOG_FUNCTION: &str = "\
/** Selects the built-in log function in rpma_log_set_function. */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * A function that receives the library's log messages; see rpma_log_set_function.
 *
 * PARAMETERS
 * - level: the severity of the message
 * - file_name: the name of the source file that logs the message
 * - line_no: the line number in that file
 * - function_name: the name of the function that logs the message
 * - message_format: a printf format; the formatted message ends with a newline
 * - ...: the arguments of the format
 */
typedef void rpma_log_function(
\tenum rpma_log_level level,
\tconst char *file_name,
\tconst int line_no,
\tconst char *function_name,
\tconst char *message_format,
\t...);
";

const VERSION: &str = "
/** The version of this header. rpma_version tells that of the library that is running. */
#define LIBRPMA_VERSION ";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new().with_crate(&root).with_config(config).generate()?;
    let mut raw = Vec::new();
    bindings.write(&mut raw);
    let file = env::args_os().nth(1).map_or_else(|| root.join("include/librpma.h"), PathBuf::from);
    fs::write(file, finish(&String::from_utf8(raw)?)?)?;
    Ok(())
}

/// From cbindgen's text to the header.
fn finish(raw: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = raw.lines().peekable();
    let mut extern_c = false;
    let mut version = Vec::new();
    while let Some(line) = lines.next() {
        if line.is_empty() && out.ends_with("\n\n") {
            // cbindgen leaves a line behind for a constant that C has no form for.
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "/**" {
            let text = lines.by_ref().take_while(|line| line.trim() != "*/");
            let text = text.map(|line| line.trim().trim_start_matches('*').to_owned());
            out.push_str(&comment::format(&text.collect::<Vec<_>>(), &"\t".repeat(indent.len() / 8)));
            continue;
        }
        let line = match line.strip_prefix("#define ") {
            Some("LIBRPMA_H") => "#define LIBRPMA_H 1".to_owned(),
            Some(definition) => format!("#define {}", parenthesised(definition)?),
            None => c_comment(&line.replace("        ", "\t")),
        };
        out.push_str(&line);
        out.push('\n');
        if let Some((_, number)) =
            line.split_once("#define LIBRPMA_VERSION_").and_then(|(_, rest)| rest.split_once(' '))
        {
            version.push(number.trim_matches(['(', ')']).to_owned());
            if version.len() == 3 {
                // cbindgen leaves strings out.
                out.push_str(&format!("{VERSION}\"{}\"\n", version.join(".")));
            }
        }
        if line == "extern \"C\" {" {
            // The condition around it ends on the next line; what follows has C linkage.
            out.extend(lines.next().map(|line| c_comment(line) + "\n\n"));
            out.push_str(LOG_FUNCTION);
            extern_c = true;
        }
    }
    if extern_c { Ok(out) } else { Err("no place for the log function type".into()) }
}

/// A line whose comment, if it has one, is in C's oldest form.
fn c_comment(line: &str) -> String {
    match line.split_once("// ") {
        Some((code, comment)) => format!("{} /* {comment} */", code.trim_end()),
        None => line.to_owned(),
    }
}

/// A macro whose value is safe in any expression. Only the library's own names may become macros.
fn parenthesised(definition: &str) -> Result<String, String> {
    match definition.split_once(' ') {
        Some((name, value)) if name.starts_with("RPMA_") || name.starts_with("LIBRPMA_") => {
            Ok(format!("{name} ({value})"))
        }
        _ => Err(format!("not a macro of this library: {definition}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_ours_and_parenthesised() {
        assert_eq!(parenthesised("RPMA_E_INVAL -100004").unwrap(), "RPMA_E_INVAL (-100004)");
        assert_eq!(parenthesised("LIBRPMA_VERSION_MINOR 4").unwrap(), "LIBRPMA_VERSION_MINOR (4)");
        assert!(parenthesised("SIZE 8").is_err());
    }
}
