//! `bowline up`: what it prints works as printed, and how it stops.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{DEADLINE, bowline, turn};

/// A running `bowline up`, and what it printed until it was ready.
struct Up {
    child: Child,
    said: String,
}

impl Up {
    fn start(data: &Path, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = bowline();
        command.arg("up").args(args).arg("--data").arg(data);
        command.envs(environment.iter().copied());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ctrl-C stops it") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "it did not get ready: {said}");
        }
        Self { child, said }
    }

    fn url(&self) -> &str {
        let line = self.said.lines().find_map(|line| line.strip_prefix("  gateway  "));
        line.and_then(|line| line.split("  ").next()).unwrap()
    }

    /// Runs every printed command in a shell, in another directory.
    fn commands_work(&self, environment: &[(&str, &str)]) {
        let bin = Path::new(env!("CARGO_BIN_EXE_bowline")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let script: String = self.said.lines().filter_map(|l| l.strip_prefix("  ")).fold(
            String::new(),
            |script, line| {
                let begins = ["bowline ", "SSL_CERT_FILE=", "curl "].iter();
                let begins = begins.clone().any(|begin| line.starts_with(begin));
                let continues = script.ends_with("\\\n");
                // A person would type; in a pipe, standard input is one message.
                let typed = if line.contains("bowline chat") { "echo 'echo hello' | " } else { "" };
                if begins || continues { script + typed + line + "\n" } else { script }
            },
        );
        assert!(script.matches("bowline ").count() >= 2 && script.contains("curl"), "{script}");
        let output = Command::new("sh")
            .args(["-euc", &script])
            .env_clear()
            .envs(environment.iter().copied())
            .env("PATH", path)
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("XDG_DATA_HOME", "/nonexistent")
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (out, notes) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{out}\n{notes}");
        assert!(out.contains("SESSION") && out.contains("\"choices\""), "{script}\n{out}\n{notes}");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// The exit code and stderr, once the process has ended by itself.
    fn ended(&mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "the process does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut notes = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
        (status.code(), notes)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers every request with this JSON.
fn server(json: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{json}",
                json.len()
            );
        }
    });
    format!("http://{address}/v1")
}

const PACE: (&str, &str) = ("BOWLINE_OFFLINE_PACE", "0ms");

#[test]
fn the_printed_commands_work_with_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("it's my data");
    let up = Up::start(&data, &["--listen", "localhost:0"], &[PACE]);
    assert!(up.url().starts_with("http://127.0.0.1:"), "{}", up.said);
    up.commands_work(&[]);
}

#[test]
fn the_printed_commands_work_with_keys_and_show_none() {
    let folder = tempfile::tempdir().unwrap();
    let key = ("BOWLINE_AUTH_API_KEYS", "an-api-key-of-some-length");
    let up =
        Up::start(folder.path(), &["--listen", ":0", "--behind-proxy", "192.0.2.99"], &[PACE, key]);
    let local = std::fs::read_to_string(folder.path().join("local.key")).unwrap();
    assert!(!up.said.contains(&local) && !up.said.contains(key.1), "{}", up.said);
    assert!(
        up.said.contains("an API key is needed") && up.said.contains("https://"),
        "{}",
        up.said
    );
    up.commands_work(&[("BOWLINE_API_KEY", key.1)]);
}

#[test]
fn the_printed_commands_work_over_tls_with_a_self_signed_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let args = [&["--listen", "127.0.0.1:0"][..], &files].concat();
    let up = Up::start(folder.path(), &args, &[PACE]);
    assert!(up.url().starts_with("https://localhost:"), "{}", up.said);
    up.commands_work(&[]);
}

