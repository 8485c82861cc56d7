// SPDX-License-Identifier: BSD-3-Clause
//! The findings of a run (`rpma run --fail-on-misuse`): the misuses that strict mode reports, the faults that
//! are injected, and the operations, of a program and of all programs that it starts.
//!
//! `rpma run` creates a file that only its user can open, and passes the path in an environment variable.
//! Each process maps the file: one with `libsoftverbs.so` when it starts, one with only librpma when it
//! creates its first queue pair. A child of fork(2) has the mapping of its parent, and a program that is
//! executed maps the file again. So a process that closes all descriptors, changes its root directory or its
//! user still counts; and since it counts in the file itself, what a killed process has counted stays.
//!
//! The other processes are of the same user, but may be faulty: the content is not trusted beyond being
//! bytes. A process that truncates the file ends the others with SIGBUS; it could as well kill them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::{self, Write};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// How many misuses have their text in the file; the others are only counted.
pub const TEXTS: usize = 32;
/// Bytes of a text; a longer one is cut.
const TEXT_SIZE: usize = 1020;
/// Changes with the layout: libraries of another release must not count in this file.
const LAYOUT: u64 = u64::from_be_bytes(*b"rpmarun1");

/// The description of a misuse.
#[repr(C)]
struct Text {
    /// 0 until the text is complete.
    len: AtomicU32,
    bytes: [AtomicU8; TEXT_SIZE],
}

/// The content of the file.
#[repr(C)]
pub struct Findings {
    layout: AtomicU64,
    processes: AtomicU64,
    queue_pairs: AtomicU64,
    operations: AtomicU64,
    faults: AtomicU64,
    misuses: AtomicU64,
    texts: [Text; TEXTS],
}

/// The values at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct Totals {
    /// Programs that have mapped the file, in a process with librpma and `libsoftverbs.so` twice; a child of
    /// fork(2) is not counted.
    pub processes: u64,
    /// Queue pairs that were created.
    pub queue_pairs: u64,
    /// Work requests that were posted to send queues.
    pub operations: u64,
    /// Faults that have taken effect.
    pub faults: u64,
    /// Violations of rules of strict mode, each once per object.
    pub misuses: u64,
    /// The messages of the first [`TEXTS`] of these. A process that was killed may have left one incomplete;
    /// it is not included.
    pub texts: Vec<String>,
}

/// The findings of this process; null without a file.
static ATTACHED: AtomicPtr<Findings> = AtomicPtr::new(ptr::null_mut());

/// The findings in which this process counts, if it has mapped a file.
#[inline]
pub fn attached() -> Option<&'static Findings> {
    // SAFETY: a pointer in `ATTACHED` is that of a mapping that is never removed.
    unsafe { ATTACHED.load(Ordering::Acquire).as_ref() }
}

/// Maps the file, unless this process has done so before. Fails if another user owns the file, or another
/// release has created it.
pub fn attach(path: &Path) -> io::Result<()> {
    if attached().is_some() {
        return Ok(());
    }
    let mapping = Mapping::open(path)?;
    // Threads may do this at the same time: the first mapping is kept.
    if ATTACHED.compare_exchange(ptr::null_mut(), mapping.0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        mapping.get().processes.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(mapping);
    }
    Ok(())
}

/// A mapping of the file.
struct Mapping(*mut Findings);

impl Mapping {
    /// Maps an existing file.
    fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a file of this user"));
        }
        let is_whole = found.len() == size_of::<Findings>() as u64;
        let mapping = if is_whole { Some(Self::of(&file)?) } else { None };
        mapping
            .filter(|mapping| mapping.get().layout.load(Ordering::Acquire) == LAYOUT)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not made by this release"))
    }

    /// `file` has the size of [`Findings`].
    fn of(file: &File) -> io::Result<Self> {
        let (size, access) = (size_of::<Findings>(), libc::PROT_READ | libc::PROT_WRITE);
        // Not mmap64, which rustix calls: the tests that let calls fail replace mmap.
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(start.cast())) }
    }

    fn get(&self) -> &Findings {
        // SAFETY: the mapping has the size of `Findings` and lasts until this is dropped. It has only atomic
        // integers, of which any bytes are a value, also while other processes write.
        unsafe { &*self.0 }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `of`, with this size, and only `attach` passes its address on, in
        // which case it is not dropped.
        unsafe { libc::munmap(self.0.cast::<c_void>(), size_of::<Findings>()) };
    }
}

/// Stores a text; what does not fit is left out.
struct Writer<'a> {
    to: &'a Text,
    len: usize,
}

impl Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (byte, to) in text.bytes().zip(self.to.bytes.iter().skip(self.len)) {
            to.store(byte, Ordering::Relaxed);
            self.len += 1;
        }
        Ok(())
    }
}

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// The name of this program.
fn program() -> String {
    // SAFETY: the C library sets the variable before the program starts; it is NULL or a C string
    // (program_invocation_name(3)), and programs do not change it while they call this library.
    let name = unsafe {
        if program_invocation_short_name.is_null() {
            return String::new();
        }
        CStr::from_ptr(program_invocation_short_name)
    };
    name.to_string_lossy().into_owned()
}

