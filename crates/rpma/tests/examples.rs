// SPDX-License-Identifier: BSD-3-Clause
//! The examples, each as its first lines say, over software RDMA.

use std::env::current_exe;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

fn example(name: &str) -> Command {
    // Beside the directory of the tests; `cargo test` without a selection builds them.
    let path = current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build -p rpma --examples", path.display());
    let mut command = Command::new(path);
    command.env("RPMA_PROVIDER", "soft");
    command
}

/// A server, killed when dropped.
struct Server(Child);

impl Server {
    /// Starts it, and waits for its first line.
    fn start(name: &str, arguments: &[&str]) -> Self {
        let server = example(name).arg("serve").args(arguments).stdout(Stdio::piped()).spawn();
        let mut server = Self(server.unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving"), "{line}");
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn output(name: &str, arguments: &[&str]) -> String {
    let output = example(name).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A port that nobody uses now.
fn address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_log_survives_its_server() {
    let path: PathBuf = std::env::temp_dir().join(format!("rpma-log-{}", std::process::id()));
    let (addr, file) = (address(), path.to_str().unwrap());
    let server = Server::start("log", &[&addr, file]);
    assert_eq!(output("log", &["append", &addr, "the first"]), "record 0\n");
    drop(server);
    let server = Server::start("log", &[&addr, file]);
    assert_eq!(output("log", &["append", &addr, "the second"]), "record 1\n");
    assert_eq!(output("log", &["read", &addr]), "0: the first\n1: the second\n");
    drop(server);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_cache_is_read() {
    let addr = address();
    let _server = Server::start("cache", &[&addr, "color=blue", "fruit=apple"]);
    assert_eq!(output("cache", &[&addr, "fruit"]), "apple\n");
    assert_eq!(output("cache", &[&addr, "color"]), "blue\n");
    assert_eq!(output("cache", &[&addr, "shape"]), "(no value)\n");
}

#[test]
fn an_echo_comes_back() {
    let addr = address();
    let _server = Server::start("echo", &[&addr]);
    assert_eq!(output("echo", &[&addr, "hello"]), "hello\n");
    assert_eq!(output("echo", &[&addr, "hello again"]), "hello again\n");
}
