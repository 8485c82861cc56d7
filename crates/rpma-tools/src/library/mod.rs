// SPDX-License-Identifier: BSD-3-Clause
//! librpma as programs use it: the shared library, loaded when it is needed.
//!
//! The tools measure and examine the library that a program would use, so they contain no copy of it. Any
//! `librpma.so.0` can be loaded; functions of newer releases are optional.

mod config;
mod connection;
mod listener;
mod memory;
mod operations;
mod peer;
mod peer_config;
mod shared;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

pub(crate) use config::Config;
use connection::{Completion, PrivateData};
pub(crate) use connection::{Connection, Event};
use libloading::os::unix::{Library as Loaded, RTLD_LAZY, RTLD_LOCAL};
pub(crate) use listener::{Listener, Request};
pub(crate) use memory::{Memory, RemoteMemory, Usage};
pub(crate) use operations::{Done, Flush, Notify, Queue, Range};
pub(crate) use peer::Peer;
pub(crate) use peer_config::direct_write;
pub(crate) use shared::SharedReceives;

/// The name that programs are linked with.
pub(crate) const SONAME: &str = "librpma.so.0";

/// A `struct ibv_context`, which is opaque here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(*mut c_void);

/// Whether an address is local or remote.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Local = 0,
    Remote = 1,
}

/// The reason why a call failed.
pub(crate) type Failed = String;

macro_rules! functions {
    ($(fn $name:ident($($type:ty),*) -> $result:ty;)* optional $(fn $newer:ident($($arg:ty),*) -> $value:ty;)*) => {
        /// The functions of librpma.h that the tools call.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
            $($newer: Option<unsafe extern "C" fn($($arg),*) -> $value>,)*
        }

        impl Functions {
            fn of(library: &Loaded) -> Result<Self, libloading::Error> {
                // SAFETY: the types match librpma.h, in which they have not changed since the first
                // librpma.so.0.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        $($newer: library.get(concat!(stringify!($newer), "\0").as_bytes()).ok().map(|function| *function),)*
                    })
                }
            }
        }
    };
}

