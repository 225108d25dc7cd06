//! Output that fits the device.

use serde_json::{Value, json};

use super::super::l2::live;
use crate::check::{Check, Need, may, must, run, should};
use crate::trial::{Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L4-02",
        "device and length reach the model, for every device type",
        "device_type and max_output_tokens reach output generation for every device type, desktop \
         and browser too (upstream max_tokens and a short system note)",
        run!(reaches_the_model),
    )
    .needing(&[Need::Model]),
    may(
        "SBP-L4-03",
        "a surface without Markdown gets plain text",
        "Adaptation: no markdown -> plain text; audio/voice -> speakable prose, no lists or URLs",
        run!(plain),
    )
    .needing(&[Need::Model]),
    should(
        "SBP-L4-03b",
        "the stored turn stays the full original",
        "The stored turn is always the full original; adaptation is per delivery",
        run!(original_stays),
    )
    .needing(&[Need::Model]),
];

async fn reaches_the_model(t: &Trial) -> Ended {
    for device in ["mobile", "desktop", "browser"] {
        let session = t.session().await?;
        let context = json!({
            "device_type": device, "max_output_tokens": 77,
            "ui_capabilities": ["text", "markdown", "tables", "images", "streaming"],
        });
        let (socket, _) = t.attach(&session, context).await?;
        let script = t.saying("Short.")?;
        t.say(&session, &script.prompt()).await?;
        let asked = script.asked(1).await?.body;
        let limit = ["max_tokens", "max_completion_tokens"].iter().any(|name| asked[*name] == 77);
        let told = asked["messages"].to_string().contains(device);
        let sent = format!("a turn with a {device} attached that takes 77 tokens");
        let expected = "upstream: max_tokens 77, and the device named in a message";
        t.holds(limit && told, &sent, expected, &asked.to_string())?;
        socket.detach().await?;
    }
    Ok(())
}

const MARKDOWN: &str =
    "# Trip\n\nGo **now** and see [the map](https://example.com/map).\n\n- one\n- two\n";

/// What a surface with this context is shown of an answer in Markdown.
async fn shown(t: &Trial, session: &Session, context: Value) -> Result<String, Stop> {
    let (mut socket, _) = t.attach(session, context).await?;
    let script = t.saying(MARKDOWN)?;
    let running = t.begin(session, &script.prompt());
    let (text, end) = live::live(&mut socket).await?;
    let answered = running.turn().await?.text;
    end.holds(answered == MARKDOWN, "the original over HTTP")?;
    socket.confirm_and_detach().await?;
    Ok(text)
}

async fn plain(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let context = json!({ "device_type": "mobile", "ui_capabilities": ["text", "streaming"] });
    let text = shown(t, &session, context).await?;
    let is_plain = !text.contains("**") && !text.contains("# Trip") && text.contains("now");
    let sent = format!("a device without `markdown`, and the answer {MARKDOWN:?}");
    t.holds(is_plain, &sent, "the text without Markdown's marks", &text)?;
    let context = json!({ "device_type": "voice", "ui_capabilities": ["audio", "streaming"] });
    let text = shown(t, &session, context).await?;
    let is_speech = !text.contains("**") && !text.contains("https://") && !text.contains("- one");
    let sent = format!("a voice device, and the answer {MARKDOWN:?}");
    t.holds(is_speech, &sent, "prose without lists and addresses", &text)
}

async fn original_stays(t: &Trial) -> Ended {
    t.shows_live().await?;
    let session = t.session().await?;
    let context = json!({ "device_type": "mobile", "ui_capabilities": ["text", "streaming"] });
    shown(t, &session, context).await?;
    let next = t.saying("Next.")?;
    t.say(&session, &next.prompt()).await?;
    let asked = next.asked(1).await?;
    let whole = asked.said().iter().any(|(_, text)| text.trim_end() == MARKDOWN.trim_end());
    let expected = "the original in the stored history";
    t.holds(whole, "the turn after an adapted one", expected, &asked.body.to_string())
}