#[test]
fn an_upstream_without_a_model_gives_its_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--upstream"];
    let upstream = server(r#"{"object":"list","data":[{"id":"first"},{"id":"second"}]}"#);
    let up = Up::start(folder.path(), &[&listen[..], &[&upstream]].concat(), &[]);
    assert!(up.said.contains("model    first; the upstream's first model"), "{}", up.said);
    assert!(up.said.contains(r#""model":"first""#), "{}", up.said);
    drop(up);
    let named = [&listen[..], &[&upstream, "--model", "second"]].concat();
    let up = Up::start(folder.path(), &named, &[]);
    assert!(up.said.contains("model    second by default"), "{}", up.said);
    drop(up);
    let up = Up::start(folder.path(), &[&listen[..], &["http://127.0.0.1:1/v1"]].concat(), &[]);
    let said = "model    bowline/offline; the built-in agent answers messages that name no model, \
                because the upstream `default` cannot be reached";
    assert!(up.said.contains(said), "{}", up.said);
    up.commands_work(&[]);
}

#[test]
fn an_upstream_that_does_not_answer_is_in_the_log_once_in_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "http://user:hunter22@127.0.0.1:1/v1?key=hunter22";
    let args = ["--listen", "127.0.0.1:0", "--upstream", secret, "--model", "m"];
    let mut up = Up::start(folder.path(), &args, &[]);
    for _ in 0..3 {
        let mut chat = bowline();
        chat.args(["chat", "--message", "hello", "--data"]).arg(folder.path());
        chat.stdin(Stdio::null()).output().unwrap();
    }
    up.signal("-TERM");
    let (_, log) = up.ended();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let said = "an upstream does not answer upstream=default why=the upstream `default` cannot be \
                reached";
    assert!(warnings[0].contains(said), "{log}");
    assert!(!log.contains("hunter22") && !up.said.contains("hunter22"), "{log}\n{}", up.said);
}

#[test]
fn a_stop_says_what_it_waits_for_and_a_second_one_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let slow = ("BOWLINE_OFFLINE_PACE", "1h");
    let mut up = Up::start(folder.path(), &["--listen", "127.0.0.1:0"], &[slow]);
    let url = up.url().to_owned();
    let asked = std::thread::spawn(move || {
        let mut curl = Command::new("curl");
        curl.args(["-s", &format!("{url}/v1/chat/completions")]);
        curl.args(["-H", "content-type: application/json", "-d"]);
        curl.arg(turn(None, "count to 5").to_string()).output()
    });
    let running = |url: &str| {
        let listed = Command::new("curl").args(["-s", &format!("{url}/v1/sessions")]).output();
        String::from_utf8(listed.unwrap().stdout).unwrap().contains("session_id")
    };
    let begun = Instant::now();
    while !running(up.url()) {
        assert!(begun.elapsed() < DEADLINE, "the turn does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    up.signal("-INT");
    let mut notes = BufReader::new(up.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting") {
        assert_ne!(notes.read_line(&mut line).unwrap(), 0, "{line}");
    }
    assert_eq!(
        line.trim(),
        "waiting for 1 running turn, up to 25s; Ctrl-C again stops at once; it is resumed at the \
         next start"
    );
    up.child.stderr = Some(notes.into_inner());
    up.signal("-INT");
    assert_eq!(up.ended().0, Some(130));
    let _ = asked.join();
    let up = Up::start(folder.path(), &["--listen", "127.0.0.1:0"], &[PACE]);
    assert!(up.said.contains("resumed  1 unfinished turns"), "{}", up.said);
}

#[test]
fn a_closed_terminal_is_an_orderly_stop_unless_hangups_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = Up::start(folder.path(), &["--listen", "127.0.0.1:0"], &[]);
    assert!(folder.path().join("running.json").exists());
    up.signal("-HUP");
    assert_eq!(up.ended(), (Some(0), String::new()));
    assert!(!folder.path().join("running.json").exists());

    let mut nohup = Command::new("sh");
    let line = "trap '' HUP; exec \"$0\" up --listen 127.0.0.1:0 --data \"$1\"";
    nohup.args(["-c", line, env!("CARGO_BIN_EXE_bowline")]).arg(folder.path());
    let mut up = Up::spawn(nohup);
    up.signal("-HUP");
    // A stop would refuse this, or end before it.
    for _ in 0..20 {
        let ready = Command::new("curl").args(["-sf", &format!("{}/readyz", up.url())]).output();
        assert!(ready.unwrap().status.success(), "it goes on");
    }
    up.signal("-TERM");
    assert_eq!(up.ended().0, Some(0));
}
