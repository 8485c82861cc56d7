// SPDX-License-Identifier: BSD-3-Clause
//! The connection parameters of rdma_connect(3) and rdma_accept(3) (`rdma_conn_param`), and private data.
//!
//! Both are checked and copied here, and not checked again later.

use libc::c_void;
use rdma_sys::rdma_conn_param;

use crate::cm::Params;
use crate::cm::carrier::Carrier;
use crate::limits::MAX_PRIVATE_DATA;
use crate::sys::Errno;
use transport::limits::MAX_READS;
use transport::roce::rc::RNR_UNLIMITED;

/// `retry_count` of a program that passes no parameters.
const RETRIES: u8 = 7;

/// The parameters of rdma_connect(3) or rdma_accept(3).
pub(super) struct Param {
    pub(super) private_data: Vec<u8>,
    pub(super) ird: u16,
    pub(super) ord: u16,
    /// How often a message without a posted receive at the peer is retried, 0 to 7 (7: without limit).
    pub(super) rnr_retry: u8,
    /// How often a request without an acknowledgement is sent again, 0 to 7.
    pub(super) retry: u8,
    /// The number of the queue pair, if the identifier has none, and whether it has a shared receive queue.
    pub(super) qp_num: u32,
    pub(super) srq: bool,
}

impl From<Param> for Params {
    fn from(Param { private_data, ird, ord, rnr_retry, retry, qp_num, srq }: Param) -> Self {
        Self { private_data, ird, ord, rnr_retry, retry, qp_num, srq }
    }
}

/// Reads connection parameters. NULL selects the defaults of librdmacm: as many outstanding reads as the
/// device supports, and unlimited RNR retries. Larger values of `responder_resources` and `initiator_depth`
/// are reduced to what the device supports. EINVAL: more than [`MAX_PRIVATE_DATA`] bytes of private data, or
/// more than the message can carry ([`Carrier::check`]).
///
/// # Safety
///
/// `param` must be as for rdma_connect(3).
pub(super) unsafe fn read_param(param: *const rdma_conn_param, carrier: Carrier) -> Result<Param, Errno> {
    if param.is_null() {
        return Ok(Param {
            private_data: Vec::new(),
            ird: MAX_READS,
            ord: MAX_READS,
            rnr_retry: RNR_UNLIMITED,
            retry: RETRIES,
            qp_num: 0,
            srq: false,
        });
    }
    // SAFETY: `param` is not NULL, so rdma_connect(3) requires that it points to an rdma_conn_param; it holds
    // only integers and an address, and is copied.
    let given = unsafe { param.read() };
    // SAFETY: rdma_connect(3) requires that `private_data` points to `private_data_len` bytes; NULL is
    // checked.
    let private_data = unsafe { read_private_data(given.private_data, given.private_data_len, carrier) }?;
    Ok(Param {
        private_data,
        ird: u16::from(given.responder_resources).min(MAX_READS),
        ord: u16::from(given.initiator_depth).min(MAX_READS),
        rnr_retry: given.rnr_retry_count & 7,
        retry: given.retry_count & 7,
        qp_num: given.qp_num,
        srq: given.srq != 0,
    })
}

/// Copies private data. EINVAL: `data` is NULL although `len` is not 0, or there is too much (see
/// [`read_param`]).
///
/// # Safety
///
/// `data` must be NULL or readable for `len` bytes.
pub(super) unsafe fn read_private_data(
    data: *const c_void,
    len: u8,
    carrier: Carrier,
) -> Result<Vec<u8>, Errno> {
    let len = usize::from(len);
    if len > MAX_PRIVATE_DATA || (data.is_null() && len > 0) {
        return Err(libc::EINVAL);
    }
    carrier.check(len)?;
    let mut bytes = vec![0u8; len];
    // SAFETY: if `len` is 0, nothing is copied. Otherwise `data` is not NULL (checked above), so the caller
    // guarantees that it is readable for `len` bytes; `bytes` has as many.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}
