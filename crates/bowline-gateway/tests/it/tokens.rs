//! Tokens of sessions: replaced, revoked, expired; and the secrets behind them, outside the database (G20).

use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::config::{Config, SecretsConfig};
use bowline_gateway::secrets::BadSecrets;
use bowline_gateway::{Gateway, StartError};
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_store::sqlite::Sqlite;
use bowline_store::{Secrets, StoredSecret};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, LOCAL_KEY, Session, eventually};
use crate::people::{call, get, person, session_of};

async fn replaced(bench: &Bench, session: &Session) -> Session {
    let path = format!("/v1/sessions/{}/token", session.id);
    let made = call(bench, LOCAL_KEY, Method::POST, &path, Value::Null).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert!(made.body.get("expires_at").is_none());
    Session::of(&made.body)
}

async fn reads(bench: &Bench, session: &Session) -> u16 {
    // As a session token: on an open gateway a wrong bearer counts as none.
    let path = format!("/v1/sessions/{}", session.id);
    bench
        .call(Method::GET, &path, &[("x-session-token", &session.token)], &Value::Null)
        .await
        .status
}

#[tokio::test]
async fn g20_a_replaced_token_opens_nothing_and_its_surfaces_are_cut_off() {
    let bench = Bench::start().await;
    let first = bench.session().await;
    let (mut old, _) = bench.attach(&first).await;
    let second = replaced(&bench, &first).await;
    assert_ne!(first.token, second.token);
    assert_eq!(old.next().await["type"], "FORBIDDEN");
    assert_eq!(old.closed().await, 4003);
    assert_eq!((reads(&bench, &first).await, reads(&bench, &second).await), (403, 200));
    let (mut new, _) = bench.attach(&second).await;
    let third = replaced(&bench, &second).await;
    assert_eq!(new.closed().await, 4003);
    // A turn by key says the token that is valid now.
    let bearer = format!("Bearer {LOCAL_KEY}");
    let body = json!({
        "model": "bowline/offline", "messages": [{ "role": "user", "content": "echo x" }],
        "sbp": { "session_id": first.id },
    });
    let said = bench.chat_as(&[("authorization", &bearer)], body).await;
    assert_eq!(said.header("x-session-token"), third.token);
    // Its devices have tokens of their own.
    let path = format!("/v1/sessions/{}/surfaces", first.id);
    let device = call(&bench, &third.token, Method::POST, &path, json!({})).await;
    let device = device.body["surface_token"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{}/token", first.id);
    let revoked = call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
    assert_eq!(revoked.status, 204);
    let by = |token: &str| Session { token: token.into(), ..first.clone() };
    assert_eq!(reads(&bench, &third).await, 403);
    assert_eq!(reads(&bench, &by(&device)).await, 200);
    assert_eq!(get(&bench, LOCAL_KEY, &format!("/v1/sessions/{}", first.id)).await.status, 200);
    // No answer tells a token that does not exist.
    let body = json!({
        "model": "bowline/offline", "messages": [{ "role": "user", "content": "echo x" }],
        "sbp": { "session_id": first.id },
    });
    let said = bench.chat_as(&[("authorization", &bearer)], body).await;
    assert_eq!((said.status, said.header("x-session-token")), (200, ""));
}

#[tokio::test]
async fn g20_a_token_that_its_caller_chose_can_be_replaced_and_a_token_replaces_none() {
    let bench = Bench::start().await;
    let chosen = "a-token-that-is-long-enough-for-this";
    let made = bench.post("/v1/sessions", json!({ "session_token": chosen })).await;
    let session = Session::of(&made.body);
    assert_eq!(session.token, chosen);
    let path = format!("/v1/sessions/{}/token", session.id);
    for method in [Method::POST, Method::DELETE] {
        let refused = call(&bench, chosen, method, &path, Value::Null).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
    }
    let new = replaced(&bench, &session).await;
    assert_eq!((reads(&bench, &session).await, reads(&bench, &new).await), (403, 200));
    let turn = json!({
        "model": "bowline/offline", "messages": [{ "role": "user", "content": "echo x" }],
    });
    let old = bench.chat_as(&[("x-session-token", chosen)], turn).await;
    assert_eq!(old.status, 403, "{}", old.text);
}

#[tokio::test]
async fn g20_only_who_may_do_as_much_is_given_the_new_token() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let less = crate::people::key(&bench, "ada", json!({ "scopes": ["turns", "read"] })).await;
    let path = format!("/v1/sessions/{}/token", session.id);
    let made = call(&bench, &less.key, Method::POST, &path, Value::Null).await;
    assert_eq!((made.status, made.body.get("session_token")), (200, None));
    assert_eq!(reads(&bench, &session).await, 403, "it was replaced all the same");
    let foreign = person(&bench, "bob").await;
    let refused = call(&bench, &foreign.key, Method::POST, &path, Value::Null).await;
    assert_eq!(refused.status, 404);
}

