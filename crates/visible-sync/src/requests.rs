// SPDX-License-Identifier: BSD-3-Clause
//! Client requests of valgrind: valgrind.h, helgrind.h and drd.h have the numbers.

const fn tool(a: u8, b: u8) -> usize {
    ((a as usize) << 24) | ((b as usize) << 16)
}

/// DRD knows these two by the same numbers.
const BEFORE: usize = tool(b'H', b'G') + 256 + 33;
const AFTER: usize = tool(b'H', b'G') + 256 + 34;
const HG_FORGET: usize = tool(b'H', b'G') + 256 + 35;
const HG_UNTRACKED: usize = tool(b'H', b'G') + 256 + 39;
const DRD_LOADS: usize = tool(b'D', b'R') + 6;
const DRD_STORES: usize = tool(b'D', b'R') + 7;

/// A request, which does nothing outside valgrind and in a tool that does not know it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn request(what: usize, a: usize, b: usize) {
    let block = [what, a, b, 0, 0, 0];
    // SAFETY: four rotations by 128 bits in all leave rdi as it was, and an exchange of a register with
    // itself changes nothing. Valgrind, which recognizes the sequence, reads the block at rax and puts its
    // answer into rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") block.as_ptr(), inout("rdx") 0usize => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the sequence of a client request is known for x86_64 only");

/// What this thread has done so far happens before what another thread does after [`after`] of the same
/// address.
#[inline(always)]
pub fn before(addr: usize) {
    request(BEFORE, addr, 0);
}

#[inline(always)]
pub fn after(addr: usize) {
    request(AFTER, addr, 0);
}

/// The memory is about to be another object's.
pub fn forget(addr: usize) {
    request(HG_FORGET, addr, 0);
}

/// Runs an atomic operation on `len` bytes at `addr`, which is no race with another one. Helgrind ignores the
/// bytes until they are freed, DRD what this thread does in the meantime.
#[inline(always)]
pub fn atomically<R>(addr: usize, len: usize, operation: impl FnOnce() -> R) -> R {
    request(HG_UNTRACKED, addr, len);
    request(DRD_LOADS, 0, 0);
    request(DRD_STORES, 0, 0);
    let result = operation();
    request(DRD_STORES, 1, 0);
    request(DRD_LOADS, 1, 0);
    result
}
