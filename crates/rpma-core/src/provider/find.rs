// SPDX-License-Identifier: BSD-3-Clause
//! Selection of the provider and the device for an address.

use std::ffi::CStr;
use std::fmt;
use std::ptr;

use libc::ENODEV;
use rdma_sys::ibv_context;
use rpma_log::text::Lossy;

use super::Api;
use super::handles::{AddrInfo, CmId, Failed, Side, provider_error};
use crate::abi::RPMA_DEFAULT_TIMEOUT_MS;
use crate::config::{self, ProviderChoice};
use crate::error::{Error, Result};
use crate::version;

/// Who selects the provider.
const ENVIRONMENT: &str = "RPMA_PROVIDER selects it";
const PROGRAM: &str = "the program selects it";

/// The context of the device that serves an address: a local address for [`Side::Passive`], a remote one for
/// [`Side::Active`]. The provider is the one that `RPMA_PROVIDER` selects.
pub(crate) fn find_context(addr: &CStr, side: Side) -> Result<*mut ibv_context> {
    version::announce();
    find(config::provider()?, ENVIRONMENT, addr, side)
}

/// The same of the provider that the program selects.
pub(crate) fn find_context_of(choice: ProviderChoice, addr: &CStr, side: Side) -> Result<*mut ibv_context> {
    version::announce();
    find(choice, PROGRAM, addr, side)
}

fn find(choice: ProviderChoice, why: &'static str, addr: &CStr, side: Side) -> Result<*mut ibv_context> {
    match choice {
        ProviderChoice::RdmaCore => from_rdma_core(addr, side, why),
        ProviderChoice::Soft => match soft() {
            Some(api) => from(api, addr, side, why),
            None => Err(left_out(why, "soft")),
        },
        ProviderChoice::Auto => match soft() {
            Some(soft) => from_device_or(soft, addr, side),
            None => from_rdma_core(addr, side, "the only one in this build"),
        },
    }
}

/// Logs which provider serves an address, and why.
fn served(api: Api, addr: &CStr, why: impl fmt::Display) {
    log_notice!("provider {} serves {}: {why}", api.name, Lossy(addr.to_bytes()));
}

fn from_rdma_core(addr: &CStr, side: Side, why: &'static str) -> Result<*mut ibv_context> {
    let api = match rdma_core() {
        Ok(api) => api,
        Err(Reason::LeftOut) => return Err(left_out(why, "rdma-core")),
        Err(reason) => {
            log_error!("provider rdma-core cannot serve {}: {reason}", Lossy(addr.to_bytes()));
            return Err(Error::Provider);
        }
    };
    // Missing parts are not checked beforehand, so that the errors of the libraries are reported as well.
    match ask(api, addr, side) {
        Ok(ctx) if !ctx.is_null() => {
            served(api, addr, why);
            Ok(ctx)
        }
        // The address can be bound but selects no device, such as 0.0.0.0. The C releases of librpma return
        // success and NULL here, which rpma_peer_new rejects; only this place has the reason.
        Ok(_) => {
            log_error!(
                "no RDMA device serves {}: it can be bound, but is not the address of a device",
                Lossy(addr.to_bytes())
            );
            Err(Error::Provider)
        }
        Err(failed) => {
            let reason = match missing() {
                Some(missing) => Some(Reason::Missing(missing)),
                None if failed.raw_errno() == Some(ENODEV) => Some(Reason::NotServed),
                None => None,
            };
            let addr = Lossy(addr.to_bytes());
            Err(match reason {
                Some(reason) => {
                    log_error!("{}(addr={addr}) failed: {}; {reason}", failed.call, failed.why);
                    Error::Provider
                }
                None => provider_error!(failed, "addr={addr}"),
            })
        }
    }
}

/// An RDMA device if one serves the address, otherwise the soft provider, with a log message.
fn from_device_or(soft: Api, addr: &CStr, side: Side) -> Result<*mut ibv_context> {
    // Without a device, the libraries are not looked for.
    let found = match missing() {
        Some(missing) => Err(Reason::Missing(missing)),
        None => rdma_core().and_then(|api| match ask_for_both(api, addr, side) {
            Ok(ctx) if ctx.is_null() => Err(Reason::NotServed),
            Ok(ctx) => Ok((api, ctx)),
            Err(failed) => Err(Reason::Failed(failed)),
        }),
    };
    match found {
        Ok((api, ctx)) => {
            served(api, addr, "an RDMA device has this address or leads to it");
            Ok(ctx)
        }
        Err(reason) => {
            if let Reason::Unavailable(unavailable) = reason {
                log_warning!("no RDMA device of this host can be used: {unavailable}");
            }
            from(soft, addr, side, reason)
        }
    }
}

