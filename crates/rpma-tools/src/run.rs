// SPDX-License-Identifier: BSD-3-Clause
//! `rpma run`: runs a program with `libsoftverbs.so` preloaded. With `--fail-on-misuse` the program is a
//! child, and what strict mode finds in it and in all programs that it starts decides the exit status;
//! otherwise the program replaces this process.

mod child;
mod verdict;

use clap::{Args, ValueEnum};
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, io};

use crate::{elf, prefix};
use child::End;
use rpma_metrics::findings;
use verdict::Annotations;

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

/// An exit status and its reason.
type Failure = (u8, String);

/// The values of SOFTVERBS_STRICT: the effect of operations that an adapter rejects.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
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
/// program needs no change. The exit status is that of the program; 123: it is 0, but there were misuses
/// (--fail-on-misuse), 125: an option is wrong, or the program cannot be run with the device, 126: it cannot
/// be executed, 127: it was not found.
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
    /// Reject what an RDMA adapter rejects, instead of permitting it; with "warn" only log it, once per queue
    /// pair or completion queue
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "adapter")]
    strict: Option<Strict>,
    /// Fail with status 123 if strict mode (warn, without --strict) finds misuses in the program or in
    /// programs that it starts, and print a summary
    #[arg(long)]
    fail_on_misuse: bool,
    /// The form in which --fail-on-misuse prints misuses
    #[arg(long, value_name = "FORM", value_enum, default_value = "auto", requires = "fail_on_misuse")]
    annotations: Annotations,
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
    /// Runs the program, in the place of this process unless its misuses are to be counted: then it returns
    /// only if that failed.
    pub(crate) fn run(&self) -> ExitCode {
        let result = self.command().and_then(|mut command| {
            if self.fail_on_misuse {
                return self.run_counted(&mut command);
            }
            Err(self.not_executed(&command.exec()))
        });
        ExitCode::from(result.unwrap_or_else(|(code, why)| {
            eprintln!("rpma run: {why}");
            code
        }))
    }

    /// Runs the program as a child; returns the exit status.
    fn run_counted(&self, command: &mut Command) -> Result<u8, Failure> {
        let not_counted = |why| (FAILED, format!("misuses cannot be counted: {why}"));
        let findings = findings::Run::create().map_err(not_counted)?;
        self.set(command, "SOFTVERBS_FINDINGS", findings.path());
        let end = child::run(command).map_err(|why| self.not_executed(&why))?;
        let (mut lines, status) = verdict::of(&findings.totals(), end, self.annotations);
        if let End::Killed(signal) = end {
            lines.insert(0, format!("rpma run: {}: {}", self.name(), child::signal_name(signal)));
        }
        // If standard error is closed, the exit status still tells the result.
        let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
        Ok(status)
    }

    /// The mode of strict mode; `None`: that of the environment.
    fn mode(&self) -> Result<Option<Strict>, Failure> {
        if !self.fail_on_misuse {
            return Ok(self.strict);
        }
        match self.strict {
            Some(Strict::Off) => {
                Err((FAILED, "--fail-on-misuse requires --strict=warn or --strict=adapter".to_owned()))
            }
            Some(mode) => Ok(Some(mode)),
            None if env::var_os("SOFTVERBS_STRICT").is_some_and(|mode| mode == "adapter") => Ok(None),
            None => Ok(Some(Strict::Warn)),
        }
    }

    fn name(&self) -> Cow<'_, str> {
        self.program.first().map_or(Cow::Borrowed(""), |name| name.to_string_lossy())
    }

    fn not_executed(&self, why: &io::Error) -> Failure {
        (NOT_EXECUTABLE, format!("{}: {why}", self.name()))
    }

    /// Sets a variable for the program.
    fn set(&self, command: &mut Command, variable: &str, value: impl AsRef<OsStr>) {
        self.say(&format!("{variable}={}", value.as_ref().to_string_lossy()));
        command.env(variable, value);
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

    /// The program with its arguments and environment.
    fn command(&self) -> Result<Command, Failure> {
        let Some((name, arguments)) = self.program.split_first() else {
            return Err((FAILED, "no program was given".to_owned()));
        };
        let shown = name.to_string_lossy();
        self.check_faults().map_err(|why| (FAILED, why))?;
        let mode = self.mode()?;
        let program = find(Path::new(name)).ok_or_else(|| (NOT_FOUND, format!("{shown}: not found")))?;
        if let Some(why) = elf::obstacle(&program) {
            return Err((FAILED, format!("{shown} {why}")));
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
                Err(why) => return Err((FAILED, why)),
            };
            if let Some(before) = before.filter(|before| !before.is_empty()) {
                value.push(":");
                value.push(before);
            }
            self.set(&mut command, variable, value);
        }
        if self.only {
            self.say("soft0 is the only device");
            command.env("SOFTVERBS_ONLY", "1");
        }
        if let Some(transport) = self.transport.or_else(default_transport) {
            self.set(&mut command, "SOFTVERBS_TRANSPORT", transport.word());
        }
        if let Some(mode) = mode {
            self.set(&mut command, "SOFTVERBS_STRICT", mode.word());
        }
        if let Some(rules) = &self.faults {
            self.set(&mut command, "SOFTVERBS_FAULTS", rules);
        }
        if self.verbose && ["SOFTVERBS_LOG", "RPMA_LOG"].into_iter().all(|name| env::var_os(name).is_none()) {
            command.env("SOFTVERBS_LOG", "info");
        }
        self.say(&format!("running {}", program.display()));
        Ok(command)
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
