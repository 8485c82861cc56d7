// SPDX-License-Identifier: BSD-3-Clause
//! Conversion of C work requests to the internal form.
//!
//! Of each request only the fields that its opcode uses are read: programs leave the others uninitialised.
//! Opcode, lengths and counts are checked here, and not again later.

use arrayvec::ArrayVec;
use libc::c_int;
use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode};
use std::ptr::addr_of;

use super::send_flags::{SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED};
use super::verbs;
use crate::qp::{Kind, Qp};
use crate::sys::Errno;
use transport::limits::{MAX_INLINE, MAX_MESSAGE};
use transport::wr::{Entries, Local, Op, SendWr, Sge};

/// Copies the scatter/gather entries of a work request to `entries`, and returns the sum of their lengths.
/// Empty entries are left out if there are several. EINVAL: `count` is negative or exceeds `most`, or the sum
/// exceeds [`MAX_MESSAGE`] bytes.
///
/// # Safety
///
/// `list` must be NULL or point to `count` entries.
pub(super) unsafe fn take_entries(
    list: *const ibv_sge,
    count: c_int,
    most: u32,
    entries: &mut Entries,
) -> Result<u32, Errno> {
    let mut sum = 0u64;
    let count = u32::try_from(count).map_err(|_| libc::EINVAL)?;
    if count > most || (list.is_null() && count > 0) {
        return Err(libc::EINVAL);
    }
    for at in 0..count as usize {
        // SAFETY: `list` is not NULL (checked above), so by the contract of this function it points to
        // `count` entries, and `at` is below `count`.
        let sge = unsafe { list.add(at).read() };
        sum += u64::from(sge.length);
        // A single entry is kept even if it is empty.
        if sge.length > 0 || count == 1 {
            entries.try_push(Sge::new(sge.addr, sge.length, sge.lkey)).map_err(|_| libc::EINVAL)?;
        }
    }
    if sum > u64::from(MAX_MESSAGE) { Err(libc::EINVAL) } else { Ok(sum as u32) }
}

/// Copies inline data. EINVAL: `len` exceeds [`MAX_INLINE`] bytes.
///
/// # Safety
///
/// Each entry must be readable memory of the program, and `len` the sum of their lengths.
unsafe fn inline(entries: &Entries, len: u32) -> Result<Local, Errno> {
    let mut bytes = ArrayVec::<u8, MAX_INLINE>::new();
    if len as usize > bytes.capacity() {
        return Err(libc::EINVAL);
    }
    for entry in entries {
        let at = bytes.len();
        // SAFETY: by the contract of this function the entry is readable memory of that length. `bytes` has
        // room: the lengths add up to `len`, which is at most its capacity. The copy initialises the bytes
        // that `set_len` then includes.
        unsafe {
            let to = bytes.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(entry.addr as *const u8, to, entry.len as usize);
            bytes.set_len(at + entry.len as usize);
        }
    }
    Local::inline(&bytes)
}

/// Whether an operation stores data locally instead of sending it, so that IBV_SEND_INLINE is meaningless.
fn returns_data(opcode: ibv_wr_opcode::Type) -> bool {
    opcode == ibv_wr_opcode::IBV_WR_RDMA_READ || verbs::atomic_of(opcode).is_some()
}

