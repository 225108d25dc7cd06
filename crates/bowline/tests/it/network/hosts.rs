//! Three hosts: a relay with its control plane, a home with a daemon, and a phone. Home and phone reach
//! the relay over a link each, and nothing else. Real processes, TLS, paired devices.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::link::Link;
use super::namespace::Namespace;
use super::transfer::Service;
use crate::sbrp::world::Program;

const RELAY: &str = "10.77.0.1";
const URL: &str = "https://10.77.0.1:8443";
/// Where the daemon's service listens at home.
const SERVICE: &str = "127.0.0.1:7000";

pub(crate) struct Hosts {
    pub(crate) service: Arc<Service>,
    // Programs end before the links, and those before their hosts.
    daemon: Option<Program>,
    _relay: Program,
    pub(crate) home_link: Link,
    pub(crate) phone_link: Link,
    home: Namespace,
    phone: Namespace,
    _relay_host: Namespace,
    key: String,
    folder: TempDir,
}

/// A `bowline connect` on the phone, and the local port that leads home.
pub(crate) struct Device {
    pub(crate) connect: Program,
    pub(crate) address: SocketAddr,
}

impl Hosts {
    /// Everything runs, and this many devices are paired, over links without a flaw.
    pub(crate) fn start(devices: usize) -> Self {
        let [relay, home, phone] = [(); 3].map(|()| Namespace::new());
        relay.ip(&format!("addr add {RELAY}/32 dev lo"));
        let connected = |host: &Namespace, name: &str, net: &str| {
            let link = Link::between(host, &relay, name);
            host.ip(&format!("addr add {net}.2/30 dev {name}"));
            relay.ip(&format!("addr add {net}.1/30 dev {name}"));
            for end in [host, &relay] {
                end.ip(&format!("link set {name} up"));
            }
            host.ip(&format!("route add {RELAY}/32 dev {name}"));
            link
        };
        let home_link = connected(&home, "to-home", "10.77.1");
        let phone_link = connected(&phone, "to-phone", "10.77.2");
        let folder = tempfile::tempdir().unwrap();
        let running = start_relay(&relay, folder.path());
        let key = add_user(&relay, folder.path());
        let service = home.enter(|| Service::start(TcpListener::bind(SERVICE).unwrap()));
        let mut hosts = Self {
            service,
            daemon: None,
            _relay: running,
            home_link,
            phone_link,
            home,
            phone,
            _relay_host: relay,
            key,
            folder,
        };
        hosts.start_daemon();
        (0..devices).for_each(|number| hosts.pair(number));
        hosts
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trusting(&self, mut command: Command) -> Command {
        command.env("SSL_CERT_FILE", self.folder.path().join("cert.pem"));
        command
    }

    fn start_daemon(&mut self) {
        let mut command = self.trusting(self.home.bowline());
        command.args(["daemon", "run", "--json", "--name", "home", "--tcp", SERVICE]);
        command.env("BOWLINE_CONTROL", URL).env("BOWLINE_CONTROL_KEY", &self.key);
        let daemon = Program::start(with_data(command, &self.data("home")));
        daemon.event("online");
        self.daemon = Some(daemon);
    }

    fn pair(&self, number: usize) {
        let mut command = self.trusting(self.home.bowline());
        command.args(["pair", "--json"]);
        let offer = run(with_data(command, &self.data("home")));
        let mut command = self.trusting(self.phone.bowline());
        command.args(["pair", "--accept", offer["text"].as_str().unwrap(), "--name", "home"]);
        command.args(["--json", "--device-name", &format!("phone-{number}")]);
        run(with_data(command, &self.data(&format!("phone-{number}"))));
    }

    /// Starts `bowline connect` as this device, and waits until it is connected.
    pub(crate) fn connect(&self, number: usize) -> Device {
        let mut command = self.trusting(self.phone.bowline());
        command.args(["connect", "home", "--json", "--listen", "127.0.0.1:0"]);
        let data = self.data(&format!("phone-{number}"));
        let connect = Program::start(with_data(command, &data));
        let established = connect.event("established");
        let address = established["listen"].as_str().unwrap().parse().unwrap();
        Device { connect, address }
    }

    /// A TCP connection to a device's local port, as a program on the phone makes it.
    pub(crate) fn dial(&self, address: SocketAddr) -> TcpStream {
        self.phone.enter(|| TcpStream::connect(address).unwrap())
    }

    /// How often the daemon or one of these devices lost its connection to the relay, with the reasons.
    pub(crate) fn losses(&self, devices: &[&Device]) -> Vec<String> {
        let named = devices.iter().map(|device| ("connect", &device.connect));
        let daemon = self.daemon.iter().map(|daemon| ("daemon", daemon));
        let events = named.chain(daemon).flat_map(|(name, program)| {
            program.unread().into_iter().map(move |event| (name, event))
        });
        let losses = events.filter(|(_, event)| event["event"] == "lost");
        losses.map(|(name, event)| format!("{name}: {event}")).collect()
    }
}

fn start_relay(host: &Namespace, folder: &Path) -> Program {
    let made = rcgen::generate_simple_self_signed(vec![RELAY.into()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut command = host.bowline();
    command.args(["relay", "run", "--with-control", "--json", "--listen", "0.0.0.0:8443"]);
    command.args(["--url", URL, "--tls-cert"]).arg(&cert).arg("--tls-key").arg(&key);
    let relay = Program::start(with_data(command, &folder.join("control")));
    relay.line();
    relay
}

fn add_user(host: &Namespace, folder: &Path) -> String {
    let mut command = host.bowline();
    command.args(["control", "user", "add", "alice", "--json"]);
    run(with_data(command, &folder.join("control")))["api_key"].as_str().unwrap().to_owned()
}

fn with_data(mut command: Command, folder: &Path) -> Command {
    command.arg("--data").arg(folder);
    command
}

/// Runs a command to its end, and reads what it prints.
fn run(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
