// SPDX-License-Identifier: BSD-3-Clause
//! The attributes of the device and of its port: what ibv_query_device(3) and ibv_query_port(3) return.
//!
//! Both are constants except for the GID table. The functions that libibverbs exports write the structures as
//! they were when those functions were introduced; the slots of the context write as many bytes as the
//! caller's structure has.

use libc::{c_char, c_int};
use rdma_sys::{
    IBV_LINK_LAYER_ETHERNET, ibv_atomic_cap, ibv_context, ibv_device, ibv_device_attr, ibv_device_attr_ex,
    ibv_device_cap_flags, ibv_mtu, ibv_port_attr, ibv_port_state, ibv_query_device_ex_input, ibv_values_ex,
    ibv_values_mask,
};
use std::ptr::{addr_of, addr_of_mut};

use super::{PKEY, PORT, gid, transport};
use crate::clock;
use crate::guid::OUI;
use crate::limits::*;
use crate::sys::{self, set_errno};
use ::transport::limits::{MAX_MESSAGE, MAX_READS, MAX_SGE};

/// The vendor ID of the device: its OUI.
const VENDOR: u32 = u32::from_be_bytes([0, OUI[0], OUI[1], OUI[2]]);
/// The part number of the device.
const PART: u32 = 1;

/// Returns the name of the device, `soft0`, as a C string that is valid until the process ends.
///
/// # Safety
///
/// As for ibv_get_device_name(3), for the software device.
pub unsafe fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller guarantees that `device` is the software device, which is never freed; only the
    // address of a field is computed.
    unsafe { addr_of!((*device).name).cast() }
}

/// Returns the GUID of the device in network byte order; it is the same on every host.
///
/// # Safety
///
/// As for ibv_get_device_guid(3).
pub unsafe fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    transport().guid()
}

/// Returns -1: the kernel assigns these indices, and has none for a device without a kernel driver.
///
/// # Safety
///
/// As for ibv_get_device_index(3).
pub unsafe fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// Stores the device attributes of the original, not extended, structure. Returns 0.
///
/// # Safety
///
/// As for ibv_query_device(3).
pub unsafe fn ibv_query_device(_context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: ibv_query_device(3) requires that `attr` is valid for writes of an ibv_device_attr.
    unsafe { attr.write(device_attributes().orig_attr) };
    0
}

/// The slot of the extended context that the inline function `ibv_query_port` of `verbs.h` calls: stores the
/// first `size` bytes of the port attributes. Returns 0, or EINVAL if `port` is not 1.
///
/// # Safety
///
/// `attr` must be valid for writes of `size` bytes.
pub(crate) unsafe extern "C" fn query_port_slot(
    _context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != PORT {
        return libc::EINVAL;
    }
    let full = port_attributes();
    let size = size.min(size_of::<PortAttr>());
    // SAFETY: the caller guarantees that `attr` is valid for writes of `size` bytes, and `size` is at most
    // that of `full` after the `min` above.
    unsafe { std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), attr.cast(), size) };
    0
}

/// Stores the attributes of a port: active, Ethernet. The fields from `port_cap_flags2` on, which were added
/// after this function, are not written. Returns 0, or EINVAL if `port` is not 1.
///
/// # Safety
///
/// As for ibv_query_port(3).
pub unsafe fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: ibv_query_port(3) requires that `attr` points to an ibv_port_attr, at least in the form without
    // `port_cap_flags2`, of which this is the size.
    unsafe { query_port_slot(context, port, attr, std::mem::offset_of!(ibv_port_attr, port_cap_flags2)) }
}

/// `struct ibv_port_attr` of newer headers, which have one more field.
#[repr(C)]
struct PortAttr {
    attr: ibv_port_attr,
    /// As `active_speed`, but wide enough for the encodings of newer speeds.
    active_speed_ex: u32,
}
const _: () = assert!(std::mem::offset_of!(PortAttr, active_speed_ex) == 52);

fn port_attributes() -> PortAttr {
    /// 10 Gb/s per lane.
    const SPEED: u8 = 4;
    const PHYS_LINK_UP: u8 = 5;
    // SAFETY: all-zero is a valid ibv_port_attr: it holds only integers and nullable pointers.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    attr.state = ibv_port_state::IBV_PORT_ACTIVE;
    attr.max_mtu = ibv_mtu::IBV_MTU_4096;
    attr.gid_tbl_len = gid::count() as c_int;
    attr.max_msg_sz = MAX_MESSAGE;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = 2;
    attr.active_speed = SPEED;
    attr.phys_state = PHYS_LINK_UP;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    transport().complete_port(&mut attr);
    PortAttr { attr, active_speed_ex: u32::from(SPEED) }
}

/// Stores an entry of the partition key table, which has one, in `pkey`. Returns 0, or -1 and errno EINVAL if
/// `port` is not 1 or `index` is not 0.
///
/// # Safety
///
/// As for ibv_query_pkey(3).
pub unsafe fn ibv_query_pkey(_context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    if port != PORT || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: ibv_query_pkey(3) requires that `pkey` is valid for writes.
    unsafe { pkey.write(PKEY) };
    0
}

/// Returns the index of a partition key in the table: 0 for the default partition (0xffff) of port 1, else
/// -1.
///
/// # Safety
///
/// As for ibv_get_pkey_index(3).
pub unsafe fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    if port == PORT && pkey == PKEY { 0 } else { -1 }
}