functions! {
    fn rpma_err_2str(c_int) -> *const c_char;
    fn rpma_utils_get_ibv_context(*const c_char, c_int, *mut *mut c_void) -> c_int;
    fn rpma_utils_ibv_context_is_odp_capable(*mut c_void, *mut c_int) -> c_int;
    fn rpma_peer_new(*mut c_void, *mut *mut c_void) -> c_int;
    fn rpma_peer_delete(*mut *mut c_void) -> c_int;
    fn rpma_conn_cfg_new(*mut *mut c_void) -> c_int;
    fn rpma_conn_cfg_delete(*mut *mut c_void) -> c_int;
    fn rpma_conn_cfg_set_timeout(*mut c_void, c_int) -> c_int;
    fn rpma_conn_cfg_set_cq_size(*mut c_void, u32) -> c_int;
    fn rpma_conn_cfg_set_sq_size(*mut c_void, u32) -> c_int;
    fn rpma_conn_cfg_set_rq_size(*mut c_void, u32) -> c_int;
    fn rpma_conn_req_new(*mut c_void, *const c_char, *const c_char, *const c_void, *mut *mut c_void) -> c_int;
    fn rpma_conn_req_connect(*mut *mut c_void, *const PrivateData, *mut *mut c_void) -> c_int;
    fn rpma_conn_req_delete(*mut *mut c_void) -> c_int;
    fn rpma_conn_req_recv(*mut c_void, *mut c_void, usize, usize, *const c_void) -> c_int;
    fn rpma_conn_req_get_private_data(*const c_void, *mut PrivateData) -> c_int;
    fn rpma_conn_delete(*mut *mut c_void) -> c_int;
    fn rpma_conn_disconnect(*mut c_void) -> c_int;
    fn rpma_conn_next_event(*mut c_void, *mut c_int) -> c_int;
    fn rpma_conn_get_event_fd(*const c_void, *mut c_int) -> c_int;
    fn rpma_conn_get_private_data(*const c_void, *mut PrivateData) -> c_int;
    fn rpma_conn_apply_remote_peer_cfg(*mut c_void, *const c_void) -> c_int;
    fn rpma_conn_get_cq(*const c_void, *mut *mut c_void) -> c_int;
    fn rpma_cq_get_fd(*const c_void, *mut c_int) -> c_int;
    fn rpma_cq_wait(*mut c_void) -> c_int;
    fn rpma_cq_get_wc(*mut c_void, c_int, *mut Completion, *mut c_int) -> c_int;
    fn rpma_read(*mut c_void, *mut c_void, usize, *const c_void, usize, usize, c_int, *const c_void) -> c_int;
    fn rpma_write(*mut c_void, *mut c_void, usize, *const c_void, usize, usize, c_int, *const c_void) -> c_int;
    fn rpma_atomic_write(*mut c_void, *mut c_void, usize, *const c_char, c_int, *const c_void) -> c_int;
    fn rpma_flush(*mut c_void, *mut c_void, usize, usize, c_int, c_int, *const c_void) -> c_int;
    fn rpma_send(*mut c_void, *const c_void, usize, usize, c_int, *const c_void) -> c_int;
    fn rpma_recv(*mut c_void, *mut c_void, usize, usize, *const c_void) -> c_int;
    fn rpma_peer_cfg_new(*mut *mut c_void) -> c_int;
    fn rpma_peer_cfg_delete(*mut *mut c_void) -> c_int;
    fn rpma_peer_cfg_set_direct_write_to_pmem(*mut c_void, bool) -> c_int;
    fn rpma_peer_cfg_get_descriptor_size(*const c_void, *mut usize) -> c_int;
    fn rpma_peer_cfg_get_descriptor(*const c_void, *mut c_void) -> c_int;
    fn rpma_peer_cfg_from_descriptor(*const c_void, usize, *mut *mut c_void) -> c_int;
    fn rpma_mr_reg(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> c_int;
    fn rpma_mr_dereg(*mut *mut c_void) -> c_int;
    fn rpma_mr_get_descriptor_size(*const c_void, *mut usize) -> c_int;
    fn rpma_mr_get_descriptor(*const c_void, *mut c_void) -> c_int;
    fn rpma_mr_remote_from_descriptor(*const c_void, usize, *mut *mut c_void) -> c_int;
    fn rpma_mr_remote_get_size(*const c_void, *mut usize) -> c_int;
    fn rpma_mr_remote_delete(*mut *mut c_void) -> c_int;
    fn rpma_ep_listen(*mut c_void, *const c_char, *const c_char, *mut *mut c_void) -> c_int;
    fn rpma_ep_shutdown(*mut *mut c_void) -> c_int;
    fn rpma_ep_get_fd(*const c_void, *mut c_int) -> c_int;
    fn rpma_ep_next_conn_req(*mut c_void, *const c_void, *mut *mut c_void) -> c_int;
    optional
    fn rpma_err_last() -> *const c_char;
    fn rpma_version() -> *const c_char;
    fn rpma_write_with_imm(*mut c_void, *mut c_void, usize, *const c_void, usize, usize, c_int, u32, *const c_void) -> c_int;
    fn rpma_send_with_imm(*mut c_void, *const c_void, usize, usize, c_int, u32, *const c_void) -> c_int;
    fn rpma_conn_cfg_set_srq(*mut c_void, *mut c_void) -> c_int;
    fn rpma_srq_cfg_new(*mut *mut c_void) -> c_int;
    fn rpma_srq_cfg_delete(*mut *mut c_void) -> c_int;
    fn rpma_srq_cfg_set_rq_size(*mut c_void, u32) -> c_int;
    fn rpma_srq_cfg_set_rcq_size(*mut c_void, u32) -> c_int;
    fn rpma_srq_new(*mut c_void, *mut c_void, *mut *mut c_void) -> c_int;
    fn rpma_srq_delete(*mut *mut c_void) -> c_int;
    fn rpma_srq_recv(*mut c_void, *mut c_void, usize, usize, *const c_void) -> c_int;
}

/// The library that the tools use: the one in this prefix or, if LD_LIBRARY_PATH is set or the prefix has
/// none, the one that the dynamic linker finds.
pub(crate) fn for_tools() -> Result<&'static Library, Failed> {
    let own = crate::prefix::library(SONAME).filter(|_| std::env::var_os("LD_LIBRARY_PATH").is_none());
    let found = own.map_or_else(|| Library::load(SONAME), Library::load);
    found.map_err(|why| format!("{why}; run `rpma doctor` for details"))
}

