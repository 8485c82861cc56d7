// SPDX-License-Identifier: BSD-3-Clause
//! One end of a connection: what carries it, and which librpma uses it.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::child;
use crate::library::{self, Library, SONAME};
use crate::prefix;

const PRELOAD: &str = "libsoftverbs.so";
/// The variable that tells a process under test which librpma it must have loaded: `c` or `ours`.
const LIBRARY: &str = "RPMA_SELFTEST_LIBRARY";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Carrier {
    /// The RDMA device of the address.
    Device,
    /// Software RDMA, by transport.
    Iwarp,
    Roce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) carrier: Carrier,
    /// Whether the library is the C librpma.
    pub(super) is_c: bool,
}

impl Carrier {
    pub(super) fn ours(self) -> End {
        End { carrier: self, is_c: false }
    }

    pub(super) fn c(self) -> End {
        End { carrier: self, is_c: true }
    }
}

impl End {
    pub(super) fn name(self) -> String {
        let carrier = match self.carrier {
            Carrier::Device => "device",
            Carrier::Iwarp => "soft iWARP",
            Carrier::Roce => "soft RoCE",
        };
        format!("{carrier}{}", if self.is_c { ", C" } else { "" })
    }

    /// This program with the settings of this end.
    pub(super) fn command(self, c_library: Option<&Path>) -> Result<Command, String> {
        let mut command = Command::new(child::program()?);
        for name in ["RPMA_PROVIDER", "SOFTVERBS_TRANSPORT", "SOFTVERBS_ONLY", "RPMA_METRICS"] {
            command.env_remove(name);
        }
        command.env(LIBRARY, if self.is_c { "c" } else { "ours" });
        let transport = match self.carrier {
            Carrier::Device => None,
            Carrier::Iwarp => Some("iwarp"),
            Carrier::Roce => Some("roce"),
        };
        if let Some(transport) = transport {
            command.env("SOFTVERBS_TRANSPORT", transport);
        }
        match (self.is_c, transport) {
            (false, None) => drop(command.env("RPMA_PROVIDER", "rdma-core")),
            (false, Some(_)) => drop(command.env("RPMA_PROVIDER", "soft")),
            (true, _) => {
                let library = c_library.ok_or("no C librpma is installed here")?;
                command.env("LD_LIBRARY_PATH", directory(library)?);
                if transport.is_some() {
                    let preload =
                        prefix::library(PRELOAD).ok_or(format!("{PRELOAD} is not installed here"))?;
                    command.env("LD_PRELOAD", preload).env("SOFTVERBS_ONLY", "1");
                }
            }
        }
        Ok(command)
    }
}

/// The librpma that this process has loaded, if it is that of its end; ours has rpma_version(3).
pub(super) fn loaded() -> Result<&'static Library, String> {
    let library = library::for_tools()?;
    let is_c = std::env::var(LIBRARY).is_ok_and(|wanted| wanted == "c");
    is_wanted(is_c, library.version().as_deref()).map(|()| library)
}

fn is_wanted(is_c: bool, version: Option<&str>) -> Result<(), String> {
    match (is_c, version) {
        (true, None) | (false, Some(_)) => Ok(()),
        (true, Some(version)) => Err(format!("librpma {version} was loaded instead of the C librpma")),
        (false, None) => Err("the C librpma was loaded instead of ours: LD_LIBRARY_PATH".to_owned()),
    }
}

/// The directory in which the dynamic linker finds the library.
fn directory(library: &Path) -> Result<PathBuf, String> {
    let path =
        if library.is_dir() { library.to_owned() } else { library.parent().unwrap_or(library).to_owned() };
    match path.join(SONAME).exists() {
        true => Ok(path),
        false => Err(format!("there is no {SONAME} in {}", path.display())),
    }
}

/// Whether a library is the C librpma: ours has rpma_version(3).
pub(super) fn is_c(library: &Path) -> bool {
    std::fs::read(library).is_ok_and(|bytes| !crate::elf::names_any(&bytes, &["rpma_version"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_its_settings() {
        let of = |end: End| -> Vec<(String, Option<String>)> {
            let command = end.command(None).unwrap();
            let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
        };
        let has = |end: End, name: &str, value: Option<&str>| {
            let wanted = (name.to_owned(), value.map(str::to_owned));
            assert!(of(end).contains(&wanted), "{end:?} {wanted:?}");
        };
        has(Carrier::Device.ours(), "RPMA_PROVIDER", Some("rdma-core"));
        has(Carrier::Device.ours(), "SOFTVERBS_TRANSPORT", None);
        has(Carrier::Roce.ours(), "RPMA_PROVIDER", Some("soft"));
        has(Carrier::Roce.ours(), "SOFTVERBS_TRANSPORT", Some("roce"));
        assert!(Carrier::Device.c().command(None).is_err());
        assert_eq!(Carrier::Iwarp.c().name(), "soft iWARP, C");
    }

    #[test]
    fn the_loaded_library_must_be_that_of_the_end() {
        assert!(is_wanted(false, Some("1.4.0")).is_ok() && is_wanted(true, None).is_ok());
        assert!(is_wanted(true, Some("1.4.0")).is_err() && is_wanted(false, None).is_err());
    }
}
