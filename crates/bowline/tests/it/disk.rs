//! Disk faults: a full disk, a read-only disk, and failing flushes.
//!
//! For the full disk the gateway runs in its own mount namespace with a small file system under its
//! data folder. Where such namespaces are not allowed (some containers), `BOWLINE_NO_MOUNT=1` skips
//! the test. For the others, strace makes system calls fail.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::not_run::not_run;
use crate::process::{DEADLINE, Process, bowline, session_of, turn};

/// A gateway on a file system of 3 MB, of which a ballast file takes 1 MB.
struct Small {
    gateway: Process,
    folder: tempfile::TempDir,
}

impl Small {
    fn start() -> Option<Self> {
        if std::env::var_os("BOWLINE_NO_MOUNT").is_some() {
            not_run("a full disk: BOWLINE_NO_MOUNT says that nothing can be mounted");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let script = r#"mount -t tmpfs -o size=3m none "$1" && head -c 1000000 /dev/zero > "$1/ballast" \
            && shift 2 && exec "$@""#;
        let plain = bowline();
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script, "sh"])
            .arg(folder.path())
            .arg("--")
            .arg(plain.get_program())
            .args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .env("BOWLINE_OFFLINE_PACE", "0ms")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .stderr(Stdio::null())
            .stdout(Stdio::piped());
        let gateway = Process::spawned(command, &folder.path().join("data"));
        Some(Self { gateway, folder })
    }

    /// A path in the gateway's mount namespace.
    fn inside(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        PathBuf::from(format!("/proc/{}/root{}", self.gateway.pid(), path.display()))
    }
}

async fn ask(gateway: &Process, session: Option<&str>, text: &str) -> (StatusCode, Value) {
    call(gateway, Method::POST, "/v1/chat/completions", turn(session, text)).await
}

