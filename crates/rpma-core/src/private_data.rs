// SPDX-License-Identifier: BSD-3-Clause
//! Private data received from the remote peer.
//!
//! They may arrive, and be lost again, while another thread reads them. So a copy is complete before it is
//! published, and lives until its connection is deleted: readers need no lock.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::rpma_conn_private_data;
use crate::alloc;
use crate::error::Result;

/// The private data of a connection or of its request, if there are any.
pub struct PrivateData {
    /// The view that the program gets: that of one of the copies, or [`NOTHING`].
    view: AtomicPtr<rpma_conn_private_data>,
    /// All copies that were ever published, freed with this object.
    copies: AtomicPtr<Copied>,
}

/// A copy. C may write to its bytes, so they are not read again.
struct Copied {
    view: rpma_conn_private_data,
    next: *mut Self,
    bytes: [MaybeUninit<u8>; u8::MAX as usize],
}

/// Never written to, although pointers to it are `*mut`.
struct Nothing(rpma_conn_private_data);

// SAFETY: it is constant, and its pointer is NULL.
unsafe impl Sync for Nothing {}

static NOTHING: Nothing = Nothing(rpma_conn_private_data { ptr: ptr::null_mut(), len: 0 });

fn nothing() -> *mut rpma_conn_private_data {
    (&raw const NOTHING.0).cast_mut()
}

impl PrivateData {
    pub fn none() -> Self {
        Self { view: AtomicPtr::new(nothing()), copies: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Copies `len` bytes; no private data if `len` is 0 or `data` is NULL.
    ///
    /// # Safety
    /// `data` must be NULL or point to `len` readable bytes.
    pub unsafe fn copy(data: (*const c_void, u8)) -> Result<Self> {
        let this = Self::none();
        // SAFETY: the caller guarantees `len` readable bytes.
        unsafe { this.receive(data) }?;
        Ok(this)
    }

    /// Copies `len` bytes, unless there are private data already or `data` is NULL or empty.
    ///
    /// # Safety
    /// `data` must be NULL or point to `len` readable bytes.
    #[inline]
    pub unsafe fn receive(&self, (data, len): (*const c_void, u8)) -> Result<()> {
        if data.is_null() || len == 0 || self.view.load(Ordering::Relaxed) != nothing() {
            return Ok(());
        }
        // SAFETY: the caller guarantees `len` readable bytes at `data`, which is not NULL here.
        unsafe { self.keep(data, len) }
    }

    /// # Safety
    /// `data` must point to `len` readable bytes.
    #[inline(never)]
    unsafe fn keep(&self, data: *const c_void, len: u8) -> Result<()> {
        let copy = Box::into_raw(alloc::boxed(Copied {
            view: NOTHING.0,
            next: ptr::null_mut(),
            bytes: [const { MaybeUninit::uninit() }; u8::MAX as usize],
        })?);
        // SAFETY: the copy is new and not shared yet, with room for any `len`; the caller guarantees `len`
        // readable bytes at `data`.
        let view = unsafe {
            let bytes = (&raw mut (*copy).bytes).cast::<u8>();
            ptr::copy_nonoverlapping(data.cast::<u8>(), bytes, len.into());
            (*copy).view = rpma_conn_private_data { ptr: bytes.cast(), len };
            &raw mut (*copy).view
        };
        if self.view.compare_exchange(nothing(), view, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: the copy is from `into_raw` above and was not published, because another thread was
            // faster.
            drop(unsafe { Box::from_raw(copy) });
            return Ok(());
        }
        let link = |first| {
            // SAFETY: the copy lives as long as this object, and only this thread, which published it,
            // accesses its link until it is in the list.
            unsafe { (*copy).next = first };
            Some(copy)
        };
        let _ = self.copies.fetch_update(Ordering::Release, Ordering::Relaxed, link);
        Ok(())
    }

    /// Drops the private data from the view; the copies stay allocated.
    pub fn lose(&self) {
        self.view.store(nothing(), Ordering::Relaxed);
    }

    /// The C view of the private data; NULL and 0 if there are none.
    #[inline]
    pub fn view(&self) -> &rpma_conn_private_data {
        // SAFETY: the pointer is that of NOTHING or of the view of a copy, which was complete before it was
        // published, is not changed and lives as long as this object.
        unsafe { &*self.view.load(Ordering::Acquire) }
    }
}

impl Drop for PrivateData {
    fn drop(&mut self) {
        let mut copy = *self.copies.get_mut();
        while !copy.is_null() {
            // SAFETY: each copy in the list is from `into_raw` in `keep`, and is freed only here, once.
            copy = unsafe { Box::from_raw(copy) }.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(view: &rpma_conn_private_data) -> &'static [u8] {
        // SAFETY: the view of a copy that has not been freed.
        unsafe { std::slice::from_raw_parts(view.ptr.cast::<u8>(), view.len.into()) }
    }

    #[test]
    fn copies_what_there_is() {
        let source = *b"hello";
        // SAFETY: the pointer and length are those of a live byte string.
        let copy = unsafe { PrivateData::copy((source.as_ptr().cast(), 5)) }.unwrap();
        assert_ne!(copy.view().ptr.cast_const(), source.as_ptr().cast());
        assert_eq!(bytes(copy.view()), b"hello");
    }

    #[test]
    fn nothing_is_null_and_zero() {
        // SAFETY: no bytes are read.
        let (null, empty) = unsafe {
            (PrivateData::copy((ptr::null(), 5)).unwrap(), PrivateData::copy((c"x".as_ptr().cast(), 0)))
        };
        for none in [null, empty.unwrap(), PrivateData::none()] {
            assert!(none.view().ptr.is_null() && none.view().len == 0);
        }
    }

    #[test]
    fn what_came_first_stays_until_it_is_lost_and_its_bytes_until_the_end() {
        let data = PrivateData::none();
        // SAFETY: the pointer and length are those of a live byte string.
        let receive = |text: &[u8]| unsafe { data.receive((text.as_ptr().cast(), text.len() as u8)) };
        receive(b"first").unwrap();
        receive(b"second").unwrap();
        let first = data.view();
        assert_eq!(bytes(first), b"first");
        data.lose();
        assert!(data.view().ptr.is_null());
        receive(&[7; 255]).unwrap();
        assert_eq!(bytes(data.view()), [7; 255]);
        assert_eq!(bytes(first), b"first");
    }

    #[test]
    fn threads_see_all_of_it_or_nothing() {
        let data = PrivateData::none();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        // SAFETY: the pointer and length are those of a live byte string.
                        unsafe { data.receive((c"all of it".as_ptr().cast(), 9)) }.unwrap();
                        let view = data.view();
                        assert!(view.len == 0 || bytes(view) == b"all of it");
                        data.lose();
                    }
                });
            }
        });
    }
}
