//! User messages of a surface that the session has not accepted yet (SBP-L2-18).
//!
//! Each is sent to the session actor after the reply to the one before it, so turns are accepted in
//! the order of their frames, even if the session moves to another owner meanwhile. The queue is
//! bounded; a message is refused only if the queue is full.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bowline_sbp::budget::Spender;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::frame::{ServerFrame, UserMessage};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::media::take_out;
use bowline_sbp::message::Message;
use bowline_sbp::session::{
    Author, Command, IdempotencyKey, LiveState, Refusal, Reply, Submit, TurnRequest,
};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::auth::sha256;
use crate::config::ApprovalsMode;
use crate::http::App;
use crate::session::{SessionHandle, refused};

/// The most messages in the queue, and the most bytes.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;

pub(super) struct Inputs {
    handle: SessionHandle,
    epoch: u64,
    /// The surface is of the session's user.
    author: Option<Author>,
    /// Whose budgets count for what it says.
    spender: Spender,
    parked: VecDeque<UserMessage>,
    bytes: usize,
    flight: Option<Flight>,
    /// The session refused a message because its turn queue is full.
    full: bool,
    /// The first turn and the number of turns of the session when it was last seen full.
    full_at: Option<(Option<TurnId>, usize)>,
}

/// A message that was sent to the session actor and has no reply yet.
struct Flight {
    message: UserMessage,
    /// The surface sent a cancel meanwhile.
    cancelled: bool,
    reply: Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>,
}

/// The result of one message.
pub(super) struct Answered {
    /// The frame to send to the surface, if any.
    pub(super) frame: Option<ServerFrame>,
    /// The turn that it became.
    pub(super) turn: Option<TurnId>,
    /// The surface sent a cancel before the message was accepted.
    pub(super) cancelled: bool,
    /// The session goes on elsewhere, and the message is not accepted here.
    pub(super) handed_over: bool,
}

impl Answered {
    fn nothing() -> Self {
        Self { frame: None, turn: None, cancelled: false, handed_over: false }
    }
}

impl Inputs {
    pub(super) fn new(
        handle: SessionHandle,
        epoch: u64,
        author: Option<Author>,
        spender: Spender,
    ) -> Self {
        Self {
            handle,
            epoch,
            author,
            spender,
            parked: VecDeque::new(),
            bytes: 0,
            flight: None,
            full: false,
            full_at: None,
        }
    }

    /// Queues a message, or returns the frame that refuses it.
    pub(super) fn push(&mut self, message: UserMessage) -> Result<(), Box<ServerFrame>> {
        let bytes = size(&message);
        if self.parked.len() >= MOST || self.bytes + bytes > MOST_BYTES {
            let why = "too many messages wait; send it again when some were answered";
            return Err(Box::new(self.failed(message, Code::RateLimited, why.into())));
        }
        self.bytes += bytes;
        self.parked.push_back(message);
        Ok(())
    }

    /// Sends the next message to the session actor, if none is in flight.
    pub(super) fn start(&mut self, app: &App) {
        if self.flight.is_some() || self.full {
            return;
        }
        let Some(message) = self.parked.pop_front() else { return };
        self.bytes -= size(&message);
        if let Err(failure) = app.engine.models.route(model(app, &message)) {
            let reply = Box::pin(std::future::ready(Err(failure)));
            self.flight = Some(Flight { message, cancelled: false, reply });
            return;
        }
        let submit = self.submit(app, &message);
        let handle = self.handle.clone();
        let (engine, spender) = (Arc::clone(&app.engine), self.spender.clone());
        let reply = Box::pin(async move {
            engine.count_message(&spender).await?;
            engine.check_turn(&spender, submit.key.as_ref()).await?;
            let reply = handle.call(Command::Submit(submit)).await;
            match reply {
                // Nothing is answered: the socket closes with 1012, and the client sends the message again.
                Err(failure) if failure.code == Code::NotNow && handle.is_stopping() => {
                    std::future::pending().await
                }
                reply => reply,
            }
        });
        self.flight = Some(Flight { message, cancelled: false, reply });
    }

