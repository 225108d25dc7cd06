//! The surface's task: owns the socket, the clock and the random numbers; drives the pure parts.
//!
//! One task per surface. All steps of a frame are done before the next frame is read, so the pong
//! of a barrier is sent only when every turn before it is in the event queue (SBP-L2-06). Commands
//! are handled at all times, also while the event queue is full or the socket is disconnected: a
//! program that sends and reads in the same task cannot deadlock.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;

use bowline_net::backoff::Retry;
use bowline_sbp::error::{Close, Code};
use bowline_sbp::frame::{AcceptedMessage, ClientFrame, SessionMoved, UserMessage};
use bowline_sbp::id::ApprovalId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::SILENCE;
use super::calls::ToolOutcome;
use super::ending::{Ending, Verdict};
use super::event::{CloseReason, Event};
use super::outbox::{Outbox, Refused};
use super::place::Places;
use super::reader::{Reader, Step};
use super::socket::{OpenSocket, Socket};

/// A command of the handle. A dropped reply channel means that the surface is closed.
pub(super) enum HandleCommand {
    Send(UserMessage, oneshot::Sender<Result<(), Refused>>),
    Cancel(oneshot::Sender<Result<(), Refused>>),
    /// The result of a tool call.
    Answer(String, ToolOutcome),
    Decide {
        approval: ApprovalId,
        approved: bool,
        always: bool,
        reply: oneshot::Sender<Result<(), Refused>>,
    },
    Detach,
}

/// The surface's task.
pub(super) struct Driver {
    places: Places,
    /// Whether it follows its session to another gateway.
    follows: bool,
    commands: mpsc::Receiver<HandleCommand>,
    events: mpsc::Sender<Event>,
    reader: Reader,
    outbox: Outbox,
    retry: Retry,
    /// Attached: messages may be sent on the current socket.
    open: bool,
    /// `DETACH` was sent; the handle reads the last events and sends no more commands.
    leaving: bool,
}

impl Driver {
    pub(super) fn new(
        places: Places,
        follows: bool,
        retry: Retry,
        commands: mpsc::Receiver<HandleCommand>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (reader, outbox) = (Reader::default(), Outbox::default());
        let (open, leaving) = (false, false);
        Self { places, follows, commands, events, reader, outbox, retry, open, leaving }
    }

    pub(super) async fn run(mut self) {
        let Err(reason) = self.stay_attached().await;
        let events = self.events.clone();
        // Commands are refused from here on: the program may send one before it reads the event.
        drop(self);
        let _ = events.send(Event::Closed(reason)).await;
    }

    async fn stay_attached(&mut self) -> Result<Infallible, CloseReason> {
        loop {
            self.open = false;
            let ending = match self.away(self.places.here().target.clone().open()).await? {
                Ok(OpenSocket::Net(socket)) => self.talk(*socket).await,
                Ok(OpenSocket::File(socket)) => self.talk(*socket).await,
                Err(ending) => ending,
            };
            if self.leaving {
                return Err(CloseReason::Detached);
            }
            match ending {
                Ending::Moved(moved) => self.follow(*moved).await?,
                ending => self.wait_after(ending).await?,
            }
        }
    }

