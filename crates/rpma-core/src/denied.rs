// SPDX-License-Identifier: BSD-3-Clause
//! Requests for an access that the remote memory region does not permit, as its descriptor says.
//!
//! They are posted nevertheless, because a program expects an access error in the completion of a request.
//! iWARP does not acknowledge writes, so with iWARP only the log names the error. None of this code is on the
//! path of permitted requests.

use std::fmt;

use rpma_log::Subject;

use crate::conn::Conn;
use crate::mr::{MrRemote, RemoteAccess};

/// An access that is not permitted.
pub(crate) struct Denied<'a> {
    /// The function that posts the request.
    pub call: &'static str,
    pub mr: &'a MrRemote,
    pub access: RemoteAccess,
    pub offset: usize,
    pub len: u64,
}

impl Denied<'_> {
    #[cold]
    pub(crate) fn warn(&self, conn: &Conn, wr_id: u64) {
        let peer = conn.peer();
        let about = Subject { connection: Some(conn.qp_num()), operation: Some(self.call), ..peer.subject() };
        log_warning!(about about; "{peer}{self}; op_context {wr_id:#x}");
    }
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { call, mr, access, offset, len } = *self;
        write!(f, "{call}: {len} bytes at {offset} of a region of {}", mr.size())?;
        let missing = match access {
            RemoteAccess::Read if !mr.is_readable() => "RPMA_MR_USAGE_READ_SRC",
            RemoteAccess::Write if !mr.is_writable() => "RPMA_MR_USAGE_WRITE_DST",
            _ => return Ok(()),
        };
        write!(f, " that the remote peer has registered without {missing}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Descriptor;

    #[test]
    fn the_range_or_the_missing_usage_is_named() {
        let text = |usage, access, offset| {
            let bytes = Descriptor { addr: 0x1000, size: 65536, rkey: 5, usage }.encode();
            let mr = &*MrRemote::from_descriptor(&bytes).unwrap();
            Denied { call: "rpma_write", mr, access, offset, len: 64 }.to_string()
        };
        assert_eq!(text(8, RemoteAccess::Write, 65528), "rpma_write: 64 bytes at 65528 of a region of 65536");
        assert_eq!(
            text(1, RemoteAccess::Write, 0),
            "rpma_write: 64 bytes at 0 of a region of 65536 that the remote peer has registered without \
             RPMA_MR_USAGE_WRITE_DST"
        );
        assert!(text(8, RemoteAccess::Read, 0).ends_with(" RPMA_MR_USAGE_READ_SRC"));
        assert!(text(16, RemoteAccess::Read, 65530).ends_with(" 65536"), "a region for flushes can be read");
        assert!(text(16, RemoteAccess::Flush, 65530).ends_with(" 65536"));
    }
}