/// Reads the fields of a work request that its opcode uses, and passes the request to `then`: as a result it
/// would be copied. EINVAL: the opcode is unknown, the entries are invalid (see [`take_entries`]), there are
/// too many inline bytes, or, in adapter mode, IBV_SEND_INLINE is set for an operation that stores data
/// locally. On a queue pair of type UC also: a read, an atomic operation or a send with invalidate; of type
/// UD: no send, or no address handle.
///
/// # Safety
///
/// `wr` must point to a work request as described in ibv_post_send(3).
#[inline(always)]
pub(super) unsafe fn read_send_wr<T>(
    wr: *const ibv_send_wr,
    qp: &Qp,
    then: impl FnOnce(SendWr) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (signal_all, max_sge) = (qp.signal_all, qp.max_send_sge);
    // SAFETY: by the contract of this function `wr` points to a work request. Every opcode uses these fields,
    // so they are initialised; they are copied one by one, without a reference.
    let (wr_id, opcode, flags, list, count) = unsafe {
        (
            addr_of!((*wr).wr_id).read(),
            addr_of!((*wr).opcode).read(),
            addr_of!((*wr).send_flags).read(),
            addr_of!((*wr).sg_list).read(),
            addr_of!((*wr).num_sge).read(),
        )
    };
    if flags & SEND_INLINE != 0 && returns_data(opcode) {
        qp.instruments.check_inline(wr_id)?;
    }
    // SAFETY: called for RDMA Write and Read only: they use the member `rdma` of the union `wr`, so the
    // program has set it.
    let remote =
        || unsafe { (addr_of!((*wr).wr.rdma.remote_addr).read(), addr_of!((*wr).wr.rdma.rkey).read()) };
    // SAFETY: called only for opcodes with immediate data, which use the member `imm_data` of its union, so
    // the program has set it, and for a flush of librpma, which sets it to the type of the flush.
    let imm = || unsafe { addr_of!((*wr).__bindgen_anon_1.imm_data).read() }.to_ne_bytes();
    let none = [0; 4];
    let (op, (remote_addr, rkey), imm_data) = match opcode {
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => (Op::Write, remote(), none),
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => (Op::WriteWithImm, remote(), imm()),
        ibv_wr_opcode::IBV_WR_RDMA_READ => (Op::Read, remote(), none),
        ibv_wr_opcode::IBV_WR_SEND => (Op::Send, (0, 0), none),
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => (Op::SendWithImm, (0, 0), imm()),
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => {
            // SAFETY: this opcode uses the member `invalidate_rkey` of the union that it shares with the
            // immediate data, so the program has set it.
            let rkey = unsafe { addr_of!((*wr).__bindgen_anon_1.invalidate_rkey).read() };
            (Op::SendWithInv, (0, rkey), none)
        }
        // SAFETY: by the contract of this function `wr` points to a work request.
        _ => return then(unsafe { read_other(wr, opcode, qp) }?),
    };
    let to = match qp.kind {
        Kind::Ud if !matches!(op, Op::Send | Op::SendWithImm) => return Err(libc::EINVAL),
        // SAFETY: the sends of a queue pair of type UD use the member `ud` of the union `wr`, so the program
        // has set it, to an address handle that has not been destroyed (ibv_post_send(3)).
        Kind::Ud => Some(unsafe { verbs::destination(addr_of!((*wr).wr.ud).read()) }?),
        Kind::Uc if matches!(op, Op::Read | Op::SendWithInv) => return Err(libc::EINVAL),
        Kind::Rc | Kind::Uc => None,
    };
    let mut entries = Entries::new();
    // SAFETY: `sg_list` points to `num_sge` entries, as ibv_post_send(3) requires.
    let len = unsafe { take_entries(list, count, max_sge, &mut entries) }?;
    let is_flush = || entries.first().is_some_and(|sink| qp.instruments.is_flush(sink.addr));
    let imm = if op == Op::Read && is_flush() { imm() } else { imm_data };
    let local = if flags & SEND_INLINE != 0 && op != Op::Read {
        // SAFETY: with IBV_SEND_INLINE ibv_post_send(3) requires the entries to be readable memory of the
        // program; no memory region is needed. `len` is the sum of their lengths, from `take_entries`.
        unsafe { inline(&entries, len) }?
    } else {
        Local::memory(&entries)?
    };
    then(SendWr {
        wr_id,
        op,
        signaled: signal_all || flags & SEND_SIGNALED != 0,
        fence: flags & SEND_FENCE != 0,
        solicited: flags & SEND_SOLICITED != 0,
        imm,
        local,
        len,
        remote_addr,
        rkey,
        to,
    })
}

/// As [`read_send_wr`], for an atomic operation or an operation on a memory window.
///
/// # Safety
///
/// As for [`read_send_wr`].
#[cold]
unsafe fn read_other(wr: *const ibv_send_wr, opcode: ibv_wr_opcode::Type, qp: &Qp) -> Result<SendWr, Errno> {
    // SAFETY: by the contract of this function `wr` points to a work request, which is all that the callees
    // require.
    unsafe {
        match verbs::atomic_of(opcode) {
            Some(_) if qp.kind != Kind::Rc => Err(libc::EINVAL),
            Some(op) => verbs::read_atomic_wr(wr, op, qp.signal_all, qp.max_send_sge),
            None => verbs::read_window_wr(wr, qp.signal_all),
        }
    }
}