    async fn talk<S>(&mut self, mut socket: Socket<S>) -> Ending
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Err(ending) = self.converse(&mut socket).await;
        socket.part().await;
        ending
    }

    /// The session goes on at another gateway: what was accepted went along, and the rest is sent there.
    async fn follow(&mut self, moved: SessionMoved) -> Result<(), CloseReason> {
        for AcceptedMessage { client_turn_id, turn_id } in &moved.accepted {
            if self.outbox.settle(client_turn_id) {
                let (client_turn_id, turn_id) = (client_turn_id.clone(), *turn_id);
                self.give_away(Event::Accepted { client_turn_id, turn_id }).await?;
            }
        }
        let SessionMoved { new_session_id: session, gateway_id, url, .. } = &moved;
        let (gateway, url) = (gateway_id.clone(), url.clone());
        if !self.follows || !self.places.follow(&moved) {
            return Err(CloseReason::Moved { session: session.to_string(), gateway, url });
        }
        tracing::debug!(gateway, url, "surface follows its session");
        self.give_away(Event::Moved { session: *session, gateway, url }).await
    }

    async fn wait_after(&mut self, ending: Ending) -> Result<(), CloseReason> {
        let why = match ending.verdict(self.reader.complaint()) {
            // Perhaps it came too late, and the gateway that has sent it here sends it again.
            Verdict::Final(CloseReason::Forbidden) if self.places.go_back() => {
                "the gateway to which the session moved does not let it in yet".into()
            }
            Verdict::Final(reason) => return Err(reason),
            Verdict::Retry { why } => why,
        };
        if ending == Ending::of(Close::TooBig)
            && let Some(message) = self.outbox.give_up_longest()
        {
            self.give_away(Event::Failed {
                client_turn_id: Some(message.client_turn_id),
                turn_id: None,
                code: Code::TooLarge.as_str().into(),
                message: "the message is larger than the gateway accepts".into(),
            })
            .await?;
        }
        if self.open && !ending.may_recur() {
            self.retry.reset();
        }
        let retry_in = self.retry.wait(dice());
        tracing::debug!(why, ?retry_in, "surface disconnected");
        self.give_away(Event::Lost { why, retry_in }).await?;
        self.away(sleep(retry_in)).await
    }

    /// One connection, from `ATTACH_SESSION` to its end.
    async fn converse<S>(&mut self, socket: &mut Socket<S>) -> Result<Infallible, Ending>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        socket.say(&self.places.here().attach).await?;
        let mut steps = VecDeque::new();
        loop {
            match steps.pop_front() {
                Some(Step::Give(event)) => self.give(event, socket).await?,
                Some(Step::Say(frame)) => socket.say(&frame).await?,
                Some(Step::Settle(client_turn_id)) => {
                    self.outbox.settle(&client_turn_id);
                    self.send_on(socket).await?;
                }
                Some(Step::Open(attached)) => {
                    if self.places.attached(&attached) {
                        let session = attached.session_id;
                        self.give(Event::Arrived { session }, socket).await?;
                    }
                    self.open = true;
                    self.outbox.reconnected();
                    self.send_on(socket).await?;
                }
                None => steps.extend(self.listen(socket).await?),
            }
        }
    }

    /// Sends the messages of the outbox that may be in flight now.
    async fn send_on<S>(&mut self, socket: &mut Socket<S>) -> Result<(), Ending>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while self.open
            && let Some(message) = self.outbox.next()
        {
            socket.say(&ClientFrame::UserMessage(message)).await?;
        }
        Ok(())
    }

    async fn listen<S>(&mut self, socket: &mut Socket<S>) -> Result<Vec<Step>, Ending>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let silent_at = Instant::now() + SILENCE;
        loop {
            tokio::select! {
                heard = socket.hear() => {
                    return heard?.map_or(Ok(vec![]), |frame| self.reader.read(frame));
                }
                command = self.commands.recv(), if !self.leaving => {
                    self.obey(command, socket).await?;
                }
                () = sleep_until(silent_at) => return Err(Ending::Silent),
            }
        }
    }

    /// Puts an event into the queue; waits while it is full.
    async fn give<S>(&mut self, event: Event, socket: &mut Socket<S>) -> Result<(), Ending>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let events = self.events.clone();
        loop {
            tokio::select! {
                room = events.reserve() => match room {
                    Ok(room) => {
                        room.send(event);
                        return Ok(());
                    }
                    Err(_) => return self.obey(None, socket).await,
                },
                command = self.commands.recv(), if !self.leaving => {
                    self.obey(command, socket).await?;
                }
            }
        }
    }

    async fn obey<S>(
        &mut self,
        command: Option<HandleCommand>,
        socket: &mut Socket<S>,
    ) -> Result<(), Ending>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match command {
            Some(HandleCommand::Send(message, reply)) => {
                let _ = reply.send(self.outbox.push(message));
                self.send_on(socket).await?;
            }
            Some(HandleCommand::Cancel(reply)) if self.open => {
                let said = socket.say(&ClientFrame::Cancel).await;
                let _ = reply.send(said.as_ref().map_or(Err(Refused::NotAttached), |()| Ok(())));
                said?;
            }
            // A cancel is not queued: sent later, it could cancel another turn.
            Some(HandleCommand::Cancel(reply)) => {
                let _ = reply.send(Err(Refused::NotAttached));
            }
            Some(HandleCommand::Answer(call_id, outcome)) => {
                let answer = self.reader.answer(&call_id, outcome);
                if self.open {
                    socket.say(&answer).await?;
                }
            }
            Some(HandleCommand::Decide { approval, approved, always, reply }) if self.open => {
                let frame = ClientFrame::Decide { approval_id: approval, approved, always };
                let said = socket.say(&frame).await;
                let _ = reply.send(said.as_ref().map_or(Err(Refused::NotAttached), |()| Ok(())));
                said?;
            }
            Some(HandleCommand::Decide { reply, .. }) => {
                let _ = reply.send(Err(Refused::NotAttached));
            }
            Some(HandleCommand::Detach) => {
                self.leaving = true;
                socket.say(&ClientFrame::Detach).await?;
            }
            // The handle was dropped: no one reads further events.
            None => {
                socket.say(&ClientFrame::Detach).await?;
                return Err(Ending::Detached);
            }
        }
        Ok(())
    }

    /// Handles commands while `work` runs without a socket.
    async fn away<T>(&mut self, work: impl Future<Output = T>) -> Result<T, CloseReason> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                command = self.commands.recv() => match command {
                    Some(HandleCommand::Send(message, reply)) => {
                        let _ = reply.send(self.outbox.push(message));
                    }
                    Some(HandleCommand::Cancel(reply) | HandleCommand::Decide { reply, .. }) => {
                        let _ = reply.send(Err(Refused::NotAttached));
                    }
                    // The gateway sends the call again if it still needs the result.
                    Some(HandleCommand::Answer(call_id, outcome)) => {
                        self.reader.answer(&call_id, outcome);
                    }
                    Some(HandleCommand::Detach) | None => return Err(CloseReason::Detached),
                },
            }
        }
    }

    async fn give_away(&mut self, event: Event) -> Result<(), CloseReason> {
        let events = self.events.clone();
        // Fails if the handle was dropped; the closed command queue ends the task then.
        let _ = self.away(async move { events.send(event).await }).await?;
        Ok(())
    }
}

/// Jitter. Without entropy the middle of the range is used, so that the retry still happens.
fn dice() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
mod tests;
