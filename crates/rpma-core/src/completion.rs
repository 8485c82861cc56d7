// SPDX-License-Identifier: BSD-3-Clause
//! Completions in the structure of releases before 0.12.

use std::mem::MaybeUninit;

use rdma_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, wc_status_text};

use super::cq::Cq;
use crate::abi::{rpma_completion, rpma_completion_0_9, rpma_op};
use crate::error::{Error, Result};

/// `IBV_WC_FLUSH` and `IBV_WC_ATOMIC_WRITE`, which older headers do not name.
const WC_FLUSH: ibv_wc_opcode::Type = 8;
const WC_ATOMIC_WRITE: ibv_wc_opcode::Type = 9;

/// The operation for a completion opcode. Native flush and native atomic write are reported as the operations
/// that programs using this structure have always seen for them.
fn operation(opcode: ibv_wc_opcode::Type) -> Option<rpma_op> {
    use rpma_op::*;
    Some(match opcode {
        ibv_wc_opcode::IBV_WC_SEND => RPMA_OP_SEND,
        ibv_wc_opcode::IBV_WC_RDMA_WRITE | WC_ATOMIC_WRITE => RPMA_OP_WRITE,
        ibv_wc_opcode::IBV_WC_RDMA_READ | WC_FLUSH => RPMA_OP_READ,
        ibv_wc_opcode::IBV_WC_RECV => RPMA_OP_RECV,
        ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => RPMA_OP_RECV_RDMA_WITH_IMM,
        _ => return None,
    })
}

/// Gets one completion. A failed operation has a completion like any other, in which only op_context and
/// op_status are defined; undefined fields are not written.
///
/// # Safety
/// `out` must be writable.
pub unsafe fn get(cq: &Cq, out: *mut rpma_completion) -> Result<()> {
    // SAFETY: the caller guarantees that `out` is writable.
    unsafe { store(&take(cq)?, out) }
}

/// Same as `get` for programs of release 0.9: their structure is shorter, it has no operation for writes with
/// immediate data, and programs also expect the operation and length of a failed operation if the provider
/// reports them.
///
/// # Safety
/// `out` must be writable.
pub unsafe fn get_0_9(cq: &Cq, out: *mut rpma_completion_0_9) -> Result<()> {
    // SAFETY: the caller guarantees that `out` is writable.
    unsafe { store_0_9(&take(cq)?, out) }
}

fn take(cq: &Cq) -> Result<ibv_wc> {
    let mut wc = MaybeUninit::<ibv_wc>::zeroed();
    // SAFETY: there is room for one completion; all zero is a valid completion, and the provider writes only
    // valid ones.
    unsafe {
        cq.poll(1, wc.as_mut_ptr())?;
        Ok(wc.assume_init())
    }
}

fn warn_of_failure(wc: &ibv_wc) {
    log_warning!("operation with op_context {:#x} failed: {}", wc.wr_id, wc_status_text(wc.status));
}

fn unsupported(wc: &ibv_wc) -> Error {
    log_error!("work completion with unsupported opcode {}", wc.opcode);
    Error::NoSupp
}

/// # Safety
/// `out` must be writable.
unsafe fn store(wc: &ibv_wc, out: *mut rpma_completion) -> Result<()> {
    // SAFETY: the caller guarantees that `out` is writable. C code owns the memory, so it is written field by
    // field and never borrowed.
    unsafe {
        (&raw mut (*out).op_context).write(wc.wr_id as *mut _);
        (&raw mut (*out).op_status).write(wc.status);
    }
    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
        warn_of_failure(wc);
        return Ok(());
    }
    let op = operation(wc.opcode).ok_or_else(|| unsupported(wc))?;
    // SAFETY: the caller guarantees that `out` is writable; imm_data is initialised because the whole
    // completion is.
    unsafe {
        (&raw mut (*out).op).write(op);
        (&raw mut (*out).byte_len).write(wc.byte_len);
        (&raw mut (*out).flags).write(wc.wc_flags);
        let received = matches!(op, rpma_op::RPMA_OP_RECV | rpma_op::RPMA_OP_RECV_RDMA_WITH_IMM);
        if received && wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0 {
            (&raw mut (*out).imm).write(u32::from_be(wc.__bindgen_anon_1.imm_data));
        }
    }
    Ok(())
}

