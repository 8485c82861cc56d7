// SPDX-License-Identifier: BSD-3-Clause
//! Peers: a device of this host. What is made from one is in the file of its type.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rpma_core::config::ProviderChoice;
use rpma_core::peer::Domain;
use rpma_core::utils;

use crate::error::{Error, ErrorKind, Result};
use crate::meter;

/// What carries out the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// An RDMA device if one has the address, otherwise software.
    #[default]
    Auto,
    /// RDMA devices alone, through libibverbs and librdmacm, which are loaded then.
    RdmaCore,
    /// Software RDMA alone: no device, no root, no kernel module.
    Soft,
}

impl Provider {
    /// What the environment variable `RPMA_PROVIDER` says: `auto`, `rdma-core` or `soft`, as for C programs.
    /// Not set: [`Provider::Auto`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for any other value.
    pub fn from_env() -> Result<Self> {
        match rpma_core::config::provider() {
            Ok(ProviderChoice::Auto) => Ok(Self::Auto),
            Ok(ProviderChoice::RdmaCore) => Ok(Self::RdmaCore),
            Ok(ProviderChoice::Soft) => Ok(Self::Soft),
            Err(code) => Err(Error::of("Provider::from_env", code).with(ErrorKind::Invalid)),
        }
    }

    fn choice(self) -> ProviderChoice {
        match self {
            Self::Auto => ProviderChoice::Auto,
            Self::RdmaCore => ProviderChoice::RdmaCore,
            Self::Soft => ProviderChoice::Soft,
        }
    }
}

/// A device of this host: connections and registered memory are made from it. A clone is the same one.
#[derive(Clone)]
pub struct Peer(Arc<Inner>);

struct Inner {
    core: Box<rpma_core::peer::Peer>,
    at: SocketAddr,
}

// SAFETY: its objects are a verbs context and a protection domain, which all threads may use at once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Peer {
    /// The device that has a local address; its port is not used. The unspecified address (`0.0.0.0`) is
    /// served by software alone.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if no device of this provider has the address; [`ErrorKind::Invalid`] if it is
    /// not of the form `ADDR:PORT`, and [`ErrorKind::Unreachable`] if its name cannot be resolved.
    pub fn open(addr: impl ToSocketAddrs, provider: Provider) -> Result<Self> {
        Self::find("Peer::open", addr, |host| utils::device(provider.choice(), host))
    }

    /// The device through which a remote address is reached; its port is not used.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if no device of this provider reaches it; [`ErrorKind::Invalid`] and
    /// [`ErrorKind::Unreachable`] as for [`Self::open`].
    pub fn open_to(addr: impl ToSocketAddrs, provider: Provider) -> Result<Self> {
        Self::find("Peer::open_to", addr, |host| utils::device_to(provider.choice(), host))
    }

    fn find(
        call: &str,
        addr: impl ToSocketAddrs,
        device: impl Fn(&std::ffi::CStr) -> rpma_core::error::Result<*mut rdma_sys::ibv_context>,
    ) -> Result<Self> {
        each_address(call, addr, |at| {
            let (host, _) = host_and_port(at);
            let failed = |code| Error::of(format_args!("{call}({at})"), code).with(ErrorKind::NoDevice);
            let context = device(&host).map_err(failed)?;
            // SAFETY: contexts of both providers live as long as the process.
            let core = unsafe { rpma_core::peer::Peer::new(context) }.map_err(failed)?;
            meter::describe();
            Ok(Self(Arc::new(Inner { core, at })))
        })
    }

    /// Whether both are the same object: memory of one cannot be used with another, even of the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn domain(&self) -> &Domain {
        self.0.core.domain()
    }

    /// What carries out the operations: never [`Provider::Auto`].
    pub fn provider(&self) -> Provider {
        if self.domain().api.name == "soft" { Provider::Soft } else { Provider::RdmaCore }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({:?}, {})", self.provider(), self.0.at.ip())
    }
}

/// The first success with one of the addresses that a name has, or the last failure.
pub(crate) fn each_address<T>(
    call: &str,
    addr: impl ToSocketAddrs,
    then: impl Fn(SocketAddr) -> Result<T>,
) -> Result<T> {
    let mut last = None;
    for at in resolve(call, &addr)? {
        match then(at) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| no_address(call)))
}

/// The addresses that a name has.
pub(crate) fn resolve<A: ToSocketAddrs>(call: &str, addr: &A) -> Result<A::Iter> {
    addr.to_socket_addrs().map_err(|error| match error.kind() {
        // What it says of a text without a port, or with one that is not a number up to 65535.
        io::ErrorKind::InvalidInput => {
            Error::new(ErrorKind::Invalid, format_args!("{call}: the address is not ADDR:PORT: {error}"))
        }
        _ => Error::new(ErrorKind::Unreachable, format_args!("{call}: {error}")),
    })
}

pub(crate) fn no_address(call: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format_args!("{call}: the name has no address"))
}

/// The address and the port as rpma-core takes them.
pub(crate) fn host_and_port(at: SocketAddr) -> (CString, CString) {
    let host = match at {
        SocketAddr::V6(at) if at.scope_id() != 0 => format!("{}%{}", at.ip(), at.scope_id()),
        at => at.ip().to_string(),
    };
    // Neither text has a zero byte.
    (CString::new(host).unwrap_or_default(), CString::new(at.port().to_string()).unwrap_or_default())
}
