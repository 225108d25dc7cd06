//! A relay and its control plane in one process, and a port that leads home through them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::process::{DEADLINE, bowline};

/// A child that says in one line of JSON that it is ready, and dies with the test.
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
    made["api_key"].as_str().or(made["apiKey"].as_str()).expect("a key").to_owned()
}

/// Gives back what it is sent, in capitals.
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

#[test]
fn sbrp_relay_01_one_process_is_enough_and_a_port_leads_home_through_it() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let relay = Running::start(
        bowline()
            .args(["relay", "--with-control", "--json", "--listen", "127.0.0.1:0", "--data"])
            .arg(&control),
    );
    let url = relay.ready["control"].as_str().unwrap().to_owned();
    let key = user(&control);
    let mut daemon = bowline();
    daemon.args(["daemon", "--json", "--tcp", &shouting(), "--name", "home", "--data"]);
    daemon.arg(folder.path().join("daemon"));
    daemon.env("BOWLINE_CONTROL", &url).env("BOWLINE_CONTROL_KEY", &key);
    let _daemon = Running::start(&mut daemon);

    let listed = || {
        let output = bowline()
            .args(["daemons", "--json"])
            .env("BOWLINE_CONTROL", &url)
            .env("BOWLINE_CONTROL_KEY", &key)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let start = Instant::now();
    while !listed().contains("online") {
        assert!(start.elapsed() < DEADLINE, "{}", listed());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }

    let mut connect = bowline();
    connect.args(["connect", "home", "--json", "--listen", "127.0.0.1:0", "--data"]);
    connect.arg(folder.path().join("client"));
    connect.env("BOWLINE_CONTROL", &url).env("BOWLINE_CONTROL_KEY", &key);
    let connect = Running::start(&mut connect);
    let mut stream = TcpStream::connect(connect.ready["listen"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"nobody in between reads this").unwrap();
    let mut answer = [0; 28];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"NOBODY IN BETWEEN READS THIS");
}
