// SPDX-License-Identifier: BSD-3-Clause
//! `libsoftverbs-dl.so`: an audit library (rtld-audit(7), `LD_AUDIT`) for programs that load libibverbs or
//! librdmacm with dlopen(3). Their lookups with dlsym(3) or dlvsym(3) find the functions of
//! `libsoftverbs.so`, which is preloaded.
//!
//! The dynamic linker calls [`la_objopen`] for each object that it loads, and [`la_symbind64`] for each
//! symbol of the two libraries that is looked up; the latter returns the address that the caller gets.
//! Interposing dlsym itself would break RTLD_NEXT and RTLD_DEFAULT, which depend on the calling object.
//! Lookups in other libraries cost nothing.
//!
//! A symbol is replaced if `libsoftverbs.so` has the same name with the same version node; so functions that
//! it does not export stay those of the real library. Its own lookups of the real functions are not replaced.
//!
//! The dynamic linker loads audit libraries into a separate namespace: this one shares no library with the
//! program, not even the C library, and only reads its memory.

mod elf;

use libc::{c_char, c_int, c_long, c_uint};
use std::ffi::CStr;
use std::ptr::{addr_of, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use elf::{LinkMap, Object, Symbol};

/// The newest version of the audit interface that the functions below support (LAV_CURRENT). The additions of
/// version 2 to version 1 are not used.
const VERSION: c_uint = 2;
/// Result of [`la_objopen`]: call [`la_symbind64`] for bindings to symbols of this object.
const BIND_TO: c_uint = 1;
/// Flags of [`la_symbind64`]: do not call the PLT enter and exit functions.
const NO_CALLS: c_uint = 1 | 2;
/// Flag of [`la_symbind64`]: the symbol was looked up with dlsym or dlvsym.
const DLSYM: c_uint = 8;
/// The namespace of the program.
const BASE: c_long = 0;

const PRELOADED: &[u8] = b"libsoftverbs.so";
const REPLACED: [&[u8]; 2] = [b"libibverbs.so.1", b"librdmacm.so.1"];

/// The link map of `libsoftverbs.so` in the program, or NULL.
static SOFTVERBS: AtomicPtr<LinkMap> = AtomicPtr::new(null_mut());

/// Negotiates the version of the audit interface. After a result of 0 the dynamic linker would unload this
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(offered: c_uint) -> c_uint {
    offered.min(VERSION)
}

/// The last component of the path that an object was loaded from.
///
/// # Safety
///
/// `map` must be the link map of a loaded object.
unsafe fn name_of<'a>(map: *const LinkMap) -> &'a [u8] {
    // SAFETY: the caller guarantees the link map of a loaded object; its name is NULL or a C string that
    // lives as long as the object.
    let path = unsafe {
        let name = addr_of!((*map).name).read();
        if name.is_null() { c"" } else { CStr::from_ptr(name) }
    };
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Called for each object that is loaded: records `libsoftverbs.so`, and requests the bindings to libibverbs
/// and librdmacm. An object is identified by its cookie, which the dynamic linker has initialised with the
/// address of its link map (rtld-audit(7)).
///
/// # Safety
///
/// Only the dynamic linker calls this, with the arguments described in rtld-audit(7).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *mut LinkMap, namespace: c_long, _cookie: *mut usize) -> c_uint {
    if namespace != BASE {
        return 0;
    }
    // SAFETY: rtld-audit(7) guarantees that `map` is the link map of the object being loaded.
    let name = unsafe { name_of(map) };
    if name == PRELOADED {
        SOFTVERBS.store(map, Ordering::Release);
    }
    if REPLACED.contains(&name) { BIND_TO } else { 0 }
}

/// Called for each object that is unloaded: forgets `libsoftverbs.so`.
///
/// # Safety
///
/// Only the dynamic linker calls this, with the arguments described in rtld-audit(7).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objclose(cookie: *mut usize) -> c_uint {
    // SAFETY: rtld-audit(7) guarantees that `cookie` points to the cookie of an object; this library never
    // changes one, so it is the address of its link map.
    let map = unsafe { cookie.read() } as *mut LinkMap;
    let _ = SOFTVERBS.compare_exchange(map, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    0
}

/// Called for each binding to the two libraries: returns the address to which the symbol is bound. That is
/// the function of `libsoftverbs.so` if the symbol was looked up with dlsym or dlvsym by another object and
/// `libsoftverbs.so` exports it, otherwise the address in `symbol`.
///
/// # Safety
///
/// Only the dynamic linker calls this, with the arguments described in rtld-audit(7).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_symbind64(
    symbol: *mut Symbol,
    index: c_uint,
    by: *mut usize,
    defined_in: *mut usize,
    flags: *mut c_uint,
    name: *const c_char,
) -> usize {
    // SAFETY: rtld-audit(7) guarantees that `symbol` points to a copy of the symbol whose value is its
    // address, `by` and `defined_in` to the cookies of the calling and the defining object, `flags` to flags
    // that may be changed, and that `name` is a C string.
    let (given, by, defined_in, name) = unsafe {
        let looked_up = flags.read() & DLSYM != 0;
        flags.write(flags.read() | NO_CALLS);
        let given = addr_of!((*symbol).value).read() as usize;
        if !looked_up {
            return given;
        }
        (given, by.read() as *const LinkMap, defined_in.read() as *const LinkMap, CStr::from_ptr(name))
    };
    let ours = SOFTVERBS.load(Ordering::Acquire);
    if ours.is_null() || std::ptr::eq(by, ours) {
        return given;
    }
    // SAFETY: both objects are loaded: the symbol is being bound to `defined_in`, and `la_objclose` was not
    // called for `libsoftverbs.so`. `index` is the number of the symbol in `defined_in`.
    unsafe {
        let (Some(real), Some(ours)) = (Object::of(defined_in), Object::of(ours)) else { return given };
        let Some(node) = real.node(index) else { return given };
        ours.find(name, node).unwrap_or(given)
    }
}

/// Called when the dynamic linker begins and ends to change the list of objects. Does nothing.
///
/// # Safety
///
/// Always safe to call: no argument is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_activity(_cookie: *mut usize, _flag: c_int) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_negotiated_version_is_never_newer_than_offered() {
        assert_eq!((la_version(1), la_version(2), la_version(7)), (1, 2, 2));
    }

    #[test]
    fn objects_are_recognised_by_their_file_name() {
        for (path, flags, is_ours) in [
            (c"/usr/lib/x86_64-linux-gnu/libibverbs.so.1", BIND_TO, false),
            (c"librdmacm.so.1", BIND_TO, false),
            (c"/usr/lib/softverbs/libsoftverbs.so", 0, true),
            (c"/usr/lib/libibverbs.so.1/x.so", 0, false),
            (c"", 0, false),
        ] {
            // SAFETY: all-zero is a valid LinkMap: it holds only integers and nullable pointers.
            let mut map: LinkMap = unsafe { std::mem::zeroed() };
            map.name = path.as_ptr();
            let at = &raw mut map;
            let mut cookie = at as usize;
            // SAFETY: `at` and `cookie` point to local variables, and the name is a C string.
            unsafe {
                assert_eq!(la_objopen(at, 1, &mut cookie), 0, "another namespace");
                assert!(SOFTVERBS.load(Ordering::Relaxed).is_null());
                assert_eq!(la_objopen(at, BASE, &mut cookie), flags, "{path:?}");
                assert_eq!(std::ptr::eq(SOFTVERBS.load(Ordering::Relaxed), at), is_ours);
                la_objclose(&mut cookie);
            }
            assert!(SOFTVERBS.load(Ordering::Relaxed).is_null());
        }
    }
}
