//! The handle of a session: how everything but its actor reaches it.
//!
//! A command is sent to the session's actor, and sent again if the actor ends before it replies.
//! Senders choose the ids, so a command that was carried out already is recognised.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{
    Attach, Attached, CALL_INTERRUPTED, Command, Fact, NewSession, Outcome, PlannedCall, Refusal,
    Reply, Submit,
};
use bowline_store::Forward;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::driver::{Envelope, ReplyAndText, TaskReport};
use super::held::HeldWait;
use super::live::Live;
use super::registry::{ActorRef, LiveSessions};
use super::text::TextBuffer;

/// How long a command is retried before its sender gets an error.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
/// So many entries at the end of the log show whether a turn of the last seconds has ended.
const LAST_ENTRIES: u32 = 500;

/// The deadline for retrying a command.
struct Patience {
    sent: Instant,
    until: Instant,
}

impl Patience {
    fn new() -> Self {
        let sent = Instant::now();
        Self { sent, until: sent + PATIENCE }
    }

    /// The command got no reply: waits before the next try, or gives up.
    async fn pause(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        // An actor that held the command for so long was the session's owner: finding the next
        // owner gets the full time.
        if now > self.sent + PATIENCE {
            self.until = now + PATIENCE;
        }
        if now > self.until {
            return Err(lost());
        }
        tokio::time::sleep(PAUSE).await;
        self.sent = Instant::now();
        Ok(())
    }
}

/// Sends commands to one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    sessions: Arc<LiveSessions>,
    id: SessionId,
}

/// A turn that was accepted, or the reason why it does not run.
pub(crate) enum Accepted {
    /// It runs or is queued. Its text appears in `text`.
    Running { turn: TurnId, text: Arc<TextBuffer>, outcome: Outcomes },
    /// It has ended.
    Ended { outcome: Box<Outcome> },
    /// The session is suspended and the request does not resume it (SBP-L2-15).
    Suspended,
}

/// What became of a turn that was submitted once.
enum Submitted {
    As(Accepted),
    /// The actor ended before it took it, or it may be submitted again.
    Not,
    /// The actor ended before it replied, and nobody knows the turn now.
    Unknown,
    /// Another gateway takes the session over, and has it reserved until then.
    Held(Timestamp),
    /// The session goes on as that one.
    HandedOver(SessionId),
}

/// Resolves to how a turn ended.
pub(crate) type Outcomes = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// An attached surface's view of its session.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) attached: Attached,
    pub(crate) live: watch::Receiver<Live>,
    actor: ActorRef,
}

impl Attachment {
    pub(crate) fn reporter(&self) -> Reporter {
        Reporter { epoch: self.attached.epoch, actor: self.actor.clone() }
    }
}

/// Reports events at an attached surface to the actor. Never waits, keeps the order; the actor
/// retries the commit until it succeeds.
#[derive(Debug)]
pub(crate) struct Reporter {
    epoch: u64,
    actor: ActorRef,
}

impl Reporter {
    /// The device returned the result of a tool call.
    pub(crate) fn answered(&self, call: Uuid, result: Result<Value, String>) {
        self.tell(Fact::ToolResult { epoch: self.epoch, call, result });
    }

    /// The surface disconnected. `restarts`: because this gateway closed its socket, and it is expected at
    /// another one.
    pub(crate) fn gone(&self, restarts: bool) {
        self.tell(Fact::SurfaceGone { epoch: self.epoch, restarts });
    }

    fn tell(&self, fact: Fact) {
        let _ = self.actor.facts.send(TaskReport::fact(fact));
    }
}

impl SessionHandle {
    pub(super) fn new(sessions: Arc<LiveSessions>, id: SessionId) -> Self {
        Self { sessions, id }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// Whether this process is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.sessions.stop.is_cancelled()
    }

