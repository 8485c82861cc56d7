// SPDX-License-Identifier: BSD-3-Clause
//! Atomics that announce the order which each operation establishes.

use std::sync::atomic::{self as real, Ordering};

use crate::requests::{after, atomically, before};

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

/// All fences are operations on this word.
static FENCE: real::AtomicU8 = real::AtomicU8::new(0);

pub fn fence(order: Ordering) {
    let addr = FENCE.as_ptr() as usize;
    if releases(order) {
        before(addr);
    }
    real::fence(order);
    if acquires(order) {
        after(addr);
    }
}

pub use real::compiler_fence;

macro_rules! operations {
    ($value:ty; $($name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(
            #[inline]
            pub fn $name(&self, $($arg: $type,)* order: Ordering) -> $ret {
                self.ordered(releases(order), |_| acquires(order), || self.0.$name($($arg,)* order))
            }
        )*
    };
}

macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $value:ty, $extra:item) => {
        #[repr(transparent)]
        pub struct $name $(<$t>)? (real::$name $(<$t>)?);

        impl $(<$t>)? $name $(<$t>)? {
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[inline(always)]
            fn ordered<R>(&self, releases: bool, acquires: impl Fn(&R) -> bool, operation: impl FnOnce() -> R) -> R {
                let addr = self.0.as_ptr() as usize;
                if releases {
                    before(addr);
                }
                let result = atomically(addr, size_of::<$value>(), operation);
                if acquires(&result) {
                    after(addr);
                }
                result
            }

            operations! { $value;
                load() -> $value;
                store(value: $value) -> ();
                swap(value: $value) -> $value;
            }

            pub fn compare_exchange(
                &self, current: $value, new: $value, success: Ordering, failure: Ordering,
            ) -> Result<$value, $value> {
                self.ordered(
                    releases(success),
                    |result: &Result<_, _>| acquires(if result.is_ok() { success } else { failure }),
                    || self.0.compare_exchange(current, new, success, failure),
                )
            }

            pub fn compare_exchange_weak(
                &self, current: $value, new: $value, success: Ordering, failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_update(
                &self, set: Ordering, fetch: Ordering, mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(fetch);
                while let Some(new) = next(now) {
                    match self.compare_exchange(now, new, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// # Safety
            /// As for std's.
            pub const unsafe fn from_ptr<'a>(ptr: *mut $value) -> &'a Self {
                // SAFETY: the caller guarantees what std's function asks; the layouts are the same.
                unsafe { &*ptr.cast::<Self>() }
            }
        }

        $extra

        impl $(<$t>)? std::fmt::Debug for $name $(<$t>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! integer {
    ($($name:ident $value:ty;)*) => {
        $(
            atomic!($name, $value, impl $name {
                operations! { $value;
                    fetch_add(value: $value) -> $value;
                    fetch_sub(value: $value) -> $value;
                    fetch_and(value: $value) -> $value;
                    fetch_or(value: $value) -> $value;
                    fetch_xor(value: $value) -> $value;
                    fetch_max(value: $value) -> $value;
                    fetch_min(value: $value) -> $value;
                }
            });

            impl Default for $name {
                fn default() -> Self {
                    Self::new(0)
                }
            }
        )*
    };
}

integer! {
    AtomicU8 u8; AtomicU16 u16; AtomicU32 u32; AtomicU64 u64; AtomicUsize usize;
    AtomicI8 i8; AtomicI16 i16; AtomicI32 i32; AtomicI64 i64; AtomicIsize isize;
}

atomic!(AtomicBool, bool, impl AtomicBool {
    operations! { bool;
        fetch_and(value: bool) -> bool;
        fetch_or(value: bool) -> bool;
    }
});

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

atomic!(
    AtomicPtr<T>,
    *mut T,
    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }
);
