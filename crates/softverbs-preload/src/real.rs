// SPDX-License-Identifier: BSD-3-Clause
//! The functions of the real libibverbs.

use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether a function of the real library was called through this one.
pub(crate) fn was_called() -> bool {
    !HANDLE.load(Ordering::Relaxed).is_null()
}

/// The handle of the library, which a program that uses it has loaded already; a reference that is never
/// given back. A search from the place of this library on (RTLD_NEXT) would not find a library that was
/// loaded with RTLD_LOCAL, as extensions of Python do.
fn library() -> *mut c_void {
    let known = HANDLE.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string. The constructors of libibverbs do nothing that this call could be in
    // the way of.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    HANDLE.store(handle, Ordering::Release);
    handle
}

/// A function of the real library, looked up when it is needed first.
pub(crate) struct Real {
    name: &'static CStr,
    node: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr, node: &'static CStr) -> Self {
        Self { name, node, address: AtomicPtr::new(null_mut()) }
    }

    /// The address of the function, or NULL if the library is not installed or does not have it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let handle = library();
        if handle.is_null() {
            return null_mut();
        }
        // SAFETY: `handle` was returned by dlopen and never closed; both names are C strings.
        let address = unsafe { libc::dlvsym(handle, self.name.as_ptr(), self.node.as_ptr()) };
        self.address.store(address, Ordering::Release);
        address
    }
}

/// What a function returns if the real library is not there.
pub(crate) trait Absent {
    fn absent() -> Self;
}

fn set_errno() {
    // SAFETY: the address of errno of this thread is valid.
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
            // SAFETY: the function with this name and node has this signature (its manual page), and the
            // address is not NULL. The caller of the exported function meets the requirements of that manual
            // page.
            unsafe {
                std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> $return>(address)($($arg),*)
            }
        }
    }};
}

/// Exports functions with a version node. Each is called in softverbs if the expression behind `if` is true,
/// and else in the real library; without such an expression it is always softverbs'. The version script is
/// made from the lines that begin with `exports!` and `fn`.
macro_rules! exports {
    ($node:literal from $module:path, or the real library { $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $return:ty, if $ours:expr;
    )* }) => { $(
        #[doc = concat!("`", stringify!($name), "` of softverbs or of the real library.")]
        ///
        /// # Safety
        ///
        /// As its manual page says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $return {
            use $module as soft;
            // SAFETY: the object that the caller hands over is valid (the manual page of the function), which
            // is all that looking at whose it is needs.
            #[allow(unused_unsafe)]
            let ours = unsafe { $ours };
            if ours {
                $crate::messages::begin();
                // SAFETY: the caller meets the requirements of the manual page, and the object is one of
                // softverbs.
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
        /// As its manual page says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $return {
            use $module as soft;
            $crate::messages::begin();
            // SAFETY: the caller meets the requirements of the manual page, and every object of this library
            // is one of softverbs.
            unsafe { soft::$name($($arg),*) }
        }
    )* };
}
