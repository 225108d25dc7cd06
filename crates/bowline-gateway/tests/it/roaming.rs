//! Helpers for roaming tests: export, import, handoff, fork, and hand-made bundles.

use std::sync::Arc;

use bowline_gateway::config::Config;
use bowline_sbp::cid::Cid;
use bowline_sbp::roaming_token::{RoamingClaims, SigningKey};
use bowline_store::Secrets;
use bowline_store::sqlite::Sqlite;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session, answer, eventually};

pub(crate) const IMPORT: &str = "/v1/sbp/sessions/import";

impl Bench {
    /// Restarts the gateway on the same data.
    pub(crate) async fn reopened(self) -> Self {
        self.reopened_with(|_| {}).await
    }

    /// The same with other settings.
    pub(crate) async fn reopened_with(self, change: impl FnOnce(&mut Config)) -> Self {
        let Bench { gateway, store, folder, .. } = self;
        gateway.stop().await;
        drop(store);
        // Whoever still had a connection lets go of the store in a moment.
        let closed = async || Sqlite::open(folder.path()).is_ok();
        eventually("closed", closed).await;
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        Bench::on(store, folder, change).await
    }

    /// A session with that many turns: "echo 1" and "1", "echo 2" and "2", …
    pub(crate) async fn session_with(&self, turns: usize) -> Session {
        let session = self.session().await;
        self.grow(&session, 1..=turns).await;
        session
    }

    pub(crate) async fn grow(&self, session: &Session, turns: impl IntoIterator<Item = usize>) {
        for n in turns {
            let said = self.say(session, &format!("echo {n}")).await;
            assert_eq!(said.status, 200, "{}", said.text);
        }
    }

    pub(crate) async fn export(&self, session: &Session, body: Value) -> Answer {
        self.post(&of(session, "export"), body).await
    }

    /// Exports the session and returns the roaming token.
    pub(crate) async fn token_of(&self, session: &Session) -> String {
        let exported = self.export(session, json!({})).await;
        assert_eq!(exported.status, 201, "{}", exported.text);
        text(&exported.body["roaming_token"])
    }

    pub(crate) async fn inspect(&self, token: &str) -> Answer {
        self.get(&format!("/v1/sbp/token/{token}")).await
    }

    /// Exports the session and returns the bundle.
    pub(crate) async fn bundle_of(&self, session: &Session) -> String {
        let exported = self.export(session, json!({})).await;
        assert_eq!(exported.status, 201, "{}", exported.text);
        let export = text(&exported.body["export_id"]);
        let bundle = self.get(&of(session, &format!("exports/{export}/bundle"))).await;
        assert_eq!(bundle.status, 200, "{}", bundle.text);
        bundle.text
    }

    pub(crate) async fn import(&self, body: Value) -> Answer {
        self.post(IMPORT, body).await
    }

    pub(crate) async fn import_token(&self, token: &str) -> Answer {
        self.import(json!({ "roaming_token": token })).await
    }

    /// Imports a bundle as it is.
    pub(crate) async fn import_bundle(&self, bundle: &str) -> Answer {
        self.import_bytes(carried(bundle).into_bytes()).await
    }

