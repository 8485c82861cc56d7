// SPDX-License-Identifier: BSD-3-Clause
//! A host, and optionally a port, of the command line.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// `HOST`, `HOST:PORT`, an address of IPv6 with or without brackets, `[ADDR]:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or("missing ] after the address")?;
            match rest {
                "" => (host, None),
                rest => (host, Some(rest.strip_prefix(':').ok_or("only :PORT may follow ]")?)),
            }
        } else {
            match text.split_once(':') {
                // an address of IPv6
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        if host.is_empty() {
            return Err("no host given".to_owned());
        }
        let port = match port {
            None => None,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(format!("\"{port}\" is not a port number from 1 to 65535")),
                Ok(port) => Some(port),
            },
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (None, _) => f.write_str(&self.host),
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
        }
    }
}

impl Address {
    /// Resolves the name to its first address.
    pub(crate) fn resolve(&self) -> io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port.unwrap_or(0)).to_socket_addrs()?;
        found.next().ok_or_else(|| io::Error::other("the name has no address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, host, port) in [
            ("10.0.0.2", "10.0.0.2", None),
            ("10.0.0.2:7204", "10.0.0.2", Some(7204)),
            ("server:1", "server", Some(1)),
            ("::1", "::1", None),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[::1]", "::1", None),
            ("[::1]:65535", "::1", Some(65535)),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
        }
        let address: Address = "[::1]:7".parse().unwrap();
        assert_eq!((address.to_string(), address.resolve().unwrap().port()), ("[::1]:7".to_owned(), 7));
    }

    #[test]
    fn what_is_none() {
        for text in
            ["", ":7204", "host:", "host:0", "host:65536", "host:http", "host:-1", "[::1", "[::1]7", "[]:7"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
