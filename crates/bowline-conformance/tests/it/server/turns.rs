//! Turns: what the model is asked, what surfaces are shown, what is stored.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use super::sessions::{Live, Out, Turn};
use super::upstream::{Said, ask};
use super::{Fault, State, adapted};

/// A turn that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) said: Said,
    pub(crate) steps: u64,
}

/// Runs a turn, and hands each piece of text on. Nothing, if the model failed.
pub(crate) async fn run(
    state: Arc<State>,
    id: String,
    mut body: Value,
    pieces: mpsc::UnboundedSender<String>,
) -> Option<Done> {
    let running = Arc::clone(&state.sessions().get(&id)?.running);
    let _one_at_a_time = match state.has(Fault::TurnsAtOnce) {
        true => None,
        false => Some(running.lock().await),
    };
    let turn_id = Uuid::new_v4().to_string();
    let is_read = body["sbp"]["tether"] == false;
    let (tools, mut added) = begin(&state, &id, &turn_id, &mut body);
    let had_surface = state.sessions().get(&id)?.surface.is_some();
    loop {
        let said = ask(&state, &body, |piece| shown(&state, &id, piece, &pieces)).await;
        let whole = said.as_ref().is_some_and(|said| said.whole);
        let said = match said {
            Some(said) if whole || (state.has(Fault::HalfIsComplete) && !said.text.is_empty()) => {
                said
            }
            said if state.has(Fault::EmptyIsComplete)
                && said.as_ref().is_none_or(|said| said.text.is_empty()) =>
            {
                Said { whole: true, text: "nothing".into(), ..Said::default() }
            }
            _ => {
                if let Some(session) = state.sessions().get_mut(&id) {
                    session.live = None;
                }
                return None;
            }
        };
        let mut message = json!({ "role": "assistant", "content": said.text });
        if !said.calls.is_empty() {
            message["tool_calls"] = json!(said.calls);
        }
        added.push(message.clone());
        let of_surface =
            |call: &Value| super::text(&call["function"], "name").starts_with("surface_");
        if said.calls.is_empty() || !said.calls.iter().any(of_surface) {
            let ended = Ended {
                turn_id,
                added,
                model: super::text(&body, "model").to_owned(),
                is_read,
                had_surface,
            };
            return end(&state, &id, ended, said);
        }
        let messages = body["messages"].as_array_mut()?;
        messages.push(message);
        for result in results(&state, &id, &said.calls, &tools).await {
            messages.push(result.clone());
            added.push(result);
        }
    }
}

/// A tool of the surface: the name that is offered, and its own.
type Tool = (String, String);

/// Prepares the request; returns the surface's tools and the messages that are new.
fn begin(state: &State, id: &str, turn_id: &str, body: &mut Value) -> (Vec<Tool>, Vec<Value>) {
    let mut sessions = state.sessions();
    let Some(session) = sessions.get_mut(id) else { return Default::default() };
    session.live = Some(Live { id: turn_id.to_owned(), text: String::new() });
    let mut messages = session.messages.clone();
    if state.has(Fault::HistoryReversed) {
        messages.reverse();
    }
    let mut new = body["messages"].as_array().cloned().unwrap_or_default();
    if !state.has(Fault::ResentTwice) {
        // A caller that sends its history again.
        let same = |(kept, sent): (&Value, &Value)| {
            ["role", "content"].iter().all(|name| kept[*name] == sent[*name])
        };
        let kept = session.messages.len();
        if new.len() > kept && session.messages.iter().zip(&new).all(same) {
            new.drain(..kept);
        }
    }
    messages.extend(new.iter().cloned());
    body["messages"] = json!(messages);
    if !state.has(Fault::SbpForwarded)
        && let Some(fields) = body.as_object_mut()
    {
        fields.remove("sbp");
    }
    if state.has(Fault::ModelRewritten) {
        body["model"] = json!("another");
    }
    if state.has(Fault::ImportKeepsModel)
        && let Some(model) = &session.model
    {
        body["model"] = json!(model);
    }
    if state.has(Fault::CallersToolsDropped)
        && let Some(fields) = body.as_object_mut()
    {
        fields.remove("tools");
    }
    if !state.has(Fault::DeviceUntold) {
        adapted::tell(session.surface.as_ref(), body);
    }
    let mut tools = Vec::new();
    for name in session.surface.iter().flat_map(|surface| &surface.tools) {
        let offered = format!("surface_{}", name.replace('.', "_"));
        let tool = json!({ "type": "function", "function": { "name": offered } });
        match body["tools"].as_array_mut() {
            Some(list) => list.push(tool),
            None => body["tools"] = json!([tool]),
        }
        tools.push((offered, name.clone()));
    }
    (tools, new)
}

/// A piece of a turn, for a surface.
pub(crate) fn chunk(state: &State, turn: &str, session: &str, text: &str) -> Value {
    let name = if state.has(Fault::OlderNames) { "chunk" } else { "delta" };
    json!({ "type": "TURN_CHUNK", "chunk_id": turn, name: text, "session_id": session })
}

