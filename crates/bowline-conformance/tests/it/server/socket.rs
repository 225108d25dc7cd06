//! Surfaces.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State as Shared};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::sessions::{Out, Surface};
use super::{Fault, State, imports, text, turns};

pub(crate) async fn open(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let (out, outgoing) = mpsc::unbounded_channel();
    if state.has(Fault::LiveBeforeAttached)
        && let Some(session) = state.sessions().get_mut(&id)
    {
        session.early.push(out.clone());
    }
    upgrade.on_upgrade(move |socket| async move {
        // The peer may be gone at any moment; then there is nothing left to do.
        let _ = serve(socket, state, id, out, outgoing).await;
    })
}

type Sent = Result<(), axum::Error>;

async fn say(socket: &mut WebSocket, frame: &Value) -> Sent {
    socket.send(Message::text(frame.to_string())).await
}

async fn close(socket: &mut WebSocket, code: u16) -> Sent {
    let frame = CloseFrame { code, reason: "".into() };
    socket.send(Message::Close(Some(frame))).await
}

async fn refuse(socket: &mut WebSocket, kind: &str, code: u16) -> Sent {
    say(socket, &json!({ "type": kind, "detail": "refused" })).await?;
    close(socket, code).await
}

async fn serve(
    mut socket: WebSocket,
    state: Arc<State>,
    id: String,
    out: mpsc::UnboundedSender<Out>,
    mut outgoing: mpsc::UnboundedReceiver<Out>,
) -> Sent {
    let first = async {
        loop {
            match socket.recv().await? {
                Ok(Message::Text(first)) => return Some(first),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    };
    let patience = if state.has(Fault::SilentKept) { FOREVER } else { FIRST_FRAME };
    let hello = match timeout(patience, first).await {
        Ok(Some(hello)) => hello,
        Ok(None) => return Ok(()),
        Err(_) => return refuse(&mut socket, "PROTOCOL_ERROR", 1003).await,
    };
    let hello: Value = serde_json::from_str(hello.as_str()).unwrap_or_default();
    let is_attach = text(&hello, "type") == "ATTACH_SESSION" && text(&hello, "session_id") == id;
    if !is_attach && !state.has(Fault::AnyFirstFrame) {
        return refuse(&mut socket, "PROTOCOL_ERROR", 1003).await;
    }
    let known = state.sessions().get(&id).map(|session| session.token.clone());
    let id = match known {
        Some(token) => {
            let fits = text(&hello, "session_token") == token;
            if !fits && !state.has(Fault::AnyToken) && is_attach {
                return refuse(&mut socket, "FORBIDDEN", 4003).await;
            }
            id
        }
        None => match imports::brought(&state, text(&hello, "roaming_token")).await {
            Some(id) => id,
            None => return refuse(&mut socket, "SESSION_NOT_FOUND", 4004).await,
        },
    };
    let name = if state.has(Fault::OlderNames) { "surface" } else { "surface_context" };
    let context = hello.get(name).or(hello.get("surface")).cloned();
    let context = context.unwrap_or_default();
    if state.has(Fault::ContextRefused) && context["device_type"].is_number() {
        return refuse(&mut socket, "PROTOCOL_ERROR", 1003).await;
    }
    // What came before the attach goes out first, if the server has that fault.
    while let Ok(Out::Frame(early)) = outgoing.try_recv() {
        say(&mut socket, &early).await?;
    }
    let epoch = Uuid::new_v4();
    let hello = Hello {
        context,
        joins: hello["join"] == true && !state.has(Fault::JoinReplaces),
        acks: hello["ack"] == "explicit" && !state.has(Fault::AckIgnored),
    };
    let (frames, upto) = attach(&state, &id, hello, epoch, out);
    if state.has(Fault::ClearedOnSend) {
        confirmed(&state, &id, upto);
    }
    for frame in &frames {
        say(&mut socket, frame).await?;
    }
    if frames.len() > 1 {
        ping(&mut socket, upto).await?;
    }
    let ended = talk(&mut socket, &state, &id, epoch, &mut outgoing).await;
    if let Some(session) = state.sessions().get_mut(&id) {
        session.joined.retain(|surface| surface.epoch != epoch);
    }
    if let Some(session) = state.sessions().get_mut(&id)
        && session.surface.as_ref().is_some_and(|surface| surface.epoch == epoch)
    {
        session.surface = None;
        session.resumed = false;
        if state.has(Fault::DetachLosesTurns) {
            session.delivered = session.turns.len();
        }
    }
    match ended {
        Some(code) => close(&mut socket, code).await,
        None => Ok(()),
    }
}

async fn ping(socket: &mut WebSocket, upto: usize) -> Sent {
    socket.send(Message::Ping(upto.to_string().into())).await
}

fn confirmed(state: &State, id: &str, upto: usize) {
    if let Some(session) = state.sessions().get_mut(id) {
        session.delivered = session.delivered.max(upto);
    }
}

/// What a surface says first.
struct Hello {
    context: Value,
    joins: bool,
    acks: bool,
}

/// Registers the surface; returns what it is told first, and up to where that goes.
fn attach(
    state: &State,
    id: &str,
    hello: Hello,
    epoch: Uuid,
    out: mpsc::UnboundedSender<Out>,
) -> (Vec<Value>, usize) {
    let mut sessions = state.sessions();
    let session = sessions.get_mut(id).expect("it was there");
    session.early.retain(|early| !early.same_channel(&out));
    let Hello { context, joins, acks } = hello;
    if !joins && let Some(older) = session.surface.take() {
        match state.has(Fault::OlderStays) {
            true => session.joined.push(older),
            false => drop(older.out.send(Out::Close(4009))),
        }
    }
    let tools: Vec<String> = context["mcp_tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.as_str().or(tool["name"].as_str()))
        .map(str::to_owned)
        .collect();
    let device = context["device_type"].as_str().filter(|_| !state.has(Fault::NoEcho));
    let mut welcome = json!({
        "type": "SESSION_ATTACHED", "session_id": id, "queued_turns": session.pending(),
        "surface_id": context["surface_id"].as_str().unwrap_or("surface"),
        "device_type": device.unwrap_or("unknown"),
        "mcp_tools_registered": tools, "sbp_version": "1.2", "sbp_level": "L2",
    });
    if state.has(Fault::OlderNames) {
        welcome["sbp_version"] = json!("0.9");
    }
    if state.has(Fault::ClaimsSeven) {
        welcome["sbp_level"] = json!("L7");
    }
    if state.has(Fault::NoLevel) {
        welcome["sbp_level"] = Value::Null;
    }
    let offered = tools.into_iter();
    let offered = offered.filter(|tool| !state.has(Fault::NamesDropped) || !tool.contains('.'));
    let surface =
        Surface { epoch, out, context, tools: offered.collect(), calls: HashMap::new(), acks };
    let from = usize::from(state.has(Fault::IndexFromOne));
    let mut frames = vec![welcome];
    for (index, turn) in session.turns[session.delivered..].iter().enumerate() {
        frames.push(session.tether_turn(state, index + from, turn));
    }
    let live = session.live.as_ref().filter(|live| !live.text.is_empty());
    if let Some(live) = live.filter(|_| !state.has(Fault::MidSentenceLost)) {
        frames.push(turns::chunk(state, &live.id, id, &live.text));
    }
    match joins {
        true => session.joined.push(surface),
        false => session.surface = Some(surface),
    }
    session.had_surface = true;
    (frames, session.turns.len())
}

/// Until the socket ends; the code to close with, if the server ends it.
async fn talk(
    socket: &mut WebSocket,
    state: &Arc<State>,
    id: &str,
    epoch: Uuid,
    outgoing: &mut mpsc::UnboundedReceiver<Out>,
) -> Option<u16> {
    let mut alive = tokio::time::interval(PING);
    alive.tick().await;
    loop {
        tokio::select! {
            _ = alive.tick(), if !state.has(Fault::NeverPings) => {
                say(socket, &json!({ "type": "PING" })).await.ok()?;
            }
            out = outgoing.recv() => match out? {
                Out::Frame(frame) => say(socket, &frame).await.ok()?,
                Out::Barrier(upto) => {
                    if state.has(Fault::ClearedOnSend) {
                        confirmed(state, id, upto);
                    }
                    ping(socket, upto).await.ok()?;
                }
                Out::Close(code) => return Some(code),
            },
            came = socket.recv() => match came?.ok()? {
                Message::Pong(upto) if !state.has(Fault::NeverConfirmed) => {
                    let upto = String::from_utf8_lossy(&upto).parse().unwrap_or_default();
                    if !acks(state, id, epoch) {
                        confirmed(state, id, upto);
                    }
                }
                Message::Text(frame) => {
                    let frame = serde_json::from_str(frame.as_str()).unwrap_or_default();
                    if let Some(code) = heard(state, id, &frame) {
                        return Some(code);
                    }
                }
                Message::Close(_) => return None,
                _ => {}
            },
        }
    }
}

/// Whether only `TETHER_ACK` of this surface confirms.
fn acks(state: &State, id: &str, epoch: Uuid) -> bool {
    let sessions = state.sessions();
    let session = sessions.get(id);
    session.is_some_and(|session| session.attached().any(|one| one.epoch == epoch && one.acks))
}

/// A frame of an attached surface; the code to close with, if that is the answer.
fn heard(state: &State, id: &str, frame: &Value) -> Option<u16> {
    match text(frame, "type") {
        "DETACH" if state.has(Fault::DetachGoingAway) => Some(1001),
        "DETACH" => Some(1000),
        "TOOL_RESULT" => {
            let mut sessions = state.sessions();
            let surface = sessions.get_mut(id)?.surface.as_mut()?;
            let Some(answer) = surface.calls.remove(text(frame, "call_id")) else {
                return state.has(Fault::UnknownResultCloses).then_some(1003);
            };
            let error = frame.get("error").filter(|_| !state.has(Fault::ErrorsDropped));
            let error = error.filter(|error| !error.is_null());
            let result = error.unwrap_or(&frame["result"]).clone();
            // The call may have been given up.
            let _ = answer.send(result);
            None
        }
        "TETHER_ACK" => {
            let upto = frame["seq"].as_u64().and_then(|seq| usize::try_from(seq).ok());
            confirmed(state, id, upto.unwrap_or_default());
            None
        }
        "PONG" | "ATTACH_SESSION" => None,
        _ if state.has(Fault::UnknownFrameCloses) => Some(1003),
        _ => None,
    }
}

/// How long a socket may say nothing.
const FIRST_FRAME: Duration = Duration::from_secs(10);
const FOREVER: Duration = Duration::from_secs(3600);
const PING: Duration = Duration::from_secs(30);
