//! The history of all applied commits. Unlike the rows nothing is deleted, so that an effect which
//! is executed late can still be compared with what was stored before it.

use std::collections::{BTreeMap, BTreeSet};

use bowline_sbp::approval::ApprovalState;
use bowline_sbp::id::{ApprovalId, TurnId};
use bowline_sbp::session::{Fence, Placed, TokenHash};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) commits: BTreeSet<Uuid>,
    /// Which actor wrote under which fence.
    pub(super) writers: BTreeMap<Fence, u64>,
    pub(super) log: Vec<Placed>,
    /// The position of each accepted turn.
    pub(super) accepted: BTreeMap<TurnId, u64>,
    pub(super) started: BTreeSet<(TurnId, u32)>,
    pub(super) ended: BTreeSet<TurnId>,
    pub(super) forgotten: BTreeSet<TurnId>,
    /// Results stored for an idempotency key.
    pub(super) results: BTreeMap<String, String>,
    pub(super) epochs: BTreeSet<u64>,
    pub(super) tokens: Vec<TokenHash>,
    /// The call that each approval is about.
    pub(super) asked: BTreeMap<ApprovalId, String>,
    pub(super) approvals: BTreeMap<ApprovalId, Vec<ApprovalState>>,
    /// Tools that were allowed for good.
    pub(super) granted: BTreeSet<String>,
    /// Calls that an owner left open when it stopped.
    pub(super) left_open: BTreeSet<Uuid>,
    pub(super) handed_off: bool,
    pub(super) deleted: bool,
}

impl Past {
    /// Whether a call was marked as executed.
    pub(super) fn is_used(&self, call: &str) -> bool {
        let used = |id: &ApprovalId| {
            self.approvals.get(id).is_some_and(|states| states.contains(&ApprovalState::Used))
        };
        self.asked.iter().any(|(id, asked)| asked == call && used(id))
    }
}
