// SPDX-License-Identifier: BSD-3-Clause
//! Whether the counters of `RPMA_METRICS` can be served. Checks in advance for the errors that a program
//! would log when it creates its first peer; nothing is created.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rpma_metrics::setting::{self, Setting};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::report::Report;
use crate::top::directories;

const CHECK: &str = "metrics";
/// The longest path of a socket (unix(7)).
const LONGEST: usize = 107;

/// Ok for a suitable directory; otherwise what is wrong with it, and the command that fixes it.
type Found = Result<(), (String, String)>;

pub(super) fn check(report: &mut Report) {
    if let Some(value) = setting::variable(c"RPMA_METRICS") {
        of_value(&value, report);
    }
}

fn of_value(value: &OsStr, report: &mut Report) {
    // The process ID stays `%p`, since it will be that of another process.
    let Some(setting) = setting::parse(value, "%p") else {
        let text = format!(
            "RPMA_METRICS is \"{}\", which is invalid, so nothing is counted; it must be {}",
            value.to_string_lossy(),
            setting::EXPECTED
        );
        return report.warn(CHECK, text, format!("export RPMA_METRICS={}", quoted(&meant(value))));
    };
    let (found, text) = match &setting {
        Setting::File(path, every) => {
            let text =
                format!("the counters are written to {} every {} s", path.display(), every.as_secs_f64());
            (directory_of(path).and_then(|()| is_replaceable(path)), text)
        }
        Setting::Unix(Some(path)) => {
            let text = format!("anyone who connects to {} gets the counters", path.display());
            (directory_of(path).and_then(|()| can_listen(path)), text)
        }
        Setting::Unix(None) => {
            // The library uses the first one; `rpma top` reads all of them.
            let directory = directories().into_iter().next().unwrap_or_default();
            let text = format!(
                "anyone who connects to {}/PID.sock gets the counters, as rpma top does",
                directory.display()
            );
            (own(&directory), text)
        }
    };
    match found {
        Ok(()) => report.ok(CHECK, text),
        Err((text, fix)) => {
            report.warn(CHECK, format!("RPMA_METRICS: {text}; the counters cannot be served"), fix)
        }
    }
}

