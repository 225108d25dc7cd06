//! The processes that are measured: PostgreSQL that flushes, Redis, two gateways, and the mock model.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bowline_servers::{Flush, Postgres, Redis};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway_process::Gateway;
use crate::mock;
use crate::surfaces::Door;

pub(super) const DATABASE: &str = "bench";

pub(super) struct Pair {
    pub(super) one: Gateway,
    pub(super) other: Gateway,
    upstream: mock::Process,
    settings: Vec<(&'static str, String)>,
    folder: TempDir,
    pub(super) postgres: Postgres,
    _redis: Redis,
}

impl Pair {
    /// With more settings in environment variables.
    pub(super) async fn start(more: &[(&'static str, &str)]) -> Result<Self> {
        let (postgres, redis) = tokio::task::spawn_blocking(|| {
            let postgres = Postgres::start(Flush::On)?;
            postgres.make_database(DATABASE)?;
            anyhow::Ok((postgres, Redis::start()?))
        })
        .await??;
        let (upstream, folder) = (mock::Process::start().await?, tempfile::tempdir()?);
        let mut settings = vec![
            ("BOWLINE_STORE_URL", postgres.url(DATABASE)),
            ("BOWLINE_BUS_URL", redis.url()),
            ("BOWLINE_SECRETS_FILE", folder.path().join("master.key").display().to_string()),
        ];
        settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let begin = async |name: &str| {
            let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, &**value)).collect();
            Gateway::start_with(&folder.path().join(name), upstream.address, &settings).await
        };
        let (one, other) = (begin("one").await?, begin("other").await?);
        Ok(Self { one, other, upstream, settings, folder, postgres, _redis: redis })
    }

    /// Another replica.
    pub(super) async fn another(&self, name: &str) -> Result<Gateway> {
        let settings: Vec<_> =
            self.settings.iter().map(|(name, value)| (*name, &**value)).collect();
        Gateway::start_with(&self.data(name), self.upstream.address, &settings).await
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A new session that this gateway owns, after its first turn.
pub(super) async fn owned_by(gateway: &Gateway) -> Result<Door> {
    let answer = ask(gateway, None, "bench", "Hello").await?;
    let text = |name: &str| answer["sbp"][name].as_str().map(str::to_owned);
    let id = text("session_id").context("no session")?;
    Ok(Door { id, token: text("session_token").context("no token")? })
}

/// One turn, whole.
pub(super) async fn ask(
    gateway: &Gateway,
    session: Option<&Door>,
    model: &str,
    words: &str,
) -> Result<Value> {
    let sbp = session.map_or(json!({}), |door| json!({ "session_id": door.id }));
    let body = json!({
        "model": model, "sbp": sbp, "messages": [{ "role": "user", "content": words }],
    });
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    let response = reqwest::Client::new().post(url).json(&body).send().await?;
    Ok(response.error_for_status()?.json().await?)
}
