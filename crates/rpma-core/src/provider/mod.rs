// SPDX-License-Identifier: BSD-3-Clause
//! The interface between librpma's semantics and the providers that execute them.
//!
//! [`Provider`] is the control path only, with the names, signatures and errno conventions of libibverbs and
//! librdmacm: pointers are NULL with errno set, `ibv_*` numbers are 0 or a positive errno
//! (`ibv_get_cq_event`: 0 or -1 with errno), `rdma_*` numbers are 0 or -1 with errno, `rdma_getaddrinfo` is 0
//! or an `EAI_*`. The data path does not use it: it is [`hot`] for all providers, and [`native`] for
//! operations that only newer devices support.
//!
//! [`find_context`] selects the provider for an address, and [`of_context`] determines the provider of a
//! context. Both are called once; every object keeps the provider of the object it was created from.

pub(crate) mod handles;
pub(crate) mod hot;
mod layout;
pub(crate) mod metered;
pub(crate) mod native;
#[cfg(feature = "rdma-core")]
mod rdma_core;
#[cfg(feature = "soft")]
mod soft;

mod find;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::result;

use libc::sockaddr;
use rdma_sys::*;

pub(crate) use find::{find_context, find_context_of};

use crate::error::Result;

/// The control path, once: the table of a provider and both its instances are made from this list.
/// `ibv_advise_mr` takes the domain's context in addition, because the domain itself is opaque here.
macro_rules! control_path {
    ($make:ident $($arguments:tt)*) => {
        $make! {
            [$($arguments)*]
            fn ibv_query_device_ex(
                ctx: *mut ibv_context, input: *const ibv_query_device_ex_input, attr: *mut ibv_device_attr_ex
            ) -> c_int;
            fn ibv_alloc_pd(ctx: *mut ibv_context) -> *mut ibv_pd;
            fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
            fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
            fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
            fn ibv_advise_mr(
                ctx: *mut ibv_context, pd: *mut ibv_pd, advice: c_uint, flags: u32, sg_list: *mut ibv_sge, num_sge: u32
            ) -> c_int;
            fn ibv_create_comp_channel(ctx: *mut ibv_context) -> *mut ibv_comp_channel;
            fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
            fn ibv_create_cq(
                ctx: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel,
                comp_vector: c_int
            ) -> *mut ibv_cq;
            fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
            fn ibv_get_cq_event(
                channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void
            ) -> c_int;
            fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
            fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
            fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
            fn rdma_create_event_channel() -> *mut rdma_event_channel;
            fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
            fn rdma_create_id(
                channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void,
                ps: rdma_port_space::Type
            ) -> c_int;
            fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
            fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
            fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
            fn rdma_resolve_addr(
                id: *mut rdma_cm_id, src: *mut sockaddr, dst: *mut sockaddr, timeout_ms: c_int
            ) -> c_int;
            fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
            fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
            fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
            fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
            fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int;
            fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
            fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
            fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
            fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int;
            fn rdma_destroy_qp(id: *mut rdma_cm_id);
            fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
            fn rdma_getaddrinfo(
                node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo,
                res: *mut *mut rdma_addrinfo
            ) -> c_int;
            fn rdma_freeaddrinfo(res: *mut rdma_addrinfo);
        }
    };
}

