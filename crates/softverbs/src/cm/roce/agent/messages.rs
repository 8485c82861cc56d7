// SPDX-License-Identifier: BSD-3-Clause
//! The messages that wait to be sent, in order.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use transport::roce::cm::Route;
use transport::roce::wire::cm::Mad;

/// A queue whose positions are counted since the first message, so that a thread can tell the messages before
/// a moment from later ones.
#[derive(Default)]
pub(super) struct Messages {
    messages: VecDeque<(Route, Mad)>,
    /// How many messages were taken out.
    begin: u64,
}

impl Messages {
    pub(super) fn push(&mut self, route: Route, mad: Mad) {
        self.messages.push_back((route, mad));
    }

    /// The position of the next message to be queued.
    pub(super) fn end(&self) -> u64 {
        self.begin + self.messages.len() as u64
    }

    /// Takes the oldest message, if its position is before `end`.
    pub(super) fn pop_before(&mut self, end: u64) -> Option<(Route, Mad)> {
        if self.begin >= end {
            return None;
        }
        let message = self.messages.pop_front()?;
        self.begin += 1;
        Some(message)
    }

    /// Takes all messages.
    pub(super) fn take(&mut self) -> VecDeque<(Route, Mad)> {
        self.begin = self.end();
        std::mem::take(&mut self.messages)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }
}
