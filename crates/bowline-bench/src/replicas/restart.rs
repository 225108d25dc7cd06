//! A rolling restart under load: each replica is stopped in good order, and another one is started.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message as Packet;

use super::pair::{Pair, owned_by};
use crate::load::quantile;
use crate::report::Report;
use crate::surfaces::{self, Door};

/// Sessions with a caller and a surface each.
const SESSIONS: usize = 20;
/// Until every session is at work, and between the restarts.
const PAUSE: Duration = Duration::from_secs(3);
/// How often a caller or a surface tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a caller waits for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The replicas that take connections.
type Balancer = Arc<Mutex<Vec<SocketAddr>>>;

fn pick(balancer: &Balancer, number: usize) -> Option<SocketAddr> {
    let replicas = balancer.lock().unwrap_or_else(PoisonError::into_inner);
    replicas.get(number % replicas.len().max(1)).copied()
}

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    report.doing("a rolling restart");
    let mut pair = Pair::start(&[("BOWLINE_OFFLINE_PACE", "10ms")]).await?;
    let balancer = Balancer::new(Mutex::new(vec![pair.one.address, pair.other.address]));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (mut doors, mut callers, mut followers) = (Vec::new(), JoinSet::new(), JoinSet::new());
    for number in 0..SESSIONS {
        let door = owned_by(if number % 2 == 0 { &pair.one } else { &pair.other }).await?;
        callers.spawn(call(Arc::clone(&balancer), door.clone(), number, stopped.clone()));
        followers.spawn(follow(Arc::clone(&balancer), door.clone(), number, stopped.clone()));
        doors.push(door);
    }
    tokio::time::sleep(PAUSE).await;
    for number in 0..2 {
        let fresh = pair.another(&format!("next-{number}")).await?;
        let old = match number {
            0 => std::mem::replace(&mut pair.one, fresh),
            _ => std::mem::replace(&mut pair.other, fresh),
        };
        *balancer.lock().unwrap_or_else(PoisonError::into_inner) =
            vec![pair.one.address, pair.other.address];
        old.stop().await?;
        tokio::time::sleep(PAUSE).await;
    }
    stop.send_replace(true);
    let mut told = Vec::new();
    while let Some(ended) = callers.join_next().await {
        told.push(ended??);
    }
    let mut gaps = Vec::new();
    while let Some(ended) = followers.join_next().await {
        gaps.push(ended??);
    }
    let mut lost = 0;
    for (door, answers) in told {
        lost += missing(pair.one.address, &door, &answers).await?;
    }
    report.figure("rolling_restart_lost", lost as f64);
    report.figure("rolling_restart_gap_ms_p50", quantile(&mut gaps, 0.5).as_secs_f64() * 1e3);
    report.figure("rolling_restart_gap_ms_max", quantile(&mut gaps, 1.0).as_secs_f64() * 1e3);
    Ok(())
}

/// Asks one thing after the other, each until it is answered; returns the turns it was told of.
async fn call(
    balancer: Balancer,
    door: Door,
    number: usize,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> Result<(Door, Vec<String>)> {
    let (client, mut turns) = (reqwest::Client::new(), Vec::new());
    while !*stopped.borrow() {
        let words = vec!["word"; 40].join(" ");
        let body = json!({
            "model": "bowline/offline", "sbp": { "session_id": door.id },
            "messages": [{ "role": "user", "content": format!("echo {} {words}", turns.len()) }],
        });
        let key = format!("{}-{}", door.id, turns.len());
        loop {
            let Some(address) = pick(&balancer, number) else { bail!("no replica is left") };
            let request = client.post(format!("http://{address}/v1/chat/completions"));
            let request = request.timeout(PATIENCE).header("Idempotency-Key", &key);
            let sent = request.json(&body).send().await;
            if let Ok(response) = sent
                && response.status().is_success()
                && let Ok(answer) = response.json::<Value>().await
            {
                turns.push(answer["sbp"]["turn_id"].as_str().context("no turn")?.to_owned());
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
    Ok((door, turns))
}

/// Follows a session; returns the longest time without a word of a running answer.
async fn follow(
    balancer: Balancer,
    door: Door,
    number: usize,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> Result<Duration> {
    let (mut heard, mut longest) = (Instant::now(), Duration::ZERO);
    while !*stopped.borrow() {
        // Another replica than its caller's.
        let Some(address) = pick(&balancer, number + 1) else { bail!("no replica is left") };
        let Ok(mut socket) = surfaces::attach(address, &door).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        loop {
            let packet = tokio::select! {
                packet = socket.next() => packet,
                _ = stopped.changed() => break,
            };
            match packet {
                Some(Ok(Packet::Text(text))) => {
                    if text.starts_with(r#"{"type":"TURN_CHUNK""#) {
                        longest = longest.max(heard.elapsed());
                        heard = Instant::now();
                    }
                }
                Some(Ok(Packet::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            }
        }
    }
    Ok(longest)
}

/// How many of these turns the session's log does not have.
async fn missing(address: SocketAddr, door: &Door, turns: &[String]) -> Result<usize> {
    let (mut after, mut logged) = (0, Vec::new());
    loop {
        let path = format!("/v1/sessions/{}/messages?after={after}&limit=500", door.id);
        let page: Value = reqwest::get(format!("http://{address}{path}")).await?.json().await?;
        let entries = page["messages"].as_array().context("no messages")?;
        for entry in entries {
            after = entry["seq"].as_u64().context("no position")?;
            logged.extend(entry["turn_id"].as_str().map(str::to_owned));
        }
        if page["more"] == false {
            break;
        }
    }
    ensure!(!turns.is_empty(), "nobody was answered");
    Ok(turns.iter().filter(|turn| !logged.contains(turn)).count())
}
