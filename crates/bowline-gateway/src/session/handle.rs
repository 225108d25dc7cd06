//! What everyone but the actor holds of a session.
//!
//! A command is sent to the session's actor wherever that is, and sent again if the actor ends before
//! it replies: senders mint ids, so a command that was carried out is recognised.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{
    Attach, Attached, Command, Fact, NewSession, Outcome, PlannedCall, Refusal, Reply, Submit,
};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::driver::{Envelope, ReplyAndText, TaskReport};
use super::registry::{ActorRef, Live, LiveSessions};
use super::text::TextBuffer;

/// How long a command is sent again and again before its sender is told that nobody takes it.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

/// For how much longer a command is sent again.
struct Patience {
    sent: Instant,
    until: Instant,
}

impl Patience {
    fn new() -> Self {
        let sent = Instant::now();
        Self { sent, until: sent + PATIENCE }
    }

    /// The command got no reply: waits before it is sent again, or gives up.
    async fn pause(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        // An owner that kept it for so long was one: the search for the next begins now.
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

/// The way to one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    sessions: Arc<LiveSessions>,
    id: SessionId,
}

/// A turn that was taken on.
pub(crate) enum Accepted {
    /// It runs, or waits for its turn. Its text comes in here.
    Running { turn: TurnId, text: Arc<TextBuffer>, outcome: Outcomes },
    /// It has ended.
    Ended { outcome: Box<Outcome> },
    /// The session is suspended and nobody said to resume it (SBP-L2-15).
    Suspended,
}

/// How a turn will have ended.
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

/// Tells the actor what has happened at an attached surface. Never waits, keeps the order, and is
/// written for as long as it takes.
#[derive(Debug)]
pub(crate) struct Reporter {
    epoch: u64,
    actor: ActorRef,
}

impl Reporter {
    /// The device has answered a call.
    pub(crate) fn answered(&self, call: Uuid, result: Result<Value, String>) {
        self.tell(Fact::ToolResult { epoch: self.epoch, call, result });
    }

    /// The surface is gone.
    pub(crate) fn gone(&self) {
        self.tell(Fact::SurfaceGone { epoch: self.epoch });
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

    /// Asks for something, and waits for the reply.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, Failure> {
        Ok(self.ask(command).await?.reply)
    }

    /// The same for what is done or refused.
    pub(crate) async fn done(&self, command: Command) -> Result<(), Failure> {
        match self.call(command).await? {
            Reply::Refused(refusal) => Err(refused(refusal)),
            _ => Ok(()),
        }
    }

    /// Asks for a turn.
    pub(crate) async fn submit(&self, submit: Submit) -> Result<Accepted, Failure> {
        let mut patience = Patience::new();
        loop {
            let actor = self.actor()?.await;
            match self.submit_by(actor, submit.clone()).await? {
                Some(accepted) => return Ok(accepted),
                None => patience.pause().await?,
            }
        }
    }

    /// Whether a turn may be sent again whose actor took it and ended without a word. It may have run:
    /// only under a key that is noticed.
    fn may_repeat(submit: &Submit) -> bool {
        submit.key.is_some()
    }

    /// Sends a turn once, and right behind it the question how it ends: whatever becomes of the turn,
    /// and however soon, somebody is there to be told. None if the actor ended before it replied.
    async fn submit_by(
        &self,
        actor: ActorRef,
        submit: Submit,
    ) -> Result<Option<Accepted>, Failure> {
        let (turn, wait, may_repeat) = (submit.turn, submit.wait, Self::may_repeat(&submit));
        let (reply, answered) = oneshot::channel();
        let command = Command::Submit(submit);
        if actor.commands.send(Box::new(Envelope { command, reply })).await.is_err() {
            return Ok(None);
        }
        let (reply, ended) = oneshot::channel();
        if !wait {
            let command = Command::Await { turn };
            let _ = actor.commands.send(Box::new(Envelope { command, reply })).await;
        }
        drop(actor);
        match answered.await {
            Ok(answer) => self.accepted(answer, Some((turn, ended))).map(Some),
            Err(_) if may_repeat => Ok(None),
            Err(_) => Err(lost()),
        }
    }

    /// Asks for the first turn of a session that is made by it.
    pub(crate) async fn make(
        sessions: &Arc<LiveSessions>,
        new: NewSession,
        submit: Submit,
    ) -> Result<Option<Accepted>, Failure> {
        if sessions.stop.is_cancelled() {
            return Err(refused(Refusal::Stopping));
        }
        let handle = sessions.handle(new.id);
        // Its actor is dropped without a word if another one took its key.
        handle.submit_by(sessions.make(new), submit).await
    }

