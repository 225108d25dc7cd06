//! The load generator: many connections, each sends the next request when it has its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use bowline_net::outbound;
use bytes::Bytes;
use reqwest::{Certificate, ClientBuilder, Response, StatusCode};
use serde::Deserialize;
use tokio::task::JoinSet;
use url::Url;

/// Requests in parallel.
pub(crate) const PARALLEL: usize = 64;

/// The start of a first token's latency.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// From the timestamp that the mock put into the token.
    FromMock,
    /// From sending the request.
    FromRequest,
}

/// A completion request.
pub(crate) fn body(model: &str, sbp: Option<&str>, stream: bool) -> String {
    let sbp = sbp.map(|sbp| format!("\"sbp\":{sbp},")).unwrap_or_default();
    let stream = if stream { "\"stream\":true," } else { "" };
    format!(
        "{{\"model\":\"{model}\",{sbp}{stream}\"messages\":[{{\"role\":\"user\",\"content\":\"Tell me about foxes.\"}}]}}"
    )
}

/// A server under load, reached by an ordinary HTTP client.
#[derive(Debug, Clone)]
pub(crate) struct ServerUnderLoad {
    client: reqwest::Client,
    chat: Url,
    key: Option<String>,
}

impl ServerUnderLoad {
    pub(crate) fn at(address: SocketAddr) -> Result<Self> {
        Self::new(&format!("http://{address}").parse()?, None)
    }

    /// `url` with or without `/v1`.
    pub(crate) fn new(url: &Url, key: Option<&str>) -> Result<Self> {
        Self::with(outbound::client(url), url, key)
    }

    /// Over TLS, with this certificate as the only root.
    pub(crate) fn with_tls(address: SocketAddr, certificate: Certificate) -> Result<Self> {
        let client = reqwest::Client::builder().tls_certs_only([certificate]).no_proxy();
        Self::with(client, &format!("https://{address}").parse()?, None)
    }

    fn with(client: ClientBuilder, url: &Url, key: Option<&str>) -> Result<Self> {
        let client = client.pool_max_idle_per_host(PARALLEL).build()?;
        let base = url.as_str().trim_end_matches('/').trim_end_matches("/v1");
        let chat = format!("{base}/v1/chat/completions").parse()?;
        Ok(Self { client, chat, key: key.map(str::to_owned) })
    }

    async fn post(&self, body: Bytes) -> reqwest::Result<Response> {
        let mut request = self.client.post(self.chat.clone());
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        request.header("content-type", "application/json").body(body).send().await
    }

    /// One completion, whole.
    pub(crate) async fn ask(&self, body: &str) -> Result<String> {
        Ok(self.post(Bytes::from(body.to_owned())).await?.error_for_status()?.text().await?)
    }
}

/// Successful requests per second, with an ordinary client that reads the answers.
pub(crate) async fn requests(
    server: &ServerUnderLoad,
    body: &str,
    length: Duration,
) -> Result<f64> {
    let begun = Instant::now();
    let count = requests_while(server, body, move || begun.elapsed() < length).await?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Makes that many successful requests, with the same client.
pub(crate) async fn requests_in_all(
    server: &ServerUnderLoad,
    body: &str,
    count: usize,
) -> Result<()> {
    let left = Arc::new(AtomicUsize::new(count));
    let another = move || {
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        taken.is_ok()
    };
    requests_while(server, body, another).await?;
    Ok(())
}

/// Sends requests on [`PARALLEL`] connections, each for as long as `another` returns true.
async fn requests_while(
    server: &ServerUnderLoad,
    body: &str,
    another: impl Fn() -> bool + Clone + Send + 'static,
) -> Result<u64> {
    #[derive(Deserialize)]
    struct Completion {
        choices: Vec<serde_json::Value>,
    }
    let mut tasks = JoinSet::new();
    for _ in 0..PARALLEL {
        let (server, another) = (server.clone(), another.clone());
        let body = Bytes::from(body.to_owned());
        tasks.spawn(async move {
            let mut count = 0;
            while another() {
                let response = server.post(body.clone()).await?;
                let (status, text) = (response.status(), response.text().await?);
                match serde_json::from_str::<Completion>(&text) {
                    Ok(answer) if status == StatusCode::OK && !answer.choices.is_empty() => {}
                    _ => bail!("{status}: {text}"),
                }
                count += 1;
            }
            Ok(count)
        });
    }
    let mut count = 0;
    while let Some(ended) = tasks.join_next().await {
        count += ended??;
    }
    Ok(count)
}

/// The median latency of the first token, in milliseconds, with [`PARALLEL`] concurrent streams.
pub(crate) async fn first_tokens(
    server: &ServerUnderLoad,
    body: &str,
    clock: Clock,
) -> Result<f64> {
    let mut tasks = JoinSet::new();
    for _ in 0..PARALLEL {
        let (server, body) = (server.clone(), Bytes::from(body.to_owned()));
        tasks.spawn(async move {
            let mut delays = Vec::new();
            for _ in 0..20 {
                let asked = Instant::now();
                let mut stream = server.post(body.clone()).await?.error_for_status()?;
                let first = stream.chunk().await?.context("the stream ended without a chunk")?;
                delays.push(match clock {
                    Clock::FromRequest => asked.elapsed(),
                    Clock::FromMock => since_epoch().saturating_sub(
                        sent_at(&first).context("no timestamp in the first token")?,
                    ),
                });
                while stream.chunk().await?.is_some() {}
            }
            Ok::<_, anyhow::Error>(delays)
        });
    }
    let mut delays = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        delays.extend(ended??);
    }
    Ok(median(&mut delays).as_secs_f64() * 1e3)
}

/// The timestamp that the mock put into the token.
fn sent_at(data: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(data).ok()?;
    let digits = text.split("t=").nth(1)?.split(' ').next()?;
    digits.parse().ok().map(Duration::from_nanos)
}

/// The wall clock: the one clock that two processes share.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The quantile `share` of the values.
pub(crate) fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

pub(crate) fn median(values: &mut [Duration]) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