/// # Safety
/// `out` must be writable.
unsafe fn store_0_9(wc: &ibv_wc, out: *mut rpma_completion_0_9) -> Result<()> {
    // SAFETY: the caller guarantees that `out` is writable for the structure of 0.9, which ends with the
    // status: nothing after it is written, not even padding.
    unsafe {
        (&raw mut (*out).op_context).write(wc.wr_id as *mut _);
        (&raw mut (*out).op_status).write(wc.status);
        match operation(wc.opcode).filter(|op| *op != rpma_op::RPMA_OP_RECV_RDMA_WITH_IMM) {
            Some(op) => {
                (&raw mut (*out).op).write(op);
                (&raw mut (*out).byte_len).write(wc.byte_len);
            }
            // The opcode of a failed operation is undefined; the completion must be reported whatever it is.
            None if wc.status == ibv_wc_status::IBV_WC_SUCCESS => return Err(unsupported(wc)),
            None => {}
        }
    }
    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
        warn_of_failure(wc);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_sys::ibv_wc__bindgen_ty_1;

    fn wc(status: u32, opcode: u32, wc_flags: u32) -> ibv_wc {
        ibv_wc {
            wr_id: 0x77,
            status,
            opcode,
            vendor_err: 0,
            byte_len: 24,
            __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data: 0x0102_0304_u32.to_be() },
            qp_num: 0,
            src_qp: 0,
            wc_flags,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }

    fn stored(wc: &ibv_wc) -> (Result<()>, [u8; 32]) {
        let mut out = MaybeUninit::<rpma_completion>::uninit();
        let bytes = out.as_mut_ptr().cast::<[u8; 32]>();
        // SAFETY: the object is ours and 32 bytes long; every byte is initialised before anything is read.
        unsafe {
            bytes.write([0xee; 32]);
            let result = store(wc, out.as_mut_ptr());
            (result, bytes.read())
        }
    }

    fn stored_0_9(wc: &ibv_wc) -> (Result<()>, [u8; 24]) {
        let mut out = MaybeUninit::<rpma_completion_0_9>::uninit();
        let bytes = out.as_mut_ptr().cast::<[u8; 24]>();
        // SAFETY: the object is ours and 24 bytes long; every byte is initialised before anything is read.
        unsafe {
            bytes.write([0xee; 24]);
            let result = store_0_9(wc, out.as_mut_ptr());
            (result, bytes.read())
        }
    }

    #[test]
    fn the_old_form_is_never_written_behind_the_status() {
        for opcode in 0..200 {
            for status in [0, 5] {
                assert_eq!(stored_0_9(&wc(status, opcode, 2)).1[20..], [0xee; 4], "{opcode} {status}");
            }
        }
    }

    #[test]
    fn the_old_form_has_what_it_can_of_a_failed_operation() {
        let (result, bytes) = stored_0_9(&wc(5, 2, 0));
        assert_eq!((result, &bytes[8..12], &bytes[12..16]), (Ok(()), &[0; 4][..], &[24, 0, 0, 0][..]));
        let (result, bytes) = stored_0_9(&wc(5, 3, 0));
        assert_eq!((result, &bytes[8..16]), (Ok(()), &[0xee; 8][..]));
        assert_eq!(stored_0_9(&wc(0, 3, 0)).0, Err(Error::NoSupp));
        assert_eq!(stored_0_9(&wc(0, 129, 2)).0, Err(Error::NoSupp));
    }

    #[test]
    fn opcodes() {
        let expected = [
            (0, Some(rpma_op::RPMA_OP_SEND)),
            (1, Some(rpma_op::RPMA_OP_WRITE)),
            (2, Some(rpma_op::RPMA_OP_READ)),
            (3, None),
            (8, Some(rpma_op::RPMA_OP_READ)),
            (9, Some(rpma_op::RPMA_OP_WRITE)),
            (128, Some(rpma_op::RPMA_OP_RECV)),
            (129, Some(rpma_op::RPMA_OP_RECV_RDMA_WITH_IMM)),
            (130, None),
        ];
        for (opcode, op) in expected {
            assert_eq!(operation(opcode), op, "{opcode}");
        }
    }

    #[test]
    fn a_failed_operation_defines_context_and_status_only() {
        let (result, bytes) = stored(&wc(5, 0, 0));
        assert_eq!(result, Ok(()));
        assert_eq!(bytes[..8], 0x77_u64.to_ne_bytes());
        assert_eq!(bytes[8..16], [0xee; 8]);
        assert_eq!(bytes[16..20], 5_u32.to_ne_bytes());
        assert_eq!(bytes[20..], [0xee; 12]);
    }

    #[test]
    fn an_unknown_opcode_keeps_context_and_status() {
        let (result, bytes) = stored(&wc(0, 3, 0));
        assert_eq!(result, Err(Error::NoSupp));
        assert_eq!((&bytes[16..20], &bytes[20..24]), (&[0; 4][..], &[0xee; 4][..]));
    }

    #[test]
    fn immediate_data_comes_only_with_a_receive_that_has_it() {
        let imm =
            |opcode, flags| u32::from_ne_bytes(stored(&wc(0, opcode, flags)).1[24..28].try_into().unwrap());
        assert_eq!(imm(129, 2), 0x0102_0304);
        assert_eq!(imm(128, 2), 0x0102_0304);
        assert_eq!(imm(128, 0), 0xeeee_eeee);
        assert_eq!(imm(1, 2), 0xeeee_eeee);
    }
}
