// SPDX-License-Identifier: BSD-3-Clause
//! `rpma run`: runs a program with `libsoftverbs.so` preloaded.

use clap::{Args, ValueEnum};
use std::env;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{elf, prefix};

const LIBRARY: &str = "libsoftverbs.so";
/// The audit library that makes dlsym(3) and dlvsym(3) find its functions as well.
const AUDIT: &str = "libsoftverbs-dl.so";
/// The libraries whose functions are replaced.
const REPLACED: [&str; 2] = ["libibverbs.so", "librdmacm.so"];
/// Exit statuses as of env(1) and timeout(1): an error of `rpma run` itself, such as wrong options; a program
/// that cannot be executed; one that does not exist.
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The values of SOFTVERBS_STRICT: the effect of operations that an adapter rejects.
#[derive(Clone, Copy, ValueEnum)]
enum Strict {
    Off,
    Warn,
    Adapter,
}

impl Strict {
    fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Adapter => "adapter",
        }
    }
}

/// The protocol of the device: the values of SOFTVERBS_TRANSPORT.
#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    /// RoCE v2, or iWARP with a warning if UDP port 4791 is in use by another user or by the kernel
    Auto,
    /// RoCE v2 over UDP port 4791: the program or rdma_cm connects queue pairs; datagrams
    Roce,
    /// iWARP over TCP: rdma_cm connects queue pairs; programs of different users reach each other
    Iwarp,
}

impl Transport {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Roce => "roce",
            Self::Iwarp => "iwarp",
        }
    }
}

/// Whether dlsym(3) finds soft0.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dlsym {
    /// If the program, one of its arguments or a file that an argument names contains the name of libibverbs
    /// or librdmacm, and that file is not linked with it
    Auto,
    /// In the program and all programs that it starts
    On,
    /// Never
    Off,
}

