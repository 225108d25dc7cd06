//! Asks relays which daemons are connected to them, each daemon's relay for the daemon.
//!
//! A relay reports the status of a daemon only to the holder of a token for that daemon, so the
//! control plane signs one for each status request. If the relay does not answer in time, the
//! status is unknown: the caller does not have to wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
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
/// The most relays whose clients are kept.
const MOST_CLIENTS: usize = 64;

/// Whether a daemon is connected to a relay in this process.
pub type LocalPresence = Arc<dyn Fn(&DaemonId) -> bool + Send + Sync>;

/// A daemon whose status is wanted.
#[derive(Debug)]
pub(super) struct StatusQuestion {
    pub(super) daemon: DaemonId,
    /// The URL of its relay.
    pub(super) relay: String,
    /// A token for the daemon at that relay.
    pub(super) token: String,
}

/// Asks relays for the status of daemons: the one in this process directly, others over the network.
pub(super) struct StatusSource {
    /// The URL of the relay in this process, and how to ask it.
    local: Option<(String, LocalPresence)>,
    /// The HTTP clients for relays, by URL.
    clients: Mutex<HashMap<String, reqwest::Client>>,
    /// Limits the concurrent requests over all lists.
    places: Semaphore,
    question_timeout: Duration,
    list_timeout: Duration,
}

impl std::fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusSource")
            .field("local", &self.local.as_ref().map(|(url, _)| url))
            .finish_non_exhaustive()
    }
}

impl StatusSource {
    pub(super) fn new(
        config: &ControlConfig,
        beside: Option<LocalPresence>,
    ) -> Result<Self, ControlStartError> {
        let limits = &config.limits;
        let source = Self {
            local: beside.map(|local| (config.relay_url.to_string(), local)),
            clients: Mutex::default(),
            places: Semaphore::new(limits.questions),
            question_timeout: limits.question_timeout,
            list_timeout: limits.list_timeout,
        };
        // A machine that cannot ask the configured relay is noticed at the start.
        source.client(&config.relay_url).map_err(ControlStartError::Client)?;
        Ok(source)
    }

    /// The status of each daemon, in the same order.
    pub(super) async fn ask(&self, questions: Vec<StatusQuestion>) -> Vec<DaemonStatus> {
        let deadline = Instant::now() + self.list_timeout;
        let one = |question: StatusQuestion| async move {
            let asked = tokio::time::timeout_at(deadline, self.ask_one(&question)).await;
            asked.ok().flatten().unwrap_or(DaemonStatus::Unknown)
        };
        iter(questions).map(one).buffered(PER_LIST).collect().await
    }

    /// The client for a relay, made when it is asked first.
    fn client(&self, relay: &Url) -> Result<reqwest::Client, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(relay.as_str()) {
            return Ok(client.clone());
        }
        let client = outbound::client(relay).timeout(self.question_timeout).build();
        let client = client.map_err(|error| error.to_string())?;
        // Relays come and go: those that went are not remembered for ever.
        if clients.len() >= MOST_CLIENTS {
            clients.clear();
        }
        clients.insert(relay.to_string(), client.clone());
        Ok(client)
    }

    async fn ask_one(&self, question: &StatusQuestion) -> Option<DaemonStatus> {
        let StatusQuestion { daemon, relay, token } = question;
        if let Some((url, is_online)) = &self.local
            && url == relay
        {
            let online = is_online(daemon);
            return Some(if online { DaemonStatus::Online } else { DaemonStatus::Offline });
        }
        let _place = self.places.acquire().await.ok()?;
        let relay: Url = relay.parse().ok()?;
        let asked = self.client(&relay).ok()?.get(status_url(&relay)).bearer_auth(token).send();
        // The error is dropped: its text adds only the address, which is configured.
        let mut answer = asked.await.ok()?;
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
