//! Sessions as MCP resources: `bowline://sessions/{session_id}` is the conversation as Markdown,
//! `bowline://sessions/{session_id}/json` as JSON, with the calls of tools.
//!
//! Only what the caller's credential may see is listed and read. A session that it may not see is
//! answered like one that does not exist (G20).

use bowline_sbp::access::Action;
use bowline_sbp::api::SessionView;
use bowline_sbp::id::SessionId;
use bowline_sbp::message::EntryKind;
use bowline_store::{Entry, Page};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;

use super::{Reach, sessions};
use crate::http::sessions::message;
use crate::http::view::{view, views};
use crate::http::{ApiError, App};

const BASE: &str = "bowline://sessions/";
const AS_JSON: &str = "/json";
const MARKDOWN: &str = "text/markdown";
const JSON: &str = "application/json";
/// Sessions on one page of the list.
const PAGE: u32 = 100;

/// The sessions, newest first. The cursor is the id of the last session of the page before.
pub(super) async fn list(
    app: &App,
    reach: &Reach,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let (sessions, next) = match reach {
        Reach::One(session) => (vec![(**session).clone()], None),
        Reach::User(identity) => {
            reach
                .check(Action::ListSessions)
                .map_err(|why| ErrorData::invalid_params(why, None))?;
            let before = cursor.map(|cursor| cursor.parse::<SessionId>()).transpose();
            let before = before.map_err(|_| {
                ErrorData::invalid_params("the cursor is not one of this list", None)
            })?;
            let page = Page { user: identity.user(), before, limit: PAGE + 1, status: None };
            let mut sessions = app.engine.store.sessions(page).await.map_err(failed)?;
            let more = sessions.len() > PAGE as usize;
            sessions.truncate(PAGE as usize);
            let next = sessions.last().map(|session| session.id).filter(|_| more);
            sessions.retain(|session| identity.check_agent(&session.agent_id).is_ok());
            (sessions, next)
        }
    };
    let sessions = views(app, sessions).await;
    let resources = sessions.into_iter().map(resource).collect();
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = next.map(|id| id.to_string());
    Ok(result)
}

fn resource(view: SessionView) -> Resource {
    let id = view.session_id;
    let title = view.title.unwrap_or_else(|| format!("Session {id}"));
    let about = format!(
        "{} messages with the agent {}, {}, begun {}",
        view.message_count,
        view.agent_id,
        view.status.as_str(),
        view.created_at,
    );
    Resource::new(format!("{BASE}{id}"), id.to_string())
        .with_title(title)
        .with_description(about)
        .with_mime_type(MARKDOWN)
}

pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = |tail: &str, name: &str, about: &str, kind: &str| {
        ResourceTemplate::new(format!("{BASE}{{session_id}}{tail}"), name)
            .with_description(about)
            .with_mime_type(kind)
    };
    ListResourceTemplatesResult::with_all_items(vec![
        template("", "session", "What was said in a session; the newest of a long one", MARKDOWN),
        template(AS_JSON, "session_json", "The same as JSON, with the calls of tools", JSON),
    ])
}

/// The newest part of a session.
pub(super) async fn read(
    app: &App,
    reach: &Reach,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || ErrorData::resource_not_found("there is no such session here", None);
    let named = uri.strip_prefix(BASE).ok_or_else(unknown)?;
    let (id, as_json) = match named.strip_suffix(AS_JSON) {
        Some(id) => (id, true),
        None => (named, false),
    };
    let id: SessionId = id.parse().map_err(|_| unknown())?;
    let session = match reach {
        Reach::One(session) if session.id == id => (**session).clone(),
        Reach::One(_) => return Err(unknown()),
        Reach::User(_) => sessions::find(app, reach, Some(id), Action::ReadSession)
            .await
            .map_err(|_| unknown())?,
    };
    let page = sessions::page(app, &session, None, sessions::MOST_MESSAGES);
    let (entries, more) = page.await.map_err(failed)?;
    let (text, kind) = if as_json {
        let messages: Vec<_> = entries.into_iter().map(message).collect();
        let page = json!({ "session_id": id, "messages": messages, "more": more });
        (page.to_string(), JSON)
    } else {
        (markdown(view(app, session).await.title.as_deref(), &entries, more), MARKDOWN)
    };
    let contents = ResourceContents::text(text, uri).with_mime_type(kind);
    Ok(ReadResourceResult::new(vec![contents]))
}

/// What people said and read; not the calls of tools.
fn markdown(title: Option<&str>, entries: &[Entry], more: bool) -> String {
    let mut text = format!("# {}\n", title.unwrap_or("Untitled session"));
    if more {
        text += "\n(Only the newest part. session_read shows what came before.)\n";
    }
    for entry in entries.iter().filter(|entry| entry.kind != EntryKind::Action) {
        let who = match entry.kind {
            EntryKind::Note => "note",
            _ => entry.message.role(),
        };
        let at = entry.created_at.strftime("%Y-%m-%d %H:%M UTC");
        text += &format!("\n## {who}, {at}\n\n{}\n", entry.message.content().trim_end());
    }
    text
}

fn failed(error: bowline_store::Error) -> ErrorData {
    ErrorData::internal_error(ApiError::from(error).message().to_owned(), None)
}
