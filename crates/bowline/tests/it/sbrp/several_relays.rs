//! More than one relay, all real processes: one is killed, one is drained, and sessions become old.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::world::{Program, World, dial, echo, exchange, pattern, promised};
use crate::process::DEADLINE;

/// Two relays of one region, and the control plane that knows them by name.
struct Region {
    world: World,
    relays: Vec<(Option<Program>, String)>,
}

const NAMES: [&str; 2] = ["eu-1", "eu-2"];

impl Region {
    fn start() -> Self {
        let mut world = World::start();
        // The relay that the control plane was started with is not needed.
        world.relay.kill();
        let relays = NAMES.map(|name| {
            let flags = ["--name", name, "--region", "eu", "--revoked-every", "200ms"];
            let (relay, port) = world.another_relay(&flags);
            let (address, url) =
                (format!("127.0.0.1:{port}"), format!("ws://127.0.0.1:{port}/relay"));
            world.control(&["relay", "add", name, &url, "--region", "eu"]);
            (Some(relay), address)
        });
        Self { world, relays: relays.into() }
    }

    /// The relay at this address, by its number.
    fn number(&self, online: &Value) -> usize {
        let at = online["relay"].as_str().unwrap();
        self.relays.iter().position(|(_, address)| address == at).expect("one of the two")
    }

    fn list(&self) -> Value {
        serde_json::from_slice(&self.world.control(&["relay", "list", "--json"]).stdout).unwrap()
    }

    /// A daemon that is online, and the number of its relay.
    fn daemon(&self) -> (Program, usize) {
        let target = echo().to_string();
        let args = ["daemon", "run", "--json", "--name", "home", "--allow-unpaired", "--tcp"];
        let mut command = self.world.owner(&args);
        command.arg(target).arg("--data").arg(self.world.home("daemon"));
        let daemon = Program::start(command);
        let number = self.number(&daemon.event("online"));
        (daemon, number)
    }
}

/// An open connection over which bytes go to an echo and come back, all the time.
struct Traffic {
    stop: Arc<AtomicBool>,
    writing: JoinHandle<u32>,
    reading: JoinHandle<u32>,
}

const PIECE: usize = 4096;

impl Traffic {
    fn start(stream: TcpStream) -> Self {
        let (stop, mut to, mut from) =
            (Arc::new(AtomicBool::new(false)), stream.try_clone().unwrap(), stream);
        let stopped = Arc::clone(&stop);
        let writing = std::thread::spawn(move || {
            let mut pieces = 0;
            while !stopped.load(Ordering::SeqCst) {
                to.write_all(&pattern(PIECE, pieces)).expect("the connection goes on");
                pieces += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            to.shutdown(std::net::Shutdown::Write).unwrap();
            pieces
        });
        let reading = std::thread::spawn(move || {
            let mut pieces = 0;
            let mut piece = [0; PIECE];
            loop {
                match from.read_exact(&mut piece) {
                    Ok(()) => assert!(piece[..] == pattern(PIECE, pieces), "piece {pieces}"),
                    Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return pieces;
                    }
                    Err(error) => panic!("after {pieces} pieces: {error}"),
                }
                pieces += 1;
            }
        });
        Self { stop, writing, reading }
    }

    /// Ends it; every byte has come back.
    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        let written = self.writing.join().unwrap();
        assert_eq!(self.reading.join().unwrap(), written);
        assert!(written > 0);
    }
}

#[test]
fn g16_a_relay_is_killed_and_its_daemon_is_at_another_within_ten_seconds() {
    let mut region = Region::start();
    let (daemon, first) = region.daemon();
    let (connect, address) = region.world.connect("home");
    let traffic = Traffic::start(dial(address));
    assert_eq!(exchange(address, b"before").unwrap(), b"before");
    let killed = Instant::now();
    region.relays[first].0.take().unwrap().kill();
    let second = region.number(&daemon.event("online"));
    assert!(killed.elapsed() < promised(10), "{:?}", killed.elapsed());
    assert_eq!(second, 1 - first);
    let again = connect.event("established");
    assert_eq!(again["resumed"], json!(true), "{again}");
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
    traffic.end();
    let list = region.list();
    assert_eq!((&list[first]["daemons"], &list[second]["daemons"]), (&json!(0), &json!(1)));
    region.world.until_status("online");
}

#[test]
fn g16_a_drained_relay_hands_its_daemon_over_and_no_connection_is_reset() {
    let region = Region::start();
    let (daemon, first) = region.daemon();
    let (connect, address) = region.world.connect("home");
    let traffic = Traffic::start(dial(address));
    assert_eq!(exchange(address, b"before").unwrap(), b"before");
    let drained = region.world.control(&["relay", "drain", NAMES[first], "--json"]);
    let drained: Value = serde_json::from_slice(&drained.stdout).unwrap();
    assert_eq!(drained, json!({ "name": NAMES[first], "draining": true, "daemons": 1 }));
    let second = region.number(&daemon.event("online"));
    assert_eq!(second, 1 - first);
    assert_eq!(connect.event("established")["resumed"], json!(true));
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
    traffic.end();
    let list = region.list();
    assert_eq!(list[first]["daemons"], json!(0), "{list}");
    assert!(list[first]["drained_at"].is_u64() && list[second]["drained_at"].is_null(), "{list}");
    region.world.control(&["relay", "remove", NAMES[first]]);
    assert_eq!(region.list().as_array().unwrap().len(), 1);
    assert_eq!(exchange(address, b"without it").unwrap(), b"without it");
}

#[test]
fn connections_go_on_while_their_sessions_become_too_old() {
    let mut world = World::start();
    world.relay.kill();
    let (_relay, port) = world.another_relay(&["--session-age", "1s"]);
    world.control(&["relay", "add", "only", &format!("ws://127.0.0.1:{port}/relay")]);
    let _daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    let traffic = Traffic::start(dial(address));
    let begun = Instant::now();
    for _ in 0..3 {
        let why = connect.event("lost")["detail"].as_str().unwrap().to_owned();
        assert!(why.contains("session_expired"), "{why}");
        assert_eq!(connect.event("established")["resumed"], json!(true));
    }
    assert!(begun.elapsed() < DEADLINE);
    traffic.end();
}
