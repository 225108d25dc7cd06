//! Replicas share the master secret, the gateway's identity and the keys that sign (G20). Several gateways on
//! one store here, one after another: what they decide by is in the store alone.

use std::path::Path;
use std::sync::Arc;

use bowline_gateway::config::{Config, SecretsConfig};
use bowline_gateway::secrets::BadSecrets;
use bowline_gateway::stored_identity::{self, StoredIdentityError};
use bowline_gateway::{Gateway, Signer, StartError, identity_file};
use bowline_sbp::federation::GatewayId;
use bowline_sbp::gateway_key::GatewayKey;
use bowline_store::sqlite::Sqlite;
use bowline_store::{Audit as _, AuditQuery, Secrets as _, StoredSecret};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::bench::LOCAL_KEY;

struct Installation {
    folder: tempfile::TempDir,
    store: Arc<Sqlite>,
}

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        Self { folder, store }
    }

    /// A replica with its own folder starts and stops. Returns its identity.
    async fn replica(&self, data: &Path, master: Option<&Path>) -> Result<GatewayKey, StartError> {
        self.with(data, secrets(master)).await
    }

    async fn with(&self, data: &Path, secrets: SecretsConfig) -> Result<GatewayKey, StartError> {
        let own = identity_file::load_seed(data).unwrap();
        let config =
            Config { listen: "127.0.0.1:0".parse().unwrap(), secrets, ..Config::default() };
        let store = Arc::<Sqlite>::clone(&self.store);
        let gateway = Gateway::start(config, store, Some(LOCAL_KEY), Signer::Shared(own)).await?;
        let identity = gateway.identity();
        gateway.stop().await;
        Ok(identity)
    }

    async fn refused(&self, master: Option<&Path>) -> BadSecrets {
        match self.replica(tempfile::tempdir().unwrap().path(), master).await {
            Err(StartError::Secrets(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    async fn secret(&self, name: &str) -> StoredSecret {
        let all = self.store.all_secrets().await.unwrap();
        all.into_iter().find(|secret| secret.name == name).unwrap()
    }
}

fn secrets(master: Option<&Path>) -> SecretsConfig {
    let file = master.map(Path::to_owned);
    SecretsConfig { file, keep_in_store: true, ..SecretsConfig::default() }
}

#[tokio::test]
async fn g20_replicas_sign_with_one_identity_and_the_first_brings_its_own() {
    let here = Installation::new();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let before = identity_file::load_or_make(first.path()).unwrap().public();
    identity_file::load_or_make(second.path()).unwrap();
    assert_eq!(here.replica(first.path(), None).await.unwrap(), before);
    assert_eq!(here.replica(second.path(), None).await.unwrap(), before, "not the file of its own");
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(here.replica(nothing.path(), None).await.unwrap(), before);
    assert!(here.secret("gateway-identity").await.bytes.len() > 32, "it is sealed");
}

#[tokio::test]
async fn g20_a_replica_with_another_master_secret_is_refused() {
    let here = Installation::new();
    let (one, other) = (here.folder.path().join("one.key"), here.folder.path().join("other.key"));
    let data = tempfile::tempdir().unwrap();
    here.replica(data.path(), Some(&one)).await.unwrap();
    here.replica(data.path(), Some(&one)).await.unwrap();
    assert!(matches!(here.refused(Some(&other)).await, BadSecrets::Missing(_)));
    std::fs::copy(&one, here.folder.path().join("kept.key")).unwrap();
    let elsewhere = Installation::new();
    elsewhere.replica(data.path(), Some(&other)).await.unwrap();
    let refused = here.refused(Some(&other)).await;
    assert!(matches!(refused, BadSecrets::Other(_)), "{refused}");
    assert_eq!(here.refused(None).await, BadSecrets::Unset);
}

#[tokio::test]
async fn g20_a_master_secret_in_the_database_gives_way_to_a_file() {
    let here = Installation::new();
    let data = tempfile::tempdir().unwrap();
    let identity = here.replica(data.path(), None).await.unwrap();
    assert_eq!(here.secret("master-secret").await.bytes.len(), 32);
    assert_eq!(here.replica(data.path(), None).await.unwrap(), identity, "it is found again");
    let file = here.folder.path().join("master.key");
    assert_eq!(here.replica(data.path(), Some(&file)).await.unwrap(), identity);
    assert!(here.secret("master-secret").await.bytes.is_empty(), "it is in the file alone");
    assert_eq!(here.replica(data.path(), Some(&file)).await.unwrap(), identity);
    assert_eq!(here.refused(None).await, BadSecrets::Unset);
}

#[tokio::test]
async fn sbp_l6_01_the_identity_of_replicas_is_replaced_and_the_older_ones_lead_to_it() {
    let here = Installation::new();
    let (data, file) = (tempfile::tempdir().unwrap(), here.folder.path().join("master.key"));
    let (settings, home) = (secrets(Some(&file)), "home".parse::<GatewayId>().unwrap());
    let at = |second| Timestamp::from_second(second).unwrap();
    let load = async |now| stored_identity::load(&settings, &*here.store, at(now)).await;
    let rotate = async |until, now| {
        stored_identity::rotate(&settings, &*here.store, &home, at(until), at(now)).await
    };
    assert_eq!(load(0).await, Err(StoredIdentityError::NotMade));
    assert_eq!(rotate(9, 0).await, Err(StoredIdentityError::NotMade));
    assert!(here.store.all_secrets().await.unwrap().is_empty(), "looking makes nothing");
    assert!(!file.exists());

    let first = here.replica(data.path(), Some(&file)).await.unwrap();
    assert_eq!(load(0).await, Ok((first, Vec::new())));
    let (old, second) = rotate(100, 0).await.unwrap();
    assert_eq!(old, first);
    assert_eq!(here.replica(data.path(), Some(&file)).await.unwrap(), second);
    let (old, third) = rotate(200, 50).await.unwrap();
    assert_eq!(old, second);
    assert!(here.secret("gateway-identity").await.bytes.len() > 32, "it is sealed");
    let kept = async |now| {
        let (present, previous) = load(now).await.unwrap();
        assert_eq!(present, third);
        previous.into_iter().map(|previous| previous.key).collect::<Vec<_>>()
    };
    assert_eq!(kept(99).await, [first, second]);
    assert_eq!(kept(100).await, [second]);
    assert!(kept(200).await.is_empty());
    let audit = AuditQuery { limit: 9, ..AuditQuery::default() };
    let audit = here.store.audit(audit).await.unwrap();
    let rotated = audit.iter().find(|entry| entry.action == "identity.rotate").unwrap();
    assert_eq!(rotated.object, format!("{} {}", second.fingerprint(), third.fingerprint()));

    // Who has another master secret replaces nothing, and who has lost it leaves no statements of a key that is gone.
    let other = secrets(Some(&here.folder.path().join("other.key")));
    let refused = stored_identity::rotate(&other, &*here.store, &home, at(300), at(60)).await;
    assert!(matches!(refused, Err(StoredIdentityError::Secrets(_))), "{refused:?}");
    let renewed = here.with(data.path(), SecretsConfig { renew: true, ..other.clone() }).await;
    let now = stored_identity::load(&other, &*here.store, at(60)).await;
    assert_eq!(now, Ok((renewed.unwrap(), Vec::new())));
}

#[tokio::test]
async fn sbp_l6_01_a_replica_that_has_not_looked_for_the_new_key_takes_what_it_has_signed() {
    let here = Installation::new();
    let home: GatewayId = "home".parse().unwrap();
    let start = async || {
        let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        config.secrets = secrets(None);
        config.federation.enabled = true;
        config.federation.gateway_id = Some(home.clone());
        let store = Arc::<Sqlite>::clone(&here.store);
        Gateway::start(config, store, Some(LOCAL_KEY), Signer::Shared(None)).await.unwrap()
    };
    let late = start().await;
    let first = late.identity();
    let (now, until) = (Timestamp::now(), Timestamp::now() + SignedDuration::from_hours(1));
    let rotated = stored_identity::rotate(&secrets(None), &*here.store, &home, until, now).await;
    let new = start().await;
    assert_eq!((late.identity(), Ok((first, new.identity()))), (first, rotated));

    let http = reqwest::Client::new();
    let post = async |path: &str| {
        let asked = http.post(new.url() + path).bearer_auth(LOCAL_KEY).json(&json!({}));
        asked.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let made = post("/v1/sessions").await;
    let made =
        post(&format!("/v1/sbp/sessions/{}/export", made["session_id"].as_str().unwrap())).await;
    let token = made["roaming_token"].as_str().unwrap_or_else(|| panic!("{made}"));
    let inspected = async |token: &str| {
        let asked = http.get(format!("{}/v1/sbp/token/{token}", late.url())).bearer_auth(LOCAL_KEY);
        asked.send().await.unwrap().status().as_u16()
    };
    assert_eq!(inspected(token).await, 200);
    assert_eq!(late.identity(), new.identity());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{}", signature.chars().rev().collect::<String>());
    assert_ne!(inspected(&forged).await, 200);
    late.stop().await;
    new.stop().await;
}
