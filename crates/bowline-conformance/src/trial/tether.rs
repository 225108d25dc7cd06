//! How turns get into the Tether of the server under test.
//!
//! Learned once in a run, with a session of its own, because honest servers differ: the protocol says that the
//! Tether becomes active when a surface leaves, and does not say whether it is before the first one came. A server
//! may also count the answer over HTTP as read; the protocol's public suite puts turns in by an address of its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::{As, PENDING, Session, Trial, desktop};
use crate::verdict::{Ended, Stop};
use crate::way::Way;

impl Trial {
    /// How turns get into the Tether here.
    pub(crate) async fn tether(&self) -> Result<Way, Stop> {
        self.wire.target.tether.get_or_try_init(|| learn(self)).await.copied()
    }

    /// Whether a turn has its reader as soon as it was answered over HTTP.
    pub(crate) async fn answers_count_as_read(&self) -> Result<bool, Stop> {
        Ok(matches!(self.tether().await?, Way::Hook | Way::Unknown))
    }

    /// Nothing live is seen where only the HTTP caller is shown its answer, as a server for the public suite may have
    /// it: the suite asks over HTTP.
    pub(crate) async fn shows_live(&self) -> Ended {
        if self.tether().await? != Way::Hook {
            return Ok(());
        }
        match self.wire.target.live.get_or_try_init(|| is_shown(self)).await? {
            true => Ok(()),
            false => Err(Stop::unable("what is asked over HTTP is not shown at surfaces here")),
        }
    }

    /// Takes turns in a session without a surface, and returns what was said: they are pending.
    pub(crate) async fn pending_turns(
        &self,
        session: &Session,
        count: usize,
    ) -> Result<Vec<String>, Stop> {
        if self.tether().await? == Way::AnsweredAfterDetach {
            leave(self, session).await?;
        }
        self.missed_turns(session, count).await
    }

    /// The same in a session that its surface has left.
    pub(crate) async fn missed_turns(
        &self,
        session: &Session,
        count: usize,
    ) -> Result<Vec<String>, Stop> {
        let texts: Vec<_> = (0..count).map(|n| format!("Answer {n}.")).collect();
        match self.tether().await? {
            Way::Answered | Way::AnsweredAfterDetach => self.answered(session, &texts).await,
            Way::Hook => match put(self, session, &texts).await? {
                true => Ok(texts),
                false => Err(Stop::unable(NO_WAY)),
            },
            Way::Unknown => Err(Stop::unable(NO_WAY)),
        }
    }

    /// Takes a turn over HTTP for each text, and returns what was answered.
    async fn answered(&self, session: &Session, texts: &[String]) -> Result<Vec<String>, Stop> {
        let mut answers = Vec::new();
        for text in texts {
            // With a model of the server's own, the answers may be equal; the indexes tell them apart.
            let prompt = self.saying(text).map_or_else(|_| text.clone(), |script| script.prompt());
            answers.push(self.say(session, &prompt).await?.text);
        }
        Ok(answers)
    }
}

async fn learn(t: &Trial) -> Result<Way, Stop> {
    let session = t.session().await?;
    for way in [Way::Answered, Way::AnsweredAfterDetach] {
        t.say(&session, "Hello.").await?;
        if waits(t, &session).await? {
            return Ok(way);
        }
    }
    let is_put = put(t, &session, &["Put there.".to_owned()]).await?;
    match is_put && waits(t, &session).await? {
        true => Ok(Way::Hook),
        false => Ok(Way::Unknown),
    }
}

/// Whether an attached surface is shown a turn that was asked over HTTP.
async fn is_shown(t: &Trial) -> Result<bool, Stop> {
    let session = t.session().await?;
    let mut socket = t.attach_desktop(&session).await?;
    t.say(&session, "Hello.").await?;
    while let Some(frame) = socket.next_within(MOMENT).await? {
        if matches!(frame.kind(), "TURN_CHUNK" | "TURN_COMPLETE" | "TETHER_TURN") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a turn waits for the surface that attaches now, and leaves.
async fn waits(t: &Trial, session: &Session) -> Result<bool, Stop> {
    let (mut socket, attached) = t.attach(session, desktop()).await?;
    // Whether the count is right, checks look at.
    let mut is_waiting = attached.number(PENDING).is_ok_and(|count| count > 0);
    if !is_waiting {
        let next = socket.next_within(MOMENT).await?;
        is_waiting = next.is_some_and(|frame| frame.kind() == "TETHER_TURN");
    }
    socket.confirm_and_detach().await?;
    // A server that does not say so is asked all the same.
    let _ = t.until_left(session).await;
    Ok(is_waiting)
}

/// Attaches a surface that leaves at once.
async fn leave(t: &Trial, session: &Session) -> Ended {
    let socket = t.attach_desktop(session).await?;
    socket.detach().await?;
    let _ = t.until_left(session).await;
    Ok(())
}

/// Puts turns into the Tether as the public suite does. `false`: the server has no such address.
async fn put(t: &Trial, session: &Session, texts: &[String]) -> Result<bool, Stop> {
    let turn = |text: &String| {
        json!({ "type": "TETHER_TURN", "session_id": session.id,
                "turn": { "role": "assistant", "content": text } })
    };
    let turns: Vec<Value> = texts.iter().map(turn).collect();
    let path = format!("/v1/sbp/sessions/{}/_test/tether", session.id);
    let answer = t.post(&path, As::Session(session), json!({ "turns": turns })).await?;
    Ok((200..300).contains(&answer.status))
}

const NO_WAY: &str = "no turn gets into the Tether in a way that the suite has: an answer over HTTP is not pending, \
                      also after a surface has left, and there is no POST .../_test/tether of the public suite";
/// How long a turn may take that the server did not count.
const MOMENT: Duration = Duration::from_secs(1);
