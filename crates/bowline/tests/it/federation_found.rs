//! SBP-L6-03 and SBP-L6-04 with public addresses and TLS, in a network namespace: a gateway that nobody named is found by
//! a tracker, or by DNS, after it has moved to another address.
//!
//! On loopback this cannot be shown: who is not named there is refused because of the address.

use std::net::TcpStream;
use std::process::{Command, Output};

use crate::network::namespace::{Namespace, missing};
use crate::not_run::not_run;
use crate::process::Process;
use serde_json::Value;

const FIRST: &str = "11.0.0.1";
const SECOND: &str = "11.0.0.2";
const AWAY: &str = "11.0.0.3";
const TRACKER: &str = "11.0.0.4";
const NAMES: &str = "11.0.0.5";
/// The name of the second address, which DNS alone knows.
const NAME: &str = "gw.example.test";
const KEY: &str = "a-key-of-the-owner-of-these-gateways-0123456789";

/// Hosts with public addresses, and one certificate for all of them.
struct World {
    namespace: Namespace,
    folder: tempfile::TempDir,
    /// What servers have in place of /etc/resolv.conf.
    resolv_conf: Option<String>,
}

/// Starts a program that has another /etc/resolv.conf than the system.
const RESOLVING: &str = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;

impl World {
    fn new() -> Self {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().unwrap());
        for address in [FIRST, SECOND, AWAY, TRACKER, NAMES] {
            namespace.ip(&format!("addr add {address}/32 dev lo"));
        }
        let names = [FIRST, SECOND, AWAY, TRACKER, NAME].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("owner.key"), KEY).unwrap();
        Self { namespace, folder, resolv_conf: None }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A server at that address, with TLS.
    fn serve(&self, what: &[&str], at: &str, data: &str) -> Command {
        let mut command = match &self.resolv_conf {
            None => self.namespace.bowline(),
            Some(file) => {
                self.namespace.bowline_by(&["unshare", "--mount", "sh", "-c", RESOLVING, file])
            }
        };
        command.args(["--ca-file", &self.file("cert.pem")]).args(what).args(["run", "--json"]);
        command.args(["--listen", &format!("{at}:443"), "--data", &self.file(data)]);
        command.args(["--tls-cert", &self.file("cert.pem"), "--tls-key", &self.file("key.pem")]);
        command
    }

    fn gateway(&self, id: &str, at: &str, more: &[&str]) -> Process {
        self.gateway_with(id, at, more, &[])
    }

    /// The same with these variables in its environment.
    fn gateway_with(
        &self,
        id: &str,
        at: &str,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Process {
        let mut command = self.serve(&["gateway"], at, id);
        command.args(["--federation", "--gateway-id", id]).args(more);
        command.env("BOWLINE_FEDERATION_URL", format!("https://{at}"));
        command.envs(environment.iter().copied());
        command.env("BOWLINE_AUTH_API_KEYS", KEY).env("BOWLINE_OFFLINE_PACE", "0ms");
        Process::spawned(command, &self.folder.path().join(id))
    }

    /// A command that asks the gateway at that address.
    fn ask(&self, at: &str, words: &[&str]) -> Output {
        let mut command = self.namespace.bowline();
        command.args(["--ca-file", &self.file("cert.pem")]).args(words);
        command.args(["--url", &format!("https://{at}"), "--key-file", &self.file("owner.key")]);
        command.output().unwrap()
    }

    fn json(&self, at: &str, words: &[&str]) -> Value {
        let output = self.ask(at, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {said}"))
    }

    /// A new session at that address and its roaming token, in a file.
    fn exported(&self, at: &str, said: &str, more: &[&str]) -> String {
        let output = self.ask(at, &["chat", "--message", said]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let exported = self.json(at, &[&["export", "last", "--json"], more].concat());
        let file = self.file(&said.replace(' ', "-"));
        std::fs::write(&file, exported["roaming_token"].as_str().unwrap()).unwrap();
        file
    }
}

fn terminated(mut process: Process) {
    process.terminate();
    process.ended();
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_04_a_gateway_that_moved_is_found_by_a_tracker() {
    if let Some(missing) = missing() {
        return not_run(&format!("finding gateways at public addresses: it needs {missing}"));
    }
    let world = World::new();
    let mut tracker = world.serve(&["tracker"], TRACKER, "tracker");
    tracker.args(["--id", "t", "--url", &format!("https://{TRACKER}")]);
    let _tracker = Spawned(tracker.stdout(std::process::Stdio::null()).spawn().unwrap());
    world.finds_one_that_moved().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_04_a_gateway_that_moved_is_found_by_a_gateway_that_is_a_tracker_too() {
    if let Some(missing) = missing() {
        return not_run(&format!("finding gateways at public addresses: it needs {missing}"));
    }
    let world = World::new();
    let _both = world.gateway("t", TRACKER, &["--also-tracker"]);
    world.finds_one_that_moved().await;
}

impl World {
    /// A gateway announces an export, moves to another address, and another gateway imports what it announced.
    async fn finds_one_that_moved(&self) {
        let knows = ["--tracker", &format!("t=https://{TRACKER}")];

        let home = self.gateway("home", FIRST, &knows);
        let announced = self.exported(FIRST, "echo one", &["--announce"]);
        let _away = self.gateway("away", AWAY, &knows);
        terminated(home);
        let _home = self.gateway("home", SECOND, &knows);
        // The tracker is told of the new address in a moment.
        let imported = self.eventually_imported(&announced).await;
        let lineage =
            self.json(AWAY, &["lineage", imported["session_id"].as_str().unwrap(), "--json"]);
        let from = &lineage["tree"][0]["from_gateway"];
        assert_eq!(
            (&from["gateway_id"], &from["url"]),
            (&"home".into(), &format!("https://{SECOND}").into())
        );
    }

    /// Imports as soon as the tracker knows where the session is.
    async fn eventually_imported(&self, token: &str) -> Value {
        let begun = std::time::Instant::now();
        loop {
            let output = self.ask(AWAY, &["import", "--json", "--token-file", token]);
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(begun.elapsed() < crate::process::DEADLINE, "{said}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
}

/// A name server: dnsmasq, which knows `_sbp._tcp.example.test` and the host that serves there. All its answers to the
/// one question do not fit into a datagram.
fn name_server(world: &World) -> Spawned {
    let mut command = world.namespace.inside("dnsmasq");
    command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
    command.args(["--bind-interfaces", &format!("--listen-address={NAMES}"), "--user=root"]);
    command.args([
        "--pid-file=",
        "--log-queries",
        &format!("--log-facility={}", world.file("names")),
    ]);
    command.arg(format!("--host-record={NAME},{SECOND}"));
    command.arg(format!("--srv-host=_sbp._tcp.example.test,{NAME},443,1,1"));
    for n in 0..15 {
        let host =
            format!("{}{n}.example.test", "a-gateway-that-is-not-there-and-has-a-long-name-");
        command.arg(format!("--srv-host=_sbp._tcp.example.test,{host},443,2,1"));
    }
    let mut process = Spawned(command.spawn().expect("dnsmasq is started by nsenter"));
    let begun = std::time::Instant::now();
    while world.namespace.enter(|| TcpStream::connect((NAMES, 53)).is_err()) {
        let ended = process.0.try_wait().unwrap();
        assert!(ended.is_none(), "dnsmasq has ended, or is not installed here: run tools/servers");
        assert!(begun.elapsed() < crate::process::DEADLINE, "dnsmasq does not answer");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_04_a_gateway_that_moved_is_found_by_the_srv_records_of_its_domain() {
    if let Some(missing) = missing() {
        return not_run(&format!("finding gateways by DNS: it needs {missing}"));
    }
    let mut world = World::new();
    let _names = name_server(&world);
    // The name server is the system's there.
    let resolv_conf = world.file("resolv.conf");
    std::fs::write(&resolv_conf, format!("nameserver {NAMES}\n")).unwrap();
    world.resolv_conf = Some(resolv_conf);
    let home = world.gateway("home", FIRST, &[]);
    let exported = world.exported(FIRST, "echo one", &[]);
    terminated(home);
    // At another address, which it has by a name.
    let url = format!("https://{NAME}");
    let _home = world.gateway_with("home", SECOND, &[], &[("BOWLINE_FEDERATION_URL", &url)]);
    let environment = [("BOWLINE_FEDERATION_DOMAINS", "example.test")];
    let _away = world.gateway_with("away", AWAY, &[], &environment);

    let imported = world.json(AWAY, &["import", "--json", "--token-file", &exported]);
    let session = imported["session_id"].as_str().unwrap();
    let lineage = world.json(AWAY, &["lineage", session, "--json"]);
    let from = &lineage["tree"][0]["from_gateway"];
    assert_eq!((&from["gateway_id"], &from["url"]), (&"home".into(), &url.into()));
    let asked = std::fs::read_to_string(world.file("names")).unwrap();
    let times = asked.matches("query[SRV] _sbp._tcp.example.test").count();
    // An answer that is late is asked for again.
    assert!(times >= 2, "by datagram, and then over TCP: {asked}");
}

/// A process that ends with the test.
struct Spawned(std::process::Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