/// Shows a piece of text to whoever looks.
fn shown(state: &State, id: &str, piece: &str, pieces: &mpsc::UnboundedSender<String>) {
    // An HTTP caller that has gone is no reason to stop.
    let _ = pieces.send(piece.to_owned());
    let mut sessions = state.sessions();
    let Some(session) = sessions.get_mut(id) else { return };
    let Some(live) = &mut session.live else { return };
    live.text += piece;
    let chunk = chunk(state, &live.id, &session.id, piece);
    if state.has(Fault::LiveBeforeAttached) {
        session.early.retain(|early| early.send(Out::Frame(chunk.clone())).is_ok());
    }
    for surface in session.attached() {
        let streams = surface.streams() || state.has(Fault::ChunksForAll);
        if streams && (state.has(Fault::MarkdownForAll) || adapted::shows_all(surface)) {
            surface.send(chunk.clone());
        }
    }
}

/// Calls the surface's tools at once, and gives the results in the order of the calls.
async fn results(state: &Arc<State>, id: &str, calls: &[Value], tools: &[Tool]) -> Vec<Value> {
    let mut waiting = Vec::new();
    for call in calls {
        let offered = super::text(&call["function"], "name");
        let own = tools.iter().find(|(name, _)| name == offered).map(|(_, own)| own.as_str());
        let own = match own {
            None if state.has(Fault::Undeclared) => Some(offered),
            own => own,
        };
        waiting.push((call["id"].clone(), own.and_then(|own| called(state, id, own, call))));
    }
    let mut results = Vec::new();
    for (call_id, answer) in waiting {
        let result = match answer {
            None => "error: there is no such tool".to_owned(),
            Some(answer) => match timeout(patience(state), answer).await {
                Ok(Ok(result)) => result.to_string(),
                // Its sender is gone with the surface.
                Ok(Err(_)) if state.has(Fault::DeviceGoneForgotten) => std::future::pending().await,
                Ok(Err(_)) => "error: the device went away".to_owned(),
                Err(_) => "error: the device did not answer".to_owned(),
            },
        };
        results.push(json!({ "role": "tool", "tool_call_id": call_id, "content": result }));
    }
    if state.has(Fault::ResultsMixed) && results.len() == 2 {
        let first = results[0]["content"].take();
        results[0]["content"] = results[1]["content"].take();
        results[1]["content"] = first;
    }
    results
}

fn called(state: &State, id: &str, own: &str, call: &Value) -> Option<oneshot::Receiver<Value>> {
    let input = super::text(&call["function"], "arguments");
    let input: Value = serde_json::from_str(input).unwrap_or_default();
    let call_id = Uuid::new_v4().to_string();
    let (answer, answered) = oneshot::channel();
    let mut sessions = state.sessions();
    let surface = sessions.get_mut(id)?.surface.as_mut()?;
    surface.calls.insert(call_id.clone(), answer);
    surface.send(json!({
        "type": "TOOL_CALL", "call_id": call_id, "tool_name": own, "tool_input": input,
    }));
    Some(answered)
}

/// How long a device may take.
fn patience(state: &State) -> Duration {
    Duration::from_secs(match () {
        () if state.has(Fault::DeviceWaitedForever) => 3600,
        () if state.has(Fault::DeviceWaitedLong) => 60,
        () => 30,
    })
}

/// A turn whose model has said all.
struct Ended {
    turn_id: String,
    added: Vec<Value>,
    model: String,
    /// Its caller is the only reader.
    is_read: bool,
    /// A surface was attached when it began.
    had_surface: bool,
}

/// Stores the turn, and shows its end.
fn end(state: &State, id: &str, ended: Ended, said: Said) -> Option<Done> {
    let mut sessions = state.sessions();
    let session = sessions.get_mut(id)?;
    session.live = None;
    let mut added = ended.added;
    if state.has(Fault::AdaptedStored)
        && let Some(surface) = &session.surface
        && let Some(last) = added.last_mut()
    {
        last["content"] = json!(adapted::adapted(surface, &said.text));
    }
    session.messages.extend(added);
    session.steps += 1;
    let seq = session.turns.len() + 1;
    let turn_id = ended.turn_id;
    let turn = Turn { id: turn_id.clone(), seq, text: said.text.clone(), model: ended.model };
    let chunk_id = match state.has(Fault::OtherChunkId) {
        true => Uuid::new_v4().to_string(),
        false => turn_id.clone(),
    };
    let complete = json!({
        "type": "TURN_COMPLETE", "chunk_id": chunk_id, "session_id": session.id,
    });
    let whole = session.tether_turn(state, 0, &turn);
    session.turns.push(turn);
    let upto = session.turns.len();
    let lost = ended.had_surface && state.has(Fault::DroppedLiveLost);
    let never_left = !session.had_surface && state.has(Fault::TetherAfterDetach);
    let counts_as_read = never_left || state.has(Fault::TetherByHook);
    let is_read = counts_as_read || ended.is_read && !state.has(Fault::TetherAlways);
    let nobody = session.attached().next().is_none();
    if is_read || (nobody && lost) {
        session.delivered = upto;
    }
    for surface in session.attached() {
        if !surface.streams() {
            surface.send(whole.clone());
        } else {
            if !adapted::shows_all(surface) && !state.has(Fault::MarkdownForAll) {
                let text = adapted::adapted(surface, &said.text);
                surface.send(chunk(state, &turn_id, &session.id, &text));
            }
            surface.send(complete.clone());
        }
        let _ = surface.out.send(Out::Barrier(upto));
    }
    Some(Done { said, steps: session.steps })
}