    /// Sends a command and waits for the reply; also for the end of a hold.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, Failure> {
        let mut wait = HeldWait::default();
        loop {
            match self.ask(command.clone()).await?.reply {
                Reply::Refused(Refusal::Held(until)) => wait.pause(&self.sessions, until).await?,
                reply => return Ok(reply),
            }
        }
    }

    /// The same for commands that are either done or refused.
    pub(crate) async fn done(&self, command: Command) -> Result<(), Failure> {
        match self.call(command).await? {
            Reply::Refused(refusal) => Err(refused(refusal)),
            _ => Ok(()),
        }
    }

    /// Submits a turn.
    pub(crate) async fn submit(&self, submit: Submit) -> Result<Accepted, Failure> {
        self.sessions.may_begin()?;
        let (mut patience, mut wait) = (Patience::new(), HeldWait::default());
        loop {
            let actor = self.actor()?.await;
            let is_unknown = match self.submit_by(actor, submit.clone()).await? {
                Submitted::As(accepted) => return Ok(accepted),
                Submitted::Not => false,
                Submitted::Unknown => true,
                Submitted::Held(until) => {
                    wait.pause(&self.sessions, until).await?;
                    patience = Patience::new();
                    continue;
                }
                Submitted::HandedOver(to) => return Err(self.handed_over(to).await),
            };
            // Only a key tells for sure how a turn has ended. Without one, a turn that the next owner does
            // not know, and that has left nothing in the log, is submitted again under its id: at most one
            // owner can commit it.
            if is_unknown && self.has_traces(submit.turn).await {
                return Err(lost());
            }
            patience.pause().await?;
        }
    }

    /// Whether the end of the log has something of that turn; also if that cannot be known.
    async fn has_traces(&self, turn: TurnId) -> bool {
        let store = &self.sessions.store;
        let Ok(Some(session)) = store.session(self.id).await else { return true };
        let end = store.entries_before(self.id, session.last_seq + 1, LAST_ENTRIES).await;
        end.map_or(true, |end| end.iter().any(|entry| entry.turn_id == turn))
    }

    /// Submits a turn once, with an `Await` command right behind it, so that the outcome is
    /// reported however soon the turn ends.
    async fn submit_by(&self, actor: ActorRef, submit: Submit) -> Result<Submitted, Failure> {
        let (turn, wait, has_key) = (submit.turn, submit.wait, submit.key.is_some());
        let (envelope, answered) = Envelope::new(Command::Submit(submit));
        if actor.commands.send(envelope).await.is_err() {
            return Ok(Submitted::Not);
        }
        let (envelope, ended) = Envelope::new(Command::Await { turn });
        if !wait {
            let _ = actor.commands.send(envelope).await;
        }
        drop(actor);
        match answered.await {
            Ok(answer) if self.owner_stops(&answer.reply) => Ok(Submitted::Not),
            Ok(ReplyAndText { reply: Reply::Refused(Refusal::Held(until)), .. }) => {
                Ok(Submitted::Held(until))
            }
            Ok(ReplyAndText { reply: Reply::Refused(Refusal::HandedOver(to)), .. }) => {
                Ok(Submitted::HandedOver(to))
            }
            Ok(answer) => self.accepted(answer, Some((turn, ended))).map(Submitted::As),
            // It may have run, but with a key a repeat is harmless.
            Err(_) if has_key => Ok(Submitted::Not),
            // The next owner knows it if it was accepted and has not ended.
            Err(_) => Ok(self.join(turn).await?.map_or(Submitted::Unknown, Submitted::As)),
        }
    }

    /// Submits the first turn of a new session, which creates the session.
    pub(crate) async fn make(
        sessions: &Arc<LiveSessions>,
        new: NewSession,
        submit: Submit,
    ) -> Result<Option<Accepted>, Failure> {
        if sessions.stop.is_cancelled() {
            return Err(refused(Refusal::Stopping));
        }
        sessions.may_begin()?;
        let handle = sessions.handle(new.id);
        match handle.submit_by(sessions.make(new), submit).await? {
            Submitted::As(accepted) => Ok(Some(accepted)),
            // Its actor ends without a reply if another request has used the idempotency key.
            Submitted::Not => Ok(None),
            // A session that its first turn creates is neither reserved nor handed over.
            Submitted::Unknown | Submitted::Held(_) | Submitted::HandedOver(_) => Err(lost()),
        }
    }

    /// Why a session takes no turns that goes on elsewhere; at another gateway, where that is.
    async fn handed_over(&self, to: SessionId) -> Failure {
        match self.sessions.store.forward(self.id).await {
            Ok(Some(Forward { peer, url, session })) => {
                let why = format!(
                    "the session has moved to the gateway {peer} at {} and goes on there as {session}",
                    url.as_str()
                );
                Failure::new(Code::SessionConflict, why)
            }
            Ok(None) | Err(_) => refused(Refusal::HandedOver(to)),
        }
    }

    /// Joins a turn that was accepted before. `None` if the session does not know it any more.
    pub(crate) async fn join(&self, turn: TurnId) -> Result<Option<Accepted>, Failure> {
        match self.ask(Command::Join { turn }).await? {
            ReplyAndText {
                reply: Reply::Refused(Refusal::TurnUnknown | Refusal::NoSession),
                ..
            } => Ok(None),
            answer => self.accepted(answer, None).map(Some),
        }
    }

    /// Waits for the outcome of a turn.
    pub(crate) async fn outcome(&self, turn: TurnId) -> Outcome {
        ended_as(self.call(Command::Await { turn }).await?)
    }

    /// Attaches a surface. It subscribes before it attaches, so that it misses no change in
    /// between.
    pub(crate) async fn attach(&self, attach: Attach) -> Result<Attachment, Failure> {
        let mut patience = Patience::new();
        loop {
            let actor = self.actor()?.await;
            let live = actor.live.subscribe();
            let (envelope, answered) = Envelope::new(Command::Attach(attach.clone()));
            // If the send fails, the envelope is dropped with its reply sender, so `answered` does
            // not hang.
            let sent = actor.commands.send(envelope).await.is_ok();
            match (sent, answered.await) {
                (true, Ok(ReplyAndText { reply: Reply::Attached(attached), .. })) => {
                    return Ok(Attachment { attached: *attached, live, actor });
                }
                (true, Ok(ReplyAndText { reply: Reply::Refused(refusal), .. }))
                    if refusal != Refusal::Stopping || self.sessions.stop.is_cancelled() =>
                {
                    return Err(refused(refusal));
                }
                _ => patience.pause().await?,
            }
        }
    }

    /// Calls a tool of an attached device outside a turn. The call is cancelled when `gone`
    /// resolves.
    pub(crate) async fn call_device(
        &self,
        call: PlannedCall,
        gone: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        let id: Uuid = call.id;
        let asked = self.call_until_answered(call);
        tokio::pin!(asked);
        tokio::select! {
            answer = &mut asked => answer,
            () = gone => {
                let _ = self.call(Command::GiveUpCall { call: id }).await;
                Err("cancelled: the caller disconnected".into())
            }
        }
    }

    /// Asks the next owner to go on with the call if one stops before the device has answered.
    async fn call_until_answered(&self, call: PlannedCall) -> Result<Value, String> {
        let (mut sent, mut patience) = (None, Patience::new());
        loop {
            let call = Box::new(call.clone());
            let command = match sent.clone() {
                None => Command::CallDevice { call },
                Some(sent) => Command::ResumeCall { call, sent },
            };
            let answer = self.once(command).await.map_err(|failure| failure.message)?;
            match answer.map(|answer| answer.reply) {
                Some(Reply::Called(result)) => return result,
                Some(Reply::CallLeftOpen(open)) if !self.is_stopping() => {
                    (sent, patience) = (Some(open), Patience::new());
                }
                Some(Reply::Refused(refusal)) if sent.is_none() => return Err(refusal.to_string()),
                // The device has the call, and is not called twice, whoever is asked.
                None | Some(Reply::Refused(Refusal::NotStored))
                    if sent.is_some() && !self.is_stopping() => {}
                _ => return Err(CALL_INTERRUPTED.into()),
            }
            patience.pause().await.map_err(|failure| failure.message)?;
        }
    }

    async fn ask(&self, command: Command) -> Result<ReplyAndText, Failure> {
        let mut patience = Patience::new();
        loop {
            match self.once(command.clone()).await? {
                Some(answer) if !self.owner_stops(&answer.reply) => return Ok(answer),
                _ => patience.pause().await?,
            }
        }
    }

    /// Whether the command was refused, with nothing done, because the session's owner stops, which
    /// is another replica: the next owner is asked.
    fn owner_stops(&self, reply: &Reply) -> bool {
        *reply == Reply::Refused(Refusal::Stopping) && !self.sessions.stop.is_cancelled()
    }

    /// Sends a command once. None if its actor ended before it replied.
    async fn once(&self, command: Command) -> Result<Option<ReplyAndText>, Failure> {
        let actor = self.actor()?.await;
        let (envelope, answered) = Envelope::new(command);
        let sent = actor.commands.send(envelope).await;
        drop(actor);
        match sent {
            Ok(()) => Ok(answered.await.ok()),
            Err(_) => Ok(None),
        }
    }

    /// `asked`: the submitted turn, and the receiver of its outcome.
    fn accepted(
        &self,
        answer: ReplyAndText,
        asked: Option<(TurnId, oneshot::Receiver<ReplyAndText>)>,
    ) -> Result<Accepted, Failure> {
        match (answer.reply, answer.text) {
            (Reply::Accepted { turn }, Some(text)) => {
                let handle = self.clone();
                // The same request may have been accepted as another turn before.
                let asked = asked.filter(|(asked, _)| *asked == turn).map(|(_, ended)| ended);
                let outcome = Box::pin(async move {
                    match asked {
                        Some(ended) => match ended.await {
                            Ok(answer) if !handle.owner_stops(&answer.reply) => {
                                ended_as(answer.reply)
                            }
                            // The actor ended or stops: asks the next one.
                            _ => handle.outcome(turn).await,
                        },
                        None => handle.outcome(turn).await,
                    }
                });
                Ok(Accepted::Running { turn, text, outcome })
            }
            (Reply::Ended { outcome, .. }, _) => Ok(Accepted::Ended { outcome }),
            (Reply::Suspended, _) => Ok(Accepted::Suspended),
            (Reply::Refused(refusal), _) => Err(refused(refusal)),
            _ => Err(lost()),
        }
    }

    /// The session's actor, started if needed. Once the process stops, none is started.
    fn actor(&self) -> Result<impl Future<Output = ActorRef>, Failure> {
        if self.sessions.stop.is_cancelled() && self.sessions.look_at(self.id).is_none() {
            return Err(refused(Refusal::Stopping));
        }
        Ok(self.sessions.actor(self.id))
    }
}

