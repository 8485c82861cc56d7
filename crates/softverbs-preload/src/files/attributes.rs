// SPDX-License-Identifier: BSD-3-Clause
//! The contents of the attributes: the values that verbs report for the port, in the format of sysfs.

use libc::c_char;
use softverbs::verbs::{self as soft, GidEntry};
use std::ffi::CStr;

use super::paths::Attribute;

/// The number of the port.
const PORT: u8 = 1;
/// A type of GIDs (`enum ibv_gid_type`).
const ROCE_V2: u32 = 2;

/// The entry of the GID table is empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Empty;

/// Whether the table of this attribute is long enough.
pub(super) fn exists(attribute: Attribute) -> bool {
    // SAFETY: all-zero is a valid ibv_port_attr: it holds only integers.
    let mut port: rdma_sys::ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is that of the software device; `port` is a local variable.
    if unsafe { soft::ibv_query_port(softverbs::context(), PORT, &mut port) } != 0 {
        return false;
    }
    match attribute {
        Attribute::GidType(index) | Attribute::GidInterface(index) => {
            i64::from(index) < i64::from(port.gid_tbl_len)
        }
        Attribute::Pkey(index) => index < u32::from(port.pkey_tbl_len),
        Attribute::Counter(_) => true,
    }
}

/// The content of an attribute that exists.
pub(super) fn value(attribute: Attribute) -> Result<String, Empty> {
    let text = match attribute {
        Attribute::GidType(index) if entry(index)?.kind == ROCE_V2 => "RoCE v2".to_owned(),
        Attribute::GidType(_) => "IB/RoCE v1".to_owned(),
        Attribute::GidInterface(index) => interface_name(entry(index)?.interface)?,
        Attribute::Pkey(index) => format!("{:#06x}", pkey(index)?),
        Attribute::Counter(counter) => counter.value().to_string(),
    };
    Ok(text + "\n")
}

fn entry(index: u32) -> Result<GidEntry, Empty> {
    let mut entry = GidEntry::default();
    // SAFETY: the context is that of the software device; `entry` is a local variable of this size.
    let result = unsafe {
        soft::_ibv_query_gid_ex(
            softverbs::context(),
            u32::from(PORT),
            index,
            &mut entry,
            0,
            size_of::<GidEntry>(),
        )
    };
    if result == 0 { Ok(entry) } else { Err(Empty) }
}

/// The name of a network interface; `Empty`: it was removed.
fn interface_name(index: u32) -> Result<String, Empty> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: `name` has the size that if_indextoname(3) requires, which stores a C string there if it
    // succeeds.
    unsafe {
        if libc::if_indextoname(index, name.as_mut_ptr()).is_null() {
            return Err(Empty);
        }
        Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}

fn pkey(index: u32) -> Result<u16, Empty> {
    let mut pkey = 0;
    // SAFETY: the context is that of the software device; `pkey` is a local variable.
    let result = unsafe { soft::ibv_query_pkey(softverbs::context(), PORT, index as libc::c_int, &mut pkey) };
    if result == 0 { Ok(u16::from_be(pkey)) } else { Err(Empty) }
}
