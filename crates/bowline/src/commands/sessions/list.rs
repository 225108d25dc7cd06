//! `bowline sessions list`.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::Value;

use super::words::{
    SHORTEST_ID, SHORTEST_OF_SOME, age, attached, short_ids, short_title, state, waiting,
};
use crate::api::{Api, encoded};
use crate::cli::GatewayArgs;
use crate::failure::Failure;
use crate::terminal::{note, one_line, say, show, table};

pub(super) async fn list(
    gateway: &GatewayArgs,
    status: Option<String>,
    limit: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    // One more than is shown: its id may begin like the last one's.
    let mut sessions = fetch(&api, status.as_deref(), limit as usize + 1).await?;
    let listed = &sessions[..sessions.len().min(limit as usize)];
    if json {
        sessions.truncate(limit as usize);
        say!("{}", Value::Array(sessions));
        return Ok(ExitCode::SUCCESS);
    }
    match &status {
        None if listed.is_empty() => note!("no sessions yet; start one with `bowline chat`"),
        Some(status) if listed.is_empty() => note!("no session is {}", one_line(status)),
        _ => {
            let shortest = if status.is_some() { SHORTEST_OF_SOME } else { SHORTEST_ID };
            show!("{}", drawn(&sessions, listed.len(), shortest, Timestamp::now()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest sessions, at most `most`.
async fn fetch(api: &Api, status: Option<&str>, most: usize) -> Result<Vec<Value>, Failure> {
    let mut sessions = Vec::new();
    let mut before: Option<String> = None;
    while sessions.len() < most {
        let mut path = format!("/v1/sessions?limit={}", (most - sessions.len()).min(200));
        for (name, value) in [("before", before.as_deref()), ("status", status)] {
            if let Some(value) = value {
                path += &format!("&{name}={}", encoded(value));
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
    Ok(sessions)
}

/// The first `count` sessions as a table.
fn drawn(sessions: &[Value], count: usize, shortest: usize, now: Timestamp) -> String {
    let id = |session: &'_ Value| session["session_id"].as_str().unwrap_or("-").to_owned();
    let ids: Vec<_> = sessions.iter().map(id).collect();
    let short = short_ids(ids.iter().map(String::as_str), shortest);
    let row = |(session, id): (&Value, &String)| {
        let updated = session["updated_at"].as_str().and_then(|text| text.parse().ok());
        [
            short.get(id.as_str()).copied().unwrap_or(id).to_owned(),
            short_title(&session["title"]),
            state(session).to_owned(),
            updated.map_or("-".into(), |then| age(then, now)),
            waiting(session),
            attached(session),
        ]
    };
    let rows: Vec<_> = sessions.iter().zip(&ids).take(count).map(row).collect();
    table(["SESSION", "TITLE", "STATE", "AGE", "WAITING", "ATTACHED"], &rows)
}
