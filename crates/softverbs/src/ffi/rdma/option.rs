// SPDX-License-Identifier: BSD-3-Clause
//! rdma_set_option(3): the options of an identifier.

use libc::{c_int, c_void};
use rdma_sys::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, rdma_cm_id,
};

use super::finish;
use super::handle::IdObject;

/// Sets an option of an identifier, whose value is the `optlen` bytes at `optval`. At level RDMA_OPTION_ID:
///
/// - RDMA_OPTION_ID_TOS (`uint8_t`): the IPv4 type of service and the IPv6 traffic class of the packets of
///   the identifier; for a listener, also those of connections that it accepts from then on. It does not
///   change an established connection.
/// - RDMA_OPTION_ID_REUSEADDR (`int`): if not 0, the identifier can share its address and port with others
///   that have the option; see [`super::rdma_bind_addr`]. Listening ends the sharing. EINVAL: the identifier
///   listens, or it is bound and the value is 0.
/// - RDMA_OPTION_ID_AFONLY (`int`): if not 0, an identifier that listens on the IPv6 wildcard address does
///   not accept IPv4 connections. EINVAL: the identifier is bound, and a bound TCP socket cannot be changed.
/// - RDMA_OPTION_ID_ACK_TIMEOUT (`uint8_t`, 4.096 us * 2^value): ibv_query_qp(3) returns it as the attribute
///   `timeout` of a queue pair that is connected afterwards. It has no other effect: TCP determines its
///   retransmission timeout itself.
///
/// Returns 0, or -1 and errno. EINVAL: a NULL pointer, a value of another size, or RDMA_OPTION_IB_PATH, since
/// iWARP has no path records. ENOSYS: any other option or level.
///
/// # Safety
///
/// As for rdma_set_option(3).
pub unsafe fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    let result = (|| {
        if id.is_null() || optval.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `id` is not NULL, and rdma_set_option(3) requires that it is an identifier of softverbs
        // that has not been destroyed.
        let cm = unsafe { &IdObject::own(id).cm };
        let byte = || {
            if optlen != 1 {
                return Err(libc::EINVAL);
            }
            // SAFETY: `optval` is not NULL, and rdma_set_option(3) requires that it points to `optlen` bytes,
            // which is 1 here.
            Ok(unsafe { optval.cast::<u8>().read() })
        };
        let int = || {
            if optlen != size_of::<c_int>() {
                return Err(libc::EINVAL);
            }
            // SAFETY: `optval` is not NULL, and rdma_set_option(3) requires that it points to `optlen` bytes,
            // which is the size of an integer here; it may be unaligned.
            Ok(unsafe { optval.cast::<c_int>().read_unaligned() })
        };
        match (level as u32, optname as u32) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                cm.set_tos(byte()?);
                Ok(())
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => cm.set_reuse(int()? != 0),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => cm.set_only_ipv6(int()? != 0),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                cm.set_ack_timeout(byte()?);
                Ok(())
            }
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => Err(libc::EINVAL),
            _ => Err(libc::ENOSYS),
        }
    })();
    finish(result)
}
