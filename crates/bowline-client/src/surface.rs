//! A surface attached to one session: delivers events, sends messages, reconnects by itself.
//!
//! [`Surface`] is a handle; one background task owns the socket. The logic is in pure modules:
//! `reader` removes repeated turns, `partial` joins the chunks of a turn, `outbox` keeps messages
//! to be resent, `ending` decides whether to reconnect.
//!
//! Invariants
//! - The program gets each turn once, in order, however often the connection fails (SBP-L2-06).
//! - A turn is acknowledged only after it was put into the handle's queue.
//! - A message is resent until the gateway accepts or refuses it (G3).
//! - No secret in `Debug`, in an error or in a log line.

mod calls;
mod config;
mod driver;
mod ending;
mod event;
mod outbox;
mod partial;
mod place;
mod reader;
mod socket;

use std::time::Duration;

use bowline_net::backoff::Retry;
use bowline_sbp::SBP_VERSION;
use bowline_sbp::frame::{Attach, ClientFrame};
use bowline_sbp::id::ApprovalId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use calls::ToolOutcome;
pub use config::{ConfigError, SurfaceConfig};
pub use event::{CloseReason, Event};
pub use outbox::Refused;

use driver::{Driver, HandleCommand};
use place::{Place, Places};
use socket::Target;

/// Read timeout. The gateway pings every 30 s (SBP-L2-17).
const SILENCE: Duration = Duration::from_secs(60);
/// How long a detach waits for the gateway's close.
const DETACH_PATIENCE: Duration = Duration::from_secs(5);
/// The size of the event queue. While it is full, the socket is not read.
const EVENTS: usize = 256;
/// The size of the command queue; the task reads it at all times.
const COMMANDS: usize = 16;

/// A surface attached to one session, or reconnecting to it.
///
/// Dropping it detaches without waiting; events not read by then are lost, although the gateway
/// counts them as delivered. [`Surface::detach`] returns them.
#[derive(Debug)]
pub struct Surface {
    commands: mpsc::Sender<HandleCommand>,
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Surface {
    /// Starts to connect, and reconnects until [`Event::Closed`]. Call it inside a Tokio runtime.
    pub fn connect(config: SurfaceConfig) -> Result<Self, ConfigError> {
        let target = Target::new(&config)?;
        let attach = ClientFrame::Attach(Attach {
            session_id: config.session_id.to_string(),
            session_token: config.session_token,
            roaming_token: config.roaming_token,
            surface: config.surface,
            sbp_version: Some(SBP_VERSION.into()),
            join: config.join,
            take_over: config.take_over,
            explicit_ack: true,
            approves: config.approves,
        });
        let (commands, asked) = mpsc::channel(COMMANDS);
        let (given, events) = mpsc::channel(EVENTS);
        let places = Places::new(Place { target, attach });
        let retry = Retry::new(config.backoff);
        let driver = Driver::new(places, config.follow, retry, asked, given);
        Ok(Self { commands, events, task: tokio::spawn(driver.run()) })
    }

    /// The next event; `None` after [`Event::Closed`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Queues a message for the gateway, sent now or after the next attach. `client_turn_id` is its
    /// idempotency key: the result comes as [`Event::Accepted`] or [`Event::Failed`], and a message
    /// sent twice runs once. Without either event before the surface closes, it may or may not run.
    pub async fn send(
        &self,
        text: String,
        client_turn_id: String,
        model: Option<String>,
    ) -> Result<(), Refused> {
        let message = outbox::message(text, client_turn_id, model);
        self.ask(|reply| HandleCommand::Send(message, reply)).await
    }

    /// Cancels the running turn, if the surface is attached.
    pub async fn cancel(&self) -> Result<(), Refused> {
        self.ask(HandleCommand::Cancel).await
    }

    /// Answers an [`Event::ToolCall`]. While disconnected, the result is kept in case the gateway
    /// sends the call again.
    pub async fn answer(&self, call_id: String, outcome: ToolOutcome) -> Result<(), Refused> {
        let answer = HandleCommand::Answer(call_id, outcome);
        self.commands.send(answer).await.map_err(|_| Refused::Closed)
    }

    /// Approves or denies a tool call, if the surface is attached. The first decision counts. `always`:
    /// also allow later calls of the tool by the same device in this session.
    pub async fn decide(
        &self,
        approval: ApprovalId,
        approved: bool,
        always: bool,
    ) -> Result<(), Refused> {
        self.ask(|reply| HandleCommand::Decide { approval, approved, always, reply }).await
    }

    /// Detaches and waits for the gateway's close, at most 5 s. Returns the events that were not
    /// read yet, whose turns the gateway counts as delivered; the last is [`Event::Closed`], unless
    /// the wait timed out.
    pub async fn detach(mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        let leaving = async {
            // If the task has ended, there is nothing to detach from.
            let _ = self.commands.send(HandleCommand::Detach).await;
            while let Some(event) = self.events.recv().await {
                rest.push(event);
            }
        };
        if timeout(DETACH_PATIENCE, leaving).await.is_err() {
            self.task.abort();
        }
        rest
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), Refused>>) -> HandleCommand,
    ) -> Result<(), Refused> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| Refused::Closed)?;
        answer.await.unwrap_or(Err(Refused::Closed))
    }
}
