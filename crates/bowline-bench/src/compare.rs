//! The same load against another server, by its URL.
//!
//! First what every OpenAI-compatible server can do. A server with sessions, recognised by `sbp` in
//! its answer, is also measured for new sessions, attachments and drains.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bowline_net::outbound;
use serde_json::Value;
use url::Url;

use crate::load::{self, PARALLEL, ServerUnderLoad};
use crate::report::Report;
use crate::surfaces::{self, Door};

/// Pending turns of a drain.
const MISSED: usize = 1000;

pub async fn run(
    url: &Url,
    key: Option<&str>,
    model: &str,
    length: Duration,
    report: &mut Report,
) -> Result<()> {
    let server = ServerUnderLoad::new(url, key)?;
    report.doing("plain requests");
    let plain = load::requests(&server, &load::body(model, None, false), length).await?;
    report.figure("plain_per_s", plain);
    let keeps_sessions = opened(&server, model).await.is_some();
    if keeps_sessions {
        report.doing("new sessions");
        let new = load::requests(&server, &load::body(model, Some("{}"), false), length).await?;
        report.figure("new_sessions_per_s", new);
    }
    report.doing("first tokens");
    let stream = load::body(model, keeps_sessions.then_some("{}"), true);
    let first = load::first_tokens(&server, &stream, load::Clock::FromRequest).await?;
    report.figure("first_token_ms_p50", first);
    match keeps_sessions {
        false => report.note("note: no `sbp` in its answer; sessions and surfaces are skipped"),
        true if url.scheme() != "http" || !outbound::is_private(url) => {
            report.note(
                "note: attachments and drains are measured over plain HTTP on this machine only",
            );
        }
        true => surfaces(&server, url, model, length, report).await?,
    }
    Ok(())
}

async fn surfaces(
    server: &ServerUnderLoad,
    url: &Url,
    model: &str,
    length: Duration,
    report: &mut Report,
) -> Result<()> {
    let address = resolved(url).await?;
    report.doing("attachments");
    let mut doors = Vec::with_capacity(PARALLEL);
    for _ in 0..PARALLEL {
        doors.push(opened(server, model).await.context("the server created no session")?);
    }
    report.figure("attach_per_s", surfaces::attaches(address, &doors, length).await?);
    report.doing(&format!("a drain (making {MISSED} turns first)"));
    let door = opened(server, model).await.context("the server created no session")?;
    let more = load::body(model, Some(&format!("{{\"session_id\":\"{}\"}}", door.id)), false);
    for _ in 1..MISSED {
        server.ask(&more).await?;
    }
    let took = surfaces::drain(address, &door, MISSED).await?;
    report.figure("drain_1000_ms", took.as_secs_f64() * 1e3);
    Ok(())
}

/// Creates a session with one turn, if the server supports sessions.
async fn opened(server: &ServerUnderLoad, model: &str) -> Option<Door> {
    let answer = server.ask(&load::body(model, Some("{}"), false)).await.ok()?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    let text = |name: &str| Some(answer["sbp"][name].as_str()?.to_owned());
    Some(Door { id: text("session_id")?, token: text("session_token")? })
}

async fn resolved(url: &Url) -> Result<SocketAddr> {
    let host = url.host_str().context("the URL names no host")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let mut found = tokio::net::lookup_host((host, port)).await?;
    found.next().with_context(|| format!("{host} has no address"))
}