/// Same as [`ask`], but with the same result for both sides of a connection. The kernel's connection manager
/// routes a loopback address to any device, but does not allow listening on the address there. Both sides
/// must get the same result, so that of the listening side is used.
fn ask_for_both(api: Api, addr: &CStr, side: Side) -> Asked {
    let info = look_up(api, addr, side)?;
    if info.leads_back() { ask(api, addr, Side::Passive) } else { device_of(api, &info, side) }
}

/// Why no RDMA device serves an address.
enum Reason {
    #[cfg_attr(feature = "rdma-core", expect(dead_code, reason = "for builds without the provider"))]
    LeftOut,
    #[cfg_attr(not(feature = "rdma-core"), expect(dead_code, reason = "needs the provider"))]
    Unavailable(Unavailable),
    Missing(Missing),
    NotServed,
    Failed(Failed),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut => f.write_str("the rdma-core provider is not part of this build"),
            Self::Unavailable(unavailable) => unavailable.fmt(f),
            Self::Missing(missing) => missing.fmt(f),
            Self::NotServed => f.write_str("no RDMA device serves this address"),
            Self::Failed(failed) => {
                write!(f, "no RDMA device serves this address ({}: {})", failed.call, failed.why)
            }
        }
    }
}

fn from(api: Api, addr: &CStr, side: Side, why: impl fmt::Display) -> Result<*mut ibv_context> {
    let found = ask(api, addr, side);
    let ctx = found.map_err(|failed| provider_error!(failed, "addr={}", Lossy(addr.to_bytes())))?;
    served(api, addr, why);
    Ok(ctx)
}

/// A context, NULL if the provider has none for the address.
type Asked = std::result::Result<*mut ibv_context, Failed>;

fn ask(api: Api, addr: &CStr, side: Side) -> Asked {
    device_of(api, &look_up(api, addr, side)?, side)
}

fn look_up(api: Api, addr: &CStr, side: Side) -> std::result::Result<AddrInfo, Failed> {
    // SAFETY: the address is a C string.
    unsafe { AddrInfo::get(api, addr.as_ptr(), ptr::null(), side) }
}

fn device_of(api: Api, info: &AddrInfo, side: Side) -> Asked {
    // SAFETY: without a channel there is no other requirement.
    let id = unsafe { CmId::create(api, ptr::null_mut()) }?;
    match side {
        Side::Passive => id.bind(info)?,
        Side::Active => id.resolve_addr(info, RPMA_DEFAULT_TIMEOUT_MS)?,
    }
    // The device has been found; a failure to destroy the identifier is only logged.
    Ok(id.context())
}

#[cold]
fn left_out(why: &str, name: &str) -> Error {
    let by = why.trim_end_matches(" it");
    log_error!("{by} provider {name}, which is not part of this build");
    Error::Provider
}

#[cfg(feature = "rdma-core")]
fn rdma_core() -> std::result::Result<Api, Reason> {
    super::rdma_core::api().map_err(Reason::Unavailable)
}

#[cfg(not(feature = "rdma-core"))]
fn rdma_core() -> std::result::Result<Api, Reason> {
    Err(Reason::LeftOut)
}

#[cfg(feature = "rdma-core")]
use super::rdma_core::{Missing, Unavailable, missing};

/// A build without the provider does not check for missing parts.
#[cfg(not(feature = "rdma-core"))]
type Missing = std::convert::Infallible;

/// A build without the provider needs no library.
#[cfg(not(feature = "rdma-core"))]
type Unavailable = std::convert::Infallible;

#[cfg(not(feature = "rdma-core"))]
fn missing() -> Option<Missing> {
    None
}

#[cfg(feature = "soft")]
fn soft() -> Option<Api> {
    Some(super::soft::api())
}

#[cfg(not(feature = "soft"))]
fn soft() -> Option<Api> {
    None
}
