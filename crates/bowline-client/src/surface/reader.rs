//! Turns frames of the gateway into events for the program and answers to the gateway.
//!
//! Apart, because the gateway may repeat turns (SBP-L2-06) and the program must get each once.
//! Pure: the driver carries the steps out in order; one reader is used for all connections of a
//! surface.
//!
//! Invariants
//! - The program gets each turn once: as a `Turn`, or as chunks and a `Complete`.
//! - A turn is acknowledged after the program got it. A repeated turn is acknowledged again, or the
//!   gateway would send it for ever.
//! - The steps of a frame put events into the queue before they write to the socket: a failing
//!   socket loses no event.

use std::collections::VecDeque;
use std::time::Duration;

use bowline_sbp::error::Close;
use bowline_sbp::frame::{ClientFrame, ServerFrame, SessionAttached, TurnComplete};
use bowline_sbp::id::{Seq, TurnId};

use super::calls::{Calls, Heard, ToolOutcome};
use super::ending::Ending;
use super::event::Event;
use super::partial::{Joined, Partial};

/// What the driver does for a frame.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Give it to the program.
    Give(Event),
    /// Send it to the gateway.
    Say(ClientFrame),
    /// The message with this `client_turn_id` was accepted or refused: do not resend it.
    Settle(String),
    /// Attached: messages may be sent from now on, the queued ones first.
    Open(Box<SessionAttached>),
}

/// What the program already got, over all connections of a surface.
#[derive(Debug, Default)]
pub(super) struct Reader {
    given: Given,
    /// The turn that is being received; stale once it is complete, and replaced by the next.
    partial: Option<Partial>,
    calls: Calls,
    was_attached: bool,
    complaint: Option<String>,
}

