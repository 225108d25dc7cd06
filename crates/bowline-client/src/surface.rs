//! A surface attached to one session: events out, messages in, reconnecting by itself.
//!
//! [`Surface`] is a handle; one background task owns the socket. The task is thin: what is new to
//! the program is decided in `reader`, how a turn's text joins in `partial`, what is sent again
//! in `outbox`, what an end means in `ending`; all pure.
//!
//! Invariants
//! - Each turn comes whole once, in order, however often the connection breaks (SBP-L2-06).
//! - A turn is acknowledged only after it was put into the handle's queue.
//! - A message is sent until the gateway accepts or refuses it (G3).
//! - No secret in `Debug`, in an error, in a sentence or in a log line of ours.

mod calls;
mod config;
mod driver;
mod ending;
mod event;
mod outbox;
mod partial;
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
use socket::Target;

/// How long nothing may be heard. The gateway pings every 30 s (SBP-L2-17).
const SILENCE: Duration = Duration::from_secs(60);
/// How long a detach waits for the gateway's close.
const DETACH_PATIENCE: Duration = Duration::from_secs(5);
/// The most events that wait to be taken. When they do, the socket is not read.
const EVENTS: usize = 256;
/// The most commands on their way to the task, which takes them at all times.
const COMMANDS: usize = 16;

/// A surface attached to one session, or on its way back to it.
///
/// Dropping it detaches without waiting; events not taken by then are lost to the program though
/// the gateway knows them to be delivered. [`Surface::detach`] gives them back.
#[derive(Debug)]
pub struct Surface {
    commands: mpsc::Sender<HandleCommand>,
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Surface {
    /// Starts to connect, and goes on until [`Event::Closed`]. Call it inside a Tokio runtime.
    pub fn connect(config: SurfaceConfig) -> Result<Self, ConfigError> {
        let target = Target::new(&config)?;
        let attach = ClientFrame::Attach(Attach {
            session_id: config.session_id.to_string(),
            session_token: config.session_token,
            surface: config.surface,
            sbp_version: Some(SBP_VERSION.into()),
            join: config.join,
            take_over: config.take_over,
            explicit_ack: true,
        });
        let (commands, asked) = mpsc::channel(COMMANDS);
        let (given, events) = mpsc::channel(EVENTS);
        let driver = Driver::new(target, attach, Retry::new(config.backoff), asked, given);
        Ok(Self { commands, events, task: tokio::spawn(driver.run()) })
    }

    /// The next event; `None` after [`Event::Closed`]. Loses nothing when cancelled.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Takes a message for the gateway, now or after the next attach. `client_turn_id` names it:
    /// its fate comes as [`Event::Accepted`] or [`Event::Failed`], and sending the same name twice
    /// runs it once. Messages that have neither when the surface closes may or may not be run.
    pub async fn send(
        &self,
        text: String,
        client_turn_id: String,
        model: Option<String>,
    ) -> Result<(), Refused> {
        let message = outbox::message(text, client_turn_id, model);
        self.ask(|reply| HandleCommand::Send(message, reply)).await
    }

    /// Stops the running turn, if the surface is attached.
    pub async fn cancel(&self) -> Result<(), Refused> {
        self.ask(HandleCommand::Cancel).await
    }

    /// Answers an [`Event::ToolCall`]. If the gateway is away, it hears the answer should it ask again.
    pub async fn answer(&self, call_id: String, outcome: ToolOutcome) -> Result<(), Refused> {
        let answer = HandleCommand::Answer(call_id, outcome);
        self.commands.send(answer).await.map_err(|_| Refused::Closed)
    }

    /// Says whether a tool may be called, if the surface is attached. The first verdict counts.
    pub async fn decide(&self, approval: ApprovalId, approved: bool) -> Result<(), Refused> {
        self.ask(|reply| HandleCommand::Decide(approval, approved, reply)).await
    }

    /// Leaves the session and waits for the gateway's close, at most 5 s. Gives the events that
    /// were not taken yet, the turns among them being delivered as far as the gateway knows; the
    /// last is [`Event::Closed`], unless the time ran out.
    pub async fn detach(mut self) -> Vec<Event> {
        let mut rest = Vec::new();
        let leaving = async {
            // If the task is over, there is nothing to leave.
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
