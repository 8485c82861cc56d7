// SPDX-License-Identifier: BSD-3-Clause
//! Device lookup, device capabilities, and strings.

use std::ffi::{CStr, c_int};

use rdma_sys::ibv_context;

use super::device::Abilities;
use crate::abi::arg::{ConnEventArg, IbvContextTypeArg};
use crate::abi::{rpma_conn_event, rpma_util_ibv_context_type};
use crate::alloc;
use crate::config::ProviderChoice;
use crate::error::Result;
use crate::failure;
use crate::provider;
use crate::provider::handles::Side;

/// The side of a connection that the C argument selects.
fn side(which: IbvContextTypeArg) -> Result<Side> {
    const LOCAL: IbvContextTypeArg =
        rpma_util_ibv_context_type::RPMA_UTIL_IBV_CONTEXT_LOCAL as IbvContextTypeArg;
    const REMOTE: IbvContextTypeArg =
        rpma_util_ibv_context_type::RPMA_UTIL_IBV_CONTEXT_REMOTE as IbvContextTypeArg;
    match which {
        LOCAL => Ok(Side::Passive),
        REMOTE => Ok(Side::Active),
        _ => Err(failure::invalid(format_args!(
            "type is {which}, which is no enum rpma_util_ibv_context_type"
        ))),
    }
}

/// The device that serves an address, of the provider that `RPMA_PROVIDER` selects.
pub fn ibv_context(addr: &CStr, which: IbvContextTypeArg) -> Result<*mut ibv_context> {
    let side = side(which)?;
    alloc::ready()?;
    provider::find_context(addr, side)
}

/// The device that has a local address, of the provider that the program selects.
pub fn device(choice: ProviderChoice, addr: &CStr) -> Result<*mut ibv_context> {
    alloc::ready()?;
    provider::find_context_of(choice, addr, Side::Passive)
}

/// The device that leads to a remote address, of the provider that the program selects.
pub fn device_to(choice: ProviderChoice, addr: &CStr) -> Result<*mut ibv_context> {
    alloc::ready()?;
    provider::find_context_of(choice, addr, Side::Active)
}

/// Whether a device supports on-demand paging for reads and writes of reliable connections.
///
/// # Safety
/// `ctx` must be a live context.
pub unsafe fn is_odp_capable(ctx: *mut ibv_context) -> Result<bool> {
    let api = provider::of_context(ctx)?;
    // SAFETY: the caller guarantees a live `ctx`, and `api` is its provider.
    Ok(unsafe { Abilities::of(api, ctx) }?.odp)
}

/// The string for a connection event; `event` may be any number.
pub fn conn_event_text(event: ConnEventArg) -> &'static CStr {
    use rpma_conn_event::*;
    const TEXTS: [(rpma_conn_event, &CStr); 6] = [
        (RPMA_CONN_UNDEFINED, c"Undefined connection event"),
        (RPMA_CONN_ESTABLISHED, c"Connection established"),
        (RPMA_CONN_CLOSED, c"Connection closed"),
        (RPMA_CONN_LOST, c"Connection lost"),
        (RPMA_CONN_REJECTED, c"Connection rejected"),
        (RPMA_CONN_UNREACHABLE, c"Connection unreachable"),
    ];
    let text = TEXTS.iter().find(|(known, _)| *known as c_int == event);
    text.map_or(c"Unsupported connection event", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_texts_are_the_interface_literals() {
        let expected = [
            (-2, "Unsupported connection event"),
            (-1, "Undefined connection event"),
            (0, "Connection established"),
            (1, "Connection closed"),
            (2, "Connection lost"),
            (3, "Connection rejected"),
            (4, "Connection unreachable"),
            (5, "Unsupported connection event"),
        ];
        for (event, literal) in expected {
            assert_eq!(conn_event_text(event).to_str().unwrap(), literal, "{event}");
        }
    }

    #[test]
    fn only_two_ends_exist() {
        assert_eq!(side(0), Ok(Side::Passive));
        assert_eq!(side(1), Ok(Side::Active));
        assert_eq!(side(2), Err(crate::error::Error::Inval));
        assert!(side(u32::MAX).is_err());
    }
}
