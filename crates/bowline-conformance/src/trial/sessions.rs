//! Sessions, turns and attachments.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{Answer, As, Trial};
use crate::came::Came;
use crate::socket::Socket;
use crate::verdict::{Ended, Stop};

/// A session that the check made.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Session {
    /// The session that the fields of an answer name.
    pub(crate) fn of(came: &Came, ids: &[&str], tokens: &[&str]) -> Result<Self, Stop> {
        Ok(Self { id: came.text(ids)?.to_owned(), token: came.text(tokens)?.to_owned() })
    }
}

/// A turn that was answered.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) answer: Answer,
    /// What the model said.
    pub(crate) text: String,
}

/// A request that runs beside the check.
#[derive(Debug)]
pub(crate) struct Begun(JoinHandle<Result<Answer, Stop>>);

impl Begun {
    /// Its answer.
    pub(crate) async fn answer(mut self) -> Result<Answer, Stop> {
        let ended = (&mut self.0).await;
        ended.unwrap_or_else(|_| Err(Stop::unable("the request was given up")))
    }

    /// The turn that it was.
    pub(crate) async fn turn(self) -> Result<Turn, Stop> {
        turn(self.answer().await?)
    }

    /// Closes the connection of the request.
    pub(crate) fn hang_up(self) {}
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn turn(answer: Answer) -> Result<Turn, Stop> {
    let answer = answer.is(&[200])?;
    let text = answer.body.text(&["/choices/0/message/content"])?.to_owned();
    Ok(Turn { answer, text })
}

impl Trial {
    /// A new session.
    pub(crate) async fn session(&self) -> Result<Session, Stop> {
        let made = self.post("/v1/sessions", As::Caller, json!({})).await?.is(&[201])?;
        Session::of(&made.body, &["/session_id"], &["/session_token"])
    }

    /// The session as it is now.
    pub(crate) async fn look(&self, session: &Session) -> Result<Answer, Stop> {
        self.get(&format!("/v1/sessions/{}", session.id), As::Session(session)).await?.is(&[200])
    }

    /// Looks at the session until it is so; fails with `expected` if it never is.
    pub(crate) async fn until(
        &self,
        session: &Session,
        expected: &str,
        is: impl Fn(&Value) -> bool + Send,
    ) -> Result<Answer, Stop> {
        let (begun, soon) = (Instant::now(), self.wire.target.patience(SOON));
        loop {
            let seen = self.look(session).await?;
            if is(&seen.body.json) {
                return Ok(seen);
            }
            if begun.elapsed() > soon {
                let within = format!("{expected}, within {} s", soon.as_secs());
                return Err(seen.body.wrong(within));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until no surface is attached, by either version's name.
    pub(crate) async fn until_left(&self, session: &Session) -> Ended {
        let is = |seen: &Value| {
            seen.get("surface").or(seen.get("surface_context")).is_none_or(Value::is_null)
        };
        self.until(session, "no surface attached", is).await.map(drop)
    }

    /// A request for a turn with one new message; `sbp` names the session.
    pub(crate) fn asking(&self, session: Option<&Session>, text: &str) -> Value {
        let mut sbp = Map::new();
        if let Some(session) = session {
            sbp.insert("session_id".into(), session.id.as_str().into());
        }
        let messages = json!([{ "role": "user", "content": text }]);
        json!({ "model": self.model_name, "messages": messages, "sbp": sbp })
    }

    /// Takes a turn in the session, and expects that it is answered.
    pub(crate) async fn say(&self, session: &Session, text: &str) -> Result<Turn, Stop> {
        let body = self.asking(Some(session), text);
        turn(self.post(COMPLETIONS, As::Session(session), body).await?)
    }

    /// Begins a turn in the session.
    pub(crate) fn begin(&self, session: &Session, text: &str) -> Begun {
        let (wire, session) = (self.wire.clone(), session.clone());
        let body = self.asking(Some(&session), text);
        Begun(tokio::spawn(async move {
            wire.call(Method::POST, COMPLETIONS, As::Session(&session), Some(body)).await
        }))
    }

    /// The same, of a turn that may take so long.
    pub(crate) fn begin_within(&self, session: &Session, text: &str, within: Duration) -> Begun {
        let (wire, session) = (self.wire.clone(), session.clone());
        let body = self.asking(Some(&session), text);
        Begun(tokio::spawn(async move {
            let sent = wire.sent(&format!("POST {COMPLETIONS} (X-Session-Token)"), Some(&body));
            let request = wire.request(Method::POST, COMPLETIONS, As::Session(&session));
            wire.exchange(request.timeout(within).json(&body), sent).await
        }))
    }

    /// Begins any request of the caller's.
    pub(crate) fn begin_post(&self, path: &str, body: Value) -> Begun {
        let (wire, path) = (self.wire.clone(), path.to_owned());
        Begun(tokio::spawn(
            async move { wire.call(Method::POST, &path, As::Caller, Some(body)).await },
        ))
    }

    /// Opens a socket to the session, without a word.
    pub(crate) async fn socket(&self, session: &Session) -> Result<Socket, Stop> {
        Socket::open(&self.wire, &format!("/v1/sbp/ws/{}", session.id)).await
    }

    /// Attaches with this context, and returns `SESSION_ATTACHED`.
    pub(crate) async fn attach(
        &self,
        session: &Session,
        context: Value,
    ) -> Result<(Socket, Came), Stop> {
        // Each version of the wire has its own name.
        let fields = json!({ "surface_context": context, "surface": context });
        self.attach_saying(session, fields).await
    }

    /// Attaches with these fields beside those that are needed.
    pub(crate) async fn attach_saying(
        &self,
        session: &Session,
        fields: Value,
    ) -> Result<(Socket, Came), Stop> {
        let mut socket = self.socket(session).await?;
        socket.send(attach_frame(session, fields)).await?;
        let first = socket.next().await?;
        first.holds(first.kind() == "SESSION_ATTACHED", "SESSION_ATTACHED as the first frame")?;
        Ok((socket, first))
    }

    /// A surface that streams and shows Markdown, as a desktop.
    pub(crate) async fn attach_desktop(&self, session: &Session) -> Result<Socket, Stop> {
        Ok(self.attach(session, desktop()).await?.0)
    }
}

/// The first frame of a surface.
pub(crate) fn attach_frame(session: &Session, fields: Value) -> Value {
    let mut frame = json!({
        "type": "ATTACH_SESSION",
        "session_id": session.id,
        "session_token": session.token,
        "sbp_version": "1.2",
    });
    if let (Some(frame), Value::Object(fields)) = (frame.as_object_mut(), fields) {
        frame.extend(fields);
    }
    frame
}

/// A context with which everything comes as it is.
pub(crate) fn desktop() -> Value {
    json!({
        "device_type": "desktop",
        "ui_capabilities": ["text", "markdown", "tables", "images", "streaming"],
    })
}

/// The name that a server of version 0.9 has for a session that is idle or running.
const ACTIVE: &str = "active";

/// Fails unless the session has that status, by either version's name.
pub(crate) fn has_status(seen: &Came, status: &str) -> Ended {
    let older = matches!(status, "idle" | "running") && seen.json["status"] == ACTIVE;
    if older { Ok(()) } else { seen.is(&["/status"], status) }
}

/// How many turns wait for a surface, by either name.
pub(crate) const PENDING: &[&str] = &["/tether_turns_pending", "/queued_turns"];
pub(crate) const COMPLETIONS: &str = "/v1/chat/completions";
/// How long something may take that should happen at once.
const SOON: Duration = Duration::from_secs(10);
/// How long a server that gives turns up with their readers may take to do so.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(5);
