// SPDX-License-Identifier: BSD-3-Clause
//! Options of an identifier.

use libc::{c_int, c_void};
use rdma_sys::rdma_cm_id;

use super::finish;
use super::handle::IdObject;

const LEVEL_ID: c_int = 0;
const LEVEL_IB: c_int = 1;
const ID_TOS: c_int = 0;
const ID_REUSEADDR: c_int = 1;
const ID_AFONLY: c_int = 2;
const ID_ACK_TIMEOUT: c_int = 3;
const IB_PATH: c_int = 1;

/// Sets an option of an identifier. At level RDMA_OPTION_ID:
///
/// - RDMA_OPTION_ID_TOS (`uint8_t`): the type of service of the IPv4 packets and the traffic class of the
///   IPv6 packets that the identifier sends; of a listening one also those of the connections that it accepts
///   from then on. It does not change a connection.
/// - RDMA_OPTION_ID_REUSEADDR (`int`): the identifier can have the same address and port as others that have
///   the option; see [`super::rdma_bind_addr`]. It ends when the identifier listens. EINVAL if the identifier
///   listens, or is bound and the value is 0.
/// - RDMA_OPTION_ID_AFONLY (`int`): an identifier that listens on the IPv6 wildcard address does not take
///   (or, with 0, takes) connections over IPv4. EINVAL if it is bound: a TCP socket cannot be changed then.
/// - RDMA_OPTION_ID_ACK_TIMEOUT (`uint8_t`): ibv_query_qp(3) returns it as the attribute `timeout` of a queue
///   pair that is connected afterwards. It has no other effect: TCP measures when to retransmit.
///
/// EINVAL: the value is missing or has another size, and for RDMA_OPTION_IB_PATH, since iWARP has no path
/// records. ENOSYS: any other option or level.
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
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_set_option(3)).
        let cm = unsafe { &IdObject::own(id).cm };
        let byte = || {
            if optlen != 1 {
                return Err(libc::EINVAL);
            }
            // SAFETY: `optval` is not NULL, so it points to `optlen`, that is one, byte (rdma_set_option(3)).
            Ok(unsafe { optval.cast::<u8>().read() })
        };
        let int = || {
            if optlen != size_of::<c_int>() {
                return Err(libc::EINVAL);
            }
            // SAFETY: as above, as many bytes as an integer has; they may be unaligned.
            Ok(unsafe { optval.cast::<c_int>().read_unaligned() })
        };
        match (level, optname) {
            (LEVEL_ID, ID_TOS) => {
                cm.set_tos(byte()?);
                Ok(())
            }
            (LEVEL_ID, ID_REUSEADDR) => cm.set_reuse(int()? != 0),
            (LEVEL_ID, ID_AFONLY) => cm.set_only_ipv6(int()? != 0),
            (LEVEL_ID, ID_ACK_TIMEOUT) => {
                cm.set_ack_timeout(byte()?);
                Ok(())
            }
            (LEVEL_IB, IB_PATH) => Err(libc::EINVAL),
            _ => Err(libc::ENOSYS),
        }
    })();
    finish(result)
}
