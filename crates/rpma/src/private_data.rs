// SPDX-License-Identifier: BSD-3-Clause
//! Private data received from the remote peer.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use crate::abi::rpma_conn_private_data;
use crate::alloc;
use crate::error::Result;

/// A copy of received private data. Its address is passed to C, which may write there, so it is kept as a raw
/// pointer and never read again.
pub struct PrivateData {
    bytes: NonNull<[u8]>,
    len: u8,
}

impl PrivateData {
    /// A copy of `len` bytes; None if there are none.
    ///
    /// # Safety
    /// `data` must be NULL or point to `len` readable bytes.
    pub unsafe fn copy((data, len): (*const c_void, u8)) -> Result<Option<PrivateData>> {
        if data.is_null() || len == 0 {
            return Ok(None);
        }
        let mut copy = alloc::bytes(len.into())?.into_boxed_slice();
        // SAFETY: the caller guarantees `len` readable bytes at `data`, which is not NULL here; the copy is fresh
        // and as long.
        unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), copy.as_mut_ptr(), len.into()) };
        Ok(Some(PrivateData { bytes: NonNull::from(Box::leak(copy)), len }))
    }

    /// The C view of the private data; NULL and 0 if there are none.
    pub fn view(this: Option<&PrivateData>) -> rpma_conn_private_data {
        match this {
            Some(data) => rpma_conn_private_data { ptr: data.bytes.as_ptr().cast(), len: data.len },
            None => rpma_conn_private_data { ptr: ptr::null_mut(), len: 0 },
        }
    }
}

impl Drop for PrivateData {
    fn drop(&mut self) {
        // SAFETY: leaked from a box in `copy`, and taken back once.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_what_there_is() {
        let source = *b"hello";
        // SAFETY: as many readable bytes as the length says.
        let copy = unsafe { PrivateData::copy((source.as_ptr().cast(), 5)) }.unwrap();
        let view = PrivateData::view(copy.as_ref());
        assert_ne!(view.ptr.cast_const(), source.as_ptr().cast());
        // SAFETY: the view of a copy that is still there.
        assert_eq!(unsafe { std::slice::from_raw_parts(view.ptr.cast::<u8>(), view.len.into()) }, b"hello");
    }

    #[test]
    fn nothing_is_null_and_zero() {
        // SAFETY: no bytes are read.
        let (none, empty) = unsafe {
            (PrivateData::copy((ptr::null(), 5)).unwrap(), PrivateData::copy((c"x".as_ptr().cast(), 0)))
        };
        assert!(none.is_none() && empty.unwrap().is_none());
        let view = PrivateData::view(None);
        assert!(view.ptr.is_null() && view.len == 0);
    }
}
