//! Replicas share the master secret, the gateway's identity and the keys that sign (G20). Several gateways on
//! one store here, one after another: what they decide by is in the store alone.

use std::path::Path;
use std::sync::Arc;

use bowline_gateway::config::{Config, SecretsConfig};
use bowline_gateway::secrets::BadSecrets;
use bowline_gateway::{Gateway, Signer, StartError, identity_file};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_store::sqlite::Sqlite;
use bowline_store::{Secrets as _, StoredSecret};

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
        let own = identity_file::load_seed(data).unwrap();
        let secrets = SecretsConfig {
            file: master.map(Path::to_owned),
            keep_in_store: true,
            ..SecretsConfig::default()
        };
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