/// Run a program with the software RDMA device soft0
///
/// The program and all programs that it starts have a device soft0, which serves every address of the host,
/// in addition to the RDMA devices of the host. A preloaded library (libsoftverbs.so) provides it, so the
/// program needs no change. The exit status is that of the program; 125: an option is wrong, or the program
/// cannot be run with the device, 126: it cannot be executed, 127: it was not found.
#[derive(Args)]
pub(crate) struct Run {
    /// Print what is done, and show the messages of soft0 at level info
    #[arg(short, long)]
    verbose: bool,
    /// Make soft0 the only device: adapters are not listed
    #[arg(long)]
    only: bool,
    /// The transport of soft0, the same at both ends; without it SOFTVERBS_TRANSPORT, or else auto
    #[arg(long, value_name = "TRANSPORT", value_enum)]
    transport: Option<Transport>,
    /// Reject what an RDMA adapter rejects, instead of permitting it; with "warn" only log it, once per place
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "adapter")]
    strict: Option<Strict>,
    /// Inject these faults, for example "seed=7; peer:kill@op=1000"; softverbs(7) has the rules
    #[arg(long, value_name = "RULES")]
    faults: Option<String>,
    /// Let dlsym and dlvsym find soft0 in libibverbs and librdmacm, for programs that load these with dlopen
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "on")]
    dlsym: Dlsym,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    /// Replaces this process with the program; returns only if that failed.
    pub(crate) fn run(&self) -> ExitCode {
        let (code, why) = self.try_run();
        eprintln!("rpma run: {why}");
        ExitCode::from(code)
    }

    fn say(&self, what: &str) {
        if self.verbose {
            eprintln!("rpma run: {what}");
        }
    }

    /// Rejects invalid rules, which would inject no fault, so that the program would pass its test.
    fn check_faults(&self) -> Result<(), String> {
        let (from, rules) = match (&self.faults, env::var_os("SOFTVERBS_FAULTS")) {
            (Some(rules), _) => ("--faults", rules.clone()),
            (None, Some(rules)) => ("SOFTVERBS_FAULTS", rules.to_string_lossy().into_owned()),
            (None, None) => return Ok(()),
        };
        fault_rules::parse(&rules).map(drop).map_err(|wrong| format!("{from} {rules:?}: {wrong}"))
    }

    /// Whether the audit library is needed. It is not loaded without need, because child processes inherit
    /// it, and valgrind and ThreadSanitizer fail with any audit library.
    fn audits(&self, program: &Path) -> bool {
        match self.dlsym {
            Dlsym::On => true,
            Dlsym::Off => false,
            Dlsym::Auto => can_audit() && (elf::may_load(program, &REPLACED) || self.starts_loader(program)),
        }
    }

    /// Whether an argument is or names a program or script that may load the libraries, as for an
    /// interpreter, a shell or timeout(1). Not for valgrind, which fails with an audit library.
    fn starts_loader(&self, program: &Path) -> bool {
        let is_valgrind = program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"valgrind"));
        let may_load = |argument: &OsString| {
            let path = Path::new(argument);
            elf::names_any(argument.as_bytes(), &REPLACED)
                || if path.is_file() { Some(path.to_owned()) } else { find(path) }
                    .is_some_and(|file| elf::may_load(&file, &REPLACED))
        };
        !is_valgrind && self.program.iter().skip(1).any(may_load)
    }

    fn try_run(&self) -> (u8, String) {
        let Some((name, arguments)) = self.program.split_first() else {
            return (FAILED, "no program was given".to_owned());
        };
        let shown = name.to_string_lossy();
        if let Err(why) = self.check_faults() {
            return (FAILED, why);
        }
        let Some(program) = find(Path::new(name)) else { return (NOT_FOUND, format!("{shown}: not found")) };
        if let Some(why) = elf::obstacle(&program) {
            return (FAILED, format!("{shown} {why}"));
        }
        let mut command = Command::new(&program);
        command.arg0(name).args(arguments);
        let mut variables = vec![("LD_PRELOAD", LIBRARY, env::var_os("LD_PRELOAD"))];
        if self.audits(&program) {
            variables.push(("LD_AUDIT", AUDIT, env::var_os("LD_AUDIT")));
        } else if self.dlsym == Dlsym::Auto {
            self.say("neither the program nor an argument names libibverbs or librdmacm, so dlsym does not find soft0; with --dlsym it does");
        }
        for (variable, file, before) in variables {
            let mut value = match library(file) {
                Ok(library) => OsString::from(library),
                Err(why) if file == AUDIT && self.dlsym == Dlsym::Auto => {
                    self.say(&format!("{why} dlsym does not find soft0"));
                    continue;
                }
                Err(why) => return (FAILED, why),
            };
            if let Some(before) = before.filter(|before| !before.is_empty()) {
                value.push(":");
                value.push(before);
            }
            self.say(&format!("{variable}={}", value.to_string_lossy()));
            command.env(variable, value);
        }
        if self.only {
            self.say("soft0 is the only device");
            command.env("SOFTVERBS_ONLY", "1");
        }
        if let Some(transport) = self.transport.or_else(default_transport) {
            self.say(&format!("SOFTVERBS_TRANSPORT={}", transport.word()));
            command.env("SOFTVERBS_TRANSPORT", transport.word());
        }
        if let Some(mode) = self.strict {
            self.say(&format!("SOFTVERBS_STRICT={}", mode.word()));
            command.env("SOFTVERBS_STRICT", mode.word());
        }
        if let Some(rules) = &self.faults {
            self.say(&format!("SOFTVERBS_FAULTS={rules}"));
            command.env("SOFTVERBS_FAULTS", rules);
        }
        if self.verbose && env::var_os("SOFTVERBS_LOG").is_none() {
            command.env("SOFTVERBS_LOG", "info");
        }
        self.say(&format!("running {}", program.display()));
        let why = command.exec();
        (NOT_EXECUTABLE, format!("{shown}: {why}"))
    }
}

/// The transport without `--transport`. `None`: the environment has one. The library makes the choice of
/// `auto` when the program first needs the port.
fn default_transport() -> Option<Transport> {
    let is_set = env::var_os("SOFTVERBS_TRANSPORT").is_some_and(|value| !value.is_empty());
    (!is_set).then_some(Transport::Auto)
}

/// Whether function calls have no overhead when an audit library is loaded, and the dynamic linker reports
/// the lookups of dlsym(3) to it: glibc 2.35 or newer.
fn can_audit() -> bool {
    // SAFETY: the version is a C string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut numbers =
        version.to_str().unwrap_or_default().split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    cfg!(target_pointer_width = "64") && version >= (2, 35)
}

/// Finds the file that a shell would run.
fn find(name: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return name.exists().then(|| name.to_owned());
    }
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(is_program)
}

/// The library in the prefix of this program, or else that of the system. It is loaded as a test, because the
/// dynamic linker runs a program without a preloaded library that it cannot load.
fn library(file: &str) -> Result<PathBuf, String> {
    let library = prefix::library(file).unwrap_or_else(|| file.into());
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|why| why.to_string())?;
    // SAFETY: `name` is a C string, and the library's constructors have no requirements.
    if unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null() {
        return Err(format!("{} cannot be loaded; is the package softverbs installed?", library.display()));
    }
    Ok(library)
}
