//! One owner at a time: looks at who wrote to each session, and under which fence (G19).

use std::collections::HashMap;

use crate::anomaly::{Anomaly, Overlap};
use crate::history::{History, OwnersWrite, Written};

/// What is known of the writes to one session so far.
#[derive(Default)]
struct Seen<'a> {
    fence: u64,
    owner: &'a str,
    /// Under which fence each attempt of a turn began, the last one of each turn.
    started: HashMap<&'a str, (u64, u64)>,
}

pub(super) fn check(history: &History) -> Vec<Anomaly> {
    let mut sessions: HashMap<&str, Seen<'_>> = HashMap::new();
    let mut found = Vec::new();
    for write in &history.writes {
        let seen = sessions.entry(&write.session).or_default();
        found.extend(
            seen.take(write)
                .map(|overlap| Anomaly::Overlapping { session: write.session.clone(), overlap }),
        );
    }
    found
}

impl<'a> Seen<'a> {
    fn take(&mut self, write: &'a OwnersWrite) -> Option<Overlap> {
        let fence = write.fence;
        if fence < self.fence {
            return Some(Overlap::FenceGoesBack { after: self.fence, fence });
        }
        if fence == self.fence && self.owner != write.owner {
            let owners = [self.owner.to_owned(), write.owner.clone()];
            return Some(Overlap::FenceShared { fence, owners });
        }
        (self.fence, self.owner) = (fence, &write.owner);
        match &write.what {
            Written::Session => None,
            Written::Started { turn_id, attempt } => {
                let before = self.started.insert(turn_id, (*attempt, fence));
                let again = before.is_some_and(|(before, _)| before >= *attempt);
                again.then(|| Overlap::StartedAgain { turn_id: turn_id.clone(), attempt: *attempt })
            }
            Written::Answered { turn_id } => {
                // One that was over before it was written down never began.
                let (_, ran) = *self.started.get(turn_id.as_str())?;
                let turn_id = turn_id.clone();
                (ran != fence).then_some(Overlap::AnsweredByAnother { turn_id, ran, wrote: fence })
            }
        }
    }
}
