// SPDX-License-Identifier: BSD-3-Clause
//! The messages of connection management that carry private data, and how much each of them carries.
#![forbid(unsafe_code)]

use crate::instrument::{self, Rule};
use crate::sys::Errno;
use crate::{choice, config};
use transport::roce::cm::{
    REJECT_DATA_LEN, REPLY_DATA_LEN, REQUEST_DATA_LEN, SIDR_REPLY_DATA_LEN, SIDR_REQUEST_DATA_LEN,
};

/// The message that carries private data.
#[derive(Clone, Copy)]
pub(crate) enum Carrier {
    Request,
    Accept,
    Reject,
    /// The request and the answer of identifiers for datagrams, only over RoCE.
    Resolve,
    Answer,
}

impl Carrier {
    /// EINVAL: `len` bytes do not fit into the message. Over iWARP they do, and only adapter mode refuses
    /// what an adapter could not carry.
    pub(crate) fn check(self, len: usize) -> Result<(), Errno> {
        let (rule, most, call) = self.limit();
        if len <= most {
            return Ok(());
        }
        match (choice::transport(), rule) {
            (config::Transport::Roce, _) => {
                log::warn!(
                    "{call}: {len} bytes of private data; RoCE carries at most {most} in this message"
                );
                Err(libc::EINVAL)
            }
            (config::Transport::Iwarp, Some(rule)) => instrument::long_private_data(rule, len, most, call),
            (config::Transport::Iwarp, None) => Ok(()),
        }
    }

    /// The rule of strict mode, the bytes that InfiniBand and RoCE carry, and the calls.
    fn limit(self) -> (Option<Rule>, usize, &'static str) {
        let (connect, accept) =
            ("rdma_connect (rpma_conn_req_connect)", "rdma_accept (rpma_conn_req_connect)");
        match self {
            Self::Request => (Some(Rule::RequestData), REQUEST_DATA_LEN, connect),
            Self::Accept => (Some(Rule::AcceptData), REPLY_DATA_LEN, accept),
            Self::Reject => (Some(Rule::RejectData), REJECT_DATA_LEN, "rdma_reject"),
            Self::Resolve => (None, SIDR_REQUEST_DATA_LEN, "rdma_connect of RDMA_PS_UDP"),
            Self::Answer => (None, SIDR_REPLY_DATA_LEN, "rdma_accept or rdma_reject of RDMA_PS_UDP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_specification() {
        let carriers =
            [Carrier::Request, Carrier::Accept, Carrier::Reject, Carrier::Resolve, Carrier::Answer];
        assert_eq!(carriers.map(|carrier| carrier.limit().1), [56, 196, 148, 180, 136]);
    }
}
