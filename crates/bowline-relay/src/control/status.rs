//! Asking the relay which daemons are connected to it.
//!
//! The relay tells whoever shows a token for a daemon about that daemon, and nothing else; so the
//! control plane signs itself one for each question. A relay that does not answer in time is no
//! reason to keep a caller waiting: then nothing is known.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use bowline_sbrp::api::{DaemonStatus, RelayStatus};
use bowline_sbrp::id::DaemonId;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use super::config::ControlConfig;
use super::serve::ControlStartError;

/// The largest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 4 << 10;
/// Questions of one list at once.
const PER_LIST: usize = 16;

/// Whether a daemon is connected to a relay in this process.
pub type LocalPresence = Arc<dyn Fn(&DaemonId) -> bool + Send + Sync>;

/// How to learn whether daemons are connected.
pub(super) enum StatusSource {
    /// At a relay over the network, with a token for each daemon.
    Relay(RelayStatusClient),
    /// At the relay in this process.
    Local(LocalPresence),
}

impl std::fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Relay(_) => "Relay",
            Self::Local(_) => "Local",
        })
    }
}

impl StatusSource {
    /// One answer for each daemon, in their order.
    pub(super) async fn ask(
        &self,
        daemons: &[DaemonId],
        token: impl Fn(&DaemonId) -> String,
    ) -> Vec<DaemonStatus> {
        match self {
            Self::Relay(relay) => relay.ask(daemons.iter().map(token).collect()).await,
            Self::Local(is_here) => {
                let status = |here| if here { DaemonStatus::Online } else { DaemonStatus::Offline };
                daemons.iter().map(|daemon| status(is_here(daemon))).collect()
            }
        }
    }
}

/// Where the relay answers.
#[derive(Debug)]
pub(super) struct RelayStatusClient {
    client: reqwest::Client,
    url: Url,
    /// Over all lists.
    places: Arc<Semaphore>,
    list_timeout: Duration,
}

impl RelayStatusClient {
    pub(super) fn new(config: &ControlConfig) -> Result<Self, ControlStartError> {
        let limits = &config.limits;
        let client = outbound::client(&config.relay_url).timeout(limits.question_timeout);
        let client =
            client.build().map_err(|error| ControlStartError::Client(error.to_string()))?;
        Ok(Self {
            client,
            url: status_url(&config.relay_url),
            places: Arc::new(Semaphore::new(limits.questions)),
            list_timeout: limits.list_timeout,
        })
    }

    /// One answer for each token, in their order.
    pub(super) async fn ask(&self, tokens: Vec<String>) -> Vec<DaemonStatus> {
        let deadline = Instant::now() + self.list_timeout;
        let one = |token: String| async move {
            let asked = tokio::time::timeout_at(deadline, self.ask_one(&token)).await;
            asked.ok().flatten().unwrap_or(DaemonStatus::Unknown)
        };
        iter(tokens).map(one).buffered(PER_LIST).collect().await
    }

    async fn ask_one(&self, token: &str) -> Option<DaemonStatus> {
        let _place = self.places.acquire().await.ok()?;
        let asked = self.client.get(self.url.clone()).bearer_auth(token).send().await;
        // The error's text would name the address, which is configured, and nothing else new.
        let mut answer = asked.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.ok()? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        Some(serde_json::from_slice::<RelayStatus>(&body).ok()?.daemon)
    }
}

/// `wss://host/relay` answers at `https://host/status`.
fn status_url(relay: &Url) -> Url {
    let path = relay.path().trim_end_matches('/');
    let base = path.strip_suffix("/relay").unwrap_or(path);
    // The URL type does not let a scheme change between its families; its text does.
    let text = relay.as_str().replacen("ws", "http", 1);
    let mut url = Url::parse(&text).unwrap_or_else(|_| relay.clone());
    url.set_path(&format!("{base}/status"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relays_status_is_beside_its_socket() {
        let at = |relay: &str| status_url(&relay.parse().unwrap()).to_string();
        assert_eq!(at("wss://r.example/relay"), "https://r.example/status");
        assert_eq!(at("ws://127.0.0.1:9000/relay"), "http://127.0.0.1:9000/status");
        assert_eq!(at("wss://r.example"), "https://r.example/status");
        assert_eq!(at("wss://r.example/"), "https://r.example/status");
        assert_eq!(at("wss://r.example/eu/relay/?x#y"), "https://r.example/eu/status");
        assert_eq!(at("wss://ws.example/relay"), "https://ws.example/status");
    }
}
