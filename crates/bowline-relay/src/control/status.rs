//! Asks the relay which daemons are connected to it.
//!
//! The relay reports the status of a daemon only to the holder of a token for that daemon, so the
//! control plane signs one for each status request. If the relay does not answer in time, the
//! status is unknown: the caller does not have to wait.

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

/// The largest response that is read, in bytes.
const LONGEST_ANSWER: usize = 4 << 10;
/// Concurrent status requests for one list of daemons.
const PER_LIST: usize = 16;

/// Whether a daemon is connected to a relay in this process.
pub type LocalPresence = Arc<dyn Fn(&DaemonId) -> bool + Send + Sync>;

/// Where the status of daemons comes from.
pub(super) enum StatusSource {
    /// A relay over the network, with a token for each daemon.
    Relay(RelayStatusClient),
    /// The relay in this process.
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
    /// The status of each daemon, in the same order.
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

/// The HTTP client for the relay's status endpoint.
#[derive(Debug)]
pub(super) struct RelayStatusClient {
    client: reqwest::Client,
    url: Url,
    /// Limits the concurrent requests over all lists.
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

    /// The status for each token, in the same order.
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
        // The error is dropped: its text adds only the address, which is configured.
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

/// The status endpoint of `wss://host/relay` is `https://host/status`.
fn status_url(relay: &Url) -> Url {
    let path = relay.path().trim_end_matches('/');
    let base = path.strip_suffix("/relay").unwrap_or(path);
    // `Url` does not allow changing the scheme from ws to http; its text can be changed.
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
