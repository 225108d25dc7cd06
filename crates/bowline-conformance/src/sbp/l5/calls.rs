//! Calls of a device's tools.

use serde_json::json;

use super::device::Device;
use crate::check::{Check, Need, must, run};
use crate::model::{Act, Asked};
use crate::trial::Trial;
use crate::verdict::Ended;

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L5-01",
        "declared tools are offered to the model, whatever they are called",
        "Declared mcp_tools become callable tools in the model's tool list; mcp_tools_registered \
         says which were taken. A name that a model's API does not take is mapped, never dropped",
        run!(offered),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L5-02",
        "a call reaches the device, and its result the model",
        "TOOL_CALL {call_id, tool_name, tool_input} -> surface answers TOOL_RESULT {call_id, \
         result, error}",
        run!(called),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L5-02b",
        "many calls are in flight, and answered in any order",
        "Many may be in flight; order is free",
        run!(any_order),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L5-04",
        "a result with an unknown call_id is dropped silently",
        "A TOOL_RESULT with an unknown or finished call_id is dropped silently",
        run!(unknown_result),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L5-04b",
        "a tool that the surface did not declare is never called",
        "Never route a call for a tool the surface did not declare",
        run!(undeclared),
    )
    .needing(&[Need::Model]),
];

/// The contents of the tool messages.
pub(super) fn results(asked: &Asked) -> Vec<String> {
    let said = asked.said().into_iter();
    said.filter(|(role, _)| role == "tool").map(|(_, text)| text).collect()
}

async fn offered(t: &Trial) -> Ended {
    let session = t.session().await?;
    let device = Device::attach(t, &session, &["camera", "media.capture"]).await?;
    let script = t.saying("I see two tools.")?;
    t.say(&session, &script.prompt()).await?;
    let tools = script.asked(1).await?.tools();
    let named = |part: &str| tools.iter().any(|name| name.contains(part));
    let of_api = |name: &String| {
        name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    let is = named("camera") && named("capture") && tools.iter().all(of_api);
    let expected = "upstream: both tools, in letters, digits, `_` and `-`";
    t.holds(is, &device.attached.sent, expected, &format!("{tools:?}"))?;
    device.socket.detach().await
}

async fn called(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["media.capture"]).await?;
    let script = t.rounds(vec![
        vec![Act::call("capture", json!({ "mode": "photo" }))],
        vec![Act::say("A photo of the sea.")],
    ])?;
    let running = t.begin(&session, &script.prompt());
    let call = device.called().await?;
    call.is(&["/tool_name"], "media.capture")?;
    call.is(&["/tool_input"], json!({ "mode": "photo" }))?;
    device.answer(&call, json!({ "seen": "the sea at noon" })).await?;
    let text = running.turn().await?.text;
    call.holds(text == script.text(), "the answer after the call")?;
    let asked = script.asked(2).await?;
    let told = results(&asked).iter().any(|result| result.contains("the sea at noon"));
    t.holds(
        told,
        "TOOL_RESULT",
        "upstream: the result in a tool message",
        &asked.body.to_string(),
    )?;
    device.socket.detach().await
}

async fn any_order(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera", "compass"]).await?;
    let script = t.rounds(vec![
        vec![Act::call("camera", json!({})), Act::call("compass", json!({}))],
        vec![Act::say("Both are there.")],
    ])?;
    let running = t.begin(&session, &script.prompt());
    let (first, second) = (device.called().await?, device.called().await?);
    let ids = [first.text(&["/call_id"])?, second.text(&["/call_id"])?];
    second.holds(ids[0] != ids[1], "another `call_id` for each call")?;
    for call in [&second, &first] {
        let result = format!("of {}", call.text(&["/tool_name"])?);
        device.answer(call, json!(result)).await?;
    }
    running.turn().await?;
    let asked = script.asked(2).await?;
    let results = results(&asked);
    // Each result has to stand behind its own call, which came first in the model's list.
    let is = results.len() == 2 && results[0].contains("camera") && results[1].contains("compass");
    let expected = "upstream: each result with its own call";
    t.holds(is, "two TOOL_RESULTs, the second call's first", expected, &asked.body.to_string())?;
    device.socket.detach().await
}

async fn unknown_result(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera"]).await?;
    let unknown = uuid::Uuid::new_v4().to_string();
    let frame = json!({ "type": "TOOL_RESULT", "call_id": unknown, "result": "of nothing" });
    device.socket.send(frame).await?;
    let script = t.rounds(vec![
        vec![Act::call("camera", json!({}))],
        vec![Act::say("A photo of the sea.")],
    ])?;
    let running = t.begin(&session, &script.prompt());
    let call = device.called().await?;
    device.answer(&call, json!("the sea")).await?;
    // The call is finished: a second result of it is dropped, too.
    device.answer(&call, json!("the moon")).await?;
    let text = running.turn().await?.text;
    call.holds(text == script.text(), "the answer, whatever unknown results came")?;
    let asked = script.asked(2).await?;
    let results = results(&asked);
    let is = results.len() == 1 && results[0].contains("the sea");
    let expected = "upstream: the first result alone";
    t.holds(is, "unknown and repeated TOOL_RESULTs", expected, &asked.body.to_string())?;
    device.socket.detach().await
}

async fn undeclared(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera"]).await?;
    let script = t.rounds(vec![
        vec![Act::call("surface_telephone", json!({})), Act::call("camera", json!({}))],
        vec![Act::say("No telephone here.")],
    ])?;
    let running = t.begin(&session, &script.prompt());
    let call = device.called().await?;
    call.is(&["/tool_name"], "camera")?;
    device.answer(&call, json!("the sea")).await?;
    running.answer().await?;
    while let Some(frame) = device.socket.next_within(QUIET).await? {
        frame.holds(frame.kind() != "TOOL_CALL", "no call of a tool that was not declared")?;
    }
    device.socket.detach().await
}

/// Longer than what follows a turn takes.
const QUIET: std::time::Duration = std::time::Duration::from_millis(500);
