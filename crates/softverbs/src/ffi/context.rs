// SPDX-License-Identifier: BSD-3-Clause
//! The device `soft0` and its context: one per process, created on first use and never freed.
//!
//! The context is an extended one, with the marker and the size that libibverbs defines, so the inline
//! functions of `verbs.h` work on it. Those of the data path call the functions in `ops`; those of an
//! optional feature find an empty slot and report that the feature is not supported. The functions exported
//! by libibverbs expect private data next to the context, so they must not be called with this one. Functions
//! that read the private part of a device find zeros there.

use once_cell::race::OnceBox;
use rdma_sys::{ibv_context, ibv_device, verbs_context};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// The marker of an extended context in `verbs.h`: all bits set.
pub(super) const EXTENDED: *mut libc::c_void = usize::MAX as *mut libc::c_void;

/// Bytes of zeros behind the `ibv_device`: more than the private part that libibverbs has there (`struct
/// verbs_device` of its driver interface).
const PRIVATE_PART: usize = 256;

#[repr(C)]
struct Device {
    device: ibv_device,
    private: [u64; PRIVATE_PART / 8],
}

/// The context, which holds the address of its device. Once shared it is never freed: like a context of
/// librdmacm it remains valid until the program ends.
struct Soft {
    context: *mut verbs_context,
}

// SAFETY: `context` is set before the value is shared and never changes, and what it points to is never freed
// while shared. softverbs only reads the fields there, except `async_fd`, to which every thread writes the
// same value; the mutex is for the program.
unsafe impl Send for Soft {}
// SAFETY: a shared reference gives access to nothing but the address, whose use is sound on any thread for
// the reasons given at `Send`.
unsafe impl Sync for Soft {}

impl Drop for Soft {
    /// If two threads create it at the same time, the value of one of them is dropped.
    fn drop(&mut self) {
        // SAFETY: `make` has created both with `Box::into_raw`. The value stored in `SOFT` is a static and
        // never dropped, so this one was never shared, and no one else has its addresses.
        unsafe {
            let context = Box::from_raw(self.context);
            drop(Box::from_raw(context.context.device.cast::<Device>()));
        }
    }
}

static SOFT: OnceBox<Soft> = OnceBox::new();

// The inline functions of verbs.h compute the address of the extended context from the offset of `context`,
// its last field.
const _: () = assert!(
    std::mem::offset_of!(verbs_context, context) + size_of::<ibv_context>() == size_of::<verbs_context>()
);

fn name_into<const N: usize>(field: &mut [libc::c_char; N], name: &[u8]) {
    for (to, from) in field.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
}

fn make(fill: impl FnOnce(&mut ibv_device, &mut verbs_context)) -> Box<Soft> {
    // SAFETY: all-zero is a valid Device: no operations, empty names, a zero private part.
    let mut whole: Box<Device> = Box::new(unsafe { std::mem::zeroed() });
    let device = &mut whole.device;
    name_into(&mut device.name, b"soft0");
    name_into(&mut device.dev_name, b"soft0");
    // SAFETY: all-zero is a valid verbs_context: every slot empty.
    let mut context: Box<verbs_context> = Box::new(unsafe { std::mem::zeroed() });
    context.sz = size_of::<verbs_context>();
    fill(&mut whole.device, &mut context);
    context.context.device = Box::into_raw(whole).cast();
    context.context.cmd_fd = -1;
    context.context.async_fd = -1;
    context.context.num_comp_vectors = 1;
    context.context.abi_compat = EXTENDED;
    Box::new(Soft { context: Box::into_raw(context) })
}

/// The context, created on first use; `fill` stores the types of the device and the functions in the slots of
/// the context. Only [`context`](super::soft0::context), which has them, calls this.
pub(super) fn get_or_make(fill: impl FnOnce(&mut ibv_device, &mut verbs_context)) -> *mut ibv_context {
    let soft = SOFT.get_or_init(|| make(fill));
    // SAFETY: the context in `SOFT` is never freed, so the place is valid; only the address of a field is
    // computed.
    unsafe { addr_of_mut!((*soft.context).context) }
}

/// Whether `context` is the context of the software device. Compares the address only; `context` may be any
/// value and is not dereferenced.
pub fn owns(context: *const ibv_context) -> bool {
    // SAFETY: the context in `SOFT` is never freed, so the place is valid; only the address of a field is
    // computed.
    SOFT.get().is_some_and(|soft| std::ptr::eq(context, unsafe { addr_of!((*soft.context).context) }))
}

/// Whether `device` is the software device. Compares the address only; `device` may be any value and is not
/// dereferenced.
pub fn owns_device(device: *const ibv_device) -> bool {
    // SAFETY: the context is never freed, and its field `device` is not written after `make`.
    SOFT.get()
        .is_some_and(|soft| std::ptr::eq(device, unsafe { addr_of!((*soft.context).context.device).read() }))
}

/// The next object number, unique in the process until it wraps around after 2^32.
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
