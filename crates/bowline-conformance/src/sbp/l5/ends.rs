//! A call always ends.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::calls::results;
use super::device::Device;
use crate::check::{Check, Need, must, run, should};
use crate::model::{Act, Script};
use crate::trial::{Begun, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L5-03",
        "a device that goes away in a call is an error to the agent, who goes on",
        "on timeout, disconnect, or no surface the agent gets an error tool result and goes on. \
         Never a deadlock",
        run!(goes_away),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L5-03b",
        "a call that a device does not answer ends as an error to the agent",
        "Timeout MUST be enforced; on timeout the gateway returns an error tool result (not deadlock)",
        run!(ends),
    )
    .needing(&[Need::Model])
    .slow(),
    should(
        "SBP-L5-03d",
        "a call that a device does not answer ends after about 30 s",
        "Timeout (RECOMMENDED: 30 seconds)",
        run!(ends_in_time),
    )
    .needing(&[Need::Model])
    .slow(),
    must(
        "SBP-L5-03c",
        "an error of the device is told to the agent",
        "surface answers TOOL_RESULT {call_id, result, error}",
        run!(fails),
    )
    .needing(&[Need::Model]),
];

fn script(t: &Trial) -> Result<Script, Stop> {
    t.rounds(vec![vec![Act::call("camera", json!({}))], vec![Act::say("Without a photo, then.")]])
}

/// Expects that the model was told of the call, and the turn ended.
async fn went_on(t: &Trial, script: &Script, running: Begun, after: &str) -> Ended {
    let turn = running.turn().await?;
    turn.answer.body.holds(turn.text == script.text(), "the answer after the call")?;
    let asked = script.asked(2).await?;
    let told = results(&asked).len() == 1;
    let expected = "upstream: a tool message that says so";
    t.holds(told, after, expected, &asked.body.to_string())
}

async fn goes_away(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera"]).await?;
    let script = script(t)?;
    let running = t.begin(&session, &script.prompt());
    device.called().await?;
    device.socket.die();
    went_on(t, &script, running, "a device that goes away in the call").await
}

async fn ends(t: &Trial) -> Ended {
    is_late(t, AT_ALL).await
}

async fn ends_in_time(t: &Trial) -> Ended {
    is_late(t, DEFAULT).await
}

/// A device that does not answer, and a call that has to end within that time.
async fn is_late(t: &Trial, within: Duration) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera"]).await?;
    let script = script(t)?;
    let running = t.begin_within(&session, &script.prompt(), within + ANSWER);
    let call = device.called().await?;
    // Ours: how long the device may take. One that asks its user by itself may be given the time of a person.
    if let Some(longer) =
        call.json["timeout_ms"].as_u64().filter(|time| u128::from(*time) > within.as_millis())
    {
        return Err(Stop::unable(format!(
            "the server gives a device that asks its user {} s: have it call `camera` without asking",
            longer / 1000
        )));
    }
    // The device goes on reading, and answers pings, but never the call.
    let reading = async {
        while device.socket.next_within(READING).await.is_ok() {}
        std::future::pending::<()>().await
    };
    tokio::select! {
        ended = timeout(within, went_on(t, &script, running, SILENT)) => ended.unwrap_or_else(|_| {
            let came = format!("the turn runs after {} s", within.as_secs());
            Err(Stop::broken(SILENT, "an error to the agent, and the end of the turn", came))
        }),
        () = reading => Ok(()),
    }
}

async fn fails(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut device = Device::attach(t, &session, &["camera"]).await?;
    let script = script(t)?;
    let running = t.begin(&session, &script.prompt());
    let call = device.called().await?;
    let id = call.text(&["/call_id"])?;
    let frame = json!({ "type": "TOOL_RESULT", "call_id": id, "error": "there is no film" });
    device.socket.send(frame).await?;
    went_on(t, &script, running, "a device that answers with an error").await?;
    let results = results(&script.asked(2).await?);
    let told = results.iter().any(|result| result.contains("there is no film"));
    t.holds(told, "TOOL_RESULT with an error", "the error's words", &format!("{results:?}"))
}

const SILENT: &str = "a device that does not answer the call";
/// The time that the protocol recommends, and some on top.
const DEFAULT: Duration = Duration::from_secs(45);
/// How long a call may take that ends at all.
const AT_ALL: Duration = Duration::from_secs(80);
/// How long the rest of the turn may take.
const ANSWER: Duration = Duration::from_secs(15);
/// How long the device waits for a frame before it waits for the next.
const READING: Duration = Duration::from_secs(15);
