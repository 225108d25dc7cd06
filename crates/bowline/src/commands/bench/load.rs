//! The load generator: many connections, each asking again as soon as it was answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Requests in parallel.
pub(super) const PARALLEL: usize = 64;

/// Where a first token's delay is counted from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clock {
    /// From the moment that the mock wrote into the token.
    FromMock,
    /// From the request.
    FromRequest,
}

/// A completion request.
pub(super) fn body(model: &str, sbp: Option<&str>, stream: bool) -> String {
    let sbp = sbp.map(|sbp| format!("\"sbp\":{sbp},")).unwrap_or_default();
    let stream = if stream { "\"stream\":true," } else { "" };
    format!(
        "{{\"model\":\"{model}\",{sbp}{stream}\"messages\":[{{\"role\":\"user\",\"content\":\"Tell me about foxes.\"}}]}}"
    )
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(address: SocketAddr, path: &str, body: &str) -> Result<Request<Full<Bytes>>> {
    Ok(Request::post(path)
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))?)
}

/// Successful requests a second, by an ordinary client that reads what it is answered.
pub(super) async fn requests(
    address: SocketAddr,
    path: &'static str,
    body: &str,
    length: Duration,
) -> Result<f64> {
    #[derive(Deserialize)]
    struct Answer {
        choices: Vec<serde_json::Value>,
    }
    let client = reqwest::Client::builder().pool_max_idle_per_host(PARALLEL).build()?;
    let url: url::Url = format!("http://{address}{path}").parse()?;
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..PARALLEL {
        let (client, url, count) = (client.clone(), url.clone(), Arc::clone(&count));
        let body = Bytes::from(body.to_owned());
        tasks.spawn(async move {
            while begun.elapsed() < length {
                let request = client.post(url.clone()).header("content-type", "application/json");
                let response = request.body(body.clone()).send().await?;
                let (status, text) = (response.status(), response.text().await?);
                match serde_json::from_str::<Answer>(&text) {
                    Ok(answer) if status == StatusCode::OK && !answer.choices.is_empty() => {}
                    _ => bail!("{status}: {text}"),
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// The median delay of a stream's first word, in milliseconds, with [`PARALLEL`] streams at once.
pub(super) async fn first_tokens(address: SocketAddr, body: &str, clock: Clock) -> Result<f64> {
    let mut tasks = JoinSet::new();
    for _ in 0..PARALLEL {
        let body = body.to_owned();
        tasks.spawn(async move {
            let mut sender = connect(address).await?;
            let mut delays = Vec::new();
            for _ in 0..20 {
                sender.ready().await?;
                let asked = Instant::now();
                let response =
                    sender.send_request(request(address, "/v1/chat/completions", &body)?).await?;
                let mut stream = response.into_body();
                let mut first = true;
                while let Some(frame) = stream.frame().await {
                    let frame = frame?;
                    let Some(data) = frame.data_ref().filter(|_| first) else { continue };
                    first = false;
                    delays.push(match clock {
                        Clock::FromRequest => asked.elapsed(),
                        Clock::FromMock => {
                            since_epoch().saturating_sub(sent_at(data).context("no time stamp")?)
                        }
                    });
                }
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

/// When the mock wrote it.
fn sent_at(data: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(data).ok()?;
    let digits = text.split("t=").nth(1)?.split(' ').next()?;
    digits.parse().ok().map(Duration::from_nanos)
}

/// The wall clock: the one clock that two processes share.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The value that this share of them does not exceed.
pub(super) fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

pub(super) fn median(values: &mut [Duration]) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
