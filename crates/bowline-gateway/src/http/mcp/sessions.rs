//! Session tools for MCP hosts: list sessions, send a message, read the log.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::access::Action;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::session::{Done, Submit, TurnRequest};
use bowline_sbp::tool_result::without_images;
use bowline_store::{Entry, Page, Session};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Reach;
use crate::auth::Denied;
use crate::http::sessions::message;
use crate::http::view::{view, views};
use crate::http::{ApiError, App};
use crate::session::Accepted;

const LIST: &str = "sessions_list";
const SEND: &str = "session_send";
const READ: &str = "session_read";
/// How long a call waits for the answer by default, in seconds; many hosts time out after a minute.
const PATIENCE: u64 = 50;
const MOST_PATIENCE: u64 = 600;
const MOST_SESSIONS: u32 = 100;
pub(super) const MOST_MESSAGES: u32 = 200;
/// The largest page of messages, in bytes; the rest is left for the next page.
const LARGEST_PAGE: usize = 1 << 20;

/// The tool definitions. With a session's token, `session_id` is optional.
pub(super) fn tools(reach: &Reach) -> Vec<Tool> {
    let needed: &[&str] = match reach {
        Reach::One(_) => &[],
        Reach::User(_) => &["session_id"],
    };
    let id =
        json!({"type": "string", "description": "The session's id, as sessions_list shows it"});
    let list = json!({"type": "object", "properties": {
        "status": {"type": "string", "enum": ["idle", "running", "suspended", "completed", "failed"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_SESSIONS, "default": 20},
        "before": {"type": "string", "description": "`next` of the page before"},
    }});
    let send = json!({"type": "object", "required": ["text"], "properties": {
        "session_id": {"type": "string",
            "description": "The session's id; without it a new session begins"},
        "text": {"type": "string", "description": "What to say"},
        "model": {"type": "string", "description": "The model that answers"},
        "wait_seconds": {"type": "integer", "minimum": 0, "maximum": MOST_PATIENCE,
            "default": PATIENCE,
            "description": "How long to wait for the answer; the turn runs to its end in any case"},
    }});
    let read = json!({"type": "object", "required": needed, "properties": {
        "session_id": id,
        "after": {"type": "integer", "minimum": 0,
            "description": "Only what came after this `seq`; without it, the newest"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_MESSAGES, "default": 20},
    }});
    let harmless = || ToolAnnotations::new().read_only(true).open_world(false);
    vec![
        tool(LIST, "List conversations with agents, newest first.", list)
            .with_annotations(harmless()),
        tool(
            SEND,
            "Say something in a conversation and get the agent's answer. If it takes longer than \
             you wait, the agent goes on; read the answer later with session_read.",
            send,
        ),
        tool(READ, "Read what was said in a conversation.", read).with_annotations(harmless()),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!("a schema is an object") };
    Tool::new(name, description, schema)
}

/// A parsed call of one of these tools.
#[derive(Debug)]
pub(super) enum SessionTool {
    List(List),
    Send(Send),
    Read(Read),
}

#[derive(Debug, Deserialize)]
pub(super) struct List {
    status: Option<String>,
    limit: Option<u32>,
    before: Option<SessionId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Send {
    session_id: Option<SessionId>,
    text: String,
    model: Option<String>,
    wait_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Read {
    session_id: Option<SessionId>,
    after: Option<u64>,
    limit: Option<u32>,
}

type ToolAnswer = Result<CallToolResult, String>;

impl SessionTool {
    /// `None` if the tool is not one of these.
    pub(super) fn read(tool: &str, arguments: &JsonObject) -> Option<Result<Self, String>> {
        fn of<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, String> {
            serde_json::from_value(Value::Object(arguments.clone()))
                .map_err(|error| format!("the arguments cannot be read: {error}"))
        }
        Some(match tool {
            LIST => of(arguments).map(SessionTool::List),
            SEND => of(arguments).map(SessionTool::Send),
            READ => of(arguments).map(SessionTool::Read),
            _ => return None,
        })
    }

    /// Runs the call. `gone` ends the wait, not the turn.
    pub(super) async fn done(
        self,
        app: &Arc<App>,
        reach: &Reach,
        gone: impl Future<Output = ()>,
    ) -> ToolAnswer {
        match self {
            SessionTool::List(asked) => list(app, reach, asked).await,
            SessionTool::Send(asked) => send(app, reach, asked, gone).await,
            SessionTool::Read(asked) => read(app, reach, asked).await,
        }
    }
}

async fn list(app: &App, reach: &Reach, asked: List) -> ToolAnswer {
    if let Reach::One(session) = reach {
        let view = view(app, (**session).clone()).await;
        return Ok(CallToolResult::structured(json!({ "sessions": [view], "next": null })));
    }
    reach.check(Action::ListSessions)?;
    let limit = asked.limit.unwrap_or(20).clamp(1, MOST_SESSIONS);
    let status = asked.status.as_deref().map(str::parse).transpose();
    let status = status.map_err(|error| format!("{error}"))?;
    let user = reach.identity().user();
    let page = Page { user, before: asked.before, limit: limit + 1, status };
    let mut sessions = app.engine.store.sessions(page).await.map_err(said)?;
    let more = sessions.len() > limit as usize;
    sessions.truncate(limit as usize);
    let next = sessions.last().map(|session| session.id).filter(|_| more);
    let identity = reach.identity();
    let sessions = sessions.into_iter().filter(|s| identity.check_agent(&s.agent_id).is_ok());
    let sessions = views(app, sessions.collect()).await;
    Ok(CallToolResult::structured(json!({ "sessions": sessions, "next": next })))
}

async fn send(
    app: &Arc<App>,
    reach: &Reach,
    asked: Send,
    gone: impl Future<Output = ()>,
) -> ToolAnswer {
    if asked.text.trim().is_empty() {
        return Err("`text` is empty".into());
    }
    let model = asked.model.unwrap_or_else(|| app.default_model.clone());
    app.engine.models.route(&model).map_err(|failure| failure.message)?;
    let identity = reach.identity();
    identity.check_model(&model).map_err(|denied| ApiError::from(denied).message().to_owned())?;
    // The host may have timed out before the turn ends; the outcome is in the log.
    let mut request = TurnRequest::message(model, Message::text("user", &asked.text));
    let spender = identity.spender();
    app.engine.check_turn(&spender, None).await.map_err(|failure| failure.message)?;
    request.spender = Some(spender);
    if let (Reach::User(identity), Some(id)) = (reach, asked.session_id) {
        // What others say in a shared session does not read its user's memories.
        let session = app.engine.store.session(id).await.map_err(said)?;
        request.recall &= session.is_some_and(|session| session.user == identity.user());
    }
    let submit = Submit {
        turn: TurnId(Uuid::now_v7()),
        request: Arc::new(request),
        key: None,
        resume: true,
        sender: None,
        wait: false,
        blobs: Vec::new(),
    };
    let (accepted, handle, after) = match (reach, asked.session_id) {
        (Reach::User(_), None) => {
            reach.check(Action::CreateSession)?;
            let agent = AgentId::fallback();
            let fits = identity.check_agent(&agent);
            fits.map_err(|denied| ApiError::from(denied).message().to_owned())?;
            let opened = app.first_turn(&identity, agent, submit).await;
            let (accepted, id) = opened.map_err(|failure| failure.message)?;
            (accepted, app.sessions.handle(id), 0)
        }
        (_, id) => {
            let session = find(app, reach, id, Action::Talk).await?;
            let handle = app.sessions.handle(session.id);
            let accepted = handle.submit(submit).await.map_err(|failure| failure.message)?;
            (accepted, handle, session.last_seq)
        }
    };
    let Accepted::Running { turn, outcome, .. } = accepted else {
        return Err("the session cannot accept a turn now; try again".into());
    };
    let patience = asked.wait_seconds.unwrap_or(PATIENCE).min(MOST_PATIENCE);
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(Duration::from_secs(patience), outcome) => {
            outcome.ok()
        }
        () = gone => None,
    };
    match outcome {
        Some(Ok(done)) => Ok(answered(&done)),
        Some(Err(failure)) => Err(failure.message),
        None => {
            let said =
                "The agent is still working and goes on. Read its answer later with session_read.";
            let mut result = CallToolResult::success(vec![ContentBlock::text(said)]);
            result.structured_content = Some(json!({
                "session_id": handle.id(), "turn_id": turn, "status": "running", "after": after,
            }));
            Ok(result)
        }
    }
}

/// The agent's answer, as text and structured.
fn answered(done: &Done) -> CallToolResult {
    let completion: Value = serde_json::from_str(&done.completion).unwrap_or_default();
    let said = &completion["choices"][0]["message"];
    let text = match &said["content"] {
        Value::String(text) => text.clone(),
        _ => said.to_string(),
    };
    let info = &done.info;
    let mut result = CallToolResult::success(vec![ContentBlock::text(text.clone())]);
    result.structured_content = Some(json!({
        "session_id": info.session_id, "turn_id": info.turn_id, "seq": info.seq,
        "status": info.turn_status, "step_count": info.step_count, "answer": text,
    }));
    result
}

async fn read(app: &App, reach: &Reach, asked: Read) -> ToolAnswer {
    let session = find(app, reach, asked.session_id, Action::ReadSession).await?;
    let limit = asked.limit.unwrap_or(20).clamp(1, MOST_MESSAGES);
    let (entries, more) = page(app, &session, asked.after, limit).await.map_err(said)?;
    let messages: Vec<_> = entries.into_iter().map(message).collect();
    let page = json!({ "session_id": session.id, "messages": messages, "more": more });
    Ok(CallToolResult::structured(page))
}

/// Entries of a session, oldest first: those after a `seq`, or the newest. Whether there are more
/// after or before them.
pub(super) async fn page(
    app: &App,
    session: &Session,
    after: Option<u64>,
    limit: u32,
) -> Result<(Vec<Entry>, bool), bowline_store::Error> {
    let store = &app.engine.store;
    let mut entries = match after {
        Some(after) => store.entries_after(session.id, after, limit).await?,
        None => store.entries_before(session.id, session.last_seq + 1, limit).await?,
    };
    // Cut to size from the end that was asked for; at least one entry is returned.
    if after.is_none() {
        entries.reverse();
    }
    let mut size = 0;
    entries.retain(|entry| {
        let first = size == 0;
        size += without_images(&entry.message).as_json().len();
        first || size <= LARGEST_PAGE
    });
    let more = match after {
        Some(_) => entries.last().is_some_and(|last| last.seq < session.last_seq),
        None => {
            entries.reverse();
            entries.first().is_some_and(|first| first.seq > 1)
        }
    };
    Ok((entries, more))
}

/// The named session, if the caller may do that in it.
pub(super) async fn find(
    app: &App,
    reach: &Reach,
    id: Option<SessionId>,
    action: Action,
) -> Result<Session, String> {
    match (reach, id) {
        (Reach::One(session), None) => Ok((**session).clone()),
        (Reach::One(session), Some(id)) if session.id == id => Ok((**session).clone()),
        // Does not reveal whether the session exists.
        (Reach::One(_), Some(_)) => Err("this token does not open that session".into()),
        (Reach::User(_), None) => Err("`session_id` is missing; sessions_list shows them".into()),
        (Reach::User(identity), Some(id)) => {
            let session = app.engine.store.session(id).await.map_err(said)?;
            let found = app.engine.check_in(session, id, identity.clone(), action).await;
            found.map(|(session, _)| session).map_err(|denied| match denied {
                Denied::NoSession => "there is no such session here".to_owned(),
                denied => ApiError::from(denied).message().to_owned(),
            })
        }
    }
}

fn said(error: bowline_store::Error) -> String {
    ApiError::from(error).message().to_owned()
}
