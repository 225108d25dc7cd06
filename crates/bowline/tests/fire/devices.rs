//! A device with a tool, an agent that calls it, and an MCP host that does, too.
//!
//! The device answers, answers late, fails, says nothing, or goes away in the middle. Every call has an end. One
//! that comes again under its `call_id`, to the device that has come back, is not run again.

use std::collections::HashSet;
use std::time::Duration;

use bowline_checker::{Outcome, ToolResult};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::caller::{Caller, Way};
use crate::process::DEADLINE;
use crate::reach::{Reach, Session};
use crate::record::Record;
use crate::seed::Dice;
use crate::surface::{Broken, Seen, Surface, Taste};

/// The name of the tool.
const TOOL: &str = "work";

/// What no other call has.
fn input(record: &Record) -> String {
    json!({ "n": record.unique() }).to_string()
}

/// An agent that calls the device in each turn.
pub(crate) async fn agent(caller: Caller, session: Session, stop: watch::Receiver<bool>) {
    let record = caller.record().clone();
    while !*stop.borrow() {
        let text = format!("call surface tool {TOOL} with {}", input(&record));
        let (_, outcome) = caller.ask_exactly(&session.id, &text, Way::Whole).await;
        assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
    }
}

/// The device itself.
pub(crate) async fn device(
    reach: Reach,
    session: Session,
    mut dice: Dice,
    mut stop: watch::Receiver<bool>,
) {
    let mut known = HashSet::new();
    while !*stop.borrow() {
        if attached(&reach, &session, &mut known, &mut dice, &mut stop).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn attached(
    reach: &Reach,
    session: &Session,
    known: &mut HashSet<String>,
    dice: &mut Dice,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), Broken> {
    let context = json!({
        "surface_id": "device",
        // The device would ask its user: the gateway does not.
        "mcp_tools": [{ "name": TOOL, "asks": true }],
    });
    let record = &reach.record;
    let attach = Surface::attach_with(&reach.address, session, Taste::Whole, &context, record);
    let mut surface = attach.await?;
    let mut late = None;
    loop {
        let seen = tokio::select! {
            seen = surface.next() => seen?,
            _ = stop.changed() => return Ok(()),
        };
        let Seen::Call { id, input } = seen else { continue };
        if known.insert(id.clone()) {
            record.with(|history| history.ran(&session.id, &input));
        }
        let said = format!("did {input}");
        let answers = |input: &str, said: &str| {
            record.with(|history| history.returning(&session.id, input, said));
        };
        match dice.below(20) {
            0 => return Ok(()),
            1 => {}
            2 => late = Some((id, input, said)),
            3 => surface.answer_call(&id, Err("no film")).await?,
            _ => {
                answers(&input, &said);
                surface.answer_call(&id, Ok(&said)).await?;
                if let Some((id, input, said)) = late.take() {
                    answers(&input, &said);
                    surface.answer_call(&id, Ok(&said)).await?;
                }
            }
        }
    }
}

/// A program that calls the device's tool by MCP, at any replica, and never twice.
pub(crate) async fn host(
    reach: Reach,
    session: Session,
    mut dice: Dice,
    stop: watch::Receiver<bool>,
) {
    let http = reqwest::Client::new();
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(dice.below(100) as u64)).await;
        let url = &reach.replica_urls[dice.below(reach.replica_urls.len())];
        let input = input(&reach.record);
        let call = reach.record.with(|history| history.calling(&session.id, &input));
        let arguments: Value = serde_json::from_str(&input).unwrap();
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": format!("surface_{TOOL}"), "arguments": arguments },
        });
        let request = http.post(format!("{url}/mcp")).bearer_auth(&session.token).json(&body);
        let request = request.header("accept", "application/json, text/event-stream");
        let result = match request.timeout(DEADLINE).send().await {
            Ok(response) => result(response.text().await),
            Err(error) => result(Err(error)),
        };
        reach.record.with(|history| history.call_ended(call, result));
    }
}

/// How the call ended; none if the connection broke before.
fn result(body: reqwest::Result<String>) -> Option<ToolResult> {
    let body = body.inspect_err(|error| assert!(!error.is_timeout(), "a call never ends")).ok()?;
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut answers = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let answer = answers.find(|answer| answer["id"] == 1)?;
    let result = &answer["result"];
    if answer["error"].is_object() || result["isError"] == true {
        return Some(ToolResult::Failed);
    }
    Some(ToolResult::Said(result["content"][0]["text"].as_str()?.to_owned()))
}
