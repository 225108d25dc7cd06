//! Tool calls to attached devices: the latency of the gateway, and the share of the disk in it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::gateway_process::{CHAT, Gateway};
use crate::legs::{self, Legs, TOOL, TOOLS};
use crate::load::{body, quantile, since_epoch};
use crate::pace::{AsyncCall, Pace};
use crate::report::Report;
use crate::surfaces::{self, Door, Socket};
use crate::{adapt, disk, echo, mock, seed};

/// The number of measured flushes.
const FLUSHES: usize = 500;
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// A folder in memory, on systems that have one.
const IN_MEMORY: &str = "/dev/shm";

pub async fn run(pace: Pace, report: &mut Report) -> Result<()> {
    let upstream = mock::Process::start().await?;
    let folder = tempfile::tempdir()?;
    report.doing("flushes to disk");
    // A call causes about four flushes.
    let pause = (Duration::from_secs(1) / pace.rate / 4).min(LONGEST_PAUSE);
    let flushed = folder.path().to_owned();
    let flushes = tokio::task::spawn_blocking(move || disk::flushes(&flushed, FLUSHES, pause));
    let mut flushes = flushes.await??;

    report.doing("bare echoes");
    let bare = mock::Process::of("echo").await?;
    let mut echoes = echo::round_trips(bare.address, &tool_call(), &pace).await?;
    drop(bare);

    report.doing("tool calls");
    let (calls, exchange) = calls(folder.path(), upstream.address, &pace).await?;
    let (echo, call) = (ms(&mut echoes, 0.5), ms(&mut both(&calls), 0.5));
    report.ratio("tool_call_vs_echo", exchange.p50 * 1e3 / echo);
    report.ratio("tool_step_vs_echo", call / echo);
    report.figure("tool_call_p50_ms", exchange.p50 * 1e3);
    report.figure("tool_call_p99_ms", exchange.p99 * 1e3);
    report.figure("tool_step_p50_ms", call);
    report.figure("tool_step_p99_ms", ms(&mut both(&calls), 0.99));
    let leg = |leg: fn(&Legs) -> Duration| ms(&mut calls.iter().map(leg).collect::<Vec<_>>(), 0.5);
    report.figure("tool_step_out_p50_ms", leg(|legs| legs.out));
    report.figure("tool_step_back_p50_ms", leg(|legs| legs.back));
    report.figure("tool_calls_per_s", calls.len() as f64 / pace.length.as_secs_f64());
    report.figure("echo_p50_ms", echo);
    report.figure("echo_p99_ms", ms(&mut echoes, 0.99));
    report.figure("fsync_p50_ms", ms(&mut flushes, 0.5));
    report.figure("fsync_p99_ms", ms(&mut flushes, 0.99));
    in_memory(upstream.address, &pace, report).await?;
    adapt::run(report);
    Ok(())
}

/// The same without a disk: the gateway's own latency.
async fn in_memory(upstream: SocketAddr, pace: &Pace, report: &mut Report) -> Result<()> {
    let Ok(folder) = tempfile::tempdir_in(IN_MEMORY) else {
        report.note(&format!("{IN_MEMORY} does not exist; tool_step_memory_* is skipped"));
        return Ok(());
    };
    report.doing("tool calls on a store in memory");
    let (calls, _) = calls(folder.path(), upstream, pace).await?;
    report.figure("tool_step_memory_p50_ms", ms(&mut both(&calls), 0.5));
    report.figure("tool_step_memory_p99_ms", ms(&mut both(&calls), 0.99));
    Ok(())
}

/// The two legs of each call, and the round trips to the device.
async fn calls(folder: &Path, upstream: SocketAddr, pace: &Pace) -> Result<(Vec<Legs>, Exchange)> {
    let doors = seed::sessions(folder, &vec![0; pace.parallel as usize]).await?;
    let gateway = Gateway::start(folder, upstream).await?;
    let mut devices = tokio::task::JoinSet::new();
    for door in &doors {
        let socket = surfaces::attach_as(gateway.address, door, device_surface()).await?;
        devices.spawn(device(socket));
    }
    let client = reqwest::Client::new();
    let callers =
        doors.iter().map(|door| ToolCaller::new(&client, gateway.address, door)).collect();
    let calls = tokio::select! {
        calls = pace.run(callers) => calls?,
        // A device ends only with an error.
        Some(ended) = devices.join_next() => {
            let Err(error) = ended?;
            return Err(error);
        }
    };
    Ok((calls, exchange(gateway.address).await?))
}

fn both(calls: &[Legs]) -> Vec<Duration> {
    calls.iter().map(|legs| legs.out + legs.back).collect()
}

fn ms(values: &mut [Duration], share: f64) -> f64 {
    quantile(values, share).as_secs_f64() * 1e3
}

/// A frame of the same size as the tool calls here.
fn tool_call() -> String {
    let sent = since_epoch().as_nanos().to_string();
    json!({ "type": "TOOL_CALL", "call_id": uuid::Uuid::new_v4(), "tool_name": TOOL,
            "tool_input": { "sent": sent } })
    .to_string()
}

/// A surface with the tool, which asks its user itself.
pub(crate) fn device_surface() -> Value {
    json!({ "device_type": "desktop", "mcp_tools": [{ "name": TOOL, "asks": true }] })
}

/// Answers every call at once. Returns only with an error.
pub(crate) async fn device(mut socket: Socket) -> Result<Infallible> {
    loop {
        let text = match socket.next().await {
            Some(Ok(Packet::Text(text))) => text,
            Some(Ok(_)) => continue,
            other => bail!("unexpected frame for a device: {other:?}"),
        };
        let received = since_epoch();
        let frame: Value = serde_json::from_str(&text)?;
        if frame["type"] == "TOOL_CALL" {
            let result =
                legs::result(&frame, received).context("a tool call without a timestamp")?;
            socket.send(Packet::text(result.to_string())).await?;
        }
    }
}

/// A caller that submits turns in one session, each with one tool call.
pub(crate) struct ToolCaller {
    client: reqwest::Client,
    url: String,
    body: String,
}

impl ToolCaller {
    pub(crate) fn new(client: &reqwest::Client, gateway: SocketAddr, door: &Door) -> Self {
        let session = json!({ "session_id": door.id }).to_string();
        let body = body(TOOLS, Some(&session), false);
        Self { client: client.clone(), url: format!("http://{gateway}{CHAT}"), body }
    }
}

impl AsyncCall<Legs> for ToolCaller {
    async fn call(&mut self) -> Result<Legs> {
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let text = request.body(self.body.clone()).send().await?.text().await?;
        let answer: Value = serde_json::from_str(&text)?;
        let words = answer["choices"][0]["message"]["content"].as_str();
        words.and_then(legs::read).with_context(|| format!("no tool call was made: {text}"))
    }
}

/// A call's round trip as measured by the gateway, in seconds: from sending the call to receiving
/// the result, including the network and a device that answers at once.
struct Exchange {
    p50: f64,
    p99: f64,
}

async fn exchange(address: SocketAddr) -> Result<Exchange> {
    let text = reqwest::get(format!("http://{address}/metrics")).await?.text().await?;
    let at = |quantile: &str| {
        let name = format!("bowline_tool_seconds{{quantile=\"{quantile}\"}}");
        let line = text.lines().find(|line| line.starts_with(&name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.context("the gateway counted no calls")
    };
    Ok(Exchange { p50: at("0.5")?, p99: at("0.99")? })
}
