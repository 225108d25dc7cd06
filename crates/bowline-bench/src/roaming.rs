//! Export, import and fork of sessions, and the content id compared with Python's.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bowline_pyjson::Value as Bundle;
use bowline_sbp::cid::Cid;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::gateway_process::Gateway;
use crate::load::median;
use crate::report::Report;
use crate::surfaces::Door;
use crate::{mock, seed};

/// Runs of each operation; the median counts.
const TRIES: usize = 21;
/// How often a bundle is parsed and hashed.
const HASHES: u32 = 40;

/// Parses, writes and hashes a bundle in Python, and prints the duration.
const PYTHON: &str = "
import sys, json, hashlib, time
text = sys.stdin.read()
best, cid = None, None
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    bundle = json.loads(text)
    bundle.pop('bundle_cid', None)
    cid = hashlib.sha256(json.dumps(bundle, sort_keys=True).encode('utf-8')).hexdigest()
    took = time.perf_counter() - begun
    best = took if best is None else min(best, took)
print(cid, best)
";

pub async fn run(report: &mut Report) -> Result<()> {
    let upstream = mock::Process::start().await?;
    let folder = tempfile::tempdir()?;
    report.doing("writing sessions of 1,000, 10,000 and 100,000 messages");
    let doors = seed::sessions(folder.path(), &[500, 5_000, 50_000]).await?;
    let gateway = Gateway::start(folder.path(), upstream.address).await?;
    let caller = Caller { client: reqwest::Client::new(), address: gateway.address };
    let [thousand, ten, hundred] = &doors[..] else { anyhow::bail!("no sessions to measure") };
    let mut bundle = String::new();
    for (name, door) in [("1000", thousand), ("10000", ten)] {
        report.doing(&format!("export and import of {name} messages"));
        let (mut exports, mut imports) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            let (exported, took) = caller.post(door, "export", json!({})).await?;
            exports.push(took);
            let token = json!({ "roaming_token": exported["roaming_token"] });
            let (_, took) = caller.send("/v1/sbp/sessions/import", None, &token).await?;
            imports.push(took);
            if name == "1000" && bundle.is_empty() {
                bundle = caller.bundle(door, &exported).await?;
            }
        }
        report.figure(&format!("export_{name}_ms"), milliseconds(&mut exports));
        report.figure(&format!("import_{name}_ms"), milliseconds(&mut imports));
    }
    report.doing("forks of 100,000 messages");
    let mut forks = Vec::new();
    for step in 0..TRIES as u64 {
        forks.push(caller.post(hundred, "fork", json!({})).await?.1);
        forks.push(caller.post(hundred, "fork", json!({ "at_step": step * 2000 })).await?.1);
    }
    report.figure("fork_100000_ms", milliseconds(&mut forks));
    content_id(&bundle, report).await
}

/// Parses and hashes the same bundle here and in Python, in the same run.
async fn content_id(bundle: &str, report: &mut Report) -> Result<()> {
    report.doing("content ids");
    let mut best = Duration::MAX;
    let mut cid = None;
    for _ in 0..HASHES {
        let begun = Instant::now();
        let value = Bundle::parse(bundle).map_err(|error| anyhow::anyhow!("{error}"))?;
        cid = Some(Cid::of_bundle(&value));
        drop(value);
        best = best.min(begun.elapsed());
    }
    let megabytes = bundle.len() as f64 / 1e6;
    report.figure("cid_mb_per_s", megabytes / best.as_secs_f64());
    let Some((theirs, seconds)) = python(bundle).await? else {
        report.note("python3 is not installed; cid_vs_python is skipped");
        return Ok(());
    };
    let ours = cid.map(|cid| cid.to_string()).unwrap_or_default();
    ensure!(ours == theirs, "content ids differ: Python {theirs}, bowline {ours}");
    report.figure("cid_python_mb_per_s", megabytes / seconds);
    report.ratio("cid_vs_python", seconds / best.as_secs_f64());
    Ok(())
}

async fn python(bundle: &str) -> Result<Option<(String, f64)>> {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, &HASHES.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = command.spawn() else { return Ok(None) };
    let mut stdin = python.stdin.take().context("no stdin of python3")?;
    stdin.write_all(bundle.as_bytes()).await?;
    drop(stdin);
    let said = python.wait_with_output().await?;
    let said = String::from_utf8(said.stdout)?;
    let (cid, seconds) = said.trim().split_once(' ').context("unexpected output of python3")?;
    Ok(Some((cid.to_owned(), seconds.parse()?)))
}

struct Caller {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Caller {
    async fn post(&self, door: &Door, what: &str, body: Value) -> Result<(Value, Duration)> {
        let path = format!("/v1/sbp/sessions/{}/{what}", door.id);
        self.send(&path, Some(&door.token), &body).await
    }

    async fn send(
        &self,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> Result<(Value, Duration)> {
        let mut request = self.client.post(format!("http://{}{path}", self.address)).json(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let begun = Instant::now();
        let response = request.send().await?;
        let status = response.status();
        let answer = response.text().await?;
        let took = begun.elapsed();
        ensure!(status == reqwest::StatusCode::CREATED, "{path}: {status}: {answer}");
        Ok((serde_json::from_str(&answer)?, took))
    }

    async fn bundle(&self, door: &Door, exported: &Value) -> Result<String> {
        let export = exported["export_id"].as_str().context("no export")?;
        let path = format!("/v1/sbp/sessions/{}/exports/{export}/bundle", door.id);
        let request = self.client.get(format!("http://{}{path}", self.address));
        Ok(request.bearer_auth(&door.token).send().await?.text().await?)
    }
}

fn milliseconds(times: &mut [Duration]) -> f64 {
    median(times).as_secs_f64() * 1e3
}
