// SPDX-License-Identifier: BSD-3-Clause
//! The provider for RDMA devices, including the kernel's soft-RoCE and soft-iWARP: libibverbs and librdmacm.
//!
//! Its table is filled when a device is first wanted, with the functions that [`symbols`] finds; those of
//! `ext.rs` are inline in the header.

mod absent;
mod devices;
mod ext;
mod refused;
mod symbols;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::sockaddr;
use rdma_sys::*;
use rpma_log::text::c_literal;

use super::{Api, Provider, control_path, hot, provider};
pub(super) use devices::{Missing, missing};
use symbols::Symbols;
pub(super) use symbols::Unavailable;

/// The functions of the two libraries.
struct RdmaCore {
    provider: Provider,
    /// What `ext.rs` calls for a context without the extended query.
    query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
}

/// Before the functions were looked up.
static NONE: RdmaCore = RdmaCore {
    provider: control_path!(provider unfilled
        name: "rdma-core",
        has_flush_access: false,
        pins_memory: true,
        likely_reason: refused::likely_reason,
        event_reason: |_, _| {},
        ending: |_, _, _| {},
        post_denied: hot::post_send,
        post_at_once: hot::post_and_complete_later,
        flushes_by: |_, _| (),
        own_memory: |_| (),
    ),
    query_device: absent::ibv_query_device,
};

/// The calls of the list by name, before the look-up.
mod unfilled {
    pub(super) use super::absent::*;
    pub(super) use super::ext::{ibv_advise_mr, ibv_query_device_ex};
}

/// The name of a function as a C string.
macro_rules! name {
    ($call:ident) => {
        const { c_literal(concat!(stringify!($call), "\0")) }
    };
}

/// Looks up each call of the list, and replaces the table's function by the one that was found.
macro_rules! fill {
    ([$find:ident $table:ident] $( fn $call:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?; )*) => {
        $(
            if let Some(found) = $find(name!($call))? {
                // SAFETY: a function of this name has the signature of its manual page, which is the one in
                // the list; it is never unloaded, since no handle is closed.
                $table.$call = unsafe {
                    transmute::<NonNull<c_void>, unsafe extern "C" fn($($ty),*) $(-> $ret)?>(found)
                };
            }
        )*
    };
}

impl RdmaCore {
    fn look_up() -> Result<Self, Unavailable> {
        let mut symbols = Symbols::default();
        let mut find = |name: &CStr| symbols.find(name);
        let mut table = NONE.provider;
        control_path!(fill find table);
        let query_device = match find(c"ibv_query_device")? {
            // SAFETY: as for the functions of the list.
            Some(found) => unsafe {
                transmute::<
                    NonNull<c_void>,
                    unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
                >(found)
            },
            None => NONE.query_device,
        };
        Ok(Self { provider: table, query_device })
    }
}

/// The functions, once they have been looked up. Not a `Once`: a child that is forked during the look-up
/// would block on it forever. Threads that look up at the same time find the same functions; the table of one
/// of them is used.
static KNOWN: AtomicPtr<RdmaCore> = AtomicPtr::new(null_mut());

/// Memory for one table: the look-up usually happens once, and need not allocate.
struct Room(UnsafeCell<MaybeUninit<RdmaCore>>);
// SAFETY: only the thread that has set IS_TAKEN writes to it, before it publishes the address in KNOWN.
unsafe impl Sync for Room {}
static ROOM: Room = Room(UnsafeCell::new(MaybeUninit::uninit()));
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The functions that are known now, without a look-up.
fn known() -> &'static RdmaCore {
    let known = KNOWN.load(Ordering::Acquire);
    // SAFETY: NULL, or the address of a complete table that is never changed or freed.
    unsafe { known.as_ref() }.unwrap_or(&NONE)
}

/// The provider of all objects of devices. Before the look-up there are none, and its functions fail.
pub(super) fn looked_up() -> Api {
    &known().provider
}

/// The rdma-core provider. The first call looks the functions up; if that fails, the next one tries again.
#[inline(always)]
pub(super) fn api() -> Result<Api, Unavailable> {
    // SAFETY: as in `known`.
    match unsafe { KNOWN.load(Ordering::Acquire).as_ref() } {
        Some(known) => Ok(&known.provider),
        None => first_api(),
    }
}

#[cold]
#[inline(never)]
fn first_api() -> Result<Api, Unavailable> {
    publish(RdmaCore::look_up()?);
    Ok(looked_up())
}

/// Publishes a table, unless another one was published before.
fn publish(table: RdmaCore) {
    let publish = |place| {
        KNOWN.compare_exchange(null_mut(), place, Ordering::AcqRel, Ordering::Relaxed).map_err(|_| place)
    };
    if !IS_TAKEN.swap(true, Ordering::Relaxed) {
        let room = ROOM.0.get().cast::<RdmaCore>();
        // SAFETY: only the thread that has set the flag writes, and no thread reads the room before it is
        // published.
        unsafe { room.write(table) };
        // If that fails, the room stays unused.
        let _ = publish(room);
    } else if KNOWN.load(Ordering::Acquire).is_null() {
        // Another thread is about to publish its table, or was when this process was forked.
        if let Err(mine) = publish(Box::into_raw(Box::new(table))) {
            // SAFETY: allocated in the line above, and published nowhere.
            drop(unsafe { Box::from_raw(mine) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_get_the_same_table() {
        let tables = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| api().map(|api| &raw const *api as usize).ok())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(tables.iter().all(|table| *table == tables[0]), "{tables:x?}");
        assert_eq!(tables[0], api().map(|api| &raw const *api as usize).ok());
    }

    #[test]
    fn inline_functions_are_ours() {
        let ours: unsafe extern "C" fn(_, _, _) -> _ = ext::ibv_query_device_ex;
        if let Ok(api) = api() {
            assert_eq!(api.ibv_query_device_ex as usize, ours as usize);
        }
    }
}
