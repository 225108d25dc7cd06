//! Imports.

use serde_json::{Value, json};

use super::export::{export, roaming_token};
use crate::came::Came;
use crate::check::{Check, Need, must, run};
use crate::trial::{As, COMPLETIONS, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L3-05",
        "a roaming token is imported as a new session",
        "POST /v1/sbp/sessions/import {roaming_token, target_agent_id, allow_reuse} -> 201 \
         {session_id, new_session_id, session_token, agent_id, step_count, message_count, \
         messages_restored, origin_export_id, memory_restored, provenance}",
        run!(imports),
    ),
    must(
        "SBP-L3-05b",
        "the imported session knows what was said, in order",
        "replays messages in order",
        run!(replayed),
    )
    .needing(&[Need::Model]),
    must(
        "SBP-L3-13",
        "an imported session goes on with another model",
        "Model-agnostic: a bundle from a GPT session imports under any model",
        run!(another_model),
    )
    .needing(&[Need::Model]),
];

pub(super) const IMPORT: &str = "/v1/sbp/sessions/import";

/// Imports, and returns the new session.
pub(super) async fn imported(t: &Trial, body: Value) -> Result<(Session, Came), Stop> {
    let came = t.post(IMPORT, As::Caller, body).await?.is(&[201])?.body;
    let ids = ["/session_id", "/new_session_id"];
    let tokens = ["/session_token", "/new_session_token"];
    Ok((Session::of(&came, &ids, &tokens)?, came))
}

/// Exports a session and imports it.
async fn moved(t: &Trial, session: &Session) -> Result<(Session, Came, Came), Stop> {
    let made = export(t, session, 3600).await?;
    let body =
        json!({ "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance-b" });
    let (arrived, came) = imported(t, body).await?;
    Ok((arrived, came, made))
}

async fn imports(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let (arrived, came, made) = moved(t, &session).await?;
    came.holds(arrived.id != session.id, "another session")?;
    came.is(&["/agent_id"], "conformance-b")?;
    came.is(&["/step_count"], 1)?;
    came.is(&["/message_count", "/messages_restored"], 2)?;
    came.is(&["/origin_export_id"], made.json["export_id"].clone())?;
    came.field(&["/memory_restored"])?;
    came.field(&["/provenance"])?;
    t.look(&arrived).await?.body.is(&["/step_count"], 1)?;
    t.say(&arrived, "Go on.").await.map(drop)
}

async fn replayed(t: &Trial) -> Ended {
    let session = t.session().await?;
    let scripts = [t.saying("The first answer.")?, t.saying("The second answer.")?];
    for script in &scripts {
        t.say(&session, &script.prompt()).await?;
    }
    let (arrived, ..) = moved(t, &session).await?;
    let next = t.saying("Next.")?;
    t.say(&arrived, &next.prompt()).await?;
    let asked = next.asked(1).await?;
    let said = asked.said();
    let place = |part: &str| said.iter().position(|(_, text)| text.contains(part));
    let places: Vec<_> =
        scripts.iter().flat_map(|script| [place(&script.mark()), place(&script.text())]).collect();
    let in_order = places.iter().all(Option::is_some) && places.is_sorted();
    let expected = "upstream: both questions with their answers, in order";
    t.holds(in_order, "a turn in the imported session", expected, &asked.body.to_string())
}

async fn another_model(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let (arrived, ..) = moved(t, &session).await?;
    let script = t.saying("Of another make.")?;
    let mut body = t.asking(Some(&arrived), &script.prompt());
    body["model"] = json!("conformance-of-another-make");
    let answer = t.post(COMPLETIONS, As::Session(&arrived), body).await?.is(&[200])?.body;
    answer.is(&["/choices/0/message/content"], script.text())?;
    let model = script.asked(1).await?.body["model"].clone();
    let same = model == "conformance-of-another-make";
    t.holds(same, &answer.sent, "upstream: the other model's name", &model.to_string())
}
