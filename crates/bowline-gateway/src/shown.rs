//! Which questions a surface has been shown (`APPROVAL_REQUEST`, ours).
//!
//! A question may be answered from anywhere, so a surface that shows one has to be told when it is
//! no question any more. Nothing is queued: what is asked now is compared with what was shown.

use std::sync::Arc;

use bowline_sbp::approval::{Approval, State};
use bowline_sbp::frame::ServerFrame;
use bowline_sbp::id::ApprovalId;

/// Questions on the surface's screen.
#[derive(Debug, Default)]
pub(crate) struct Shown(Vec<ApprovalId>);

impl Shown {
    /// What the surface has to be told.
    pub(crate) fn update(&mut self, asked: &[Arc<Approval>]) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        for approval in asked {
            let id = approval.approval_id;
            let shown = self.0.iter().position(|shown| *shown == id);
            match (approval.state, shown) {
                (State::Pending, None) => {
                    self.0.push(id);
                    frames.push(ServerFrame::ApprovalRequest(Approval::clone(approval)));
                }
                (state, Some(at)) if state != State::Pending => {
                    self.0.swap_remove(at);
                    let session_id = approval.session_id;
                    frames.push(ServerFrame::ApprovalResolved {
                        approval_id: id,
                        session_id,
                        state,
                    });
                }
                _ => {}
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::id::{SessionId, TurnId};
    use jiff::Timestamp;
    use serde_json::Value;
    use uuid::Uuid;

    fn approval(n: u128, state: State) -> Arc<Approval> {
        Arc::new(Approval {
            approval_id: ApprovalId(Uuid::from_u128(n)),
            session_id: SessionId(Uuid::nil()),
            turn_id: TurnId(Uuid::nil()),
            tool_name: "camera".into(),
            tool_input: Value::Null,
            state,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn a_question_is_shown_once_and_taken_back_once() {
        let mut shown = Shown::default();
        let asked = [approval(1, State::Pending), approval(2, State::Denied)];
        assert!(matches!(shown.update(&asked)[..], [ServerFrame::ApprovalRequest(_)]));
        assert!(shown.update(&asked).is_empty());
        let answered = [approval(1, State::Used)];
        assert!(matches!(
            shown.update(&answered)[..],
            [ServerFrame::ApprovalResolved { state: State::Used, .. }]
        ));
        assert!(shown.update(&answered).is_empty());
    }
}
