//! What a surface says of itself.

use serde_json::{Value, json};

use super::super::l2::live;
use crate::check::{Check, must, run, should};
use crate::trial::{Trial, attach_frame};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L4-01",
        "a surface's description is read under either name",
        "ATTACH_SESSION takes surface_context or surface; SESSION_ATTACHED.device_type echoes what \
         was said",
        run!(either_name),
    ),
    must(
        "SBP-L4-01b",
        "what is absent, null, unknown or of a wrong type is tolerated",
        "all optional; null, absent, wrong type or unknown -> tolerated, default unknown",
        run!(tolerated),
    ),
    must(
        "SBP-L4-04",
        "a bad description does not make the answer worse",
        "Bad or minimal context never degrades the plain experience",
        run!(not_worse),
    ),
    should(
        "SBP-L4-05",
        "a returning device is recognised by its surface_id",
        "surface_id recognises a returning device: last seen, its own preferences, listed with the \
         session",
        run!(returns),
    ),
];

/// Descriptions that say nothing usable.
fn poor() -> [Value; 5] {
    [
        Value::Null,
        json!({}),
        json!("a text"),
        json!({ "device_type": 7, "ui_capabilities": "all", "max_output_tokens": "many",
                "locale": [], "surface_id": {}, "mcp_tools": 1 }),
        json!({ "device_type": null, "ui_capabilities": null, "no_such_field": true }),
    ]
}

async fn either_name(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut echoed = Vec::new();
    for name in ["surface_context", "surface"] {
        let fields = json!({ name: { "device_type": "tablet" } });
        let (socket, attached) = t.attach_saying(&session, fields).await?;
        echoed.push(attached.json["device_type"].clone());
        socket.detach().await?;
    }
    // Each version of the wire has one of the names.
    let one = echoed.iter().any(|echo| echo == "tablet");
    let came = format!("{echoed:?} for surface_context and surface");
    let sent = "ATTACH_SESSION with device_type \"tablet\"";
    t.holds(one, sent, "`device_type` \"tablet\" in SESSION_ATTACHED", &came)
}

async fn tolerated(t: &Trial) -> Ended {
    let session = t.session().await?;
    for context in poor() {
        let (socket, attached) = t.attach(&session, context).await?;
        attached.is(&["/device_type"], "unknown")?;
        socket.detach().await?;
    }
    let mut socket = t.socket(&session).await?;
    socket.send(attach_frame(&session, json!({}))).await?;
    socket.next().await?.is(&["/device_type"], "unknown")?;
    socket.detach().await
}

async fn not_worse(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    for context in poor() {
        let (mut socket, _) = t.attach(&session, context).await?;
        let prompt = t.saying("# Title\n\n**All** of it.").map(|script| script.prompt());
        let running = t.begin(&session, &prompt.unwrap_or_else(|_| "Hello.".into()));
        let (text, end) = live::live(&mut socket).await?;
        let answered = running.turn().await?.text;
        end.holds(text == answered, &format!("the whole answer {answered:?} in chunks"))?;
        socket.detach().await?;
    }
    Ok(())
}

async fn returns(t: &Trial) -> Ended {
    let session = t.session().await?;
    let context = json!({ "surface_id": "conformance-watch", "device_type": "watch" });
    for _ in 0..2 {
        let (socket, attached) = t.attach(&session, context.clone()).await?;
        attached.is(&["/surface_id"], "conformance-watch")?;
        let seen = t.look(&session).await?.body;
        let listed = seen.field(&["/surface", "/surface_context"])?.to_string();
        if !listed.contains("conformance-watch") {
            return Err(Stop::broken(&seen.sent, "the device with the session", &seen.shown));
        }
        socket.detach().await?;
    }
    Ok(())
}
