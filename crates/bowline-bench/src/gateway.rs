//! Measurements of a gateway under load.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::gateway_process::{CHAT, Gateway};
use crate::load::ServerUnderLoad;
use crate::report::Report;
use crate::surfaces::{self, Door};
use crate::{align, bare, followers, idle_sessions, large, latency, load, mock, rounds, seed};

const ROUNDS: usize = 5;
/// A drain takes only a few milliseconds, so other load on the machine distorts single runs.
const DRAINS: usize = 31;
/// The pause between two measured turns.
const PAUSE: Duration = Duration::from_millis(20);
/// Surfaces that are attached while memory is measured.
const IDLE: usize = 5000;

/// Runs the named parts, or all; the start on a large database only if its size is given.
pub async fn run(
    length: Duration,
    only: &[String],
    large: Option<u64>,
    report: &mut Report,
) -> Result<()> {
    const PARTS: [&str; 11] = [
        "align",
        "ready",
        "http",
        "stream",
        "latency",
        "attach",
        "drain",
        "followers",
        "turns",
        "idle",
        "idle-sessions",
    ];
    if let Some(unknown) = only.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("there is no part `{unknown}`; the parts are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| only.is_empty() || only.iter().any(|o| o == part);
    if wanted("align") {
        align::run(report);
    }
    let upstream = mock::Process::start().await?;
    let mock = upstream.address;
    if wanted("ready") {
        ready(mock, report).await?;
    }
    if let Some(megabytes) = large {
        large::ready(mock, megabytes, report).await?;
    }
    if wanted("http") || wanted("stream") {
        let folder = tempfile::tempdir()?;
        let gateway = Gateway::start(folder.path(), mock).await?;
        if wanted("http") {
            http(&gateway, mock, length, report).await?;
        }
        if wanted("stream") {
            report.doing("first tokens");
            let body = load::body("bench", Some("{}"), true);
            let clock = load::Clock::FromMock;
            let direct = load::first_tokens(&ServerUnderLoad::at(mock)?, &body, clock).await?;
            let through =
                load::first_tokens(&ServerUnderLoad::at(gateway.address)?, &body, clock).await?;
            report.figure("first_token_added_ms_p50", through);
            report.figure("first_token_direct_ms_p50", direct);
        }
    }
    if wanted("latency") {
        latency::turns(report).await?;
    }
    if wanted("attach") {
        attach(mock, length, report).await?;
    }
    if wanted("drain") {
        drain(mock, report).await?;
    }
    if wanted("followers") {
        followers::run(mock, report).await?;
    }
    if wanted("turns") {
        turns(mock, report).await?;
    }
    if wanted("idle") {
        idle(mock, report).await?;
    }
    if wanted("idle-sessions") {
        idle_sessions::run(mock, report).await?;
    }
    Ok(())
}

async fn ready(mock: SocketAddr, report: &mut Report) -> Result<()> {
    report.doing("start to ready");
    let mut times = Vec::new();
    for _ in 0..5 {
        let folder = tempfile::tempdir()?;
        times.push(Gateway::start(folder.path(), mock).await?.ready);
    }
    report.figure("ready_ms_empty", load::median(&mut times).as_secs_f64() * 1e3);
    let binary = std::fs::metadata(std::env::current_exe()?)?.len();
    report.figure("binary_mb", binary as f64 / 1e6);
    Ok(())
}

async fn http(
    gateway: &Gateway,
    mock: SocketAddr,
    length: Duration,
    report: &mut Report,
) -> Result<()> {
    let plain = load::body("bench", None, false);
    let tracked = load::body("bench", Some("{}"), false);
    let (mut direct, mut passed, mut new) = (Vec::new(), Vec::new(), Vec::new());
    let (bare, ours) = (ServerUnderLoad::at(mock)?, ServerUnderLoad::at(gateway.address)?);
    for round in 1..=ROUNDS {
        report.doing(&format!("requests, round {round} of {ROUNDS}"));
        let length = length / 2;
        direct.push(load::requests(&bare, &plain, length).await?);
        passed.push(load::requests(&ours, &plain, length).await?);
        new.push(load::requests(&ours, &tracked, length).await?);
    }
    report.ratio("new_sessions_vs_direct", rounds::ratio(&new, &direct));
    report.ratio("passthrough_vs_direct", rounds::ratio(&passed, &direct));
    report.figure("direct_per_s", rounds::middle(&mut direct));
    report.figure("new_sessions_per_s", rounds::middle(&mut new));
    report.figure("passthrough_per_s", rounds::middle(&mut passed));
    Ok(())
}

async fn attach(mock: SocketAddr, length: Duration, report: &mut Report) -> Result<()> {
    report.doing("attach");
    let folder = tempfile::tempdir()?;
    let doors = seed::sessions(folder.path(), &[0; load::PARALLEL]).await?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let welcome = r#"{"type":"SESSION_ATTACHED","session_id":"0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f","surface_id":null,"device_type":"desktop","queued_turns":0,"tether_turns_pending":0,"mcp_tools_registered":[],"sbp_version":"1.2","sbp_level":"L2"}"#;
    let bare = bare::start(vec![welcome.to_owned()]).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(surfaces::attaches(bare, &doors, length / 2).await?);
        ours.push(surfaces::attaches(gateway.address, &doors, length / 2).await?);
    }
    report.ratio("attach_vs_bare_ws", rounds::ratio(&ours, &theirs));
    report.figure("attach_per_s", rounds::middle(&mut ours));
    report.figure("bare_ws_per_s", rounds::middle(&mut theirs));
    Ok(())
}

