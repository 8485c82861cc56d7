// SPDX-License-Identifier: BSD-3-Clause
//! Work requests that the provider refused: the error and its log line. None of this code is on the path of
//! accepted requests.

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;

use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wr_opcode};
use rpma_log::Subject;

use crate::conn::Conn;
use crate::error::{Errno, Error};
use crate::provider::handles::{PeerName, identifier};

/// A work request and the queue pair that it is posted to. The work request's address is passed to the
/// provider, so both live in memory and the compiler does not save the queue pair in a register in case the
/// post fails, which would cost each post more than the store.
#[repr(C)]
pub(crate) struct Posted<Wr> {
    pub wr: MaybeUninit<Wr>,
    pub qp: *mut ibv_qp,
}

/// The name of an operation in verbs.h.
fn name_of(opcode: ibv_wr_opcode::Type) -> &'static str {
    match opcode {
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => "RDMA_WRITE",
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => "RDMA_WRITE_WITH_IMM",
        ibv_wr_opcode::IBV_WR_RDMA_READ => "RDMA_READ",
        ibv_wr_opcode::IBV_WR_SEND => "SEND",
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => "SEND_WITH_IMM",
        _ => "another operation",
    }
}

/// The error for a request of the send queue.
///
/// # Safety
/// `request` must have a live queue pair of a connection and a request with at most one range and with every
/// field set that belongs to its opcode; `remote` says whether it has a remote address.
#[cold]
#[inline(never)]
pub(crate) unsafe fn send(ret: c_int, request: *const Posted<ibv_send_wr>, remote: bool) -> Error {
    // SAFETY: the caller guarantees a live queue pair, and that these fields are set, those of the remote
    // address if `remote`.
    unsafe {
        let to = To::of((&raw const (*request).qp).read());
        let wr = (&raw const (*request).wr).cast::<ibv_send_wr>();
        let opcode = name_of((&raw const (*wr).opcode).read());
        let flags = (&raw const (*wr).send_flags).read();
        let wr_id = (&raw const (*wr).wr_id).read();
        let local = Range((&raw const (*wr).sg_list).read().as_ref().copied());
        let why = Refused(ret, SEND_QUEUE);
        let peer = to.peer;
        if remote {
            let addr = (&raw const (*wr).wr.rdma.remote_addr).read();
            let rkey = (&raw const (*wr).wr.rdma.rkey).read();
            log_error!(
                about to.subject("ibv_post_send", ret);
                "{peer}ibv_post_send({opcode}, {local}, remote={addr:#x}, rkey={rkey:#x}, flags={flags:#x}, wr_id={wr_id:#x}) failed: {why}"
            );
        } else {
            log_error!(
                about to.subject("ibv_post_send", ret);
                "{peer}ibv_post_send({opcode}, {local}, flags={flags:#x}, wr_id={wr_id:#x}) failed: {why}"
            );
        }
    }
    Error::Provider
}

/// The error for a receive.
///
/// # Safety
/// `request` must have a readable request of at most one range, and a live queue pair of a connection, or
/// NULL.
#[cold]
#[inline(never)]
pub(crate) unsafe fn receive(call: &'static str, ret: c_int, request: *const Posted<ibv_recv_wr>) -> Error {
    // SAFETY: the caller guarantees a readable request, that its range is readable if it has one, and NULL or
    // a live queue pair.
    let (to, local, wr_id) = unsafe {
        let wr = (&raw const (*request).wr).cast::<ibv_recv_wr>();
        (
            To::of((&raw const (*request).qp).read()),
            Range((&raw const (*wr).sg_list).read().as_ref().copied()),
            (&raw const (*wr).wr_id).read(),
        )
    };
    let (peer, why) = (to.peer, Refused(ret, RECEIVE_QUEUE));
    log_error!(about to.subject(call, ret); "{peer}{call}({local}, wr_id={wr_id:#x}) failed: {why}");
    Error::Provider
}

/// The error for a native operation.
#[cold]
#[inline(never)]
pub(crate) fn native(call: &'static str, conn: &Conn, ret: c_int, wr_id: u64) -> Error {
    let to = To { peer: conn.peer(), connection: Some(conn.qp_num()) };
    let (peer, why) = (to.peer, Refused(ret, SEND_QUEUE));
    log_error!(about to.subject(call, ret); "{peer}{call}(wr_id={wr_id:#x}) failed: {why}");
    Error::Provider
}

/// The connection to which a request was posted; both fields are unknown for a shared receive queue.
struct To {
    peer: PeerName,
    connection: Option<u32>,
}

impl To {
    /// # Safety
    /// `qp` must be NULL or a live queue pair of a connection.
    unsafe fn of(qp: *mut ibv_qp) -> Self {
        if qp.is_null() {
            return Self { peer: PeerName(None), connection: None };
        }
        // SAFETY: the caller guarantees a live queue pair, whose context is its identifier, which outlives
        // it.
        let (id, connection) = unsafe { (PeerName::of(identifier(qp)), (&raw const (*qp).qp_num).read()) };
        Self { peer: id, connection: Some(connection) }
    }

    fn subject(&self, call: &'static str, ret: c_int) -> Subject<'_> {
        let Self { connection, .. } = *self;
        Subject { connection, operation: Some(call), errno: Some(ret), ..self.peer.subject() }
    }
}

/// The local range of a request.
struct Range(Option<ibv_sge>);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ibv_sge { addr, length, lkey }) => {
                write!(f, "local={addr:#x}, len={length}, lkey={lkey:#x}")
            }
            None => f.write_str("len=0"),
        }
    }
}

const SEND_QUEUE: &str = "the send queue is full: an entry is free again once the completion of its request, or of a later signalled \
                          one, has been taken";
const RECEIVE_QUEUE: &str = "the receive queue is full";

/// Why a request was not accepted: an errno, and the meaning of ENOMEM for this queue.
struct Refused(c_int, &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ret, full) = *self;
        Errno(ret).fmt(f)?;
        if ret.saturating_abs() == libc::ENOMEM { write!(f, "; {full}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_and_the_reason_are_shown() {
        assert_eq!(Range(None).to_string(), "len=0");
        let range = Range(Some(ibv_sge { addr: 0x1000, length: 8, lkey: 0x2a }));
        assert_eq!(range.to_string(), "local=0x1000, len=8, lkey=0x2a");
        assert!(Refused(libc::ENOMEM, "full").to_string().ends_with("(errno 12); full"));
        assert!(Refused(libc::EINVAL, "full").to_string().ends_with("(errno 22)"));
    }
}