/// The slot of the extended context that the inline function `ibv_query_device_ex` of `verbs.h` calls: stores
/// the first `size` bytes of the extended attributes. Returns 0.
///
/// # Safety
///
/// `attr` must be valid for writes of `size` bytes.
pub(crate) unsafe extern "C" fn query_device_slot(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let full = device_attributes();
    let size = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: the caller guarantees that `attr` is valid for writes of `size` bytes, and `size` is at most
    // that of `full` after the `min` above.
    unsafe { std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), attr.cast(), size) };
    0
}

/// Stores the extended device attributes: limits, on-demand paging (memory is never pinned), and atomic
/// operations, which are also atomic with respect to the processors. Returns 0, or EINVAL if `input` is not
/// NULL and its `comp_mask` is not 0.
///
/// # Safety
///
/// As for ibv_query_device_ex(3).
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: `input` is not NULL, so ibv_query_device_ex(3) requires that it points to an
    // ibv_query_device_ex_input.
    if !input.is_null() && unsafe { addr_of!((*input).comp_mask).read() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: ibv_query_device_ex(3) requires that `attr` points to an ibv_device_attr_ex, of which this is
    // the size.
    unsafe { query_device_slot(context, input, attr, size_of::<ibv_device_attr_ex>()) }
}

/// The slot of the extended context that the inline function `ibv_query_rt_values_ex` of `verbs.h` calls:
/// stores the time of the clock of the device, by which completions are stamped. All of it is in `tv_nsec`,
/// as the drivers of adapters have it. Returns 0; `comp_mask` has what was stored.
///
/// # Safety
///
/// `values` must point to an ibv_values_ex.
pub(crate) unsafe extern "C" fn query_rt_values_slot(
    _context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const RAW_CLOCK: u32 = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
    // SAFETY: the caller guarantees that `values` points to an ibv_values_ex, which consists of integers.
    unsafe {
        let wanted = addr_of!((*values).comp_mask).read() & RAW_CLOCK;
        if wanted != 0 {
            addr_of_mut!((*values).raw_clock.tv_sec).write(0);
            addr_of_mut!((*values).raw_clock.tv_nsec).write(clock::raw() as _);
        }
        addr_of_mut!((*values).comp_mask).write(wanted);
    }
    0
}

/// IBV_DEVICE_FLUSH_GLOBAL, IBV_DEVICE_FLUSH_PERSISTENT and IBV_DEVICE_ATOMIC_WRITE of `device_cap_flags_ex`,
/// which rdma-core 44 does not define.
const DEVICE_FLUSH_AND_ATOMIC_WRITE: u64 = 1 << 38 | 1 << 39 | 1 << 40;
/// The clock of the device in kHz: its times are nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;
const DEVICE_MEM_WINDOW: u32 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0;
const DEVICE_MEM_WINDOW_TYPE_2B: u32 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;

fn device_attributes() -> ibv_device_attr_ex {
    // SAFETY: all-zero is a valid ibv_device_attr_ex: nothing is supported.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let orig = &mut attr.orig_attr;
    for (to, from) in orig.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as c_char;
    }
    orig.node_guid = transport().guid();
    orig.sys_image_guid = orig.node_guid;
    orig.vendor_id = VENDOR;
    orig.vendor_part_id = PART;
    orig.max_pkeys = 1;
    orig.max_mr_size = u64::MAX;
    orig.page_size_cap = sys::page_size();
    orig.max_qp = MAX_MR as c_int;
    orig.max_qp_wr = MAX_QP_WR as c_int;
    orig.max_sge = MAX_SGE as c_int;
    orig.max_sge_rd = MAX_SGE as c_int;
    orig.max_cq = MAX_MR as c_int;
    orig.max_cqe = MAX_CQE as c_int;
    orig.max_mr = MAX_MR as c_int;
    orig.max_mw = MAX_MW as c_int;
    // Windows of type 2 are type 2B: bound to a queue pair and to its protection domain.
    orig.device_cap_flags = DEVICE_MEM_WINDOW | DEVICE_MEM_WINDOW_TYPE_2B;
    orig.max_pd = MAX_MR as c_int;
    orig.max_qp_rd_atom = c_int::from(MAX_READS);
    orig.max_res_rd_atom = c_int::from(MAX_READS) * MAX_MR as c_int;
    orig.max_qp_init_rd_atom = c_int::from(MAX_READS);
    // Each one is carried out by one atomic instruction of a processor.
    orig.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_GLOB;
    orig.max_srq = MAX_MR as c_int;
    orig.max_srq_wr = MAX_SRQ_WR as c_int;
    orig.max_srq_sge = MAX_SGE as c_int;
    orig.phys_port_cnt = 1;
    transport().complete_device(orig);
    attr.device_cap_flags_ex = u64::from(orig.device_cap_flags);
    if transport().has_flush_and_atomic_write() {
        attr.device_cap_flags_ex |= DEVICE_FLUSH_AND_ATOMIC_WRITE;
    }
    attr.phys_port_cnt_ex = 1;
    (attr.completion_timestamp_mask, attr.hca_core_clock) = (u64::MAX, CLOCK_KHZ);
    // IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_IMPLICIT
    attr.odp_caps.general_caps = 0b11;
    // SEND, RECV, WRITE, READ, ATOMIC and SRQ_RECV.
    attr.odp_caps.per_transport_caps.rc_odp_caps = 0b11_1111;
    attr
}
