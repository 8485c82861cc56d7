// SPDX-License-Identifier: BSD-3-Clause
//! Captures the library's log through `RPMA_LOG`, to find which provider it chose, and why.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory that the library logs to.
pub(crate) struct Messages {
    file: Option<File>,
}

impl Messages {
    /// Captures messages from now on; the library must not have been loaded yet. Without /proc nothing is
    /// captured.
    pub(crate) fn divert() -> Self {
        let Ok(fd) = memfd_create(c"rpma messages", MemfdFlags::CLOEXEC) else {
            return Self { file: None };
        };
        let file = File::from(fd);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::open(&path).is_ok().then_some(file);
        let setting = if file.is_some() { format!("notice,{path},json") } else { "off".to_owned() };
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var("RPMA_LOG", setting) };
        Self { file }
    }

    /// The messages since the last call.
    pub(crate) fn new_ones(&self) -> Vec<String> {
        self.take().into_iter().map(|(_, message)| message).collect()
    }

    /// The most informative message about a failure since the last call: the last warning or error, or else
    /// the last message.
    pub(crate) fn reason(&self) -> Option<String> {
        reason(self.take())
    }

    fn take(&self) -> Vec<(String, String)> {
        let Some(mut file) = self.file.as_ref() else { return Vec::new() };
        let mut text = String::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
        if read.is_err() || file.set_len(0).is_err() {
            return Vec::new();
        }
        text.lines().filter_map(message).collect()
    }
}

/// The level and text of a line.
fn message(line: &str) -> Option<(String, String)> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let of = |name| Some(value.get(name)?.as_str()?.to_owned());
    Some((of("level")?, of("message")?))
}

fn reason(messages: Vec<(String, String)>) -> Option<String> {
    let is_bad = |(level, _): &&(String, String)| matches!(level.as_str(), "warning" | "error" | "fatal");
    let found = messages.iter().rfind(is_bad).or(messages.last())?;
    Some(found.1.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_from_its_line() {
        let line = r#"{"time":1.000002,"level":"notice","thread":1,"file":"find.rs","line":5,"function":"f","message":"provider \"soft\""}"#;
        assert_eq!(message(line), Some(("notice".to_owned(), "provider \"soft\"".to_owned())));
        assert_eq!(message("*NOTE* old"), None);
    }

    #[test]
    fn a_warning_says_more_than_what_follows_it() {
        let of = |level: &str, text: &str| (level.to_owned(), text.to_owned());
        let reason_of = |messages: &[(String, String)]| reason(messages.to_vec());
        let all = [of("error", "a"), of("warning", "b"), of("notice", "c")];
        assert_eq!(reason_of(&all).as_deref(), Some("b"));
        assert_eq!(reason_of(&all[2..]).as_deref(), Some("c"));
        assert_eq!(reason_of(&[]), None);
    }
}
