//! Test fixture: a gateway as a child process that can be killed and restarted.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The timeout of every wait in the tests; reached only by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn bowline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    // The user's own settings must not reach the tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BOWLINE_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

pub(crate) struct Process {
    child: Child,
    pub(crate) url: String,
    pub(crate) recovered: u64,
    pub(crate) data: PathBuf,
}

impl Process {
    /// Starts on a free port and waits until it is ready.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_at(data, "127.0.0.1:0", &[])
    }

    /// Starts with the built-in agent at this pace.
    pub(crate) fn paced(data: &Path, pace: &str) -> Self {
        Self::start_at(data, "127.0.0.1:0", &[("BOWLINE_OFFLINE_PACE", pace)])
    }

    pub(crate) fn start_at(data: &Path, listen: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = bowline();
        command
            .args(["gateway", "run", "--json", "--listen", listen, "--data"])
            .arg(data)
            .env("BOWLINE_OFFLINE_PACE", "0ms")
            .envs(environment.iter().copied());
        Self::spawned(command, data)
    }

    /// Starts with this command, and waits until it prints on stdout that it is ready.
    pub(crate) fn spawned(mut command: Command, data: &Path) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (said, line) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = out.read_line(&mut line);
            let _ = said.send(line);
        });
        let line = line.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("the gateway does not get ready in time");
        });
        let ready: Value = serde_json::from_str(&line).expect("the gateway did not get ready");
        Self {
            child,
            url: ready["url"].as_str().unwrap().to_owned(),
            // A tracker has no turns.
            recovered: ready["recovered_turns"].as_u64().unwrap_or_default(),
            data: data.to_owned(),
        }
    }

    /// kill -9, then starts a new process with the same data and address.
    pub(crate) fn crash_and_restart(mut self) -> Self {
        self.kill();
        let listen = self.url.trim_start_matches("http://").to_owned();
        Self::start_at(&self.data.clone(), &listen, &[])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits until the process exits by itself.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "the process does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url)).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Value {
        let request = reqwest::Client::new().patch(format!("{}{path}", self.url)).json(&body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        response.json().await.unwrap()
    }

    /// Sends a turn to a session, or to a new one; returns the whole response.
    pub(crate) async fn say(&self, session: Option<&str>, text: &str) -> Value {
        self.post("/v1/chat/completions", turn(session, text)).await
    }

    /// The contents of a session's log, in order.
    pub(crate) async fn log(&self, session: &str) -> Vec<String> {
        let mut contents = Vec::new();
        let mut after = 0;
        loop {
            let page =
                self.get(&format!("/v1/sessions/{session}/messages?after={after}&limit=500")).await;
            for entry in page["messages"].as_array().unwrap() {
                assert_eq!(entry["seq"], after + 1, "positions are contiguous");
                after += 1;
                contents.push(entry["message"]["content"].as_str().unwrap().to_owned());
            }
            if page["more"] == false {
                return contents;
            }
        }
    }

    /// Waits until the session meets the condition.
    pub(crate) async fn until(&self, session: &str, is: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let seen = self.get(&format!("/v1/sessions/{session}")).await;
            if is(&seen) {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "never as expected: {seen}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn turn(session: Option<&str>, text: &str) -> Value {
    let sbp = session.map_or(json!({}), |id| json!({ "session_id": id }));
    json!({ "model": "m", "sbp": sbp, "messages": [{ "role": "user", "content": text }] })
}

pub(crate) fn session_of(answer: &Value) -> String {
    answer["sbp"]["session_id"].as_str().unwrap().to_owned()
}
