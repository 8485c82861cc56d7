// SPDX-License-Identifier: BSD-3-Clause
//! Calls of the real libibverbs and of the C library, and the macro that defines the exported functions.
//!
//! libibverbs is loaded, and each of its functions looked up by name and version node, when it is first
//! called; both are kept until the process ends. If the library or the function is missing, a call fails with
//! ENOSYS. Functions of the C library are looked up when this library is loaded: a signal handler, or the
//! child of a process with threads, may call them, but may not call dlvsym(3).

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

/// The version node of a function of the C library on this architecture, given that of x86-64, whose oldest
/// node is GLIBC_2.2.5. `nodes.awk` has the same rule.
pub(crate) const fn glibc(node: &'static CStr) -> &'static CStr {
    match node.to_bytes() {
        b"GLIBC_2.2.5" if cfg!(target_arch = "riscv64") => c"GLIBC_2.27",
        b"GLIBC_2.2.5" if !cfg!(target_arch = "x86_64") => c"GLIBC_2.17",
        _ => node,
    }
}

/// A function of the real library, looked up on the first call.
pub(crate) struct Real {
    library: fn() -> *mut c_void,
    name: &'static CStr,
    node: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    /// A function of libibverbs.
    pub(crate) const fn new(name: &'static CStr, node: &'static CStr) -> Self {
        Self { library, name, node, address: AtomicPtr::new(null_mut()) }
    }

    /// A function of the next library that has it: the C library, or another preloaded one.
    pub(crate) const fn next(name: &'static CStr, node: &'static CStr) -> Self {
        Self { library: || libc::RTLD_NEXT, name, node, address: AtomicPtr::new(null_mut()) }
    }

    /// The address of the function; NULL if the library is not installed or lacks the function.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let handle = (self.library)();
        if handle.is_null() {
            return null_mut();
        }
        // SAFETY: `handle` is RTLD_NEXT, or was returned by dlopen and is never closed; both names are C
        // strings.
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

/// A literal as a C string.
macro_rules! c_string {
    ($text:expr) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        }
    };
}

/// Calls a function of libibverbs.
macro_rules! real {
    ($node:literal $name:ident($($arg:expr => $type:ty),*) -> $return:ty) => {{
        static REAL: $crate::real::Real =
            $crate::real::Real::new(c_string!(stringify!($name)), c_string!($node));
        call!(REAL($($arg => $type),*) -> $return, or <$return as $crate::real::Absent>::absent())
    }};
}

/// Calls a function that was looked up, unless it is missing.
macro_rules! call {
    ($real:ident($($arg:expr => $type:ty),*) -> $return:ty, or $absent:expr) => {{
        let address = $real.address();
        if address.is_null() {
            $absent
        } else {
            // SAFETY: the address is not NULL and that of the function with this name and version node, whose
            // signature never changes and is the one of its manual page (for `open`, see `c_library.rs`). The
            // caller of the exported function
            // meets the requirements of that manual page.
            unsafe {
                std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> $return>(address)($($arg),*)
            }
        }
    }};
}

/// Exports functions with a version node. A function calls the one of softverbs if the expression after `if`
/// is true, otherwise the one of the real library; without such an expression it always calls that of
/// softverbs. A function of the C library evaluates the closure if `soft0` has a file at its path, otherwise
/// it calls the real function.
///
/// `nodes.awk` generates the version script from the lines that begin with `exports!` and `fn`.
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
    ($node:literal from the C library, except for paths of soft0 { $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $return:ty, at $path:ident: |$file:ident| $answer:expr;
    )* }) => { $(
        const _: () = {
            static REAL: $crate::real::Real =
                $crate::real::Real::next(c_string!(stringify!($name)), $crate::real::glibc(c_string!($node)));

            extern "C" fn look_up() {
                REAL.address();
            }

            // SAFETY: the loader calls what this section points to once, when the library is loaded; the
            // function only calls dlvsym, which is permitted in a constructor.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_LOAD: extern "C" fn() = look_up;

            #[doc = concat!("`", stringify!($name), "` of the C library, or for a file of `soft0`.")]
            ///
            /// # Safety
            ///
            /// As its manual page requires.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> $return {
                // SAFETY: the manual page of the function requires that the path is a C string, and some
                // programs pass NULL.
                if let Some($file) = unsafe { $crate::files::at($path) } {
                    // SAFETY: the caller meets the requirements of the manual page.
                    #[allow(unused_unsafe, reason = "some functions take no other address")]
                    return unsafe { $answer };
                }
                // It may be a cancellation point, so no value is owned here.
                call!(REAL($($arg => $type),*) -> $return, or $crate::files::fail(libc::ENOSYS))
            }
        };
    )* };
}
