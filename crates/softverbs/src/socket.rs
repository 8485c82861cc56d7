// SPDX-License-Identifier: BSD-3-Clause
//! Sockets and other descriptors of a connection, each registered with [`crate::fork`] while it is open.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{DupFlags, dup3};
use rustix::net::AddressFamily;

use crate::cancel::whole;
use crate::fork;
use crate::sys::{self, Errno};

/// A TCP or Unix socket, listening or connected, or the memory of a connection.
#[derive(Debug)]
pub(crate) struct Socket(ManuallyDrop<OwnedFd>);

impl Socket {
    /// A non-blocking, close-on-exec TCP socket.
    pub(crate) fn new(family: AddressFamily) -> Result<Self, Errno> {
        Self::noted(|| sys::tcp_socket(family))
    }

    /// Accepts a connection.
    pub(crate) fn accept(&self) -> Result<Self, Errno> {
        Self::noted(|| sys::accept(self))
    }

    /// Owns the descriptor that `make` creates.
    pub(crate) fn noted(make: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        fork::undivided(|| make().map(Self::note))
    }

    /// Owns a descriptor that was created within the same call of [`fork::undivided`].
    pub(crate) fn note(fd: OwnedFd) -> Self {
        fork::note(fd.as_raw_fd());
        Self(ManuallyDrop::new(fd))
    }

    /// Another descriptor of the same socket.
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        Self::noted(|| self.0.try_clone().map_err(|e| sys::errno_of(&e)))
    }

    /// Whether at most half of the descriptors that the process may have are in use. A connection with shared
    /// rings needs three, one that uses TCP needs one.
    pub(crate) fn is_affordable(&self) -> bool {
        usize::try_from(self.0.as_raw_fd()).is_ok_and(|fd| fd < sys::max_descriptors() / 2)
    }

    /// Makes the descriptor refer to another file; its number stays.
    pub(crate) fn replace(&mut self, by: &OwnedFd) -> Result<(), Errno> {
        sys::to_errno(dup3(by, &mut self.0, DupFlags::CLOEXEC))
    }
}

impl Deref for Socket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        fork::undivided(|| {
            fork::forget(self.0.as_raw_fd());
            // SAFETY: this runs once, in the drop of the only owner, and the descriptor is not used
            // afterwards.
            whole(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        });
    }
}
