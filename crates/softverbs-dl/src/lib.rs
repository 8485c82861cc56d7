// SPDX-License-Identifier: BSD-3-Clause
//! `libsoftverbs-dl.so`: programs that load libibverbs or librdmacm with dlopen(3) and look its functions up
//! with dlsym(3) or dlvsym(3) find those of `libsoftverbs.so`, which is preloaded.
//!
//! It is an audit library (rtld-audit(7), `LD_AUDIT`). The dynamic linker tells it of each object that it
//! loads, and of each symbol of the two libraries that a caller looks up; what is returned then is the
//! address that the caller gets. Unlike functions that take the place of dlsym itself, it does not come
//! between the dynamic linker and its caller, whose own place decides what RTLD_NEXT and RTLD_DEFAULT are,
//! and it costs nothing where other libraries are looked up.
//!
//! What is looked up is replaced if `libsoftverbs.so` has the name with the same version node. So functions
//! that it leaves to the real library are those of the real library here, too. Its own lookups of the real
//! functions are left alone.
//!
//! The dynamic linker loads audit libraries into a namespace of their own: this one has nothing in common
//! with the program or with `libsoftverbs.so` but the memory that it reads.

mod elf;

use libc::{c_char, c_int, c_long, c_uint};
use std::ffi::CStr;
use std::ptr::{addr_of, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use elf::{LinkMap, Object, Symbol};

/// The newest interface that the functions below are written for (LAV_CURRENT). 2 differs from 1 in what is
/// not used here.
const VERSION: c_uint = 2;
/// In the result of [`la_objopen`]: bindings to symbols of this object are shown to [`la_symbind64`].
const BIND_TO: c_uint = 1;
/// In the flags of [`la_symbind64`]: no notice is wanted of calls and of their end.
const NO_CALLS: c_uint = 1 | 2;
/// In the flags of [`la_symbind64`]: the symbol was looked up with dlsym or dlvsym.
const DLSYM: c_uint = 8;
/// The namespace of the program.
const BASE: c_long = 0;

const PRELOADED: &[u8] = b"libsoftverbs.so";
const REPLACED: [&[u8]; 2] = [b"libibverbs.so.1", b"librdmacm.so.1"];

/// `libsoftverbs.so` in the program, or NULL.
static SOFTVERBS: AtomicPtr<LinkMap> = AtomicPtr::new(null_mut());

/// Says which interface this library has; with 0 the dynamic linker would unload it.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(offered: c_uint) -> c_uint {
    offered.min(VERSION)
}

/// The last component of the path that an object was loaded from.
///
/// # Safety
///
/// `map` must be an object that is loaded.
unsafe fn name_of<'a>(map: *const LinkMap) -> &'a [u8] {
    // SAFETY: `map` is an object that is loaded, whose name is a C string or NULL.
    let path = unsafe {
        let name = addr_of!((*map).name).read();
        if name.is_null() { c"" } else { CStr::from_ptr(name) }
    };
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Notes the preloaded library, and asks for what is bound to the two that it replaces. What identifies an
/// object afterwards is its cookie, which the dynamic linker has set to the address of its link map
/// (rtld-audit(7)).
///
/// # Safety
///
/// As rtld-audit(7) says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *mut LinkMap, namespace: c_long, _cookie: *mut usize) -> c_uint {
    if namespace != BASE {
        return 0;
    }
    // SAFETY: `map` is the object that is being loaded (rtld-audit(7)).
    let name = unsafe { name_of(map) };
    if name == PRELOADED {
        SOFTVERBS.store(map, Ordering::Release);
    }
    if REPLACED.contains(&name) { BIND_TO } else { 0 }
}

/// Forgets the preloaded library if it is unloaded.
///
/// # Safety
///
/// As rtld-audit(7) says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objclose(cookie: *mut usize) -> c_uint {
    // SAFETY: `cookie` is that of an object (rtld-audit(7)), which this library does not change.
    let map = unsafe { cookie.read() } as *mut LinkMap;
    let _ = SOFTVERBS.compare_exchange(map, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    0
}

/// Returns the address that a symbol is bound to: another one than `symbol` has if it was looked up in one of
/// the two libraries by somebody else than `libsoftverbs.so`, and that has the function, too.
///
/// # Safety
///
/// As rtld-audit(7) says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_symbind64(
    symbol: *mut Symbol,
    index: c_uint,
    by: *mut usize,
    defined_in: *mut usize,
    flags: *mut c_uint,
    name: *const c_char,
) -> usize {
    // SAFETY: all arguments are as rtld-audit(7) describes them: a copy of the symbol, whose value is the
    // address, the cookies of the caller and of the defining object, flags, and a C string.
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
    // SAFETY: both objects are loaded: the symbol is being bound to one of them, and the other one has not
    // been closed.
    unsafe {
        let (Some(real), Some(ours)) = (Object::of(defined_in), Object::of(ours)) else { return given };
        let Some(node) = real.node(index) else { return given };
        ours.find(name, node).unwrap_or(given)
    }
}

/// Says nothing: no notice of activity is needed. The dynamic linker calls it when it begins and ends to load
/// objects.
///
/// # Safety
///
/// None: the arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_activity(_cookie: *mut usize, _flag: c_int) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_never_newer_than_what_is_offered() {
        assert_eq!((la_version(1), la_version(2), la_version(7)), (1, 2, 2));
    }

    #[test]
    fn objects_are_known_by_the_last_part_of_their_path() {
        for (path, flags, is_ours) in [
            (c"/usr/lib/x86_64-linux-gnu/libibverbs.so.1", BIND_TO, false),
            (c"librdmacm.so.1", BIND_TO, false),
            (c"/usr/lib/softverbs/libsoftverbs.so", 0, true),
            (c"/usr/lib/libibverbs.so.1/x.so", 0, false),
            (c"", 0, false),
        ] {
            // SAFETY: all-zero is a valid LinkMap.
            let mut map: LinkMap = unsafe { std::mem::zeroed() };
            map.name = path.as_ptr();
            let at = &raw mut map;
            let mut cookie = at as usize;
            // SAFETY: `map` is an object with a name, and nobody else uses it.
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
