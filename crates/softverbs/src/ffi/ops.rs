// SPDX-License-Identifier: BSD-3-Clause
//! The data path: the five functions that programs call through `ibv_context.ops`. Each reads the C
//! structures, calls one function of a queue and stores the results; errors are positive errno values, as in
//! verbs.

use arrayvec::ArrayVec;
use libc::{c_int, c_uint};
use rdma_sys::{
    ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc,
    ibv_wc_flags, ibv_wr_opcode,
};
use std::ptr::{addr_of, addr_of_mut};

use super::verbs::{self, CqObject, QpObject, SrqObject};
use crate::limits::MAX_MESSAGE;
use crate::qp::Qp;
use crate::srq::Full;
use crate::sys::Errno;
use transport::limits::MAX_INLINE;
use transport::wr::{Completion, Entries, Extra, Local, Op, RecvWr, SendWr, Sge};

pub(super) const SEND_FENCE: c_uint = ibv_send_flags::IBV_SEND_FENCE.0;
pub(super) const SEND_SIGNALED: c_uint = ibv_send_flags::IBV_SEND_SIGNALED.0;
pub(super) const SEND_SOLICITED: c_uint = ibv_send_flags::IBV_SEND_SOLICITED.0;
pub(super) const SEND_INLINE: c_uint = ibv_send_flags::IBV_SEND_INLINE.0;
const WC_WITH_IMM: c_uint = ibv_wc_flags::IBV_WC_WITH_IMM.0;
const WC_WITH_INV: c_uint = ibv_wc_flags::IBV_WC_WITH_INV.0;

/// The opcodes of `enum ibv_wr_opcode` that move bytes and are supported; [`verbs::atomic_of`] and
/// [`verbs::read_window_wr`] know the others.
const OPCODES: [(ibv_wr_opcode::Type, Op); 6] = [
    (ibv_wr_opcode::IBV_WR_RDMA_WRITE, Op::Write),
    (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, Op::WriteWithImm),
    (ibv_wr_opcode::IBV_WR_SEND, Op::Send),
    (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, Op::SendWithImm),
    (ibv_wr_opcode::IBV_WR_SEND_WITH_INV, Op::SendWithInv),
    (ibv_wr_opcode::IBV_WR_RDMA_READ, Op::Read),
];

/// Takes the scatter/gather entries of a work request, of several those that are not empty; gives the sum of
/// their lengths. EINVAL: there are more than `most`, or fewer than none, or together they are longer than a
/// message can be.
///
/// # Safety
///
/// `list` must point to `count` entries.
unsafe fn take_entries(
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
        // SAFETY: `list` is not NULL and points to `count` entries, of which this one is copied.
        let sge = unsafe { list.add(at).read() };
        sum += u64::from(sge.length);
        // An only entry goes to the wire as it is, also when it is empty.
        if sge.length > 0 || count == 1 {
            entries.try_push(Sge::new(sge.addr, sge.length, sge.lkey)).map_err(|_| libc::EINVAL)?;
        }
    }
    if sum > u64::from(MAX_MESSAGE) { Err(libc::EINVAL) } else { Ok(sum as u32) }
}

/// Takes inline data.
///
/// # Safety
///
/// Each entry must be readable memory of the program.
unsafe fn inline(entries: &Entries, len: u32) -> Result<Local, Errno> {
    let mut bytes = ArrayVec::<u8, MAX_INLINE>::new();
    if len as usize > bytes.capacity() {
        return Err(libc::EINVAL);
    }
    for entry in entries {
        let at = bytes.len();
        // SAFETY: the entry gives that many readable bytes of the program, and `bytes` has room for them: the
        // lengths add up to `len`, which is at most its capacity. What they are is now set.
        unsafe {
            let to = bytes.as_mut_ptr().add(at);
            std::ptr::copy_nonoverlapping(entry.addr as *const u8, to, entry.len as usize);
            bytes.set_len(at + entry.len as usize);
        }
    }
    Local::inline(&bytes)
}

/// Whether an operation has nothing to send and stores something, so that inline data make no sense.
fn returns_data(opcode: ibv_wr_opcode::Type) -> bool {
    opcode == ibv_wr_opcode::IBV_WR_RDMA_READ || verbs::atomic_of(opcode).is_some()
}

