// SPDX-License-Identifier: BSD-3-Clause
//! Operations of a connection, and their completions.
//!
//! Local memory that is posted must live until the completion, or the connection's end.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use super::connection::{RPMA_E_NO_COMPLETION, RPMA_F_COMPLETION_ALWAYS, status_name};
use super::{Completion, Connection, Failed, Library, Memory, RemoteMemory, newer};

const RPMA_F_COMPLETION_ON_ERROR: c_int = 1;
/// The bit that the opcode of a receive has.
const IBV_WC_RECV: u32 = 1 << 7;
/// The opcode of a receive that a write with immediate data has consumed.
const IBV_WC_RECV_RDMA_WITH_IMM: u32 = IBV_WC_RECV + 1;
/// The bit of wc_flags that says that there are immediate data.
const IBV_WC_WITH_IMM: u32 = 1 << 1;
/// The maximum number of completions per poll.
const BATCH: usize = 16;

/// Part of a region.
#[derive(Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// Whether a successful request generates a completion, with this number; a failed one always does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notify {
    Always(u64),
    OnError,
}

impl Notify {
    fn parts(self) -> (c_int, *const c_void) {
        match self {
            Self::Always(number) => (RPMA_F_COMPLETION_ALWAYS, context(number)),
            Self::OnError => (RPMA_F_COMPLETION_ON_ERROR, ptr::null()),
        }
    }
}

/// Converts a number to op_context, which the completion returns as wr_id.
fn context(number: u64) -> *const c_void {
    ptr::without_provenance(number as usize)
}

/// `enum rpma_flush_type`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flush {
    Persistent = 0,
    Visibility = 1,
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) number: u64,
    /// The length of a received message; `None` for other operations.
    pub(crate) received: Option<usize>,
    pub(crate) immediate: Option<Immediate>,
}

/// Immediate data that came with a message or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Immediate {
    pub(crate) value: u32,
    pub(crate) is_write: bool,
}

impl Connection {
    /// rpma_write(3).
    pub(crate) fn write(
        &self,
        to: &RemoteMemory,
        to_offset: usize,
        from: Range<'_>,
        notify: Notify,
    ) -> Result<(), Failed> {
        let (flags, context) = notify.parts();
        // SAFETY: the connection and both regions are alive; the local range is checked by the device, and
        // the remote one by its owner.
        self.library().check(unsafe {
            (self.library().functions.rpma_write)(
                self.raw,
                to.raw(),
                to_offset,
                from.memory.raw(),
                from.offset,
                from.len,
                flags,
                context,
            )
        })
    }

    /// rpma_read(3).
    pub(crate) fn read(
        &self,
        to: Range<'_>,
        from: &RemoteMemory,
        from_offset: usize,
        notify: Notify,
    ) -> Result<(), Failed> {
        let (flags, context) = notify.parts();
        // SAFETY: the connection and both regions are alive; the local range is checked by the device, and
        // the remote one by its owner.
        self.library().check(unsafe {
            (self.library().functions.rpma_read)(
                self.raw,
                to.memory.raw(),
                to.offset,
                from.raw(),
                from_offset,
                to.len,
                flags,
                context,
            )
        })
    }

    /// rpma_atomic_write(3).
    pub(crate) fn atomic_write(
        &self,
        to: &RemoteMemory,
        to_offset: usize,
        bytes: [u8; 8],
        notify: Notify,
    ) -> Result<(), Failed> {
        let (flags, context) = notify.parts();
        // SAFETY: the connection and the region are alive; the 8 bytes are copied before the call returns.
        self.library().check(unsafe {
            (self.library().functions.rpma_atomic_write)(
                self.raw,
                to.raw(),
                to_offset,
                bytes.as_ptr().cast(),
                flags,
                context,
            )
        })
    }

    /// rpma_flush(3).
    pub(crate) fn flush(
        &self,
        of: &RemoteMemory,
        offset: usize,
        len: usize,
        kind: Flush,
        notify: Notify,
    ) -> Result<(), Failed> {
        let (flags, context) = notify.parts();
        // SAFETY: the connection and the region are alive.
        self.library().check(unsafe {
            (self.library().functions.rpma_flush)(
                self.raw,
                of.raw(),
                offset,
                len,
                kind as c_int,
                flags,
                context,
            )
        })
    }

    /// rpma_send(3).
    pub(crate) fn send(&self, message: Range<'_>, notify: Notify) -> Result<(), Failed> {
        let (flags, context) = notify.parts();
        let Range { memory, offset, len } = message;
        // SAFETY: the connection and the region are alive; the range is checked by the device.
        self.library().check(unsafe {
            (self.library().functions.rpma_send)(self.raw, memory.raw(), offset, len, flags, context)
        })
    }