#[tokio::test]
async fn g20_tokens_expire_where_the_configuration_says_so() {
    let bench = Bench::with(|config| config.tokens.session_ttl = Duration::from_secs(6)).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    assert_eq!(phone.closed().await, 4003);
    eventually("the token expires", async || reads(&bench, &session).await == 403).await;
    // One that its caller chose, too, and what is made with one lives no longer.
    let chosen = "a-token-that-is-long-enough-for-this";
    let made = bench.post("/v1/sessions", json!({ "session_token": chosen })).await;
    let own = Session::of(&made.body);
    let path = format!("/v1/sessions/{}/surfaces", own.id);
    let device = call(&bench, chosen, Method::POST, &path, json!({})).await;
    let device = device.body["surface_token"].as_str().unwrap().to_owned();
    let turn = || {
        json!({
            "model": "bowline/offline", "messages": [{ "role": "user", "content": "echo x" }],
        })
    };
    eventually("a chosen token expires", async || {
        bench.chat_as(&[("x-session-token", chosen)], turn()).await.status == 403
    })
    .await;
    let by_device = Session { token: device, ..own };
    eventually("its device's token expires", async || reads(&bench, &by_device).await == 403).await;
    let path = format!("/v1/sessions/{}/token", session.id);
    let made = call(&bench, LOCAL_KEY, Method::POST, &path, Value::Null).await;
    assert!(made.body["expires_at"].is_string(), "{}", made.text);
    assert_eq!(reads(&bench, &Session::of(&made.body)).await, 200);
}

fn with_file(folder: &std::path::Path) -> Config {
    let file = Some(folder.join("secrets.key"));
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        secrets: SecretsConfig { file, ..SecretsConfig::default() },
        ..Config::default()
    }
}

async fn started(config: Config, store: &Arc<Sqlite>) -> Result<Gateway, StartError> {
    let signer = GatewayIdentity::from_seed(&[1; 32]);
    Gateway::start(config, Arc::<Sqlite>::clone(store), Some(LOCAL_KEY), signer).await
}

#[tokio::test]
async fn g20_a_stolen_database_opens_nothing_and_an_older_one_is_sealed() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let path = format!("/v1/sbp/sessions/{}/export", session.id);
    let exported = call(&bench, &session.token, Method::POST, &path, json!({})).await;
    let roaming = exported.body["roaming_token"].as_str().unwrap().to_owned();
    let Bench { gateway, owner, store, folder, http } = bench;
    gateway.stop().await;
    let plain = store.all_secrets().await.unwrap();
    assert!(plain.iter().all(|secret| secret.bytes.len() == 32), "{plain:?}");
    // The next version seals what it finds.
    let gateway = started(with_file(folder.path()), &store).await.unwrap();
    let sealed = store.all_secrets().await.unwrap();
    assert_eq!(sealed.len(), plain.len() + 1, "and the zeros by which the master secret is known");
    for before in &plain {
        let is_same = |now: &&StoredSecret| now.name == before.name;
        let now = sealed.iter().find(is_same).unwrap();
        assert!(!now.bytes.windows(8).any(|bytes| before.bytes.windows(8).any(|b| b == bytes)));
        for file in ["bowline.db", "bowline.db-wal"] {
            let bytes = std::fs::read(folder.path().join(file)).unwrap_or_default();
            let found = bytes.windows(32).any(|bytes| bytes == before.bytes);
            assert!(!found, "{} is in {file}", before.name);
        }
    }
    let bench = Bench { gateway, owner, store, folder, http };
    assert_eq!(reads(&bench, &session).await, 200);
    let known = bench.get(&format!("/v1/sbp/token/{roaming}")).await;
    assert_eq!(known.status, 200, "{}", known.text);
    let rotated = bench.post_as_owner("/v1/sbp/keys/rotate", json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    let all = bench.store.all_secrets().await.unwrap();
    assert!(all.iter().all(|secret| secret.bytes.len() > 32), "new ones, too");
}

#[tokio::test]
async fn g20_secrets_that_do_not_fit_are_refused_until_they_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path()).unwrap());
    let config = || with_file(folder.path());
    started(config(), &store).await.unwrap().stop().await;
    let refused = async |config: Config| match started(config, &store).await {
        Err(StartError::Secrets(why)) => why,
        other => panic!("{other:?}"),
    };
    let unset = Config { secrets: SecretsConfig::default(), ..config() };
    assert_eq!(refused(unset).await, BadSecrets::Unset);
    let kept = std::fs::read(folder.path().join("secrets.key")).unwrap();
    std::fs::remove_file(folder.path().join("secrets.key")).unwrap();
    assert!(matches!(refused(config()).await, BadSecrets::Missing(_)));
    assert!(!folder.path().join("secrets.key").exists(), "none is made that opens nothing");
    let mut other = config();
    other.secrets.file = Some(folder.path().join("other.key"));
    other.secrets.renew = true;
    started(other.clone(), &store).await.unwrap().stop().await;
    // Now the other one counts, and the first does not.
    other.secrets.renew = false;
    started(other, &store).await.unwrap().stop().await;
    bowline_net::private_file::replace(&folder.path().join("secrets.key"), &kept).unwrap();
    assert!(matches!(refused(config()).await, BadSecrets::Other(_)));
}