/// Reads the fields of a work request that its opcode uses. In strict mode IBV_SEND_INLINE is EINVAL for
/// those that store data.
///
/// # Safety
///
/// `wr` must point to a work request as described in ibv_post_send(3).
pub(super) unsafe fn read_send_wr(wr: *const ibv_send_wr, qp: &Qp) -> Result<SendWr, Errno> {
    let (signal_all, max_sge) = (qp.signal_all, qp.max_send_sge);
    // SAFETY: `wr` points to a work request, of which every opcode uses these fields; they are copied one by
    // one.
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
        qp.check_inline(wr_id)?;
    }
    let Some((_, op)) = OPCODES.into_iter().find(|(number, _)| *number == opcode) else {
        // SAFETY: `wr` points to a work request.
        return unsafe {
            match verbs::atomic_of(opcode) {
                Some(op) => verbs::read_atomic_wr(wr, op, signal_all, max_sge),
                None => verbs::read_window_wr(wr, signal_all),
            }
        };
    };
    let mut entries = Entries::new();
    // SAFETY: `sg_list` points to `num_sge` entries (ibv_post_send(3)).
    let len = unsafe { take_entries(list, count, max_sge, &mut entries) }?;
    let (remote_addr, rkey) = match op {
        Op::Send | Op::SendWithImm => (0, 0),
        // SAFETY: this opcode uses the member `invalidate_rkey` of the union beside the immediate data.
        Op::SendWithInv => (0, unsafe { addr_of!((*wr).__bindgen_anon_1.invalidate_rkey).read() }),
        // SAFETY: RDMA Write and Read use the member `rdma` of the union `wr`.
        _ => unsafe { (addr_of!((*wr).wr.rdma.remote_addr).read(), addr_of!((*wr).wr.rdma.rkey).read()) },
    };
    let is_flush = || {
        let instruments = qp.instruments();
        instruments.is_some_and(|known| entries.first().is_some_and(|sink| known.is_flush(sink.addr)))
    };
    let imm = match op {
        Op::Read if is_flush() => {
            // SAFETY: a flush of librpma has its type in the member `imm_data` of the union.
            let kind = unsafe { addr_of!((*wr).__bindgen_anon_1.imm_data).read() };
            kind.to_ne_bytes()
        }
        Op::SendWithImm | Op::WriteWithImm => {
            // SAFETY: opcodes with immediate data use the member `imm_data` of the union.
            let imm = unsafe { addr_of!((*wr).__bindgen_anon_1.imm_data).read() };
            imm.to_ne_bytes()
        }
        _ => [0; 4],
    };
    let local = if flags & SEND_INLINE != 0 && op != Op::Read {
        // SAFETY: with IBV_SEND_INLINE the entries are readable memory of the program, without a memory
        // region (ibv_post_send(3)).
        unsafe { inline(&entries, len) }?
    } else {
        Local::memory(&entries)?
    };
    Ok(SendWr {
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
    })
}

