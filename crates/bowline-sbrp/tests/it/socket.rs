//! A connection to the relay: in order in each direction, and cut at any moment.

use std::collections::VecDeque;

use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ClientRoute, ConnectionId, RouteCache};
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

/// A frame that the relay has read and routed, and not yet put into the receiver's queue.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) session: SessionId,
    pub(crate) message: Bytes,
    pub(crate) to: ConnectionId,
    /// Whether this is the first receiver that was found for it.
    pub(crate) first: bool,
}

/// Each side notices the end of it on its own: the other may still think it open.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) owner: Owner,
    /// Whether the relay has seen it yet.
    pub(crate) arrived: bool,
    pub(crate) end_open: bool,
    pub(crate) relay_open: bool,
    /// The relay has decided to close it and its task has not noticed yet: nothing is queued for
    /// it any more, but what it sent is still read.
    pub(crate) closing: bool,
    /// Of a client: what the relay keeps beside its queue.
    pub(crate) route: ClientRoute,
    /// Of a daemon: what its connection remembers.
    pub(crate) cache: RouteCache<ConnectionId>,
    pub(crate) routed: Option<Routed>,
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
            closing: false,
            route: ClientRoute::Closed,
            cache: RouteCache::default(),
            routed: None,
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

    /// Whether anything can be queued for it.
    pub(crate) fn takes(&self) -> bool {
        self.relay_open && !self.closing
    }

    pub(crate) fn send_down(&mut self, frame: Bytes) {
        if self.takes() {
            self.down.push_back(Item::Frame(frame));
        }
    }
}
