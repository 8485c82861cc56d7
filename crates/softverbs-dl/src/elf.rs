// SPDX-License-Identifier: BSD-3-Clause
//! Lookup of functions by name and version node in the dynamic symbol table of a loaded object, as described
//! in elf(5) and the gABI.
//!
//! The tables are those of an object that the dynamic linker has loaded, so they are trusted to be
//! well-formed.

use libc::{c_char, c_void};
use std::ffi::CStr;
use std::ptr::addr_of;

/// `struct link_map` of link.h.
#[repr(C)]
pub struct LinkMap {
    /// The difference between the addresses in memory and those in the file.
    pub addr: usize,
    /// The path that the object was loaded from.
    pub name: *const c_char,
    /// The dynamic section.
    pub dynamic: *const Entry,
    next: *const c_void,
    previous: *const c_void,
}

/// `Elf64_Dyn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// The address.
    pub value: u64,
    size: u64,
}

/// `Elf64_Verdef`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Definition {
    version: u16,
    flags: u16,
    index: u16,
    names: u16,
    hash: u32,
    first_name: u32,
    next: u32,
}

const _: () = assert!(size_of::<Symbol>() == 24 && size_of::<Entry>() == 16 && size_of::<Definition>() == 20);

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERDEF: i64 = 0x6fff_fffc;
const DT_VERDEFNUM: i64 = 0x6fff_fffd;
/// Bit of a version index: not the default version of the symbol.
const HIDDEN: u16 = 0x8000;
const STT_FUNC: u8 = 2;

/// The symbol tables of a loaded object.
pub(crate) struct Object {
    base: usize,
    strings: *const c_char,
    symbols: *const Symbol,
    hash: *const u32,
    versions: *const u16,
    definitions: *const u8,
    count: usize,
}

