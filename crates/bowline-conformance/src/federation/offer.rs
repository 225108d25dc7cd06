//! A session that the suite's peer offers: its bundle and its roaming token.

use serde_json::{Value, json};
use uuid::Uuid;

use super::keys::Identity;
use super::peer::{Persona, now};

/// A bundle that the peer has.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) persona: Persona,
    pub(crate) export: String,
    pub(crate) cid: String,
    pub(crate) token: String,
    /// What was said in the session; nowhere else.
    pub(crate) question: String,
    pub(crate) answer: String,
    pub(crate) bundle: String,
    /// The token was used up.
    pub(crate) is_used: bool,
}

impl Offer {
    pub(super) fn new(identity: &Identity, persona: Persona, url: &str) -> Self {
        let (export, session) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let mark = Uuid::new_v4().simple().to_string();
        let question = format!("Where is the key {mark}?");
        let answer = format!("The key {mark} is under the mat.");
        let message = |role: &str, content: &str, model: Option<&str>| {
            json!({ "role": role, "content": content, "model_used": model, "cost_usd": 0.0,
                    "created_at": "2026-03-14T08:00:04Z" })
        };
        let (bundle, cid) = identity.sealed(json!({
            "sbp_version": "1.0",
            "exported_at": "2026-03-14T09:00:00Z",
            "label": "conformance",
            "session": {
                "id": session, "agent_external_id": "stranger", "status": "running",
                "last_task": question, "created_at": "2026-03-14T08:00:00Z", "step_count": 1,
            },
            "messages": [
                message("user", &question, None),
                message("assistant", &answer, Some("gpt-4o")),
            ],
            "memory": null,
            "state_snapshot": null,
            "metadata": { "export_id": export, "message_count": 2, "total_cost_usd": 0.0 },
        }));
        let iat = now();
        let claims = json!({
            "sub": export, "sid": session, "iat": iat, "exp": iat + 3600, "iss": persona.id(),
            "cid": cid, "url": url,
        });
        let (token, bundle) = (identity.token("JWT", &claims), bundle.to_string());
        Self { persona, export, cid, token, question, answer, bundle, is_used: false }
    }

    /// The claims of the token, for another one that is like it.
    pub(crate) fn claims(&self) -> Value {
        super::keys::peek(&self.token).map_or(Value::Null, |(_, claims)| claims)
    }
}
