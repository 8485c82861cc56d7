// SPDX-License-Identifier: BSD-3-Clause
//! The connection of a queue pair with its link: iWARP over a stream, or RoCE over packets, whose connections
//! are reliable (RC) or unreliable (UC), or datagrams (UD).
#![forbid(unsafe_code)]

use super::Kind;
use crate::link::{Link, Local, Packets};
use crate::sys::Errno;
use crate::{choice, config};
use transport::iwarp::conn::{Conn, Sizes};
use transport::roce::rc::Rc;
use transport::roce::uc::Uc;
use transport::roce::ud::Ud;
use transport::step::Progress;

/// A connection and its link.
pub(super) struct Linked<C, L> {
    pub conn: C,
    pub link: Option<L>,
}

/// The connection of a queue pair: the transport of the device decides which one.
#[allow(clippy::large_enum_variant, reason = "a queue pair has one, and does not move it")]
pub(super) enum Transport {
    Iwarp(Linked<Conn, Link>),
    Roce(Linked<Rc, Packets>),
    Unreliable(Linked<Uc, Packets>),
    Datagrams(Linked<Ud, Packets>),
}

impl Transport {
    /// `own_receives`: the queue pair has a receive queue, not a shared one. ENOMEM.
    pub(super) fn new(kind: Kind, num: u32, max_send_wr: u32, own_receives: bool) -> Result<Self, Errno> {
        Ok(match choice::transport() {
            config::Transport::Iwarp => {
                let conn = Conn::new(num, max_send_wr, own_receives, Sizes::default())?;
                Self::Iwarp(Linked { conn, link: None })
            }
            config::Transport::Roce => match kind {
                Kind::Rc => {
                    let conn = Rc::new(num, max_send_wr, own_receives, config::get().policy)?;
                    Self::Roce(Linked { conn, link: None })
                }
                Kind::Uc => {
                    Self::Unreliable(Linked { conn: Uc::new(num, max_send_wr, own_receives)?, link: None })
                }
                Kind::Ud => {
                    Self::Datagrams(Linked { conn: Ud::new(num, max_send_wr, own_receives)?, link: None })
                }
            },
        })
    }

    /// The link of a RoCE queue pair.
    pub(super) fn packets(&mut self) -> Option<&mut Option<Packets>> {
        match self {
            Self::Iwarp(_) => None,
            Self::Roce(roce) => Some(&mut roce.link),
            Self::Unreliable(unreliable) => Some(&mut unreliable.link),
            Self::Datagrams(datagrams) => Some(&mut datagrams.link),
        }
    }

    /// The connection, without its link.
    pub(super) fn conn(&self) -> &dyn Progress {
        match self {
            Self::Iwarp(iwarp) => &iwarp.conn,
            Self::Roce(roce) => &roce.conn,
            Self::Unreliable(unreliable) => &unreliable.conn,
            Self::Datagrams(datagrams) => &datagrams.conn,
        }
    }
}

/// What a queue pair does with any link.
pub(super) trait QpLink {
    /// The memory that the link shares with the peer.
    fn local(&self) -> Option<&Local>;
    /// As [`QpLink::local`].
    fn local_mut(&mut self) -> Option<&mut Local>;
    /// The connection has ended: the peer may access nothing any more.
    fn ended(&mut self) {}
    /// Sends what the last step left in the link.
    fn flush(&mut self) {}
    /// Closes the link as if this process had been killed.
    fn cut(self);
}

impl QpLink for Link {
    #[inline]
    fn local(&self) -> Option<&Local> {
        self.local()
    }

    #[inline]
    fn local_mut(&mut self) -> Option<&mut Local> {
        self.local_mut()
    }

    fn cut(self) {
        self.cut();
    }
}

impl QpLink for Packets {
    #[inline]
    fn local(&self) -> Option<&Local> {
        self.local()
    }

    #[inline]
    fn local_mut(&mut self) -> Option<&mut Local> {
        self.local_mut()
    }

    fn ended(&mut self) {
        if let Some(local) = self.local_mut() {
            local.end_copies();
        }
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn cut(self) {}
}