    /// The next message that has a reply; never if none is in flight. Cancel-safe.
    pub(super) async fn next(&mut self) -> Answered {
        let Some(flight) = &mut self.flight else { return std::future::pending().await };
        let reply = (&mut flight.reply).await;
        let Some(Flight { message, cancelled, .. }) = self.flight.take() else {
            return Answered::nothing();
        };
        let session_id = self.handle.id();
        let failure = match reply {
            Ok(Reply::Accepted { turn } | Reply::Ended { turn, .. }) => {
                let client_turn_id = message.client_turn_id;
                let frame = ServerFrame::TurnAccepted { client_turn_id, turn_id: turn, session_id };
                return Answered {
                    frame: Some(frame),
                    turn: Some(turn),
                    cancelled,
                    handed_over: false,
                };
            }
            // Back to the front of the queue, to keep the order.
            Ok(Reply::Refused(Refusal::Full(_))) if !cancelled => {
                self.full = true;
                self.bytes += size(&message);
                self.parked.push_front(message);
                return Answered::nothing();
            }
            Ok(Reply::Refused(refusal)) => {
                let handed_over = matches!(refusal, Refusal::HandedOver(_));
                let failure = refused(refusal);
                let frame = self.failed(message, failure.code, failure.message);
                return Answered { frame: Some(frame), turn: None, cancelled, handed_over };
            }
            Ok(_) => Failure::new(Code::Internal, "the message was not accepted"),
            Err(failure) => failure,
        };
        let frame = self.failed(message, failure.code, failure.message);
        Answered { frame: Some(frame), turn: None, cancelled, handed_over: false }
    }

    /// Whether the session may accept messages again: a turn has ended since it was full.
    pub(super) fn resume(&mut self, state: &LiveState) -> bool {
        if !self.full {
            return false;
        }
        let now = (state.turns.first().map(|turn| turn.id), state.turns.len());
        let moved = |(front, turns)| now.0 != front || now.1 < turns;
        let resumes = now.1 == 0 || self.full_at.is_some_and(moved);
        self.full_at = Some(now).filter(|_| !resumes);
        self.full = !resumes;
        resumes
    }

    /// The surface sent a cancel: drops the queue, and returns a failure frame for each message.
    pub(super) fn discard(&mut self) -> Vec<ServerFrame> {
        if let Some(flight) = &mut self.flight {
            flight.cancelled = true;
        }
        self.full = false;
        self.bytes = 0;
        let parked = std::mem::take(&mut self.parked);
        let why = "cancelled before it was accepted";
        let failed = |message| self.failed(message, Code::SessionConflict, why.into());
        parked.into_iter().map(failed).collect()
    }

    fn failed(&self, message: UserMessage, code: Code, why: String) -> ServerFrame {
        ServerFrame::TurnFailed {
            client_turn_id: Some(message.client_turn_id),
            turn_id: None,
            session_id: self.handle.id(),
            code: code.as_str().into(),
            message: why,
        }
    }

    fn submit(&self, app: &App, message: &UserMessage) -> Submit {
        let session: SessionId = self.handle.id();
        let model = model(app, message).to_owned();
        let body = raw(&json!({ "role": "user", "content": message.content }));
        // The same `client_turn_id` with other content is refused as a reused key.
        let key = IdempotencyKey {
            scope: session.to_string(),
            key: message.client_turn_id.clone(),
            body_hash: sha256(body.get()),
        };
        let message = Message::read(body).expect("the message was just made with a role");
        let (message, blobs) = take_out(message);
        let mut request = TurnRequest::message(model, message);
        // What others say in a shared session does not read its user's memories.
        request.recall &= self.author.is_none();
        request.author.clone_from(&self.author);
        request.wait_for_approval = app.engine.tools.approvals == ApprovalsMode::Wait;
        request.spender = Some(self.spender.clone());
        Submit {
            turn: TurnId(Uuid::now_v7()),
            request: request.into(),
            key: Some(key),
            resume: true,
            sender: Some(self.epoch),
            wait: false,
            blobs,
        }
    }
}

fn model<'a>(app: &'a App, message: &'a UserMessage) -> &'a str {
    message.model.as_deref().unwrap_or(&app.default_model)
}

fn size(message: &UserMessage) -> usize {
    message.content.to_string().len() + message.client_turn_id.len()
}

fn raw(value: &serde_json::Value) -> Box<RawValue> {
    to_raw_value(value).expect("a JSON value always serialises")
}