/// A function that an old release lacks.
fn newer<F: Copy>(function: Option<F>, name: &str) -> Result<F, Failed> {
    function.ok_or_else(|| format!("this librpma has no {name}"))
}

/// A loaded library. It is never unloaded, because its threads may still run.
pub(crate) struct Library {
    functions: Functions,
    path: PathBuf,
}

impl Library {
    /// Loads the library that the dynamic linker finds under this name, or a file if the name has a slash.
    pub(crate) fn load(name: impl AsRef<Path>) -> Result<&'static Self, Failed> {
        // SAFETY: loading runs the same constructors as in a program that is linked with librpma.
        let loaded = unsafe { Loaded::open(Some(name.as_ref()), RTLD_LAZY | RTLD_LOCAL) };
        let loaded = loaded.map_err(|why| last_part(&why))?;
        let functions = Functions::of(&loaded).map_err(|why| last_part(&why))?;
        std::mem::forget(loaded);
        let path =
            path_of(functions.rpma_err_2str as *const c_void).unwrap_or_else(|| name.as_ref().to_owned());
        Ok(Box::leak(Box::new(Self { functions, path })))
    }

    /// The path of the file, with symbolic links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `None`: the library is too old to have rpma_version(3).
    pub(crate) fn version(&self) -> Option<String> {
        // SAFETY: the function takes no arguments; its result is a string that is never freed.
        self.functions.rpma_version.map(|version| unsafe { text(version()) })
    }

    /// rpma_err_last(3): empty if nothing failed, or if the library is too old to have it.
    fn last(&self) -> String {
        // SAFETY: the function takes no arguments; its result is a string that lives until this thread's next
        // failed call.
        self.functions.rpma_err_last.map_or(String::new(), |last| unsafe { text(last()) })
    }

    fn check(&self, ret: c_int) -> Result<(), Failed> {
        if ret == 0 {
            return Ok(());
        }
        let last = self.last();
        // SAFETY: rpma_err_2str accepts any number and returns a string that is never freed.
        Err(if last.is_empty() { unsafe { text((self.functions.rpma_err_2str)(ret)) } } else { last })
    }

    /// rpma_utils_get_ibv_context(3).
    pub(crate) fn context(&self, addr: &str, side: Side) -> Result<Context, Failed> {
        let addr = CString::new(addr).map_err(|_| "the address has a NUL byte".to_owned())?;
        let mut context = ptr::null_mut();
        // SAFETY: the address is a C string, and `context` is writable.
        self.check(unsafe {
            (self.functions.rpma_utils_get_ibv_context)(addr.as_ptr(), side as c_int, &mut context)
        })?;
        // Releases before 1.4 return NULL if the address belongs to no device.
        if context.is_null() { Err("no device has this address".to_owned()) } else { Ok(Context(context)) }
    }

    /// rpma_utils_ibv_context_is_odp_capable(3).
    pub(crate) fn is_odp_capable(&self, context: Context) -> Result<bool, Failed> {
        let mut capable = 0;
        // SAFETY: the context was returned by rpma_utils_get_ibv_context, which never closes one; `capable`
        // is writable.
        self.check(unsafe {
            (self.functions.rpma_utils_ibv_context_is_odp_capable)(context.0, &mut capable)
        })?;
        Ok(capable != 0)
    }
}

/// The message of dlopen(3) or dlsym(3), without the text that the crate adds.
fn last_part(why: &libloading::Error) -> String {
    use std::error::Error;
    why.source().map_or_else(|| why.to_string(), ToString::to_string)
}

/// # Safety
/// `of` must be a C string.
unsafe fn text(of: *const c_char) -> String {
    // SAFETY: the caller guarantees a C string.
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}

/// The file that a function was loaded from.
fn path_of(function: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: an all-zero Dl_info is valid. dladdr accepts any address; the name lives as long as the
    // library, which is never unloaded.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}