/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs.
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_send(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    let result = (|| {
        let mut posting = qp.posting()?;
        while !wr.is_null() {
            // SAFETY: `wr` is not NULL, so it points to a work request of the list (ibv_post_send(3)).
            let request = unsafe { read_send_wr(wr, qp) }?;
            posting.post(request)?;
            // SAFETY: `wr` points to a work request, whose `next` is the next one or NULL.
            wr = unsafe { addr_of!((*wr).next).read() };
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Posts a request for an access that the caller knows the remote memory does not permit. In strict mode it
/// fails as on an adapter, with IBV_WC_REM_ACCESS_ERR; otherwise this is ibv_post_send(3).
///
/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs and a list of one request.
pub unsafe fn post_denied(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_send(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    let result = (|| {
        let mut posting = qp.posting()?;
        // SAFETY: `wr` points to a work request (ibv_post_send(3)).
        posting.post_denied(unsafe { read_send_wr(wr, qp) }?)
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Where the reads go by which librpma flushes on a queue pair: metrics count them as flushes.
///
/// # Safety
///
/// `qp` must be a queue pair of softverbs that has not been destroyed.
pub unsafe fn flushes_by(qp: *mut ibv_qp, target: u64) {
    // SAFETY: as required of the caller.
    if let Some(instruments) = unsafe { QpObject::own(qp) }.qp.instruments() {
        instruments.flushes_by(target);
    }
}

/// Posts a list of receives of up to `max_sge` entries with `post`, up to the first failure.
///
/// # Safety
///
/// `wr` and `bad_wr` must be as for ibv_post_recv(3).
unsafe fn post_receives(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    max_sge: u32,
    mut post: impl FnMut(RecvWr) -> Result<(), Errno>,
) -> c_int {
    let result = (|| {
        while !wr.is_null() {
            // SAFETY: `wr` is not NULL, so it points to a work request of the list.
            let (wr_id, list, count, next) = unsafe {
                (
                    addr_of!((*wr).wr_id).read(),
                    addr_of!((*wr).sg_list).read(),
                    addr_of!((*wr).num_sge).read(),
                    addr_of!((*wr).next).read(),
                )
            };
            let mut entries = Entries::new();
            // SAFETY: `sg_list` points to `num_sge` entries.
            let len = unsafe { take_entries(list, count, max_sge, &mut entries) }?;
            post(RecvWr::new(wr_id, &entries, len)?)?;
            wr = next;
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
    report(result, || unsafe { bad_wr.write(wr) })
}

fn report(result: Result<(), Errno>, bad: impl FnOnce()) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            bad();
            e
        }
    }
}

/// # Safety
///
/// As for ibv_post_recv(3), for a queue pair of softverbs.
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_recv(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    // SAFETY: `wr` is a list of receives that ends with NULL, `bad_wr` points to a pointer
    // (ibv_post_recv(3)). A queue pair with a shared receive queue has no receive queue, and one in the state
    // RESET takes no work requests.
    unsafe {
        post_receives(wr, bad_wr, qp.max_recv_sge, |wr| {
            if qp.srq.is_some() || qp.is_reset() { Err(libc::EINVAL) } else { qp.post_receive(wr) }
        })
    }
}

/// # Safety
///
/// As for ibv_post_srq_recv(3), for a shared receive queue of softverbs.
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `srq` is a shared receive queue of softverbs that has not been destroyed
    // (ibv_post_srq_recv(3)).
    let srq = unsafe { SrqObject::own(srq) };
    // SAFETY: `wr` is a list of receives that ends with NULL, `bad_wr` points to a pointer
    // (ibv_post_srq_recv(3)).
    unsafe { post_receives(wr, bad_wr, srq.max_sge, |wr| srq.post(wr).map_err(|Full| libc::ENOMEM)) }
}

/// Immediate data as verbs have it, or the rkey that was invalidated, which shares its place.
pub(super) fn imm_of(c: &Completion) -> u32 {
    match c.extra {
        Extra::Nothing => 0,
        Extra::Imm(bytes) => u32::from_ne_bytes(bytes),
        // In the same place of a work completion, but a number.
        Extra::Invalidated(bytes) => u32::from_be_bytes(bytes),
    }
}

pub(super) fn wc_flags_of(c: &Completion) -> c_uint {
    match c.extra {
        Extra::Nothing => 0,
        Extra::Imm(_) => WC_WITH_IMM,
        Extra::Invalidated(_) => WC_WITH_INV,
    }
}

/// Stores a completion in a work completion of the program.
///
/// # Safety
///
/// `wc` must be valid for writes of an `ibv_wc`.
unsafe fn write_wc(wc: *mut ibv_wc, c: &Completion) {
    let imm = imm_of(c);
    // SAFETY: `wc` is valid for writes. The fields are written without reading them or creating references,
    // as they may be uninitialised.
    unsafe {
        addr_of_mut!((*wc).wr_id).write(c.wr_id);
        addr_of_mut!((*wc).status).write(c.status);
        addr_of_mut!((*wc).opcode).write(c.opcode);
        addr_of_mut!((*wc).vendor_err).write(0);
        addr_of_mut!((*wc).byte_len).write(c.byte_len);
        addr_of_mut!((*wc).__bindgen_anon_1.imm_data).write(imm);
        addr_of_mut!((*wc).qp_num).write(c.qp_num);
        addr_of_mut!((*wc).src_qp).write(0);
        addr_of_mut!((*wc).wc_flags).write(wc_flags_of(c));
        addr_of_mut!((*wc).pkey_index).write(0);
        addr_of_mut!((*wc).slid).write(0);
        addr_of_mut!((*wc).sl).write(0);
        addr_of_mut!((*wc).dlid_path_bits).write(0);
    }
}

/// # Safety
///
/// As for ibv_poll_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -libc::EINVAL };
    // SAFETY: `cq` is a completion queue of softverbs that has not been destroyed (ibv_poll_cq(3)).
    let cq = unsafe { CqObject::own(cq) };
    // SAFETY: `wc` points to an array of `num_entries` work completions (ibv_poll_cq(3)), and `poll` passes
    // indices below `max`.
    cq.queue.poll(max, |i, completion| unsafe { write_wc(wc.add(i), completion) }) as c_int
}

/// # Safety
///
/// As for ibv_req_notify_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: `cq` is a completion queue of softverbs that has not been destroyed (ibv_req_notify_cq(3)).
    unsafe { CqObject::own(cq) }.queue.arm(solicited_only != 0);
    0
}

/// The operations of the soft context. The slots that stay empty are not used by the inline functions of
/// `verbs.h`.
pub(crate) fn table() -> ibv_context_ops {
    // SAFETY: all-zero is a valid ibv_context_ops: every slot is empty.
    let mut ops: ibv_context_ops = unsafe { std::mem::zeroed() };
    ops.alloc_mw = Some(verbs::alloc_mw);
    ops.bind_mw = Some(verbs::bind_mw);
    ops.dealloc_mw = Some(verbs::dealloc_mw);
    ops.poll_cq = Some(poll_cq);
    ops.post_recv = Some(post_recv);
    ops.post_send = Some(post_send);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.req_notify_cq = Some(req_notify_cq);
    ops
}
