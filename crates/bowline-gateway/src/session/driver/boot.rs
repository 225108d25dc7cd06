//! Finds out what is behind a session's id: its actor, its owner, or nothing.

use bowline_sbp::context::SessionLog;
use bowline_sbp::session::{Actor, Effect, Loaded, Refusal, ReplicaId, Reply};

use super::{ActorStart, Driver, ReplyAndText, now};
use crate::session::history::History;

/// What was found behind the session's id.
pub(super) enum Booted {
    /// The session is this replica's, or nobody's.
    Actor(Box<Actor>),
    /// Another live replica owns it.
    OwnedBy(ReplicaId),
    /// There is no such session, or it cannot be read.
    Nothing,
}

impl Driver {
    pub(super) async fn boot(&mut self, boot: ActorStart) -> Booted {
        let (me, limits) = (self.identity.me, self.sessions.bounds.session);
        let loaded = match boot {
            ActorStart::Make(new) => {
                self.history.put(History::new(0, SessionLog::default()));
                return Booted::Actor(Box::new(Actor::make(*new, me, limits)));
            }
            ActorStart::Load => self.sessions.store.load(self.id).await,
        };
        match loaded {
            Ok(Some(Loaded { owner: Some(owner), .. })) if owner != me => Booted::OwnedBy(owner),
            Ok(Some(loaded)) => {
                if loaded.head.last_seq == 0 {
                    self.history.put(History::new(0, SessionLog::default()));
                }
                let actor = Actor::load(loaded, me, limits, now());
                let made = actor.machine().head().last_seq == 0;
                for turn in actor.machine().live().turns {
                    self.note_accepted(&actor, turn.id, made, true);
                }
                self.publish(&actor);
                Booted::Actor(Box::new(actor))
            }
            Ok(None) => {
                self.turn_away(Refusal::NoSession).await;
                Booted::Nothing
            }
            Err(error) => {
                tracing::error!(%error, "cannot load a session");
                self.turn_away(Refusal::NotStored).await;
                Booted::Nothing
            }
        }
    }

    /// Whether somebody else has written the session since this actor loaded it. Only while it holds
    /// no lease: then no commit tells, and what it says about turns may be old.
    pub(super) async fn is_outdated(&self, actor: &Actor, effects: &[Effect]) -> bool {
        let says = effects.iter().any(|effect| matches!(effect, Effect::Reply { .. }));
        if !says || actor.lease().is_some() || actor.is_making() {
            return false;
        }
        match self.sessions.store.load(self.id).await {
            Ok(Some(now)) => {
                let is_other = |owner| owner != self.identity.me;
                now.version != actor.version() || now.owner.is_some_and(is_other)
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// There is no session to drive: refuses the waiting commands, and lets no new ones in.
    async fn turn_away(&mut self, refusal: Refusal) {
        let closing = self.sessions.closing(self.id);
        self.inbox.close();
        while let Some(envelope) = self.inbox.recv().await {
            let reply = Reply::Refused(refusal.clone());
            let _ = envelope.reply.send(ReplyAndText { reply, text: None });
        }
        drop(closing);
    }
}