impl Findings {
    /// A queue pair was created.
    pub fn queue_pair(&self) {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was posted to a send queue.
    #[inline]
    pub fn operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// A fault has taken effect.
    pub fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// A rule of strict mode was violated for the first time by an object.
    pub fn misuse(&self, what: fmt::Arguments<'_>) {
        let number = self.misuses.fetch_add(1, Ordering::Relaxed);
        let Some(to) = usize::try_from(number).ok().and_then(|number| self.texts.get(number)) else { return };
        let mut writer = Writer { to, len: 0 };
        // `Writer` never fails.
        let _ = write!(writer, "{}[{}]: {what}", program(), std::process::id());
        to.len.store(writer.len as u32, Ordering::Release);
    }

    fn totals(&self) -> Totals {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals {
            processes: value(&self.processes),
            queue_pairs: value(&self.queue_pairs),
            operations: value(&self.operations),
            faults: value(&self.faults),
            misuses: value(&self.misuses),
            texts: self.texts.iter().filter_map(Text::get).collect(),
        }
    }
}

impl Text {
    fn get(&self) -> Option<String> {
        let len = self.len.load(Ordering::Acquire) as usize;
        let bytes: Vec<u8> = self.bytes.iter().take(len).map(|byte| byte.load(Ordering::Relaxed)).collect();
        let printable = |of: char| if of.is_control() { '?' } else { of };
        (len > 0).then(|| String::from_utf8_lossy(&bytes).chars().map(printable).collect())
    }
}

/// The file of a run; it is removed when this is dropped.
pub struct Run {
    path: PathBuf,
    mapping: Mapping,
}

impl Run {
    /// Creates a file in shared memory, or else in the directory for temporary files.
    pub fn create() -> io::Result<Self> {
        Self::create_in(Path::new("/dev/shm")).or_else(|_| Self::create_in(&std::env::temp_dir()))
    }

    fn create_in(directory: &Path) -> io::Result<Self> {
        // The program may change its directory.
        let template = fs::canonicalize(directory)?.join("rpma-run-XXXXXX");
        let template = CString::new(template.as_os_str().as_bytes())?.into_raw();
        // SAFETY: `template` comes from `into_raw`; mkostemp(3) only replaces its last six characters. It
        // creates the file with mode 0600. The new descriptor has no other owner.
        let (fd, path) = unsafe { (libc::mkostemp(template, libc::O_CLOEXEC), CString::from_raw(template)) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes()));
        // SAFETY: the call above has returned the descriptor, which has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        // Allocated now: a full file system would end a process that writes to the mapping. Not by
        // fallocate(2), which rustix has: some file systems lack it, and for those the C library writes.
        // SAFETY: the call takes no memory.
        let failed = unsafe { libc::posix_fallocate(fd, 0, size_of::<Findings>() as libc::off_t) };
        let mapping =
            if failed == 0 { Mapping::of(&file) } else { Err(io::Error::from_raw_os_error(failed)) };
        match mapping {
            Ok(mapping) => {
                mapping.get().layout.store(LAYOUT, Ordering::Release);
                Ok(Self { path, mapping })
            }
            Err(why) => {
                // The first failure is the one to report.
                let _ = fs::remove_file(path);
                Err(why)
            }
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the processes have counted so far.
    pub fn totals(&self) -> Totals {
        self.mapping.get().totals()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The program may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_process_counts_in_the_file_of_the_run() {
        let run = Run::create().unwrap();
        let path = run.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let nothing =
            Totals { processes: 0, queue_pairs: 0, operations: 0, faults: 0, misuses: 0, texts: Vec::new() };
        assert_eq!(run.totals(), nothing);
        assert!(attached().is_none());
        attach(&path).unwrap();
        attach(&path).unwrap();
        let findings = attached().unwrap();
        findings.queue_pair();
        (0..7).for_each(|_| findings.operation());
        findings.fault();
        findings.misuse(format_args!("queue pair {}: a\nb \u{1b}[m", 5));
        let totals = run.totals();
        assert_eq!((totals.processes, totals.queue_pairs, totals.operations, totals.faults), (1, 1, 7, 1));
        let end = format!("[{}]: queue pair 5: a?b ?[m", std::process::id());
        assert!(
            totals.misuses == 1 && totals.texts.len() == 1 && totals.texts[0].ends_with(&end),
            "{totals:?}"
        );
        // More of them, and a text that does not fit.
        findings.misuse(format_args!("{}", "x".repeat(2 * TEXT_SIZE)));
        (0..TEXTS).for_each(|number| findings.misuse(format_args!("{number}")));
        let totals = run.totals();
        assert_eq!((totals.misuses, totals.texts.len()), (TEXTS as u64 + 2, TEXTS));
        assert_eq!(totals.texts[1].len(), TEXT_SIZE);
        // One that was killed in between.
        findings.texts[2].len.store(0, Ordering::Relaxed);
        findings.texts[3].len.store(u32::MAX, Ordering::Relaxed);
        assert_eq!((run.totals().texts.len(), run.totals().texts[2].len()), (TEXTS - 1, TEXT_SIZE));
        drop(run);
        assert!(!path.exists());
        findings.operation();
    }

    #[test]
    fn only_a_file_of_a_run_of_this_release_is_mapped() {
        let run = Run::create().unwrap();
        let refused = |path: &Path| Mapping::open(path).err().map(|why| why.to_string());
        assert_eq!(refused(run.path()), None);
        let link = std::env::temp_dir().join(format!("rpma-run-link-{}", std::process::id()));
        symlink(run.path(), &link).unwrap();
        assert!(refused(&link).is_some());
        fs::remove_file(&link).unwrap();
        assert!(refused(Path::new("/dev/null")).is_some_and(|why| why.contains("not a file of this user")));
        run.mapping.get().layout.store(LAYOUT + 1, Ordering::Relaxed);
        assert!(refused(run.path()).is_some_and(|why| why.contains("not made by this release")));
        run.mapping.get().layout.store(LAYOUT, Ordering::Relaxed);
        let file = OpenOptions::new().write(true).open(run.path()).unwrap();
        file.set_len(4096).unwrap();
        assert!(refused(run.path()).is_some_and(|why| why.contains("not made by this release")));
        let path = run.path().to_owned();
        drop(run);
        assert!(refused(&path).is_some());
        assert!(Run::create_in(Path::new("/none")).is_err());
    }
}