macro_rules! provider_table {
    ([] $( fn $call:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?; )*) => {
        /// An implementation of verbs and connection management, as thread safe as verbs: a C function for
        /// each call, so that one of libibverbs or librdmacm is called as from C.
        #[derive(Clone, Copy)]
        pub struct Provider {
            /// The name that `RPMA_PROVIDER` selects it by.
            pub name: &'static str,
            /// Whether registrations accept the FLUSH access flags regardless of the device attributes.
            pub has_flush_access: bool,
            /// Whether registered memory is pinned, and counts against the process's limit of locked memory.
            pub pins_memory: bool,
            /// The probable reason why a connection was not established, for the log, if the event and its
            /// status indicate it. Not called for established or closed connections.
            pub likely_reason: fn(event: rdma_cm_event_type::Type, status: c_int) -> Option<&'static str>,
            /// The known reason why a connection attempt failed, from an event that has not been
            /// acknowledged; unlike [`Self::likely_reason`], the provider has logged it already.
            pub event_reason: unsafe fn(event: *mut rdma_cm_event, out: &mut dyn Write),
            /// Calls `then` with the cause of the end of a connection, as recorded for one of its completion
            /// queues, and whether neither side has closed it. Does not call it if there is no record. The
            /// provider has logged the cause already.
            pub ending: unsafe fn(cq: *mut ibv_cq, qp_num: u32, then: &mut dyn FnMut(&str, bool)),
            /// Posts a send request for an access that the remote memory region does not permit according to
            /// its descriptor. The provider may fail the request itself; otherwise the target rejects it.
            pub post_denied: unsafe fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
            /// Posts one signalled request that may be executed by this call: then the result is true, and no
            /// work completion is generated. Fails with the result of `ibv_post_send`, which is not 0.
            pub post_at_once:
                unsafe fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> result::Result<bool, c_int>,
            /// Sets the local destination of the reads with which the connection of a queue pair flushes, so
            /// that these are counted as flushes.
            pub flushes_by: unsafe fn(qp: *mut ibv_qp, target: u64),
            /// The library and not the program has registered this region: it is not counted, and its memory
            /// stays mapped until it is deregistered, without references to it.
            pub own_memory: unsafe fn(mr: *mut ibv_mr),
            /// The underlying provider, if this one counts its calls ([`metered`]).
            pub plain: Option<Api>,
            $( $call: unsafe extern "C" fn($($ty),*) $(-> $ret)?, )*
        }

        impl Provider {
            $(
                /// # Safety
                /// The contract is that of the verbs man page; objects must come from the same provider.
                #[inline(always)]
                pub unsafe fn $call(&self, $($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: the caller meets the requirements of this call, which are those of the function
                    // in the table.
                    unsafe { (self.$call)($($arg),*) }
                }
            )*
        }
    };
}
control_path!(provider_table);

/// A [`Provider`] whose calls are the C functions of a module, with its other properties.
macro_rules! provider {
    ([$module:ident $($known:tt)*] $( fn $call:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?; )*) => {
        Provider { $($known)* plain: None, $( $call: $module::$call, )* }
    };
}

/// C functions for calls that are Rust functions of a module.
#[cfg(feature = "soft")]
macro_rules! c_functions {
    ([$module:ident] $( fn $call:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?; )*) => {
        $(
            pub(crate) unsafe extern "C" fn $call($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller meets the requirements of this call, which are those of the function it
                // is passed to.
                unsafe { $module::$call($($arg),*) }
            }
        )*
    };
}
#[cfg(feature = "soft")]
use c_functions;
use {control_path, provider};

/// A provider. Providers live as long as the process.
pub(crate) type Api = &'static Provider;

/// The provider of a context, determined by the address of the context alone.
pub(crate) fn of_context(ctx: *mut ibv_context) -> Result<Api> {
    #[cfg(feature = "soft")]
    if softverbs::owns(ctx) {
        return Ok(soft::api());
    }
    #[cfg(feature = "rdma-core")]
    {
        #[cfg(not(feature = "soft"))]
        let _ = ctx;
        rdma_core::api().map_err(|unavailable| cannot_be_used(&unavailable))
    }
    #[cfg(not(feature = "rdma-core"))]
    {
        log_error!(
            "the device context {ctx:p} does not belong to the soft provider, the only one in this build"
        );
        Err(crate::error::Error::Provider)
    }
}

#[cfg(feature = "rdma-core")]
#[cold]
#[inline(never)]
fn cannot_be_used(unavailable: &rdma_core::Unavailable) -> crate::error::Error {
    log_error!("{unavailable}");
    crate::error::Error::Provider
}