impl Reader {
    /// Handles the next frame; an error ends the connection.
    pub(super) fn read(&mut self, frame: ServerFrame) -> Result<Vec<Step>, Ending> {
        Ok(match frame {
            ServerFrame::SessionAttached(attached) => {
                let event = Event::Attached {
                    pending: attached.tether_turns_pending,
                    sbp_level: attached.sbp_level.clone(),
                    reconnected: std::mem::replace(&mut self.was_attached, true),
                };
                vec![Step::Give(event), Step::Open(Box::new(attached))]
            }
            ServerFrame::SessionNotFound { .. } => return Err(Ending::of(Close::NotFound)),
            ServerFrame::Forbidden { .. } => return Err(Ending::of(Close::Forbidden)),
            ServerFrame::ProtocolError { detail } => {
                self.complaint = Some(detail);
                vec![]
            }
            ServerFrame::TetherTurn(turn) => {
                let (seq, turn_id) = (turn.seq, turn.turn_id);
                let mut steps = Vec::with_capacity(2);
                if self.given.add(seq, turn_id) {
                    steps.push(Step::Give(Event::Turn(turn)));
                }
                steps.push(Step::Say(ClientFrame::Ack { seq }));
                steps
            }
            ServerFrame::TurnChunk { chunk_id, delta, seq, offset, .. } => {
                self.chunk(chunk_id, seq, offset, &delta)?
            }
            ServerFrame::TurnComplete(done) => self.complete(done)?,
            // The text so far is discarded; the new text begins at offset 0.
            ServerFrame::TurnRestarted { turn_id, .. } => {
                let partial = self.partial.take_if(|partial| partial.turn_id == turn_id);
                let shown = partial.filter(|_| !self.given.knows(turn_id));
                let void = Event::Chunk { turn_id, text: String::new(), restarted: true };
                shown.map(|_| Step::Give(void)).into_iter().collect()
            }
            ServerFrame::UserTurn { turn_id, content, surface_id, author, .. } => {
                vec![Step::Give(Event::Asked { turn_id, content, surface_id, author })]
            }
            ServerFrame::Surfaces { list, .. } => vec![Step::Give(Event::Surfaces(list))],
            ServerFrame::TurnAccepted { client_turn_id, turn_id, .. } => vec![
                Step::Settle(client_turn_id.clone()),
                Step::Give(Event::Accepted { client_turn_id, turn_id }),
            ],
            ServerFrame::TurnFailed { client_turn_id, turn_id, code, message, .. } => {
                let settle = client_turn_id.clone().map(Step::Settle);
                let event = Event::Failed { client_turn_id, turn_id, code, message };
                settle.into_iter().chain([Step::Give(event)]).collect()
            }
            ServerFrame::SessionHandedOff { new_session_id, to_agent_id, .. } => {
                let (session, agent) = (new_session_id.to_string(), to_agent_id.into());
                return Err(Ending::HandedOff { session, agent });
            }
            ServerFrame::SessionMoved(moved) => return Err(Ending::Moved(moved)),
            ServerFrame::Ping {} => vec![Step::Say(ClientFrame::Pong)],
            ServerFrame::ToolCall { call_id, tool_name: tool, tool_input: input, timeout_ms } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                match self.calls.hear(&call_id) {
                    Heard::New => {
                        vec![Step::Give(Event::ToolCall { call_id, tool, input, timeout })]
                    }
                    Heard::Known => vec![],
                    Heard::Done(answer) => vec![Step::Say(*answer)],
                }
            }
            ServerFrame::ApprovalRequest(approval) => {
                vec![Step::Give(Event::ApprovalAsked(approval))]
            }
            ServerFrame::ApprovalResolved { approval_id, state, .. } => {
                vec![Step::Give(Event::Resolved { approval_id, state })]
            }
            ServerFrame::Pong {} | ServerFrame::Unknown => vec![],
        })
    }

    /// Records the result of a tool call; returns the frame to send if connected.
    pub(super) fn answer(&mut self, call_id: &str, outcome: ToolOutcome) -> ClientFrame {
        self.calls.done(call_id, outcome)
    }

    /// Takes the last `PROTOCOL_ERROR` text of the gateway.
    pub(super) fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn chunk(
        &mut self,
        turn_id: TurnId,
        seq: Seq,
        offset: u64,
        delta: &str,
    ) -> Result<Vec<Step>, Ending> {
        if self.given.has(seq, turn_id) {
            return Ok(vec![]);
        }
        // Turns run one at a time (SBP-L2-18): a chunk of a new one means that the other has ended.
        self.partial.take_if(|partial| partial.turn_id != turn_id);
        let partial = self.partial.get_or_insert_with(|| Partial::new(turn_id));
        let joined = partial.join(offset, delta).map_err(|_| Ending::Skipped)?;
        Ok(shown(turn_id, joined).into_iter().collect())
    }

    fn complete(&mut self, done: TurnComplete) -> Result<Vec<Step>, Ending> {
        let (seq, turn_id) = (done.seq, done.turn_id);
        let ack = Step::Say(ClientFrame::Ack { seq });
        if self.given.has(seq, turn_id) {
            return Ok(vec![ack]);
        }
        // Even an empty turn has one chunk. Without any, text was lost: the turn is not
        // acknowledged, so the gateway sends it whole after the next attach.
        let partial = self.partial.take_if(|partial| partial.turn_id == turn_id);
        let last = partial.ok_or(Ending::Skipped)?.finish();
        self.given.add(seq, turn_id);
        let rest = [Step::Give(Event::Complete(done)), ack];
        Ok(shown(turn_id, last).into_iter().chain(rest).collect())
    }
}

fn shown(turn_id: TurnId, joined: Joined) -> Option<Step> {
    let (text, restarted) = match joined {
        Joined::Nothing => return None,
        Joined::More(text) => (text, false),
        Joined::Over(text) => (text, true),
    };
    Some(Step::Give(Event::Chunk { turn_id, text, restarted }))
}

/// The most turn ids kept. A gateway repeats only turns that were not acknowledged.
const REMEMBERED: usize = 1024;

/// The turns that the program got completely: recognised by id, and older ones by position.
/// Position alone would drop new turns of a gateway whose log was restored from a backup.
#[derive(Debug, Default)]
struct Given {
    recent: VecDeque<(Seq, TurnId)>,
    forgotten: Seq,
}

impl Given {
    fn has(&self, seq: Seq, turn_id: TurnId) -> bool {
        seq <= self.forgotten || self.knows(turn_id)
    }

    /// Whether the turn is one of the recent ones, for frames without a position.
    fn knows(&self, turn_id: TurnId) -> bool {
        self.recent.iter().rev().any(|(_, given)| *given == turn_id)
    }

    /// Whether the turn is new.
    fn add(&mut self, seq: Seq, turn_id: TurnId) -> bool {
        if self.has(seq, turn_id) {
            return false;
        }
        self.recent.push_back((seq, turn_id));
        if self.recent.len() > REMEMBERED
            && let Some((seq, _)) = self.recent.pop_front()
        {
            self.forgotten = seq;
        }
        true
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