    /// A turn that was accepted before. None if nobody here knows it any more.
    pub(crate) async fn join(&self, turn: TurnId) -> Result<Option<Accepted>, Failure> {
        match self.ask(Command::Join { turn }).await? {
            ReplyAndText {
                reply: Reply::Refused(Refusal::TurnUnknown | Refusal::NoSession),
                ..
            } => Ok(None),
            answer => self.accepted(answer, None).map(Some),
        }
    }

    /// How a turn ends.
    pub(crate) async fn outcome(&self, turn: TurnId) -> Outcome {
        ended_as(self.call(Command::Await { turn }).await?)
    }

    /// Attaches a surface. It watches before it is attached: nothing can happen in between.
    pub(crate) async fn attach(&self, attach: Attach) -> Result<Attachment, Failure> {
        let mut patience = Patience::new();
        loop {
            let actor = self.actor()?.await;
            let live = actor.live.subscribe();
            let (reply, answered) = oneshot::channel();
            let command = Command::Attach(attach.clone());
            // What could not be sent is dropped here: it holds the other end of the reply.
            let sent = actor.commands.send(Box::new(Envelope { command, reply })).await.is_ok();
            match (sent, answered.await) {
                (true, Ok(ReplyAndText { reply: Reply::Attached(attached), .. })) => {
                    return Ok(Attachment { attached: *attached, live, actor });
                }
                (true, Ok(ReplyAndText { reply: Reply::Refused(refusal), .. })) => {
                    return Err(refused(refusal));
                }
                _ => patience.pause().await?,
            }
        }
    }

    /// Has an attached device do something for someone who takes no turn, for as long as that one
    /// waits.
    pub(crate) async fn call_device(
        &self,
        call: PlannedCall,
        gone: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        let id: Uuid = call.id;
        let asked = self.once(Command::CallDevice { call: Box::new(call) });
        tokio::pin!(asked);
        let answer = tokio::select! {
            answer = &mut asked => answer,
            () = gone => {
                let _ = self.call(Command::GiveUpCall { call: id }).await;
                return Err("nobody waits for the answer any more".into());
            }
        };
        match answer {
            Ok(Some(ReplyAndText { reply: Reply::Called(result), .. })) => result,
            Ok(Some(ReplyAndText { reply: Reply::Refused(refusal), .. })) => {
                Err(refusal.to_string())
            }
            Ok(_) => Err("the call is lost: nobody knows what came of it".into()),
            Err(failure) => Err(failure.message),
        }
    }

    async fn ask(&self, command: Command) -> Result<ReplyAndText, Failure> {
        let mut patience = Patience::new();
        loop {
            match self.once(command.clone()).await? {
                Some(answer) => return Ok(answer),
                None => patience.pause().await?,
            }
        }
    }

    /// Sends a command once. None if its actor ended before it replied.
    async fn once(&self, command: Command) -> Result<Option<ReplyAndText>, Failure> {
        let actor = self.actor()?.await;
        let (reply, answered) = oneshot::channel();
        let sent = actor.commands.send(Box::new(Envelope { command, reply })).await;
        drop(actor);
        match sent {
            Ok(()) => Ok(answered.await.ok()),
            Err(_) => Ok(None),
        }
    }

    /// `asked`: the turn that was asked for, and who is told how it ends.
    fn accepted(
        &self,
        answer: ReplyAndText,
        asked: Option<(TurnId, oneshot::Receiver<ReplyAndText>)>,
    ) -> Result<Accepted, Failure> {
        match (answer.reply, answer.text) {
            (Reply::Accepted { turn }, Some(text)) => {
                let handle = self.clone();
                // The same request may have become another turn, some time ago.
                let asked = asked.filter(|(asked, _)| *asked == turn).map(|(_, ended)| ended);
                let outcome = Box::pin(async move {
                    match asked {
                        Some(ended) => match ended.await {
                            Ok(answer) => ended_as(answer.reply),
                            // Its actor is gone: the next one may know.
                            Err(_) => handle.outcome(turn).await,
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

    /// The way to the actor. Once the process stops, no new one is started.
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
        "the session changed hands before this was answered, and whether it was done is unknown; \
         try again with the same Idempotency-Key",
    );
    failure.retry_after = Some(1);
    failure
}

/// The one table from a session's refusals to the caller's words.
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
        Refusal::Revoked => Code::Forbidden,
        Refusal::TooManyDevices(_) => Code::InvalidRequest,
        Refusal::NoDevice => Code::NotFound,
        Refusal::Stopping | Refusal::NotStored => Code::NotNow,
        Refusal::Failed(failure) => return failure.clone(),
    };
    let retry_after = matches!(refusal, Refusal::Stopping).then_some(1);
    Failure { code, message: refusal.to_string(), retry_after }
}
