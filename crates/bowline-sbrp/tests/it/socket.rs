//! A connection to the relay: in order in each direction, and cut at any moment.

use std::collections::VecDeque;

use bowline_sbrp::id::SessionId;
use bytes::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Daemon,
    Client { at: usize, session: SessionId },
}

#[derive(Debug)]
pub(crate) enum Item {
    /// The relay accepted the connection.
    Open,
    Frame(Bytes),
}

/// Each side notices the end of it on its own: the other may still think it open.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) owner: Owner,
    /// Whether the relay has seen it yet.
    pub(crate) arrived: bool,
    pub(crate) end_open: bool,
    pub(crate) relay_open: bool,
    pub(crate) up: VecDeque<Bytes>,
    pub(crate) down: VecDeque<Item>,
}

impl Socket {
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            owner,
            arrived: false,
            end_open: true,
            relay_open: true,
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        !self.end_open && !self.relay_open
    }

    pub(crate) fn send_up(&mut self, frame: Bytes) {
        if self.end_open {
            self.up.push_back(frame);
        }
    }

    pub(crate) fn send_down(&mut self, frame: Bytes) {
        if self.relay_open {
            self.down.push_back(Item::Frame(frame));
        }
    }
}
