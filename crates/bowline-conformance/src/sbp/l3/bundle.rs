//! Bundles, where a server gives them out.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::export::{CID, begun, export, path};
use super::import::{IMPORT, imported};
use crate::came::Came;
use crate::check::{Check, must, ours, run};
use crate::federation::keys::content_id;
use crate::trial::{Answer, As, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L3-03",
        "a bundle holds session, messages, memory and metadata",
        "Bundle: sbp_version:\"1.0\", bundle_cid, exported_at, label, session{id, \
         agent_external_id, status, last_task, created_at, step_count}, messages[{role, content, \
         model_used, cost_usd, created_at}], memory{schema_id, payload}, state_snapshot, \
         metadata{export_id, message_count, total_cost_usd}",
        run!(content),
    ),
    must(
        "SBP-L3-04",
        "the content id is the hash of the bundle as Python writes it",
        "bundle_cid = hex SHA-256 of Python's json.dumps(bundle, sort_keys=True), taken before the \
         field is inserted",
        run!(hashed),
    ),
    must(
        "SBP-L3-06d",
        "a bundle that was changed on the way is refused",
        "CID mismatch 422 SBP_TOKEN_INTEGRITY",
        run!(tampered),
    ),
    must(
        "SBP-L3-08",
        "memory of an unknown kind does not block an import",
        "Unknown memory.schema_id: imported without memory, never rejected",
        run!(unknown_memory),
    ),
    ours(
        "SBP-L3-15",
        "the schema of bundles is served",
        "roaming-bundle.schema.json (JSON Schema) is served by the gateway",
        run!(schema),
    ),
    ours(
        "SBP-L3-16",
        "a bundle carries its gateway's signature",
        "A bundle file carries the exporting gateway's signature (ours, in metadata)",
        run!(signed),
    ),
];

/// The bundle of a new export, as text, and the export.
async fn bundle(t: &Trial, session: &Session) -> Result<(String, Came), Stop> {
    let made = export(t, session, 3600).await?;
    let call = format!("exports/{}/bundle", made.text(&["/export_id"])?);
    let answer =
        t.wire.call(Method::GET, &path(session, &call), As::Session(session), None).await?;
    match answer.status {
        200 => Ok((answer.text, made)),
        404 | 405 | 501 => Err(Stop::unable("the server gives no bundles out")),
        _ => Err(answer.body.wrong("the bundle, status 200")),
    }
}

async fn content(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let (text, made) = bundle(t, &session).await?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let came = Came { sent: made.sent.clone(), shown: t.wire.clean(&text), json };
    came.is(&["/sbp_version"], "1.0")?;
    came.text(&["/exported_at"])?;
    came.is(&["/label"], "conformance")?;
    came.is(&["/session/id"], session.id.as_str())?;
    for name in ["agent_external_id", "status", "last_task", "created_at", "step_count"] {
        came.field(&[&format!("/session/{name}")])?;
    }
    let messages = came.list(&["/messages"])?;
    came.holds(messages.len() == 2, "two messages")?;
    for message in messages {
        for name in ["role", "content", "model_used", "cost_usd", "created_at"] {
            came.holds(message.get(name).is_some(), &format!("`{name}` in each message"))?;
        }
    }
    came.field(&["/state_snapshot"])?;
    came.field(&["/memory"])?;
    came.is(&["/metadata/export_id"], made.json["export_id"].clone())?;
    came.is(&["/metadata/message_count"], 2)?;
    came.field(&["/metadata/total_cost_usd"]).map(drop)
}

async fn hashed(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let (text, made) = bundle(t, &session).await?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let said = made.text(CID)?;
    let computed = content_id(&text).unwrap_or_else(|| "no JSON".into());
    let expected = format!("the content id {computed}, which is the bundle's");
    made.holds(said == computed, &expected)?;
    made.holds(json["bundle_cid"] == said, "the same content id in the bundle")
}

/// Imports a bundle itself.
async fn import(t: &Trial, bundle: Value) -> Result<Answer, Stop> {
    let body = json!({ "bundle": bundle, "target_agent_id": "conformance" });
    t.post(IMPORT, As::Caller, body).await
}

/// Whether bundles are imported at all: the protocol asks for roaming tokens only, and a server without bundles may
/// refuse them in any words.
async fn takes_bundles(t: &Trial) -> Ended {
    let answer = import(t, foreign_bundle(Value::Null)).await?;
    match answer.status {
        400..=499 => Err(Stop::unable("the server imports tokens only")),
        _ => answer.is(&[201]).map(drop),
    }
}

/// A bundle as another server could have made it.
fn foreign_bundle(memory: Value) -> Value {
    let mut bundle = json!({
        "sbp_version": "1.0",
        "exported_at": "2026-03-14T09:00:00Z",
        "label": null,
        "session": {
            "id": Uuid::new_v4().to_string(), "agent_external_id": "stranger",
            "status": "running", "last_task": "Hello.", "created_at": "2026-03-14T08:00:00Z",
            "step_count": 1,
        },
        "messages": [
            { "role": "user", "content": "Grüezi from elsewhere.", "model_used": null,
              "cost_usd": 0.0, "created_at": "2026-03-14T08:00:04Z" },
            { "role": "assistant", "content": "Welcome.", "model_used": "gpt-4o",
              "cost_usd": 0.001, "created_at": "2026-03-14T08:00:05Z" },
        ],
        "memory": memory,
        "state_snapshot": null,
        "metadata": {
            "export_id": Uuid::new_v4().to_string(), "message_count": 2, "total_cost_usd": 0.001,
        },
    });
    if let Some(cid) = content_id(&bundle.to_string()) {
        bundle["bundle_cid"] = json!(cid);
    }
    bundle
}

async fn tampered(t: &Trial) -> Ended {
    takes_bundles(t).await?;
    let mut bundle = foreign_bundle(Value::Null);
    bundle["messages"][1]["content"] = json!("Something else.");
    import(t, bundle).await?.is_error(422, "SBP_TOKEN_INTEGRITY")
}

async fn unknown_memory(t: &Trial) -> Ended {
    let unknown =
        json!({ "schema_id": "urn:conformance:unknown:1", "payload": { "any": ["thing"] } });
    takes_bundles(t).await?;
    let came = import(t, foreign_bundle(unknown)).await?.is(&[201])?.body;
    came.is(&["/memory_restored"], false)?;
    let session = Session::of(&came, &["/session_id", "/new_session_id"], &["/session_token"])?;
    t.say(&session, "Go on.").await.map(drop)
}

async fn schema(t: &Trial) -> Ended {
    let path = "/spec/roaming-bundle.schema.json";
    let schema = t.get(path, As::Caller).await?.is(&[200])?.body;
    schema.text(&["/$schema"]).map(drop)
}

async fn signed(t: &Trial) -> Ended {
    let session = begun(t).await?;
    let (text, made) = bundle(t, &session).await?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let signature = json.pointer("/metadata/bowline/signature");
    made.holds(signature.is_some(), "a signature in the bundle's metadata")?;
    let body = json!({
        "roaming_token": made.text(&["/roaming_token"])?, "target_agent_id": "conformance",
        "require_signature": true,
    });
    let (_, came) = imported(t, body).await?;
    came.is(&["/signature/state"], "signed")
}
