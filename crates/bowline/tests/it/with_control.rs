//! `bowline relay run --with-control`: relay and control plane in one process, with a daemon and a
//! client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::process::{DEADLINE, bowline};

/// A child process that prints one line of JSON when it is ready; killed on drop.
struct Running {
    child: Child,
    ready: Value,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).expect("it did not get ready");
        Self { child, ready }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn user(data: &Path) -> String {
    let made = bowline()
        .args(["control", "user", "add", "alice", "--json", "--data"])
        .arg(data)
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    made["api_key"].as_str().expect("a key").to_owned()
}

/// A TCP server that returns what it receives in capitals.
fn shouting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut piece = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..count].to_ascii_uppercase()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A relay with its control plane, a connected daemon, and the owner's API key.
struct Home {
    folder: tempfile::TempDir,
    url: String,
    key: String,
    daemon: Running,
    _relay: Running,
}

impl Home {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("control");
        let relay = Running::start(
            bowline()
                .args([
                    "relay",
                    "run",
                    "--with-control",
                    "--json",
                    "--listen",
                    "127.0.0.1:0",
                    "--data",
                ])
                .arg(&control),
        );
        let url = relay.ready["control"].as_str().unwrap().to_owned();
        let key = user(&control);
        let mut daemon = bowline();
        daemon.args(["daemon", "run", "--json", "--allow-unpaired", "--tcp", &shouting()]);
        daemon.args(["--name", "home", "--data"]);
        daemon.arg(folder.path().join("daemon"));
        daemon.env("BOWLINE_CONTROL", &url).env("BOWLINE_CONTROL_KEY", &key);
        let daemon = Running::start(&mut daemon);
        let home = Self { folder, url, key, daemon, _relay: relay };
        let start = Instant::now();
        while home.daemons().first().is_none_or(|daemon| daemon["status"] != "online") {
            assert!(start.elapsed() < DEADLINE, "{:?}", home.daemons());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        home
    }

    /// A `bowline` command with the owner's API key.
    fn own(&self, args: &[&str]) -> Command {
        let mut command = bowline();
        command.args(args).env("BOWLINE_CONTROL", &self.url);
        command.env("BOWLINE_CONTROL_KEY", &self.key);
        command
    }

    fn daemons(&self) -> Vec<Value> {
        let listed = self.own(&["daemons", "list", "--json"]).output().unwrap();
        serde_json::from_slice(&listed.stdout).unwrap()
    }

    fn connect(&self) -> Running {
        let mut connect =
            self.own(&["connect", "home", "--json", "--listen", "127.0.0.1:0", "--data"]);
        Running::start(connect.arg(self.folder.path().join("client")))
    }
}

/// Waits until the process exits; returns whether its exit code was 0.
fn ended(running: &mut Running) -> bool {
    let start = Instant::now();
    loop {
        if let Some(status) = running.child.try_wait().unwrap() {
            return status.success();
        }
        assert!(start.elapsed() < DEADLINE, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn sbrp_relay_01_one_process_is_enough_and_a_port_leads_home_through_it() {
    let home = Home::start();
    let connect = home.connect();
    let mut stream = TcpStream::connect(connect.ready["listen"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"nobody in between reads this").unwrap();
    let mut answer = [0; 28];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"NOBODY IN BETWEEN READS THIS");
}

#[test]
fn a_daemon_gets_another_name() {
    let home = Home::start();
    let renamed =
        home.own(&["daemons", "rename", "home", " workshop ", "--json"]).output().unwrap();
    assert!(renamed.status.success(), "{renamed:?}");
    let bad = home.own(&["daemons", "rename", "workshop", ""]).output().unwrap();
    assert_eq!(bad.status.code(), Some(3), "{bad:?}");
    let gone = home.own(&["daemons", "rename", "home", "x"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(4), "{gone:?}");
    let daemons = home.daemons();
    assert_eq!((daemons.len(), &daemons[0]["name"]), (1, &"workshop".into()), "{daemons:?}");
    assert!(daemons[0]["identity_public_key"].is_string(), "{daemons:?}");
}

#[test]
fn sbrp_relay_16_a_revoked_daemon_stops_and_so_does_whoever_is_with_it() {
    let mut home = Home::start();
    let mut connect = home.connect();
    let revoked = home.own(&["daemons", "revoke", "home"]).output().unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    assert!(!ended(&mut home.daemon), "a daemon that may not serve is a failure");
    assert!(!ended(&mut connect), "and so is a port that leads nowhere");
    assert!(home.daemons().is_empty());
    let again = home.own(&["daemons", "revoke", "home"]).output().unwrap();
    assert!(!again.status.success());
    assert!(String::from_utf8(again.stderr).unwrap().contains("you have no daemon home"));
}

#[test]
fn a_replaced_key_ends_the_daemon_and_the_tunnel_that_were_opened_with_it() {
    let mut home = Home::start();
    let mut connect = home.connect();
    let mut replace = bowline();
    replace.args(["control", "user", "key", "alice", "--replace", "--json", "--data"]);
    let replaced = replace.arg(home.folder.path().join("control")).output().unwrap();
    assert!(replaced.status.success(), "{replaced:?}");
    assert!(!ended(&mut home.daemon), "it cannot get another token with its key");
    assert!(!ended(&mut connect), "nor can the client");
}
