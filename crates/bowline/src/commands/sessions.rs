//! `bowline sessions`: list, search, rename, show, end, token, rm.

mod list;
mod search;
mod words;

use std::process::ExitCode;

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::GatewayArgs;
use crate::cli::sessions::{SessionsArgs, SessionsCommand};
use crate::failure::Failure;
use crate::terminal::{note, one_line, printable, say, utc};

pub(crate) async fn run(args: SessionsArgs) -> Result<ExitCode, Failure> {
    match args.command {
        SessionsCommand::List { gateway, status, limit, json } => {
            list::list(&gateway, status, limit, json).await
        }
        SessionsCommand::Search { gateway, words, limit, json } => {
            search::search(&gateway, &words, limit, json).await
        }
        SessionsCommand::Rename { gateway, session, title, json } => {
            rename(&gateway, &session, &title.join(" "), json).await
        }
        SessionsCommand::Show { gateway, session, messages, json } => {
            show(&gateway, &session, messages, json).await
        }
        SessionsCommand::End { gateway, session, failed, json } => {
            end(&gateway, &session, failed, json).await
        }
        SessionsCommand::Token { gateway, session, rotate, json, .. } => {
            replace_token(&gateway, &session, rotate, json).await
        }
        SessionsCommand::Rm { gateway, sessions, json } => remove(&gateway, &sessions, json).await,
    }
}

async fn rename(
    gateway: &GatewayArgs,
    named: &str,
    title: &str,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let id = api.session(named).await?;
    let path = format!("/v1/sessions/{id}");
    let renamed = api.call(Method::PATCH, &path, Some(json!({ "title": title }))).await?;
    match renamed["title"].as_str() {
        _ if json => say!("{renamed}"),
        Some(title) => note!("session {id} is called `{}`", one_line(title)),
        None => note!("session {id} gets its title from the first message"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces a session's token, or leaves it without one.
async fn replace_token(
    gateway: &GatewayArgs,
    named: &str,
    rotate: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let id = api.session(named).await?;
    let path = format!("/v1/sessions/{id}/token");
    if !rotate {
        api.call(Method::DELETE, &path, None).await?;
        match json {
            true => say!("{}", json!({ "session_id": id, "revoked": true })),
            false => note!("the token of session {id} opens nothing any more"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let made = api.call(Method::POST, &path, None).await?;
    match made["session_token"].as_str() {
        _ if json => say!("{made}"),
        Some(token) => {
            note!("the new token of session {id}; the old one opens nothing any more");
            say!("{token}");
        }
        None => note!("the token of session {id} was replaced; your key may not hold the new one"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn end(
    gateway: &GatewayArgs,
    named: &str,
    failed: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let id = api.session(named).await?;
    let status = if failed { "failed" } else { "completed" };
    let path = format!("/v1/sessions/{id}/status");
    let ended = api.call(Method::PATCH, &path, Some(json!({ "status": status }))).await?;
    match json {
        true => say!("{ended}"),
        false => note!("session {} is {status}", called(&id, &ended)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes sessions. All names are looked up first: if one of them names nothing, none is deleted.
async fn remove(gateway: &GatewayArgs, names: &[String], json: bool) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let mut meant: Vec<(String, Value)> = Vec::new();
    for named in names {
        let id = api.session(named).await?;
        if meant.iter().any(|(known, _)| *known == id) {
            continue;
        }
        let session = api.get(&format!("/v1/sessions/{id}")).await?;
        meant.push((id, session));
    }
    for (id, session) in meant {
        api.call(Method::DELETE, &format!("/v1/sessions/{id}"), None).await?;
        match json {
            true => say!("{}", json!({ "session_id": id, "title": session["title"] })),
            false => note!("session {} is removed", called(&id, &session)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A session by its id and title.
fn called(id: &str, session: &Value) -> String {
    match session["title"].as_str() {
        Some(title) => format!("{id} ({})", one_line(title)),
        None => id.to_owned(),
    }
}

async fn show(
    gateway: &GatewayArgs,
    named: &str,
    messages: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let id = api.session(named).await?;
    let session = api.get(&format!("/v1/sessions/{id}")).await?;
    let path = format!("/v1/sessions/{id}/messages?before={}&limit={messages}", u64::MAX);
    let log = api.get(&path).await?;
    if json {
        say!("{}", json!({ "session": session, "messages": log["messages"], "more": log["more"] }));
        return Ok(ExitCode::SUCCESS);
    }
    say!("session   {}", text(&session, "session_id"));
    say!("title     {}", one_line(text(&session, "title")));
    say!("state     {}", words::state(&session));
    say!("agent     {}", one_line(text(&session, "agent_id")));
    say!("steps     {}", session["step_count"]);
    say!("pending   {} turns wait for a surface", session["tether_turns_pending"]);
    say!("approvals {} wait for you", session["approvals_pending"]);
    say!("attached  {}", words::attached(&session));
    say!("cost      ${}", session["cost_usd"]);
    say!("created   {}", when(&session, "created_at"));
    say!("updated   {}", when(&session, "updated_at"));
    if let Some(successor) = session["handed_off_to"].as_str() {
        say!("continues in session {successor}");
    }
    let shown = log["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if log["more"] == true {
        say!("\n… earlier messages: --messages {}", messages.saturating_mul(2).min(500));
    }
    for entry in shown {
        say!("\n{} {}", entry["seq"], entry_line(entry));
    }
    Ok(ExitCode::SUCCESS)
}

/// `role: content`, with the status if the turn is not complete.
pub(crate) fn entry_line(entry: &Value) -> String {
    let message = &entry["message"];
    let content = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Null if !message["tool_calls"].is_null() => {
            format!("calls {}", message["tool_calls"])
        }
        other => other.to_string(),
    };
    let mark = match entry["status"].as_str() {
        None | Some("complete") => String::new(),
        Some(status) => format!(" [{status}]"),
    };
    format!(
        "{}{mark}: {}",
        one_line(message["role"].as_str().unwrap_or("?")),
        printable(content.trim_end())
    )
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or("-")
}

fn when(object: &Value, name: &str) -> String {
    let text = text(object, name);
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => utc(time),
        Err(_) => text.to_owned(),
    }
}