async fn drain(mock: SocketAddr, report: &mut Report) -> Result<()> {
    report.doing("drains (writing 100,000 turns first)");
    let folder = tempfile::tempdir()?;
    let mut sizes = vec![1000; DRAINS];
    sizes.push(100_000);
    let doors = seed::sessions(folder.path(), &sizes).await?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let door = Door { id: "bench".into(), token: String::new() };
    // The first frame is the answer to the attach; then come the turns.
    let memory = bare::start(vec![tether_turn(); 1001]).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for door_of_ours in &doors[..DRAINS] {
        theirs.push(surfaces::drain(memory, &door, 1000).await?.as_secs_f64());
        ours.push(surfaces::drain(gateway.address, door_of_ours, 1000).await?.as_secs_f64());
    }
    let before = gateway.memory()?;
    gateway.forget_peak()?;
    let large = surfaces::drain(gateway.address, &doors[DRAINS], 100_000).await?;
    report.ratio("drain_vs_memory", rounds::ratio(&theirs, &ours));
    report.figure("drain_1000_ms", rounds::middle(&mut ours) * 1e3);
    report.figure("drain_100000_ms", large.as_secs_f64() * 1e3);
    report.figure("drain_100000_memory_mb", (gateway.peak()? - before) / 1e6);
    Ok(())
}

fn tether_turn() -> String {
    let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
    let words = seed::WORDS;
    serde_json::json!({
        "type": "TETHER_TURN", "turn_index": 500, "turn_id": id, "seq": 1000, "role": "assistant",
        "content": words, "model_used": "bench", "created_at": "2026-01-01T00:00:00.123456789Z",
        "session_id": id, "status": "complete",
        "turn": { "role": "assistant", "content": words, "model_used": "bench" },
    })
    .to_string()
}

/// The gateway's own time for a turn, by the length of the history.
async fn turns(mock: SocketAddr, report: &mut Report) -> Result<()> {
    report.doing("turns after a long history");
    let folder = tempfile::tempdir()?;
    let doors = seed::sessions(folder.path(), &[5, 5000]).await?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let client = reqwest::Client::new();
    let turn = async |door: &Door| {
        // The mock needs time to read a long history, and an idle disk takes longer to flush: the
        // model waits for longer than either.
        let sbp = format!("{{\"session_id\":\"{}\"}}", door.id);
        let body = load::body(mock::THINKER, Some(&sbp), false);
        let request = client.post(format!("http://{}{CHAT}", gateway.address));
        let request = request.header("content-type", "application/json").body(body);
        request.send().await?.error_for_status()
    };
    // The first turn after a start reads the history from disk; later ones find it in memory.
    for door in &doors {
        turn(door).await?;
    }
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        for (door, costs) in doors.iter().zip(&mut costs) {
            tokio::time::sleep(PAUSE).await;
            let before = own_work(gateway.address).await?;
            turn(door).await?;
            costs.push(own_work(gateway.address).await? - before);
        }
    }
    let [short, long] = &mut costs;
    report.ratio("turn_cost_10000_vs_10", rounds::middle(long) / rounds::middle(short));
    report.figure("turn_own_work_ms", rounds::middle(short) * 1e3);
    Ok(())
}

/// The gateway's own time so far, in seconds: the duration of its turns minus that of the model.
/// Sending the request body, which grows with the history, counts as the model's time.
async fn own_work(address: SocketAddr) -> Result<f64> {
    let text = reqwest::get(format!("http://{address}/metrics")).await?.text().await?;
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    Ok(value("bowline_turn_seconds_sum") - value("bowline_model_seconds_sum"))
}

async fn idle(mock: SocketAddr, report: &mut Report) -> Result<()> {
    report.doing("memory of idle surfaces");
    let folder = tempfile::tempdir()?;
    let doors = seed::sessions(folder.path(), &vec![0; IDLE]).await?;
    let gateway = Gateway::start(folder.path(), mock).await?;
    let before = gateway.memory()?;
    let mut sockets = Vec::with_capacity(IDLE);
    for door in &doors {
        sockets.push(surfaces::attach(gateway.address, door).await?);
    }
    let each = (gateway.memory()? - before) / IDLE as f64 / 1024.0;
    report.figure("idle_surface_kib", each);
    Ok(())
}
