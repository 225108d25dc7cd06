//! `bowline tracker`: errors, start and stop; and that no content ever reaches it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bowline_federation::{
    BundleRequest, Credentials, Discovery, DnsSrv, MemoryPins, Peers, ReadLimits, StaticPeer,
    SystemLookup, Target, Wanted,
};
use bowline_sbp::bundle::Contents;
use bowline_sbp::federation::{
    Announced, Announcement, BaseUrl, Endpoints, GatewayId, Manifest, Role, Trust,
};
use bowline_sbp::gateway_key::{GatewayIdentity, GatewayKey};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::process::{DEADLINE, Process, bowline, session_of};
use crate::process_memory::{dump, is_in};

struct Tracker {
    child: Child,
    url: BaseUrl,
    key: GatewayKey,
}

impl Tracker {
    fn start(data: &Path, args: &[&str], log: &Path) -> Self {
        let mut child = bowline()
            .args(["tracker", "run", "--json", "--listen", "127.0.0.1:0", "--id", "t", "--data"])
            .arg(data)
            .args(args)
            .env("BOWLINE_LOG_LEVEL", "trace")
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).expect("the tracker did not get ready");
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        Self { child, url: text("url").parse().unwrap(), key: text("key").parse().unwrap() }
    }

    fn named(&self) -> StaticPeer {
        StaticPeer { id: "t".parse().unwrap(), url: self.url.clone(), key: Some(self.key) }
    }

    /// The status of an answer to a body that is posted as it is.
    fn post(&self, body: &str) -> u16 {
        let address = self.url.as_str().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /v1/sbp/registry HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn terminate(mut self) {
        let (pid, begun) = (self.child.id().to_string(), Instant::now());
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        assert!(begun.elapsed() < DEADLINE / 2);
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn identity() -> GatewayIdentity {
    GatewayIdentity::from_seed(&[1; 32])
}

/// A gateway `a` on loopback: its manifest, and one bundle.
fn gateway(bundle: String) -> BaseUrl {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: BaseUrl = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let manifest = Manifest {
        gateway_id: "a".parse().unwrap(),
        gateway_name: String::new(),
        role: Role::Gateway,
        key: identity().public(),
        url: url.clone(),
        endpoints: Endpoints::of_gateway(&url),
        issued_at: Timestamp::now().as_second(),
        previous: Vec::new(),
    };
    let manifest = manifest.sign(&identity());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let is_manifest = head.starts_with(b"GET /.well-known/sbp ");
            let body = if is_manifest { &manifest } else { &bundle };
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

/// The peers of a gateway with that id.
fn peers(id: &str, url: &BaseUrl, named: Vec<StaticPeer>) -> Arc<Peers> {
    let id: GatewayId = id.parse().unwrap();
    let me = Credentials { id, url: url.clone(), keys: Arc::new(identity().into()) };
    let pins = Arc::new(MemoryPins::default());
    Arc::new(Peers::new(me, named, pins, Arc::new(SystemLookup)).unwrap())
}

fn bundle(said: &str) -> Contents {
    let text = json!({
        "sbp_version": "1.0",
        "session": { "id": "4f5c4f0e-0000-4000-8000-000000000001", "created_at": "2026-01-01T00:00:00Z" },
        "messages": [{ "role": "user", "content": said }],
    });
    let mut text = bowline_pyjson::Value::parse(&text.to_string()).unwrap().into_owned();
    let cid = bowline_sbp::cid::Cid::of_bundle(&text);
    text.as_object_mut().unwrap().insert("bundle_cid", cid.to_string());
    Contents::open(&text.to_json()).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_03_08_a_tracker_helps_to_find_a_bundle_and_never_sees_what_is_in_it() {
    let (folder, said) = (tempfile::tempdir().unwrap(), "content-canary-zq");
    let sealed = bundle(said).seal_signed(&identity());
    let url = gateway(sealed.text.clone());
    let (data, log) = (folder.path().join("tracker"), folder.path().join("log"));
    let peer = format!("a={url}");
    let tracker = Tracker::start(&data, &["--peer", &peer], &log);

    // Announced by the one, found by the other, and fetched from where it is.
    let now = Timestamp::now().as_second();
    let announced = Announced { cid: sealed.cid, expires_at: now + 600 };
    let origin = peers("a", &url, Vec::new());
    origin.announce(&Target::named(&tracker.named()), &[announced], &[]).await.unwrap();
    let asking: BaseUrl = "https://b.example".parse().unwrap();
    let asking = peers("b", &asking, Vec::new());
    let discovery = Discovery {
        peers: Arc::clone(&asking),
        trackers: vec![tracker.named()],
        dns: Arc::new(DnsSrv::servers(&["127.0.0.1:1".parse().unwrap()]).unwrap()),
        domains: Vec::new(),
    };
    let wanted = Wanted { cid: Some(sealed.cid), ..Wanted::default() };
    let found = discovery.search(wanted).next().await.unwrap();
    assert_eq!(found.target.url, url, "the tracker named it");
    // On loopback it is reached only by whoever has it in the configuration.
    let a = StaticPeer { id: "a".parse().unwrap(), url: url.clone(), key: None };
    let request = BundleRequest {
        cid: sealed.cid,
        roaming_token: Some("token-canary-zq"),
        reservation: None,
        limits: ReadLimits::bundle(1 << 20),
        spool: folder.path(),
    };
    let fetched = asking.bundle(&Target::named(&a), request).await.unwrap();
    assert!(fetched.text.contains(said));

    // Content that is pushed at it is refused. Its disk is searched for it and its memory is not: whoever sends
    // bytes to a process has put them into a buffer there, and a buffer that is freed is not overwritten.
    let announcement = Announcement {
        gateway_id: "a".parse().unwrap(),
        url: url.clone(),
        cids: vec![announced],
        withdraw: Vec::new(),
        issued_at: now,
    };
    let mut pushed: Value = serde_json::from_str(&announcement.sign(&identity())).unwrap();
    pushed["messages"] = json!(["pushed-canary-zq"]);
    assert_eq!(tracker.post(&pushed.to_string()), 422);

    let dumped = folder.path().join("memory");
    assert!(dump(tracker.child.id(), &dumped) > 1 << 20, "its memory was read");
    // What it knows is where it should be, so the rest would be found.
    assert!(is_in(url.as_str().as_bytes(), &dumped));
    assert!(is_in(sealed.cid.as_bytes(), &data) && is_in(url.as_str().as_bytes(), &data));
    for secret in [said, "token-canary-zq"] {
        assert!(!is_in(secret.as_bytes(), &dumped), "{secret} is in its memory");
        assert!(!is_in(secret.as_bytes(), &data), "{secret} is on its disk");
    }
    assert!(!is_in(b"pushed-canary-zq", &data));
    let names: Vec<_> = std::fs::read_dir(&data).unwrap().map(|e| e.unwrap().file_name()).collect();
    let is_its_own = |name: &&std::ffi::OsString| {
        let name = name.to_string_lossy();
        name == "identity.key" || name.starts_with("tracker.db")
    };
    assert!(names.iter().all(|name| is_its_own(&name)), "no store of sessions: {names:?}");
    tracker.terminate();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("/v1/sbp/registry") && log.contains("stopping"), "{log}");
    for secret in [said, "canary-zq", &sealed.cid.to_string()] {
        assert!(!log.contains(secret), "{secret} was logged");
    }
}

#[tokio::test]
async fn sbp_l6_03_08_a_gateway_that_announces_a_session_tells_its_tracker_not_a_word_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{}", bowline_servers::quiet_port());
    let (data, log) = (folder.path().join("tracker"), folder.path().join("log"));
    let tracker = Tracker::start(&data, &["--peer", &format!("home=http://{listen}")], &log);
    let at_home = folder.path().join("home");
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--federation", "--gateway-id", "home"]);
    command.args(["--listen", &listen, "--tracker", &format!("t={}", tracker.url), "--data"]);
    command.arg(&at_home).env("BOWLINE_OFFLINE_PACE", "0ms");
    let home = Process::spawned(command, &at_home);

    let said = "words-canary-zq";
    let session = session_of(&home.say(None, &format!("echo {said}")).await);
    let mut export = bowline();
    export.args([
        "export",
        &session,
        "--announce",
        "--json",
        "--label",
        "label-canary-zq",
        "--data",
    ]);
    let exported = export.arg(&at_home).output().unwrap();
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let exported: Value = serde_json::from_slice(&exported.stdout).unwrap();
    let text = |name: &str| exported[name].as_str().unwrap().to_owned();
    let cid: bowline_sbp::cid::Cid = text("bundle_cid").parse().unwrap();
    let holders = tracker.url.join(&format!("/v1/sbp/registry/{cid}"));
    let begun = Instant::now();
    loop {
        let answer = reqwest::get(holders.clone()).await.unwrap().text().await.unwrap();
        if answer.contains("\"home\"") {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "it is not announced: {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }

    let dumped = folder.path().join("memory");
    assert!(dump(tracker.child.id(), &dumped) > 1 << 20, "its memory was read");
    // What it was told is there, and what it was not told is where it should be: so both would be found.
    let url = format!("http://{listen}");
    assert!(is_in(cid.as_bytes(), &data) && is_in(url.as_bytes(), &data));
    assert!(is_in(url.as_bytes(), &dumped) && is_in(said.as_bytes(), &at_home));
    let token = text("roaming_token");
    let signature = &token[token.rfind('.').unwrap() + 1..];
    tracker.terminate();
    for secret in ["canary-zq", signature, &session, &text("export_id")] {
        assert!(!is_in(secret.as_bytes(), &dumped), "{secret} is in its memory");
        assert!(!is_in(secret.as_bytes(), &data), "{secret} is on its disk");
        assert!(!is_in(secret.as_bytes(), &log), "{secret} is in its log");
    }
}

fn fails(args: &[&str]) -> String {
    let output = bowline().args(["tracker", "run"]).args(args).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"", "stdout is data");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_tracker_says_why_it_does_not_start_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    insta::assert_snapshot!(fails(&["--data", data, "--listen", "0.0.0.0:8092"]), @r"
    error: 0.0.0.0:8092 can be reached from other machines, and without TLS keys and conversations would be readable on the way

    hint: give it a certificate with --tls-cert and --tls-key; or name the proxy that ends TLS in front of it with --behind-proxy ADDRESS; or say --insecure if plain HTTP is meant. On 127.0.0.1 none of them is needed
    ");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let said = fails(&["--data", data, "--listen", &address.to_string()]);
    assert!(said.starts_with(&format!("error: the address {address} is already in use\n")));
    assert!(fails(&["--peer", "home"]).contains("home=https://gateway.example"));
    assert!(fails(&["--id", "My Tracker"]).contains("a gateway id is 1 to 64"));
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("tracker.db"), "not a database at all, but some text")
        .unwrap();
    assert!(fails(&["--data", foreign.path().to_str().unwrap()]).contains("hint:"));
}

#[test]
fn sbp_l6_08_a_tracker_keeps_its_key_and_takes_settings_of_every_layer() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let text = "[tracker]\nid = 'from-file'\nname = 'Tracker'\nurl = 'https://t.example'\n\
                [tracker.peers]\na = 'http://127.0.0.1:9'\n";
    std::fs::write(&config, text).unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let config = config.to_str().unwrap();
    let first = Tracker::start(&data, &["--config", config], &log);
    assert_eq!(first.url.as_str(), "https://t.example", "the file's, and the flag's id");
    let key = first.key;
    first.terminate();
    let second = Tracker::start(&data, &["--url", "http://127.0.0.1:1"], &log);
    assert_eq!((second.key, second.url.as_str()), (key, "http://127.0.0.1:1"));
    second.terminate();
    let mut show = bowline();
    show.args(["config", "show", "tracker", "--json", "--config", config])
        .env("BOWLINE_TRACKER_ID", "from-environment");
    let shown: Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
    assert_eq!(shown["tracker.id"]["value"], "from-environment");
    assert_eq!(shown["tracker.peers.a"]["value"], "http://127.0.0.1:9");
    assert_eq!(shown["tracker.limits.records"]["from"], "default");
}

async fn manifest(tracker: &Tracker) -> Manifest {
    let seen = reqwest::get(format!("{}/.well-known/sbp", tracker.url)).await.unwrap();
    Manifest::read(&seen.bytes().await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_01_the_key_of_a_tracker_is_replaced_and_who_knows_the_old_one_follows() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let tracker = Tracker::start(&data, &[], &log);
    let before = manifest(&tracker).await;
    assert_eq!(before.previous, []);
    tracker.terminate();
    let mut rotate = bowline();
    rotate.args(["identity", "rotate", "--tracker", "--gateway-id", "t", "--overlap", "1d"]);
    let rotated = rotate.args(["--json", "--data"]).arg(&data).output().unwrap();
    let rotated: Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!(rotated["old"], before.key.fingerprint().to_string());

    let tracker = Tracker::start(&data, &[], &log);
    let (after, now) = (manifest(&tracker).await, Timestamp::now());
    assert_eq!(
        (after.key.to_string(), after.key),
        (rotated["key"].as_str().unwrap().to_owned(), tracker.key)
    );
    assert_eq!(after.trust(None, Some(&before.pin()), now), Ok(Trust::Rotated));
    let later = now + jiff::SignedDuration::from_hours(25);
    assert!(after.trust(None, Some(&before.pin()), later).is_err(), "the overlap has ended");
    // A gateway has the old key in its configuration, and the tracker's answers are signed with the new one.
    let old = Target::named(&StaticPeer { key: Some(before.key), ..tracker.named() });
    let cid = bundle("anything").seal_signed(&identity()).cid;
    let asking = peers("b", &"https://b.example".parse().unwrap(), Vec::new());
    assert_eq!(asking.look_up(&old, cid).await.unwrap().gateways, []);
    tracker.terminate();
}