/// The valid value that a user most likely meant with an invalid one.
fn meant(value: &OsStr) -> String {
    const SECONDS: &str = "10";
    let value = value.to_string_lossy();
    let (scheme, path) = match value.split_once(':') {
        Some((scheme, path)) if !scheme.contains('/') => {
            (scheme.to_lowercase(), path.trim_start_matches("//"))
        }
        _ => (String::new(), &*value),
    };
    let is_socket = |path: &str| path.ends_with(".sock") || path.ends_with(".socket");
    // The text after the last comma was meant as the seconds, unless it looks like the rest of a path.
    let (path, seconds) = match path.rsplit_once(',') {
        Some((path, seconds)) if !seconds.contains('/') => (path, seconds),
        _ => (path, SECONDS),
    };
    match scheme.as_str() {
        "unix" => format!("unix:{path}"),
        "file" | "" if path.contains(['/', '.']) && !is_socket(path) => {
            let file = format!("file:{path},{seconds}");
            let is_right = setting::parse(OsStr::new(&file), "%p").is_some();
            if is_right { file } else { format!("file:{path},{SECONDS}") }
        }
        "" if is_socket(path) => format!("unix:{path}"),
        "file" if !path.is_empty() => format!("file:{path},{SECONDS}"),
        _ => "unix:".to_owned(),
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,%+=@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn wrong<T>(text: impl Into<String>, fix: impl Into<String>) -> Result<T, (String, String)> {
    Err((text.into(), fix.into()))
}

/// Whether a file can be created in the directory of the path.
fn directory_of(path: &Path) -> Found {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if directory.as_os_str().as_bytes().windows(2).any(|two| two == b"%p") {
        return wrong(
            format!(
                "the directory {} would differ for each process, and no process creates it",
                directory.display()
            ),
            "use %p in the last part of the path only",
        );
    }
    is_writable(directory)
}

fn is_writable(directory: &Path) -> Found {
    let name = directory.display();
    match fs::metadata(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return wrong(format!("there is no directory {name}"), format!("mkdir -p {}", shown(directory)));
        }
        Err(why) => {
            return wrong(format!("the directory {name}: {why}"), format!("ls -ld {}", shown(directory)));
        }
        Ok(found) if !found.is_dir() => {
            return wrong(format!("{name} is not a directory"), "export RPMA_METRICS with another path");
        }
        Ok(_) => {}
    }
    let Err(why) = may_create_in(directory) else { return Ok(()) };
    let fix = match (why.raw_os_error(), fs::metadata(directory)) {
        (Some(libc::EACCES), Ok(found)) if found.uid() == user() => {
            format!("chmod u+wx {}", shown(directory))
        }
        (Some(libc::EACCES), _) => format!("sudo chown {} {}", user(), shown(directory)),
        _ => "export RPMA_METRICS with a path that can be written".to_owned(),
    };
    wrong(format!("nothing can be created in {name}: {why}"), fix)
}

/// Whether the effective user may create a file in the directory; nothing is created.
fn may_create_in(directory: &Path) -> io::Result<()> {
    Ok(accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A new file replaces an old one, but not a directory.
fn is_replaceable(path: &Path) -> Found {
    if path.is_dir() {
        let file = shown(&path.join("rpma.prom"));
        return wrong(
            format!("{} is a directory", path.display()),
            format!("export RPMA_METRICS=file:{file},10"),
        );
    }
    Ok(())
}

/// A socket without a listener is replaced; anything else is left alone.
fn can_listen(path: &Path) -> Found {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > LONGEST {
        return wrong(
            format!(
                "the path of a socket may have at most {LONGEST} bytes, and this one has {}",
                bytes.len()
            ),
            "export RPMA_METRICS=unix:",
        );
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            wrong(format!("{} exists and is not a socket", path.display()), format!("rm {}", shown(path)))
        }
        _ => Ok(()),
    }
}

/// The directory that the library creates, for this user only.
fn own(directory: &Path) -> Found {
    match fs::symlink_metadata(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => directory_of(directory),
        Err(_) => is_writable(directory),
        Ok(found) if !found.is_dir() || found.uid() != user() => wrong(
            format!("{} is not a directory that belongs to this user", directory.display()),
            "export XDG_RUNTIME_DIR with a directory that you own",
        ),
        Ok(found) if found.mode() & 0o077 != 0 => wrong(
            format!("other users have access to {}", directory.display()),
            format!("chmod 700 {}", shown(directory)),
        ),
        Ok(_) => is_writable(directory),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;

    #[test]
    fn what_was_meant_has_the_right_form() {
        for (value, right) in [
            ("/run/a.prom", "file:/run/a.prom,10"),
            ("a.prom", "file:a.prom,10"),
            ("/run/a.sock", "unix:/run/a.sock"),
            ("file:/run/a.prom", "file:/run/a.prom,10"),
            ("file:/run/a.prom,", "file:/run/a.prom,10"),
            ("file:/run/a.prom,0", "file:/run/a.prom,10"),
            ("file:/run/a.prom,1s", "file:/run/a.prom,10"),
            ("file:/run/a,b/c.prom", "file:/run/a,b/c.prom,10"),
            ("FILE:/run/a.prom,2", "file:/run/a.prom,2"),
            ("file:a", "file:a,10"),
            ("file:,1", "unix:"),
            ("Unix:/run/a", "unix:/run/a"),
            ("unix", "unix:"),
            ("1", "unix:"),
            ("http://localhost:9100", "unix:"),
        ] {
            assert!(setting::parse(OsStr::new(value), "1").is_none(), "{value}");
            assert_eq!(meant(OsStr::new(value)), right, "{value}");
            assert!(setting::parse(OsStr::new(right), "1").is_some(), "{right}");
        }
        assert_eq!(
            (quoted("a b"), quoted("it's"), quoted("a-%p.sock")),
            ("'a b'".into(), r"'it'\''s'".into(), "a-%p.sock".into())
        );
    }

    #[test]
    fn a_path_is_looked_at() {
        let directory = std::env::temp_dir().join(format!("rpma-doctor-metrics-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name).display().to_string();
        fs::write(at("a"), "").unwrap();
        let say = |value: String| text_of(|report| of_value(OsStr::new(&value), report));
        assert!(
            say(format!("file:{},0.5", at("new")))
                .starts_with("ok    metrics     the counters are written to ")
        );
        assert!(say(format!("file:{},1", at("a"))).starts_with("ok "));
        assert!(say(format!("unix:{}", at("a-%p.sock"))).contains("/a-%p.sock gets the counters"));
        assert!(say(format!("unix:{}", at("a"))).contains(&format!("fix: rm {}", at("a"))));
        assert!(say(format!("file:{},1", directory.display())).contains("/rpma.prom,10"));
        assert!(say(format!("file:{},1", at("none/b"))).contains(&format!("fix: mkdir -p {}", at("none"))));
        assert!(say(format!("file:{},1", at("a/b"))).contains("a is not a directory"));
        assert!(say(format!("unix:{}", at("%p/b"))).contains("would differ for each process"));
        assert!(say(format!("unix:{}", at(&"b".repeat(LONGEST)))).contains("at most 107 bytes"));
        // The kernel has the same limit on the length of a path.
        let path = |len: usize| std::path::PathBuf::from("/".repeat(len));
        let fits = |path: std::path::PathBuf| std::os::unix::net::SocketAddr::from_pathname(path).is_ok();
        assert!(fits(path(LONGEST)) && !fits(path(LONGEST + 1)));
        fs::remove_dir_all(&directory).unwrap();
    }
}