fn ended_as(reply: Reply) -> Outcome {
    match reply {
        Reply::Ended { outcome, .. } => *outcome,
        Reply::Refused(refusal) => Err(refused(refusal)),
        _ => Err(lost()),
    }
}

fn lost() -> Failure {
    let mut failure = Failure::new(
        Code::NotNow,
        "the session's owner changed before it replied, and whether this was done is unknown; \
         try again with the same Idempotency-Key",
    );
    failure.retry_after = Some(1);
    failure
}

/// The one table from a session's refusals to error codes.
pub(crate) fn refused(refusal: Refusal) -> Failure {
    let code = match &refusal {
        Refusal::NoSession => Code::SessionNotFound,
        Refusal::Ended(_)
        | Refusal::HandedOver(_)
        | Refusal::Full(_)
        | Refusal::Illegal(_)
        | Refusal::HandoffWaits => Code::SessionConflict,
        Refusal::KeyReused => Code::KeyReused,
        Refusal::TurnUnknown | Refusal::StoreFailed => Code::Internal,
        Refusal::TooManySurfaces(_) => Code::RateLimited,
        Refusal::Revoked | Refusal::SecondPerson | Refusal::OwnCall => Code::Forbidden,
        Refusal::TooManyDevices(_) => Code::InvalidRequest,
        Refusal::NoDevice => Code::NotFound,
        Refusal::Stopping | Refusal::Unreachable | Refusal::NotStored | Refusal::Held(_) => {
            Code::NotNow
        }
        Refusal::Failed(failure) => return failure.clone(),
    };
    let retry_after = matches!(refusal, Refusal::Stopping).then_some(1);
    Failure { retry_after, ..Failure::new(code, refusal.to_string()) }
}
