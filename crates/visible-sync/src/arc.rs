// SPDX-License-Identifier: BSD-3-Clause
//! Shared ownership: the counts of std's `Arc`, with a load in the place of the fence before the last owner
//! drops the value.

use std::fmt;
use std::marker::{PhantomData, Unsize};
use std::ops::{CoerceUnsized, Deref, DispatchFromDyn, LegacyReceiver};
use std::ptr::{NonNull, addr_of, addr_of_mut};

use crate::requests::forget;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[repr(C)]
struct Inner<T: ?Sized> {
    strong: AtomicUsize,
    /// One for all strong ones together.
    weak: AtomicUsize,
    value: T,
}

pub struct Arc<T: ?Sized> {
    ptr: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

pub struct Weak<T: ?Sized> {
    /// Dangling, at the address `usize::MAX`, if made by `Weak::new`.
    ptr: NonNull<Inner<T>>,
}

// SAFETY: as for std's.
unsafe impl<T: ?Sized + Sync + Send> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync + Send> Sync for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync + Send> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync + Send> Sync for Weak<T> {}

impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<Arc<U>> for Arc<T> {}
impl<T: ?Sized + Unsize<U>, U: ?Sized> DispatchFromDyn<Arc<U>> for Arc<T> {}
impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<Weak<U>> for Weak<T> {}
impl<T: ?Sized> LegacyReceiver for Arc<T> {}

impl<T> Arc<T> {
    pub fn new(value: T) -> Self {
        let inner = Inner { strong: AtomicUsize::new(1), weak: AtomicUsize::new(1), value };
        // SAFETY: a box is never NULL.
        Self { ptr: unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(inner))) }, owns: PhantomData }
    }

    pub fn new_cyclic(make: impl FnOnce(&Weak<T>) -> T) -> Self {
        let empty = Box::new(Inner {
            strong: AtomicUsize::new(0),
            weak: AtomicUsize::new(1),
            value: std::mem::MaybeUninit::<T>::uninit(),
        });
        let raw: *mut Inner<T> = Box::into_raw(empty).cast();
        // SAFETY: a box is never NULL.
        let weak = Weak { ptr: unsafe { NonNull::new_unchecked(raw) } };
        let value = make(&weak);
        // SAFETY: nobody reads the value while there is no strong owner.
        unsafe { addr_of_mut!((*raw).value).write(value) };
        weak.inner().expect("not dangling").0.store(1, Ordering::Release);
        let ptr = weak.ptr;
        std::mem::forget(weak);
        Self { ptr, owns: PhantomData }
    }
}

impl<T: ?Sized> Arc<T> {
    fn inner(&self) -> &Inner<T> {
        // SAFETY: lives as long as an owner.
        unsafe { self.ptr.as_ref() }
    }

    pub fn downgrade(this: &Self) -> Weak<T> {
        this.inner().weak.fetch_add(1, Ordering::Relaxed);
        Weak { ptr: this.ptr }
    }

    pub fn as_ptr(this: &Self) -> *const T {
        // SAFETY: only the address of a field is computed.
        unsafe { addr_of!((*this.ptr.as_ptr()).value) }
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::ptr::addr_eq(this.ptr.as_ptr(), other.ptr.as_ptr())
    }

    pub fn strong_count(this: &Self) -> usize {
        this.inner().strong.load(Ordering::Relaxed)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.inner().strong.fetch_add(1, Ordering::Relaxed);
        Self { ptr: self.ptr, owns: PhantomData }
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.inner().strong.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        self.inner().strong.load(Ordering::Acquire);
        // SAFETY: this was the last owner, and `_weak` keeps the memory until the value is dropped.
        unsafe {
            let _weak = Weak { ptr: self.ptr };
            std::ptr::drop_in_place(addr_of_mut!((*self.ptr.as_ptr()).value));
        }
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Weak<T> {
    pub const fn new() -> Self {
        // SAFETY: not NULL, and never dereferenced.
        Self { ptr: unsafe { NonNull::new_unchecked(std::ptr::without_provenance_mut(usize::MAX)) } }
    }
}

impl<T: ?Sized> Weak<T> {
    /// The counts, strong and weak.
    fn inner(&self) -> Option<(&AtomicUsize, &AtomicUsize)> {
        let raw = self.ptr.as_ptr();
        if raw.cast::<()>().addr() == usize::MAX {
            return None;
        }
        // SAFETY: not dangling, so the memory lives as long as this; the counts are never borrowed
        // exclusively.
        Some(unsafe { (&*addr_of!((*raw).strong), &*addr_of!((*raw).weak)) })
    }

    pub fn upgrade(&self) -> Option<Arc<T>> {
        let (strong, _) = self.inner()?;
        let more = |n: usize| (n > 0).then_some(n + 1);
        strong.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(Arc { ptr: self.ptr, owns: PhantomData })
    }

    pub fn strong_count(&self) -> usize {
        self.inner().map_or(0, |(strong, _)| strong.load(Ordering::Relaxed))
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.ptr.as_ptr(), other.ptr.as_ptr())
    }

    pub fn as_ptr(&self) -> *const T {
        // SAFETY: only the address of a field is computed, for callers of a value that was there once.
        unsafe { addr_of!((*self.ptr.as_ptr()).value) }
    }
}

impl<T: ?Sized> Clone for Weak<T> {
    fn clone(&self) -> Self {
        if let Some((_, weak)) = self.inner() {
            weak.fetch_add(1, Ordering::Relaxed);
        }
        Self { ptr: self.ptr }
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

impl<T: ?Sized> Drop for Weak<T> {
    fn drop(&mut self) {
        let Some((strong, weak)) = self.inner() else { return };
        if weak.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        weak.load(Ordering::Acquire);
        forget(strong.as_ptr() as usize);
        forget(weak.as_ptr() as usize);
        // SAFETY: the last reference. The memory is that of a box of this type, whose value has been dropped.
        unsafe {
            let layout = std::alloc::Layout::for_value_raw(self.ptr.as_ptr());
            std::alloc::dealloc(self.ptr.as_ptr().cast(), layout);
        }
    }
}