    /// rpma_write_with_imm(3).
    pub(crate) fn write_with_immediate(
        &self,
        to: &RemoteMemory,
        to_offset: usize,
        from: Range<'_>,
        immediate: u32,
        notify: Notify,
    ) -> Result<(), Failed> {
        let write = newer(self.library().functions.rpma_write_with_imm, "rpma_write_with_imm")?;
        let Range { memory, offset, len } = from;
        let (flags, context) = notify.parts();
        // SAFETY: the connection and both regions are alive; the local range is checked by the device, and
        // the remote one by its owner.
        self.library().check(unsafe {
            write(self.raw, to.raw(), to_offset, memory.raw(), offset, len, flags, immediate, context)
        })
    }

    /// rpma_send_with_imm(3).
    pub(crate) fn send_with_immediate(
        &self,
        message: Range<'_>,
        immediate: u32,
        notify: Notify,
    ) -> Result<(), Failed> {
        let send = newer(self.library().functions.rpma_send_with_imm, "rpma_send_with_imm")?;
        let Range { memory, offset, len } = message;
        let (flags, context) = notify.parts();
        // SAFETY: the connection and the region are alive; the range is checked by the device.
        self.library().check(unsafe { send(self.raw, memory.raw(), offset, len, flags, immediate, context) })
    }

    /// rpma_recv(3).
    pub(crate) fn receive(&self, to: Range<'_>, number: u64) -> Result<(), Failed> {
        let Range { memory, offset, len } = to;
        // SAFETY: the connection and the region are alive; the range is checked by the device.
        self.library().check(unsafe {
            (self.library().functions.rpma_recv)(self.raw, memory.raw(), offset, len, context(number))
        })
    }

    /// The completion queue of the connection.
    pub(crate) fn queue(&self) -> Result<Queue<'_>, Failed> {
        let library = self.library();
        let (mut raw, mut fd) = (ptr::null_mut(), -1);
        // SAFETY: the connection and its queue are alive; both outputs are writable.
        unsafe {
            library.check((library.functions.rpma_conn_get_cq)(self.raw, &mut raw))?;
            library.check((library.functions.rpma_cq_get_fd)(raw, &mut fd))?;
        }
        Ok(Queue { connection: self, library, raw, fd })
    }
}

/// A `struct rpma_cq`, which lives as long as its connection.
pub(crate) struct Queue<'a> {
    #[expect(dead_code, reason = "it keeps the connection from being deleted")]
    connection: &'a Connection,
    library: &'static Library,
    raw: *mut c_void,
    fd: RawFd,
}

impl Queue<'_> {
    /// Becomes readable with the next completion after `rearm` was called.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// rpma_cq_get_wc(3): appends completed requests; fails with the status if a request failed.
    pub(crate) fn poll(&self, done: &mut Vec<Done>) -> Result<(), Failed> {
        let mut completions = [Completion::default(); BATCH];
        let mut got: c_int = 0;
        // SAFETY: the queue is alive, and the array has room for `BATCH` completions.
        let ret = unsafe {
            (self.library.functions.rpma_cq_get_wc)(
                self.raw,
                BATCH as c_int,
                completions.as_mut_ptr(),
                &mut got,
            )
        };
        if ret == RPMA_E_NO_COMPLETION {
            return Ok(());
        }
        self.library.check(ret)?;
        for completion in &completions[..usize::try_from(got).unwrap_or(0).min(BATCH)] {
            if completion.status != 0 {
                return Err(format!("a request failed: {}", status_name(completion.status)));
            }
            let is_receive = completion.opcode & IBV_WC_RECV != 0;
            done.push(Done {
                number: completion.wr_id,
                received: is_receive.then_some(completion.byte_len as usize),
                immediate: (is_receive && completion.wc_flags & IBV_WC_WITH_IMM != 0).then(|| Immediate {
                    value: u32::from_be(completion.imm_data),
                    is_write: completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
                }),
            });
        }
        Ok(())
    }

    /// rpma_cq_wait(3), to be called when the descriptor is readable: takes the event and arms the queue. A
    /// poll must follow.
    pub(crate) fn rearm(&self) -> Result<(), Failed> {
        // SAFETY: the queue is alive. An event is pending, so the call does not block.
        self.library.check(unsafe { (self.library.functions.rpma_cq_wait)(self.raw) })
    }
}
