//! `bowline identity`: shows or replaces the key of a gateway or tracker, by which other gateways know it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bowline_gateway::config::SecretsConfig;
use bowline_gateway::identity_file::{self, IdentityFileError};
use bowline_gateway::stored_identity::{self, StoredIdentityError};
use bowline_sbp::federation::{GatewayId, PreviousKey};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_store::Upkeep as _;
use bowline_store::copy::Place;
use bowline_store::postgres::{self, Postgres, PostgresConfig, SCHEMA_VERSION};
use jiff::Timestamp;
use serde_json::json;

use super::export::show;
use super::tracker;
use crate::cli::SettingArgs;
use crate::cli::federation::{IdentityArgs, IdentityCommand};
use crate::cli::store::StoreFlags;
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::storage;
use crate::terminal::utc;

/// Where the key is.
enum IdentityPlace {
    Folder(PathBuf),
    /// That of replicas, sealed with their master secret.
    Database(Box<Postgres>, SecretsConfig),
}

pub(crate) async fn run(args: IdentityArgs) -> Result<ExitCode, Failure> {
    let IdentityArgs { config, data, store, tracker: is_tracker, command } = args;
    let (key, configured) = if is_tracker {
        let settings = Settings::load(&SettingArgs { config, ..SettingArgs::default() })?;
        let folder = data.unwrap_or_else(|| tracker::folder(&settings.tracker));
        (IdentityPlace::Folder(folder), Some(settings.tracker.id))
    } else {
        let store = StoreFlags { store, bus: None };
        let settings = SettingArgs { config, data, store, ..SettingArgs::default() };
        let settings = Settings::load(&settings)?;
        let key = match storage::place(&settings).await? {
            Place::Sqlite(folder) => IdentityPlace::Folder(folder),
            Place::Postgres(config) => {
                let mut secrets = settings.gateway.secrets;
                secrets.keep_in_store = true;
                IdentityPlace::Database(Box::new(opened(&config).await?), secrets)
            }
        };
        (key, settings.gateway.federation.gateway_id)
    };
    let done = match command {
        IdentityCommand::Show { json } => key.show(json).await,
        IdentityCommand::Rotate { gateway_id, overlap, json } => match gateway_id.or(configured) {
            Some(id) => key.rotate(&id, overlap, json).await,
            None => Err(Failure::new(
                "the old key signs the new one for a gateway id, and there is none",
            )
            .hint("name it: --gateway-id home")
            .kind(FailureKind::Usage)),
        },
    };
    if let IdentityPlace::Database(store, _) = &key {
        store.close().await;
    }
    done
}

/// A database that is looked at, and not migrated because of that.
async fn opened(config: &PostgresConfig) -> Result<Postgres, Failure> {
    match postgres::version_of(config).await? {
        Some(SCHEMA_VERSION) => Ok(Postgres::open(config).await?),
        None => Err(stored(StoredIdentityError::NotMade)),
        Some(found) => Err(Failure::new(format!(
            "the database has schema version {found}, and this bowline works with {SCHEMA_VERSION}"
        ))
        .hint("start a gateway of this version, or run `bowline store migrate`")),
    }
}

impl IdentityPlace {
    /// The public key, and the older ones whose statements still count.
    async fn load(&self) -> Result<(GatewayKey, Vec<PreviousKey>), Failure> {
        let now = Timestamp::now();
        match self {
            Self::Database(store, secrets) => {
                stored_identity::load(secrets, &**store, now).await.map_err(stored)
            }
            Self::Folder(folder) => {
                let key = identity_file::load(folder).map_err(failed)?.ok_or_else(|| {
                    Failure::new("this data folder has no identity yet")
                        .hint("a gateway makes it when it starts")
                })?;
                let previous = identity_file::load_previous(folder, now).map_err(failed)?;
                Ok((key.public(), previous))
            }
        }
    }

    async fn show(&self, json: bool) -> Result<ExitCode, Failure> {
        let (key, previous) = self.load().await?;
        let fingerprint = key.fingerprint().to_string();
        let until = |second| Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        let older: Vec<_> = previous
            .iter()
            .map(|older| {
                json!({
                    "key": older.key.to_string(),
                    "fingerprint": older.key.fingerprint().to_string(),
                    "until": until(older.until).to_string(),
                })
            })
            .collect();
        let seen = json!({
            "key": key.to_string(),
            "spki": key.to_spki(),
            "fingerprint": fingerprint,
            "previous": older,
        });
        let mut lines = vec![fingerprint, format!("key {key}")];
        lines.extend(previous.iter().map(|older| {
            format!("until {}: {}", utc(until(older.until)), older.key.fingerprint())
        }));
        Ok(show(&seen, json, &lines))
    }

    async fn rotate(
        &self,
        id: &GatewayId,
        overlap: Duration,
        json: bool,
    ) -> Result<ExitCode, Failure> {
        let now = Timestamp::now();
        let until = now.checked_add(overlap);
        let until = until.map_err(|_| Failure::new("the overlap is too long"))?;
        let (old, new) = match self {
            Self::Folder(folder) => {
                identity_file::rotate(folder, id, until, now).map_err(failed)?
            }
            Self::Database(store, secrets) => {
                stored_identity::rotate(secrets, &**store, id, until, now).await.map_err(stored)?
            }
        };
        let seen = json!({
            "gateway_id": id,
            "old": old.fingerprint().to_string(),
            "new": new.fingerprint().to_string(),
            "key": new.to_string(),
            "until": until.to_string(),
        });
        let next = match self {
            Self::Folder(_) => format!("restart {id}: a running one goes on with the old key"),
            Self::Database(..) => "replicas that run take it within two seconds".to_owned(),
        };
        let lines = [
            format!("new key {}", new.fingerprint()),
            format!("old key {}, which leads to it until {}", old.fingerprint(), utc(until)),
            next,
        ];
        Ok(show(&seen, json, &lines))
    }
}

fn failed(error: IdentityFileError) -> Failure {
    let hint = error.hint();
    Failure::new(error).hint(hint)
}

fn stored(error: StoredIdentityError) -> Failure {
    let hint = error.hint();
    Failure::new(error).hint(hint)
}
