// SPDX-License-Identifier: BSD-3-Clause
//! Calls of the real libibverbs, and the macro that defines the exported functions.
//!
//! The library is loaded, and each function looked up by name and version node, when it is first called; both
//! are kept until the process ends. If the library or the function is missing, a call fails with ENOSYS.

use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether the real library was loaded by [`library`].
pub(crate) fn was_called() -> bool {
    !HANDLE.load(Ordering::Relaxed).is_null()
}

/// The handle of the real library, NULL if it is not installed. Usually the program has already loaded it;
/// the handle is never closed. RTLD_NEXT would not do: it does not find a library that was loaded with
/// RTLD_LOCAL, as for Python extensions.
fn library() -> *mut c_void {
    let known = HANDLE.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string. The constructors of libibverbs run here; they only initialise its own
    // data and need no lock that a caller could hold.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    HANDLE.store(handle, Ordering::Release);
    handle
}

/// A function of the real library, looked up on the first call.
pub(crate) struct Real {
    name: &'static CStr,
    node: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr, node: &'static CStr) -> Self {
        Self { name, node, address: AtomicPtr::new(null_mut()) }
    }

    /// The address of the function; NULL if the library is not installed or lacks the function.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let handle = library();
        if handle.is_null() {
            return null_mut();
        }
        // SAFETY: `handle` is not NULL, was returned by dlopen and is never closed; both names are C strings.
        let address = unsafe { libc::dlvsym(handle, self.name.as_ptr(), self.node.as_ptr()) };
        self.address.store(address, Ordering::Release);
        address
    }
}

/// The result of a call if the real library or the function is missing: an error value with errno ENOSYS, or
/// 0 for a GUID.
pub(crate) trait Absent {
    fn absent() -> Self;
}

fn set_errno() {
    // SAFETY: __errno_location returns the address of the calling thread's errno, which is valid as long as
    // the thread runs.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

impl Absent for () {
    fn absent() {}
}

impl Absent for c_int {
    fn absent() -> Self {
        set_errno();
        libc::ENOSYS
    }
}

impl Absent for isize {
    fn absent() -> Self {
        set_errno();
        -(libc::ENOSYS as Self)
    }
}

impl Absent for u64 {
    fn absent() -> Self {
        0
    }
}

impl<T> Absent for *mut T {
    fn absent() -> Self {
        set_errno();
        null_mut()
    }
}

impl Absent for *const c_char {
    fn absent() -> Self {
        set_errno();
        std::ptr::null()
    }
}

/// Calls a function of the real library.
macro_rules! real {
    ($node:literal $name:ident($($arg:expr => $type:ty),*) -> $return:ty) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            match std::ffi::CStr::from_bytes_with_nul(concat!($node, "\0").as_bytes()) {
                Ok(node) => node,
                Err(_) => c"",
            },
        );
        let address = REAL.address();
        if address.is_null() {
            <$return as $crate::real::Absent>::absent()
        } else {
            // SAFETY: the address is not NULL and that of the function with this name and version node, whose
            // signature never changes and is the one of its manual page. The caller of the exported function
            // meets the requirements of that manual page.
            unsafe {
                std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> $return>(address)($($arg),*)
            }
        }
    }};
}

/// Exports functions with a version node. A function calls the one of softverbs if the expression after `if`
/// is true, otherwise the one of the real library; without such an expression it always calls that of
/// softverbs. `nodes.awk` generates the version script from the lines that begin with `exports!` and `fn`.
macro_rules! exports {
    ($node:literal from $module:path, or the real library { $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $return:ty, if $ours:expr;
    )* }) => { $(
        #[doc = concat!("`", stringify!($name), "` of softverbs or of the real library.")]
        ///
        /// # Safety
        ///
        /// As its manual page requires.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $return {
            use $module as soft;
            // SAFETY: the expression at most reads the context of the object, and the manual page of the
            // function requires that the caller passes an object that has not been destroyed.
            #[allow(unused_unsafe, reason = "some expressions read no object")]
            let ours = unsafe { $ours };
            if ours {
                $crate::messages::begin();
                // SAFETY: the caller meets the requirements of the manual page, which are those of the
                // callee, and the object belongs to softverbs.
                unsafe { soft::$name($($arg),*) }
            } else {
                real!($node $name($($arg => $type),*) -> $return)
            }
        }
    )* };
    ($node:literal from $module:path { $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $return:ty;
    )* }) => { $(
        #[doc = concat!("`", stringify!($name), "` of softverbs.")]
        ///
        /// # Safety
        ///
        /// As its manual page requires.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $return {
            use $module as soft;
            $crate::messages::begin();
            // SAFETY: the caller meets the requirements of the manual page, which are those of the callee.
            // All objects of rdma_cm belong to softverbs, since this library exports the functions that
            // create them.
            unsafe { soft::$name($($arg),*) }
        }
    )* };
}
