// SPDX-License-Identifier: BSD-3-Clause
//! The length of private data, in strict mode: InfiniBand and RoCE carry less than iWARP.

use super::strict::{self, Rule, Strict};
use crate::limits::{ADAPTER_ACCEPT_DATA, ADAPTER_REJECT_DATA, ADAPTER_REQUEST_DATA};
use crate::logged::Logged;
use crate::sys::Errno;
use crate::{choice, config};
use transport::roce::cm::{SIDR_REPLY_DATA_LEN, SIDR_REQUEST_DATA_LEN};

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
    /// what an adapter could not carry; a warning comes once for each kind of message.
    pub(crate) fn check(self, len: usize) -> Result<(), Errno> {
        let (rule, most, call) = self.limit();
        if len > most && choice::transport() == config::Transport::Roce {
            log::warn!("{call}: {len} bytes of private data; RoCE carries at most {most} in this message");
            return Err(libc::EINVAL);
        }
        rule.map_or(Ok(()), |rule| self.check_by(rule, len, strict::mode()))
    }

    /// The rule of strict mode, the bytes that an adapter carries, and the calls.
    fn limit(self) -> (Option<Rule>, usize, &'static str) {
        let (connect, accept) =
            ("rdma_connect (rpma_conn_req_connect)", "rdma_accept (rpma_conn_req_connect)");
        match self {
            Self::Request => (Some(Rule::RequestData), ADAPTER_REQUEST_DATA, connect),
            Self::Accept => (Some(Rule::AcceptData), ADAPTER_ACCEPT_DATA, accept),
            Self::Reject => (Some(Rule::RejectData), ADAPTER_REJECT_DATA, "rdma_reject"),
            Self::Resolve => (None, SIDR_REQUEST_DATA_LEN, "rdma_connect of RDMA_PS_UDP"),
            Self::Answer => (None, SIDR_REPLY_DATA_LEN, "rdma_accept or rdma_reject of RDMA_PS_UDP"),
        }
    }

    fn check_by(self, rule: Rule, len: usize, mode: Strict) -> Result<(), Errno> {
        static LOGGED: Logged = Logged::new();
        let (_, most, call) = self.limit();
        if mode == Strict::Off || len <= most {
            return Ok(());
        }
        strict::report(
            &LOGGED,
            mode,
            rule,
            format_args!(
                "{len} bytes of private data; InfiniBand and RoCE carry at most {most} in this message"
            ),
            format_args!("pass at most {most} bytes to {call}, and send the rest over the connection"),
        );
        if mode == Strict::Adapter { Err(libc::EINVAL) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_mode_limits_private_data_to_what_an_adapter_carries() {
        for (carrier, most) in [(Carrier::Request, 56), (Carrier::Accept, 196), (Carrier::Reject, 148)] {
            let rule = carrier.limit().0.unwrap();
            for mode in [Strict::Off, Strict::Warn, Strict::Adapter] {
                assert_eq!(carrier.check_by(rule, most, mode), Ok(()));
            }
            assert_eq!(carrier.check_by(rule, most + 1, Strict::Off), Ok(()));
            assert_eq!(carrier.check_by(rule, most + 1, Strict::Warn), Ok(()));
            assert_eq!(carrier.check_by(rule, most + 1, Strict::Adapter), Err(libc::EINVAL));
        }
    }
}