/// The hash of a symbol name in DT_GNU_HASH.
fn hash_of(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

impl Object {
    /// The symbol tables of a loaded object. `None`: it lacks one of them.
    ///
    /// # Safety
    ///
    /// `map` must be the link map of an object that stays loaded while the result is in use.
    pub(crate) unsafe fn of(map: *const LinkMap) -> Option<Self> {
        // SAFETY: the caller guarantees the link map of a loaded object, whose fields the dynamic linker has
        // set.
        let (base, mut entry) = unsafe { (addr_of!((*map).addr).read(), addr_of!((*map).dynamic).read()) };
        let (mut found, mut count) = ([0usize; 5], 0);
        loop {
            // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL, which has not
            // been reached.
            let Entry { tag, value } = unsafe { entry.read() };
            // The dynamic linker has relocated the values to addresses, except on architectures where the
            // section is read-only.
            let address = if value < base { value.wrapping_add(base) } else { value };
            match tag {
                DT_NULL => break,
                DT_STRTAB => found[0] = address,
                DT_SYMTAB => found[1] = address,
                DT_GNU_HASH => found[2] = address,
                DT_VERSYM => found[3] = address,
                DT_VERDEF => found[4] = address,
                DT_VERDEFNUM => count = value,
                _ => {}
            }
            // SAFETY: this entry was not DT_NULL, so another one follows.
            entry = unsafe { entry.add(1) };
        }
        let [strings, symbols, hash, versions, definitions] = found;
        (!found.contains(&0)).then_some(Self {
            base,
            strings: strings as *const c_char,
            symbols: symbols as *const Symbol,
            hash: hash as *const u32,
            versions: versions as *const u16,
            definitions: definitions as *const u8,
            count,
        })
    }

    /// The string at offset `at` of DT_STRTAB.
    ///
    /// # Safety
    ///
    /// The object must still be loaded, and `at` must be a name offset from one of its tables.
    unsafe fn string(&self, at: u32) -> &CStr {
        // SAFETY: the caller passes a name offset from a table of this object, which is still loaded; there
        // is a C string at that offset of its DT_STRTAB.
        unsafe { CStr::from_ptr(self.strings.add(at as usize)) }
    }

    /// The version node of a symbol that the object defines. `None`: the symbol has no version.
    ///
    /// # Safety
    ///
    /// The object must still be loaded, and must have a symbol with this index.
    pub(crate) unsafe fn node(&self, index: u32) -> Option<&CStr> {
        // SAFETY: the caller guarantees that the symbol exists, and DT_VERSYM has an element for each symbol.
        let version = unsafe { self.versions.add(index as usize).read() } & !HIDDEN;
        let mut at = self.definitions;
        for _ in 0..self.count {
            // SAFETY: the object is loaded, and its DT_VERDEF is a list of DT_VERDEFNUM definitions, each
            // with the distance to the next one. `first_name` is the distance to an entry that begins with a
            // name offset in DT_STRTAB. Definitions and entries are aligned to 4 bytes.
            unsafe {
                let definition = at.cast::<Definition>().read();
                if definition.index & !HIDDEN == version {
                    return Some(self.string(at.add(definition.first_name as usize).cast::<u32>().read()));
                }
                at = at.add(definition.next as usize);
            }
        }
        None
    }

    /// The address of the function that the object defines with this name and version node, if there is one.
    ///
    /// # Safety
    ///
    /// The object must still be loaded.
    pub(crate) unsafe fn find(&self, name: &CStr, node: &CStr) -> Option<usize> {
        let wanted = hash_of(name);
        // SAFETY: the caller guarantees that the object is loaded, so its tables are mapped and well-formed.
        // DT_GNU_HASH begins with four words: the number of buckets, the index of the first symbol in the
        // table, the number of 8-byte filter words, and a shift. The filter and the buckets follow, then one
        // hash for each symbol, in chains whose last hash is odd; all indices below stay within them.
        unsafe {
            let (buckets, first, words) =
                (self.hash.read(), self.hash.add(1).read(), self.hash.add(2).read());
            let bucket = self.hash.add(4 + 2 * words as usize);
            let chain = bucket.add(buckets as usize);
            if buckets == 0 {
                return None;
            }
            let mut index = bucket.add((wanted % buckets) as usize).read();
            if index < first {
                return None;
            }
            loop {
                let hash = chain.add((index - first) as usize).read();
                if hash | 1 == wanted | 1 {
                    let symbol = self.symbols.add(index as usize).read();
                    let fits = symbol.section != 0
                        && symbol.info & 15 == STT_FUNC
                        && self.string(symbol.name) == name
                        && self.node(index) == Some(node);
                    if fits {
                        return Some(self.base.wrapping_add(symbol.value as usize));
                    }
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    /// The C library of the test process, which has functions with several version nodes.
    fn libc_object() -> Object {
        // SAFETY: the handle is valid and never closed, so the object stays loaded; with RTLD_DI_LINKMAP (2)
        // dlinfo stores the address of its link map.
        unsafe {
            let handle = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY);
            let mut map: *const LinkMap = null();
            assert_eq!(libc::dlinfo(handle, 2, (&raw mut map).cast()), 0);
            Object::of(map).unwrap()
        }
    }

    #[test]
    fn functions_are_found_by_name_and_node() {
        let object = libc_object();
        for (name, node) in
            [(c"getpid", c"GLIBC_2.2.5"), (c"memfd_create", c"GLIBC_2.27"), (c"dlsym", c"GLIBC_2.34")]
        {
            if cfg!(not(target_arch = "x86_64")) {
                continue;
            }
            // SAFETY: both names are C strings, and the handle is never closed, so the library stays loaded.
            let (expected, found) = unsafe {
                let handle = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY);
                (libc::dlvsym(handle, name.as_ptr(), node.as_ptr()) as usize, object.find(name, node))
            };
            assert_eq!(found, Some(expected), "{name:?}");
            // SAFETY: the library stays loaded, as its handle is never closed.
            unsafe {
                assert_eq!(object.find(name, c"GLIBC_1.0"), None);
                assert_eq!(object.find(c"there_is_no_such_function", node), None);
            }
        }
    }
}