/// Sends a request; `Null` means no body.
async fn call(gateway: &Process, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let mut request = reqwest::Client::new().request(method, format!("{}{path}", gateway.url));
    if !body.is_null() {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn is_ready(gateway: &Process) -> bool {
    call(gateway, Method::GET, "/readyz", Value::Null).await.0 == StatusCode::OK
}

/// Waits until the gateway is ready again; all answered turns are in the log, and new ones work.
async fn is_well(gateway: &Process, session: &str, told: &[String]) {
    let begun = Instant::now();
    while !is_ready(gateway).await {
        assert!(begun.elapsed() < DEADLINE, "never ready again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // An earlier turn may still be waiting for the disk; it is stored before this one.
    let (status, answer) = ask(gateway, Some(session), "echo after").await;
    assert_eq!(status, 200, "{answer}");
    let log = gateway.log(session).await;
    has_all(&log, told);
    assert_eq!(log.last().unwrap(), "after");
}

fn has_all(log: &[String], told: &[String]) {
    let mut rest = log.iter();
    for text in told {
        let start = &text[..20.min(text.len())];
        assert!(rest.any(|entry| entry == text), "in order and not lost: {start}");
    }
}

#[tokio::test]
async fn g4_a_full_disk_is_refused_clearly_and_recovers_by_itself() {
    fill(false).await;
}

#[tokio::test]
async fn g4_turns_behind_one_that_waits_for_space_are_told_and_run_when_there_is_some() {
    fill(true).await;
}

/// Fills the disk with turns of one session (`same`) or of a new session each, then frees space.
async fn fill(same: bool) {
    let Some(small) = Small::start() else { return };
    let (_, first) = ask(&small.gateway, None, "echo first").await;
    let session = session_of(&first);
    let mut told = Vec::new();
    let mut refused = 0;
    for n in 0..100 {
        let text = format!("{n}{}", "x".repeat(60_000));
        let target = Some(session.as_str()).filter(|_| same);
        let (status, answer) = ask(&small.gateway, target, &format!("echo {text}")).await;
        match status.as_u16() {
            200 => told.push((session_of(&answer), text)),
            503 => {
                assert_eq!(answer["error"]["code"], "SBP_INTERNAL", "{answer}");
                refused += 1;
            }
            other => panic!("{other}: {answer}"),
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "the disk never filled up");
    let seen = small.gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(seen["session_id"], session.as_str(), "reading still works");
    std::fs::remove_file(small.inside("ballast")).unwrap();
    is_well(&small.gateway, &session, &["first".to_owned()]).await;
    for (session, text) in told {
        assert!(small.gateway.log(&session).await.contains(&text), "not lost");
    }
}

#[tokio::test]
async fn g4_a_failed_flush_stops_acknowledging_exits_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let traced = folder.path().join("flushes");
    let plain = bowline();
    let mut command = Command::new("strace");
    // From the 30th flush on, every flush fails.
    command
        .args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&traced)
        .args(["-e", "inject=fsync,fdatasync:error=EIO:when=30+"])
        .arg(plain.get_program())
        .args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .env("BOWLINE_OFFLINE_PACE", "0ms")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stderr(Stdio::null());
    let mut gateway = Process::spawned(command, folder.path());
    let kept = || {
        let text = std::fs::read_to_string(&traced).unwrap();
        text.lines().filter(|line| line.ends_with("= 0")).count()
    };
    let kept_at_the_start = kept();
    let client = reqwest::Client::new();
    let mut told = Vec::new();
    for n in 0..200 {
        let url = format!("{}/v1/chat/completions", gateway.url);
        let asked = client.post(url).json(&turn(None, &format!("echo {n}"))).send().await;
        match asked {
            Ok(answer) if answer.status() == 200 => {
                told.push((session_of(&answer.json().await.unwrap()), n.to_string()));
            }
            // The outcome is unknown: the turn may or may not be stored.
            Ok(answer) => assert!(answer.status().is_server_error(), "{}", answer.status()),
            Err(_) => break,
        }
    }
    assert_eq!(gateway.ended().code(), Some(74), "it does not go on");
    // Turns are sent one after the other, so each needs its own flush. More turns than successful
    // flushes would mean that one was acknowledged although its flush failed.
    let kept = kept() - kept_at_the_start;
    assert!((5..=kept).contains(&told.len()), "{} turns on {kept} flushes", told.len());
    let gateway = Process::start(folder.path());
    for (session, text) in told {
        assert_eq!(gateway.log(&session).await.last(), Some(&text), "acknowledged, so it is there");
    }
}

/// Simulates a file system that becomes read-only under a running process.
///
/// A real one is not possible: a mount with files open for writing cannot be remounted read-only,
/// and one that the kernel made read-only after an error stays so until it is mounted again.
struct ReadOnly {
    strace: Child,
}

impl ReadOnly {
    /// `None` if strace is missing or may not attach to processes.
    fn make(gateway: &Process) -> Option<Self> {
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &gateway.pid().to_string()])
            .args(["-e", "trace=pwrite64,pwritev,ftruncate,fallocate"])
            .args(["-e", "inject=pwrite64,pwritev,ftruncate,fallocate:error=EROFS"])
            .stderr(Stdio::null())
            .spawn();
        let mut read_only = Self { strace: strace.ok()? };
        let begun = Instant::now();
        while read_only.strace.try_wait().unwrap().is_none() {
            if is_traced(gateway) {
                return Some(read_only);
            }
            assert!(begun.elapsed() < DEADLINE, "strace never attached");
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Makes it writable again.
    fn end(mut self) {
        // On SIGINT strace detaches from the process before it exits.
        let pid = self.strace.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.strace.wait().unwrap();
    }
}

/// Whether strace is attached to every thread.
fn is_traced(gateway: &Process) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
    threads.flatten().all(|thread| {
        // The file is missing if the thread has just ended.
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        !status.contains("\nTracerPid:\t0\n")
    })
}

#[tokio::test]
async fn g4_a_disk_that_becomes_read_only_is_told_clearly_and_recovers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let session = session_of(&gateway.say(None, "echo first").await);
    let mut told = vec!["first".to_owned()];
    for round in 0..2 {
        told.push(format!("before {round}"));
        gateway.say(Some(&session), &format!("echo before {round}")).await;
        let Some(read_only) = ReadOnly::make(&gateway) else {
            not_run("a disk that turns read-only: it needs strace and permission to use it");
            return;
        };
        let path = format!("/v1/sessions/{session}");
        let mut streamed = turn(Some(&session), "echo streamed");
        streamed["stream"] = json!(true);
        for (method, path, body) in [
            (Method::POST, "/v1/chat/completions", turn(Some(&session), "echo refused")),
            (Method::POST, "/v1/chat/completions", turn(None, "echo refused")),
            (Method::POST, "/v1/chat/completions", streamed),
            (Method::POST, "/v1/sessions", json!({})),
            (Method::DELETE, &path, Value::Null),
        ] {
            let (status, answer) = call(&gateway, method.clone(), path, body).await;
            assert_eq!(status, 503, "{method} {path}: {answer}");
            assert_eq!(answer["error"]["code"], "SBP_INTERNAL", "{method} {path}: {answer}");
        }
        assert!(!is_ready(&gateway).await, "it cannot take turns");
        for path in [&path, "/v1/sessions", "/healthz"] {
            let (status, answer) = call(&gateway, Method::GET, path, Value::Null).await;
            assert_eq!(status, 200, "reading still works: {path}: {answer}");
        }
        has_all(&gateway.log(&session).await, &told);
        read_only.end();
        is_well(&gateway, &session, &told).await;
        told.push("after".to_owned());
    }
    let log = gateway.log(&session).await;
    assert!(!log.iter().any(|entry| entry.contains("refused")), "{log:?}");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
    let gateway = gateway.crash_and_restart();
    assert_eq!(gateway.log(&session).await, log, "and all of it is on disk");
}

#[tokio::test]
async fn g4_a_turn_that_runs_when_its_disk_becomes_read_only_ends_once_when_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "5ms");
    let session = session_of(&gateway.say(None, "echo first").await);
    // Long enough to be still running when the disk turns read-only.
    let request = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", gateway.url))
        .header("Idempotency-Key", "once")
        .json(&turn(Some(&session), "count to 3000"));
    let asked = tokio::spawn(request.try_clone().unwrap().send());
    gateway.until(&session, |seen| seen["status"] == "running").await;
    let Some(read_only) = ReadOnly::make(&gateway) else {
        not_run("a disk that turns read-only: it needs strace and permission to use it");
        return;
    };
    let answer = asked.await.unwrap().unwrap();
    assert_eq!(answer.status(), 503, "its end is not on disk");
    assert_eq!(gateway.log(&session).await.len(), 2, "and nobody sees it");
    read_only.end();
    // The gateway retries to store the turn's end after a pause; until then requests get 503.
    let begun = Instant::now();
    let answer = loop {
        let answer = request.try_clone().unwrap().send().await.unwrap();
        if answer.status() == 200 {
            break answer;
        }
        assert_eq!(answer.status(), 503);
        assert!(begun.elapsed() < DEADLINE, "the turn never ends");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let answer: Value = answer.json().await.unwrap();
    let words = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(words.starts_with("1\n2\n") && words.ends_with("\n3000\n"), "{words}");
    let log = gateway.log(&session).await;
    assert_eq!(log, ["echo first", "first", "count to 3000", words], "once, and whole");
}