    /// The same, with its memory for the agent.
    pub(crate) async fn import_with_memory(&self, bundle: &str) -> Answer {
        let body = format!(r#"{{"with_memory": true, "bundle": {bundle}}}"#);
        self.import_bytes(body.into_bytes()).await
    }

    pub(crate) async fn import_bytes(&self, body: Vec<u8>) -> Answer {
        let request = self.http.post(self.url(IMPORT));
        answer(request.header("content-type", "application/json").body(body)).await
    }

    pub(crate) async fn hand_off(&self, session: &Session, to: &str) -> Answer {
        self.post(&of(session, "handoff"), json!({ "to_agent_id": to })).await
    }

    pub(crate) async fn fork(&self, session: &Session, body: Value) -> Answer {
        self.post(&of(session, "fork"), body).await
    }

    pub(crate) async fn lineage(&self, session: &Session) -> Value {
        let lineage = self.get(&of(session, "lineage")).await;
        assert_eq!(lineage.status, 200, "{}", lineage.text);
        lineage.body
    }

    /// The texts of a session's log.
    pub(crate) async fn words(&self, session: &Session) -> Vec<String> {
        self.log(session).await.into_iter().map(|(_, text)| text).collect()
    }

    /// The key that signs roaming tokens here.
    pub(crate) async fn signing_key(&self) -> SigningKey {
        // This gateway has no master secret: they are stored as they are.
        let keys = self.store.signing_keys(vec![0; 32], Timestamp::now()).await.unwrap();
        let keys = keys
            .into_iter()
            .map(|key| SigningKey { id: key.name, secret: key.bytes.try_into().unwrap() });
        let keys: Vec<_> = keys.collect();
        keys.into_iter().next_back().unwrap()
    }

    /// The token's claims with another expiry, signed with this gateway's key: it expired that many
    /// seconds ago.
    pub(crate) async fn expired(&self, token: &str, ago: i64) -> String {
        let key = self.signing_key().await;
        let keys = std::slice::from_ref(&key);
        let claims = RoamingClaims::read_expired(token, keys).unwrap();
        let exp = Timestamp::now().as_second() - ago;
        RoamingClaims { iat: exp - 60, exp, ..claims }.sign(&key)
    }
}

pub(crate) fn of(session: &Session, what: &str) -> String {
    format!("/v1/sbp/sessions/{}/{what}", session.id)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// The names of an object's fields.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The new session in the response of a fork.
pub(crate) fn forked(answer: &Answer) -> Session {
    assert_eq!(answer.status, 201, "{}", answer.text);
    let field = |name: &str| text(&answer.body[name]);
    Session { id: field("fork_session_id"), token: field("session_token") }
}

/// The new session in the response of an import or handoff.
pub(crate) fn made(answer: &Answer) -> Session {
    assert_eq!(answer.status, 201, "{}", answer.text);
    Session::of(&answer.body)
}

/// The request body of an import with a bundle.
pub(crate) fn carried(bundle: &str) -> String {
    format!(r#"{{"bundle": {bundle}}}"#)
}

/// A bundle with the right content id.
pub(crate) fn sealed(text: &str) -> String {
    let mut bundle = parsed(text);
    let cid = Cid::of_bundle(&bundle);
    bundle.as_object_mut().unwrap().insert("bundle_cid", cid.to_string());
    bundle.to_json()
}

pub(crate) fn parsed(text: &str) -> bowline_pyjson::Value<'_> {
    bowline_pyjson::Value::parse(text).unwrap()
}

/// The canonical JSON at this path of a bundle.
pub(crate) fn part(bundle: &bowline_pyjson::Value<'_>, path: &[&str]) -> String {
    let found = path.iter().try_fold(bundle, |value, name| value.get(name));
    found.unwrap_or_else(|| panic!("no {path:?}")).to_canonical()
}

/// A small bundle of another gateway.
pub(crate) const STRANGER: &str = r#"{
    "sbp_version": "1.0", "exported_at": "2026-03-14T09:00:00Z", "label": "from afar",
    "session": {"id": "ses_1", "agent_external_id": "navigator", "status": "running",
                "last_task": "where to", "created_at": "2026-03-14T08:00:00Z", "step_count": 1},
    "messages": [
        {"role": "user", "content": "where to", "model_used": null, "cost_usd": 0.0,
         "created_at": "2026-03-14T08:00:01Z"},
        {"role": "assistant", "content": "north", "model_used": "gpt-x", "cost_usd": 0.25,
         "created_at": "2026-03-14T08:00:02Z"}],
    "memory": null, "state_snapshot": null,
    "metadata": {"export_id": "exp_1", "message_count": 2, "total_cost_usd": 0.25}}"#;
