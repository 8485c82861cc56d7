// SPDX-License-Identifier: BSD-3-Clause
//! Look-up of the functions of libibverbs and librdmacm.
//!
//! This library has no undefined symbols of the two. A function that the process already has, from whatever
//! object, is used: so verbs of the program, of a preloaded library (`libsoftverbs.so`) or of a tool take
//! precedence, as they would if the dynamic linker bound the call. `librpma.so.0` names both libraries as
//! DT_NEEDED in its default build, so they are in the process. Where they are not (`RDMA_CORE=optional`, a
//! static library, a Rust program), they are loaded here.

use std::ffi::{CStr, c_void};
use std::fmt::{self, Write};
use std::ptr::NonNull;

use libc::{RTLD_DEFAULT, RTLD_GLOBAL, RTLD_NOW};
use rpma_log::text::{Lossy, Text};

/// One of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Verbs,
    ConnectionManager,
}

impl Library {
    fn soname(self) -> &'static CStr {
        match self {
            Self::Verbs => c"libibverbs.so.1",
            Self::ConnectionManager => c"librdmacm.so.1",
        }
    }
}

/// The library and the version node of a function, those that a program is linked with; None for a function
/// that is inline in the header. The nodes have not changed since rdma-core 28, the oldest supported release.
fn origin(name: &CStr) -> Option<(Library, &'static CStr)> {
    Some(match name.to_bytes() {
        b"ibv_query_device_ex" | b"ibv_advise_mr" => return None,
        b"ibv_create_comp_channel" | b"ibv_destroy_comp_channel" => (Library::Verbs, c"IBVERBS_1.0"),
        b"ibv_qp_to_qp_ex" => (Library::Verbs, c"IBVERBS_1.6"),
        verbs if verbs.starts_with(b"ibv_") => (Library::Verbs, c"IBVERBS_1.1"),
        _ => (Library::ConnectionManager, c"RDMACM_1.0"),
    })
}

/// A library that is needed and cannot be loaded.
#[derive(Clone, Copy)]
pub(crate) struct Unavailable {
    library: Library,
    /// The message of the dynamic linker.
    why: Text<104>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cannot be loaded ({}); install the libraries of rdma-core (Debian, Ubuntu: libibverbs1 librdmacm1 \
             ibverbs-providers; Fedora: libibverbs librdmacm; openSUSE: libibverbs1 librdmacm1 rdma-core)",
            Lossy(self.library.soname().to_bytes()),
            Lossy(self.why.as_bytes())
        )
    }
}

/// One look-up of all functions.
#[derive(Default)]
pub(super) struct Symbols {
    verbs: Option<NonNull<c_void>>,
    connection_manager: Option<NonNull<c_void>>,
}

impl Symbols {
    /// The function of this name. `Ok(None)`: the installed library does not have it, or it is inline.
    pub(super) fn find(&mut self, name: &CStr) -> Result<Option<NonNull<c_void>>, Unavailable> {
        let Some((library, node)) = origin(name) else { return Ok(None) };
        if let Some(function) = in_process(name, node) {
            return Ok(Some(function));
        }
        let handle = self.handle(library)?;
        // SAFETY: the handle was returned by dlopen and is never closed; both names are C strings.
        Ok(NonNull::new(unsafe { libc::dlvsym(handle.as_ptr(), name.as_ptr(), node.as_ptr()) }))
    }

    /// The handle of a library, which stays open. RTLD_GLOBAL: a function that wraps one of them finds it
    /// with RTLD_NEXT, as in a program that is linked with the library.
    fn handle(&mut self, library: Library) -> Result<NonNull<c_void>, Unavailable> {
        let known = match library {
            Library::Verbs => &mut self.verbs,
            Library::ConnectionManager => &mut self.connection_manager,
        };
        if let Some(handle) = *known {
            return Ok(handle);
        }
        // SAFETY: the name is a C string. The constructors of both libraries only initialise their own data.
        let handle = unsafe { libc::dlopen(library.soname().as_ptr(), RTLD_NOW | RTLD_GLOBAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(*known.insert(handle)),
            None => Err(Unavailable { library, why: last_error() }),
        }
    }
}

/// The function that a call of this object would be bound to: that of the first object in the order of the
/// dynamic linker. dlsym returns the newest version of a name, so the one of the version node is preferred
/// if the same object has it. dlvsym alone would pass over a function without a version, such as that of a
/// program.
fn in_process(name: &CStr, node: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: both names are C strings.
    let (first, exact) = unsafe {
        let first = NonNull::new(libc::dlsym(RTLD_DEFAULT, name.as_ptr()))?;
        (first, NonNull::new(libc::dlvsym(RTLD_DEFAULT, name.as_ptr(), node.as_ptr())))
    };
    Some(exact.filter(|exact| object_of(*exact) == object_of(first)).unwrap_or(first))
}

/// Where the object with this function is loaded; NULL if that is unknown.
fn object_of(function: NonNull<c_void>) -> *mut c_void {
    // SAFETY: an all-zero Dl_info is valid, and dladdr accepts any address.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(function.as_ptr(), &mut info);
        info.dli_fbase
    }
}

/// The message about the last failure of dlopen in this thread; what does not fit is truncated.
fn last_error() -> Text<104> {
    let mut text = Text::new();
    // SAFETY: dlerror returns NULL or a C string that is valid until the next call of this family.
    let message = unsafe {
        let message = libc::dlerror();
        if message.is_null() { c"unknown error" } else { CStr::from_ptr(message) }
    };
    // Writing to a Text never fails.
    let _ = write!(text, "{}", Lossy(message.to_bytes()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_functions_have_no_symbol() {
        assert!(matches!(Symbols::default().find(c"ibv_advise_mr"), Ok(None)));
    }

    /// The libraries are not linked with this test, so a function comes from a library that is loaded here.
    #[test]
    fn a_library_that_lacks_a_function_is_no_error() {
        let mut symbols = Symbols::default();
        match symbols.find(c"ibv_no_such_function") {
            Ok(found) => {
                assert!(found.is_none());
                assert!(matches!(symbols.find(c"ibv_reg_mr"), Ok(Some(_))));
                assert!(matches!(symbols.find(c"rdma_create_id"), Ok(Some(_))));
            }
            // no rdma-core on this host
            Err(unavailable) => {
                assert!(unavailable.to_string().starts_with("libibverbs.so.1 cannot be loaded ("))
            }
        }
    }

    #[test]
    fn the_first_object_is_used_and_the_version_within_it() {
        // the C library has two versions of this function
        let newest = in_process(c"memcpy", c"GLIBC_2.14");
        let old = in_process(c"memcpy", c"GLIBC_2.2.5");
        assert!(newest.is_some() && old.is_some());
        #[cfg(target_arch = "x86_64")]
        assert_ne!(newest, old);
        assert_eq!(in_process(c"memcpy", c"NO_SUCH_NODE"), newest);
        assert_eq!(in_process(c"ibv_no_such_function", c"IBVERBS_1.1"), None);
    }
}
