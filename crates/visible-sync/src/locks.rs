// SPDX-License-Identifier: BSD-3-Clause
//! Locks of libpthread, with the interface of std's. None is ever poisoned: a panic aborts the process.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LockResult, TryLockError, TryLockResult};

pub struct Mutex<T: ?Sized> {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    /// The address at which it was locked last, or 0. The tools know a mutex by that, and it may have moved
    /// since.
    used: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: as for std's: the lock lends the value to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// It is unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared value only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            used: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard(&self) -> MutexGuard<'_, T> {
        // Under the lock.
        self.used.store(self.lock.get().addr(), Ordering::Relaxed);
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: an initialized mutex, which does not move while it is borrowed.
        let ret = unsafe { libc::pthread_mutex_lock(self.lock.get()) };
        assert_eq!(ret, 0, "pthread_mutex_lock");
        Ok(self.guard())
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        // SAFETY: as above.
        match unsafe { libc::pthread_mutex_trylock(self.lock.get()) } {
            0 => Ok(self.guard()),
            _ => Err(TryLockError::WouldBlock),
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        Ok(self.value.get_mut())
    }
}

impl<T: ?Sized> Drop for Mutex<T> {
    fn drop(&mut self) {
        if *self.used.get_mut() == self.lock.get().addr() {
            // SAFETY: nobody borrows the mutex, so nobody holds it.
            unsafe { libc::pthread_mutex_destroy(self.lock.get()) };
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.lock.get()) };
    }
}

pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: libpthread's functions may be called from any thread.
unsafe impl Send for Condvar {}
// SAFETY: as above.
unsafe impl Sync for Condvar {}

impl Condvar {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        // SAFETY: an initialized condition, and a mutex that this thread holds.
        unsafe { libc::pthread_cond_wait(self.0.get(), guard.mutex.lock.get()) };
        Ok(guard)
    }

    /// Not inlined: tools/threads.supp knows it by name.
    #[inline(never)]
    pub fn notify_one(&self) {
        // SAFETY: an initialized condition.
        let ret = unsafe { libc::pthread_cond_signal(self.0.get()) };
        // After the call, so that it returns here.
        assert_eq!(ret, 0, "pthread_cond_signal");
    }

    pub fn notify_all(&self) {
        // SAFETY: an initialized condition.
        let ret = unsafe { libc::pthread_cond_broadcast(self.0.get()) };
        assert_eq!(ret, 0, "pthread_cond_broadcast");
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

/// A value that is set once: under a lock, and read after an acquiring load.
pub struct OnceLock<T> {
    set: crate::sync::atomic::AtomicBool,
    value: Mutex<Option<T>>,
}

// SAFETY: as for std's: the value is shared, and may be dropped by another thread.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        Self { set: crate::sync::atomic::AtomicBool::new(false), value: Mutex::new(None) }
    }

    pub fn get(&self) -> Option<&T> {
        // SAFETY: once `set` is true, nobody changes the value before the exclusive borrow of a drop.
        self.set.load(Ordering::Acquire).then(|| unsafe { (*self.value.value.get()).as_ref() }).flatten()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let mut held = self.value.lock().unwrap_or_else(|e| e.into_inner());
        if held.is_some() {
            return Err(value);
        }
        *held = Some(value);
        self.set.store(true, Ordering::Release);
        Ok(())
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mut held = self.value.lock().unwrap_or_else(|e| e.into_inner());
        if held.is_none() {
            *held = Some(make());
            self.set.store(true, Ordering::Release);
        }
        drop(held);
        // SAFETY: as in `get`.
        unsafe { (*self.value.value.get()).as_ref() }.expect("set above")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
