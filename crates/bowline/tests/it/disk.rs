//! Bad disks: full ones, and ones that do not keep what they were given.
//!
//! The gateway runs in a mount namespace of its own with a small file system under its data
//! folder. Where the machine allows no such namespaces (some containers), say
//! `BOWLINE_NO_MOUNT=1` to leave these tests out.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use reqwest::StatusCode;
use serde_json::Value;

use crate::process::{Process, bowline, session_of, turn};

/// A gateway on a file system of 3 MB, of which a ballast takes 1 MB.
struct Small {
    gateway: Process,
    folder: tempfile::TempDir,
}

impl Small {
    fn start() -> Option<Self> {
        if std::env::var_os("BOWLINE_NO_MOUNT").is_some() {
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
            .args(["gateway", "--json", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .env("BOWLINE_OFFLINE_PACE", "0ms")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .stderr(Stdio::null())
            .stdout(Stdio::piped());
        let gateway = Process::spawned(command, &folder.path().join("data"));
        Some(Self { gateway, folder })
    }

    /// A path as the gateway sees it.
    fn inside(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        PathBuf::from(format!("/proc/{}/root{}", self.gateway.pid(), path.display()))
    }

    async fn ask(&self, session: Option<&str>, text: &str) -> (StatusCode, Value) {
        let url = format!("{}/v1/chat/completions", self.gateway.url);
        let request = reqwest::Client::new().post(url).json(&turn(session, text));
        let response = request.send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    async fn is_ready(&self) -> bool {
        let ready = reqwest::get(format!("{}/readyz", self.gateway.url)).await.unwrap();
        ready.status() == StatusCode::OK
    }

    /// Everything that was answered is there, and writing works again by itself.
    async fn is_well(&self, session: &str, told: &[String]) {
        let begun = std::time::Instant::now();
        while !self.is_ready().await {
            assert!(begun.elapsed() < crate::process::DEADLINE, "never ready again");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // A turn whose end waited for space may still be writing; it is before the next one.
        let (status, answer) = self.ask(Some(session), "echo after").await;
        assert_eq!(status, 200, "{answer}");
        let log = self.gateway.log(session).await;
        let mut rest = log.iter();
        for text in told {
            assert!(
                rest.any(|entry| entry == text),
                "in order and not lost: {}",
                &text[..20.min(text.len())]
            );
        }
        assert_eq!(log.last().unwrap(), "after");
    }
}

#[tokio::test]
async fn g4_a_full_disk_is_refused_clearly_and_recovers_by_itself() {
    let Some(small) = Small::start() else { return };
    let (_, first) = small.ask(None, "echo first").await;
    let session = session_of(&first);
    let mut told = vec!["first".to_owned()];
    let mut refused = 0;
    for n in 0..100 {
        let text = format!("{n}{}", "x".repeat(60_000));
        let (status, answer) = small.ask(Some(&session), &format!("echo {text}")).await;
        match status.as_u16() {
            200 => told.push(text),
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
    assert_eq!(seen["status"], "running", "reading still works");
    std::fs::remove_file(small.inside("ballast")).unwrap();
    small.is_well(&session, &told).await;
}

#[tokio::test]
async fn g4_a_failed_flush_stops_acknowledging_exits_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let plain = bowline();
    let mut command = Command::new("strace");
    // From the 30th flush on, the disk does not keep its word.
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"])
        .args(["-e", "inject=fsync,fdatasync:error=EIO:when=30+"])
        .arg(plain.get_program())
        .args(["gateway", "--json", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .env("BOWLINE_OFFLINE_PACE", "0ms")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stderr(Stdio::null());
    let mut gateway = Process::spawned(command, folder.path());
    let client = reqwest::Client::new();
    let mut told = Vec::new();
    for n in 0..200 {
        let url = format!("{}/v1/chat/completions", gateway.url);
        let asked = client.post(url).json(&turn(None, &format!("echo {n}"))).send().await;
        match asked {
            Ok(answer) if answer.status() == 200 => {
                told.push((session_of(&answer.json().await.unwrap()), n.to_string()));
            }
            // Unknown: it may or may not be there.
            Ok(answer) => assert!(answer.status().is_server_error(), "{}", answer.status()),
            Err(_) => break,
        }
    }
    assert!((5..100).contains(&told.len()), "{} turns before the disk failed", told.len());
    assert_eq!(gateway.ended().code(), Some(74), "it does not go on");
    let gateway = Process::start(folder.path());
    for (session, text) in told {
        assert_eq!(gateway.log(&session).await.last(), Some(&text), "acknowledged, so it is there");
    }
}
