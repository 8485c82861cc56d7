// SPDX-License-Identifier: BSD-3-Clause
//! The sockets and files with the counters of processes.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::output::printable_lines;

/// How long a process may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of a text that is read.
const SIZE: u64 = 64 << 20;

/// The directories in which `RPMA_METRICS=unix:` creates sockets.
pub(crate) fn directories() -> Vec<PathBuf> {
    let run_time = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let own = PathBuf::from(format!("/tmp/rpma-{}", rustix::process::geteuid().as_raw()));
    run_time.map(|path| path.join("rpma")).into_iter().chain([own]).collect()
}

/// The sockets in a directory; none if it cannot be read.
pub(super) fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    sockets
}

/// The text of the counters at a path. It may be another user's: no control character reaches the terminal,
/// and what would block, such as a FIFO, is not opened.
pub(super) fn read(path: &Path) -> io::Result<String> {
    unfiltered(path).map(|text| printable_lines(&text))
}

fn unfiltered(path: &Path) -> io::Result<String> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() {
        return text(File::open(path)?);
    }
    if !kind.is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a socket nor a file"));
    }
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let answer = match text(stream) {
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        answer => answer,
    }?;
    match answer.split_once("\r\n\r\n") {
        Some((head, text)) if head.starts_with("HTTP/1.") && head.contains(" 200 ") => Ok(text.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not answer as librpma does")),
    }
}

fn text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(SIZE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn of_a_socket_and_of_a_file() {
        let directory = env::temp_dir().join(format!("rpma-top-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (socket, file) = (directory.join("1.sock"), directory.join("1.prom"));
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = std::thread::spawn(move || {
            for answer in ["HTTP/1.0 200 OK\r\nA: b\r\n\r\na 1\n", "HTTP/1.0 503 No\r\n\r\n", "hello\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 100];
                let len = stream.read(&mut request).unwrap();
                assert!(request[..len].ends_with(b"\r\n\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(read(&socket).unwrap(), "a 1\n");
        for _ in 0..2 {
            assert_eq!(read(&socket).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        serving.join().unwrap();
        assert_eq!(read(&socket).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        fs::write(&file, "b 2\n\x1b[2Jc\u{9b}\n").unwrap();
        assert_eq!(read(&file).unwrap(), "b 2\n?[2Jc?\n");
        assert_eq!(read(Path::new("/dev/null")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(sockets(&directory), [socket]);
        assert!(sockets(&directory.join("none")).is_empty());
        fs::remove_dir_all(&directory).unwrap();
    }
}
