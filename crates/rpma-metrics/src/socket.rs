// SPDX-License-Identifier: BSD-3-Clause
//! The socket: a client that connects gets the counters, as an HTTP response if it sends an HTTP request.

use std::ffi::c_int;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;

use super::setting;

/// How long a client may take to begin its request; one that sends nothing gets the plain text.
const REQUEST: Duration = Duration::from_millis(100);
/// How long it may take for the whole request, and for each part of the response.
const IO_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum length of a request.
const REQUEST_SIZE: usize = 8192;
/// The type of the text: OpenMetrics 1.0, which Prometheus reads.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const BACKLOG: c_int = 16;
/// The longest path of a socket in bytes, which leaves room for the zero at its end (unix(7)).
const LONGEST: usize = 107;

/// The descriptor that a child of fork(2) must close: it would keep listening after the parent has ended.
static LISTENER: AtomicI32 = AtomicI32::new(-1);

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

extern "C" fn in_child() {
    let fd = LISTENER.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: the descriptor is the inherited copy of the parent's, which nothing in this process uses.
        // Not with close(3), which is a cancellation point.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

/// The directory of the default sockets: `rpma` in `XDG_RUNTIME_DIR`, or a directory of the user in `/tmp`.
pub(super) fn directory() -> PathBuf {
    match setting::variable(c"XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(path) => path.join("rpma"),
        None => PathBuf::from(format!("/tmp/rpma-{}", geteuid().as_raw())),
    }
}

/// Creates that directory, or refuses an existing one to which others can write.
pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user alone", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    // rustix accepts a path that leaves no room for the zero.
    if path.as_os_str().len() > LONGEST {
        let why = format!("the path of a socket has {LONGEST} bytes at most");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(SocketAddrUnix::new(path)?)
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?)
}

fn bind(address: &SocketAddrUnix) -> io::Result<UnixListener> {
    let fd = socket(SocketFlags::empty())?;
    // The mode of the socket becomes that of the file, restricted by the umask (unix(7)), so that no other
    // user can connect in between.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    net::bind(&fd, address)?;
    net::listen(&fd, BACKLOG)?;
    Ok(fd.into())
}

/// Whether the path is a socket without a listener.
fn is_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    // Non-blocking, in case the backlog of a listener is full.
    let fd = socket(SocketFlags::NONBLOCK)?;
    Ok(net::connect(&fd, address) == Err(Errno::CONNREFUSED))
}

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener(UnixListener);

impl Listener {
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        self.0.accept().map(|(stream, _)| stream)
    }
}

impl Drop for Listener {
    /// A child must not close the number once another file may have it.
    fn drop(&mut self) {
        let _ = LISTENER.compare_exchange(self.0.as_raw_fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Listens at `path`, and replaces the socket of a process that has ended.
pub(super) fn listen(path: &Path) -> io::Result<Listener> {
    let address = address(path)?;
    let listener = match bind(&address) {
        Err(why) if why.kind() == io::ErrorKind::AddrInUse && is_stale(path, &address)? => {
            fs::remove_file(path)?;
            bind(&address)?
        }
        bound => bound?,
    };
    static HANDLERS: AtomicBool = AtomicBool::new(false);
    if !HANDLERS.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler is a function of this library; if it is unloaded, the C library removes it.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    }
    LISTENER.store(listener.as_raw_fd(), Ordering::Relaxed);
    Ok(Listener(listener))
}

/// The kind of a client's request.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// No request, or not HTTP.
    Text,
    Get,
    Head,
    /// HTTP with another method.
    Other,
}

fn parse(request: &[u8]) -> Request {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    match (words.next(), words.nth(1)) {
        (Some(method), Some(version)) if version.starts_with(b"HTTP/") => match method {
            b"GET" => Request::Get,
            b"HEAD" => Request::Head,
            _ => Request::Other,
        },
        _ => Request::Text,
    }
}

/// Reads to the end of the request's head: closing a socket with unread bytes would reset the connection, and
/// the client would lose the response.
fn request(stream: &mut UnixStream) -> io::Result<Request> {
    let until = Instant::now() + IO_TIMEOUT;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    stream.set_read_timeout(Some(REQUEST))?;
    while request.len() < REQUEST_SIZE && Instant::now() < until {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(len) => request.extend_from_slice(&part[..len]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if [&b"\r\n\r\n"[..], b"\n\n"].iter().any(|end| request.windows(end.len()).any(|here| here == *end)) {
            break;
        }
    }
    Ok(parse(&request))
}

/// Serves one client. Generates the text when the request has arrived.
pub(super) fn answer(mut stream: UnixStream, text: impl FnOnce() -> Option<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let wanted = request(&mut stream)?;
    let (status, text) = match (&wanted, text()) {
        (Request::Other, _) => ("405 Method Not Allowed", String::new()),
        (_, Some(text)) => ("200 OK", text),
        (_, None) => ("503 Service Unavailable", String::new()),
    };
    if wanted != Request::Text {
        let len = text.len();
        let head = format!(
            "HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
    }
    if wanted != Request::Head {
        stream.write_all(text.as_bytes())?;
    }
    // shutdown(2) ends the stream even if a child of fork(2) has a copy of the descriptor.
    stream.shutdown(Shutdown::Both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn requests() {
        for (request, expected) in [
            (&b""[..], Request::Text),
            (b"\n", Request::Text),
            (b"hello there", Request::Text),
            (b"GET /metrics", Request::Text),
            (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", Request::Get),
            (b"GET / HTTP/1.0\r\n\r\n", Request::Get),
            (b"HEAD / HTTP/1.1\r\n\r\n", Request::Head),
            (b"POST / HTTP/1.1\r\n\r\n", Request::Other),
            (&[0xff; 100], Request::Text),
        ] {
            assert_eq!(parse(request), expected, "{request:?}");
        }
    }

    fn answered(request: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(request).unwrap();
        let serving = std::thread::spawn(move || answer(server, || Some("rpma_regions 1\n".to_owned())));
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        serving.join().unwrap().unwrap();
        got
    }

    #[test]
    fn the_text_without_or_with_a_head() {
        assert_eq!(answered(b""), "rpma_regions 1\n");
        let got = answered(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            got.starts_with("HTTP/1.0 200 OK\r\n") && got.contains("\r\nContent-Length: 15\r\n"),
            "{got}"
        );
        assert!(got.ends_with("\r\n\r\nrpma_regions 1\n"), "{got}");
        assert!(answered(b"HEAD / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(answered(b"PUT / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 405 "));
    }

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let directory = std::env::temp_dir().join(format!("rpma-socket-{}", std::process::id()));
        prepare(&directory).unwrap();
        prepare(&directory).unwrap();
        let path = directory.join("a.sock");
        let first = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        drop(listen(&path).unwrap());
        assert_eq!(LISTENER.load(Ordering::Relaxed), -1, "a child would close what has its number now");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
        let longest = directory.join("x".repeat(LONGEST - directory.as_os_str().len() - 1));
        drop(listen(&longest).unwrap());
        let longer = PathBuf::from(format!("{}x", longest.display()));
        assert_eq!(listen(&longer).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(prepare(&directory).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir_all(&directory).unwrap();
    }
}
