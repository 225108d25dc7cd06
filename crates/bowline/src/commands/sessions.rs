//! `bowline sessions`: list, show, end, rm.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::{GatewayArgs, SessionsArgs, SessionsCommand};
use crate::failure::Failure;
use crate::terminal::{note, printable, say, show, table, utc};

pub(crate) async fn run(args: SessionsArgs) -> Result<ExitCode, Failure> {
    match args.command {
        SessionsCommand::List { gateway, status, limit, json } => {
            list(&gateway, status, limit, json).await
        }
        SessionsCommand::Show { gateway, id, messages, json } => {
            show(&gateway, &id, messages, json).await
        }
        SessionsCommand::End { gateway, id, failed } => {
            let status = if failed { "failed" } else { "completed" };
            let api = Api::new(&gateway)?;
            let path = format!("/v1/sessions/{id}/status");
            api.call(Method::PATCH, &path, Some(json!({ "status": status }))).await?;
            note!("session {id} is {status}");
            Ok(ExitCode::SUCCESS)
        }
        SessionsCommand::Rm { gateway, ids } => {
            let api = Api::new(&gateway)?;
            for id in ids {
                api.call(Method::DELETE, &format!("/v1/sessions/{id}"), None).await?;
                note!("session {id} is removed");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(
    gateway: &GatewayArgs,
    status: Option<String>,
    limit: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway)?;
    let mut sessions = Vec::new();
    let mut before: Option<String> = None;
    while sessions.len() < limit as usize {
        let page = (limit as usize - sessions.len()).min(200);
        let mut path = format!("/v1/sessions?limit={page}");
        for (name, value) in [("before", &before), ("status", &status)] {
            if let Some(value) = value {
                path += &format!(
                    "&{name}={}",
                    url::form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>()
                );
            }
        }
        let mut answer = api.get(&path).await?;
        if let Some(Value::Array(page)) = answer.get_mut("sessions").map(Value::take) {
            sessions.extend(page);
        }
        before = answer["next"].as_str().map(str::to_owned);
        if before.is_none() {
            break;
        }
    }
    if json {
        say!("{}", Value::Array(sessions));
        return Ok(ExitCode::SUCCESS);
    }
    if sessions.is_empty() {
        note!("no sessions yet; start one with `bowline chat`");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |session: &Value| {
        [
            text(session, "session_id").to_owned(),
            text(session, "status").to_owned(),
            session["step_count"].to_string(),
            session["tether_turns_pending"].to_string(),
            printable(text(session, "agent_id")),
            when(session, "updated_at"),
        ]
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    show!("{}", table(["SESSION", "STATUS", "STEPS", "PENDING", "AGENT", "UPDATED"], &rows));
    Ok(ExitCode::SUCCESS)
}

async fn show(
    gateway: &GatewayArgs,
    id: &str,
    messages: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway)?;
    let session = api.get(&format!("/v1/sessions/{id}")).await?;
    let path = format!("/v1/sessions/{id}/messages?before={}&limit={messages}", u64::MAX);
    let log = api.get(&path).await?;
    if json {
        say!("{}", json!({ "session": session, "messages": log["messages"], "more": log["more"] }));
        return Ok(ExitCode::SUCCESS);
    }
    let device =
        session["surface"]["device_type"].as_str().map(|device| format!("attached: {device}"));
    say!("session   {}", text(&session, "session_id"));
    say!("status    {}", text(&session, "status"));
    say!("agent     {}", text(&session, "agent_id"));
    say!("steps     {}", session["step_count"]);
    say!("pending   {} turns wait for a surface", session["tether_turns_pending"]);
    say!("surface   {}", device.as_deref().unwrap_or("none attached"));
    say!("cost      ${}", session["cost_usd"]);
    say!("created   {}", when(&session, "created_at"));
    say!("updated   {}", when(&session, "updated_at"));
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
    format!("{}{mark}: {}", message["role"].as_str().unwrap_or("?"), printable(content.trim_end()))
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
