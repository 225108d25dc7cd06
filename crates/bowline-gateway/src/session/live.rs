//! What watchers of a session see in this process, and what the task behind it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bowline_sbp::access::OWNER;
use bowline_sbp::session::LiveState;

use super::text::TextBuffer;

/// What the task behind a slot is.
#[derive(Debug, Default)]
pub(super) struct Role(AtomicU8);

impl Role {
    const ACTOR: u8 = 1;
    const PROXY: u8 = 2;

    /// It is the session's actor, and holds the lease.
    pub(super) fn is_owner(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ACTOR
    }

    /// It stands for the actor of another replica.
    pub(super) fn is_proxy(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::PROXY
    }

    pub(super) fn set_owner(&self) {
        self.0.store(Self::ACTOR, Ordering::Release);
    }

    pub(super) fn set_proxy(&self) {
        self.0.store(Self::PROXY, Ordering::Release);
    }
}

/// A session at one instant, and the text of its running turn.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) phase: Phase,
    pub(crate) state: Arc<LiveState>,
    pub(crate) text: Option<Arc<TextBuffer>>,
}

/// Where the session stands in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its state is not known yet, or no more.
    Unknown,
    Known,
    /// It has another owner, or none: surfaces reconnect.
    OwnerLost,
}

impl Live {
    /// The empty state, before the session is loaded.
    pub(super) fn none() -> Self {
        let state = LiveState {
            user: OWNER,
            status: bowline_sbp::lifecycle::Status::Idle,
            head: 0,
            step_count: 0,
            gone: false,
            handed_to: None,
            turns: Vec::new(),
            surfaces: Vec::new(),
            closed: Vec::new(),
            calls: Vec::new(),
            approvals: Vec::new(),
        };
        Self { phase: Phase::Unknown, state: Arc::new(state), text: None }
    }

    /// What watchers see at the end of an actor or a proxy whose session has another owner.
    pub(super) fn owner_lost() -> Self {
        Self { phase: Phase::OwnerLost, ..Self::none() }
    }
}
