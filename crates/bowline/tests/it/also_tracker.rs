//! A gateway that is a tracker, too (`--also-tracker`): what it serves, and with what it does not start.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bowline_federation::{Credentials, MemoryPins, Peers, StaticPeer, SystemLookup, Target};
use bowline_sbp::federation::{Announcement, Endpoints, Manifest, Role};
use bowline_sbp::gateway_key::GatewayIdentity;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::process::{DEADLINE, Process, bowline, session_of};

fn gateway(data: &Path, listen: &str, args: &[&str]) -> Command {
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", listen, "--data"]).arg(data).args(args);
    command.env("BOWLINE_OFFLINE_PACE", "0ms");
    command
}

fn started(data: &Path, listen: &str, args: &[&str]) -> Process {
    Process::spawned(gateway(data, listen, args), data)
}

fn free() -> String {
    format!("127.0.0.1:{}", bowline_servers::quiet_port())
}

/// What asks the tracker in the name of a third gateway.
fn third() -> Peers {
    let me = Credentials {
        id: "third".parse().unwrap(),
        url: "https://third.example".parse().unwrap(),
        keys: Arc::new(GatewayIdentity::from_seed(&[3; 32]).into()),
    };
    Peers::new(me, Vec::new(), Arc::new(MemoryPins::default()), Arc::new(SystemLookup)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sbp_l6_03_one_process_is_a_gateway_and_a_tracker_that_others_announce_to() {
    let folder = tempfile::tempdir().unwrap();
    let data = |name: &str| folder.path().join(name);
    let (at_both, at_home) = (free(), free());
    let knows_home = format!("home=http://{at_home}");
    let of_both = ["--federation", "--gateway-id", "both", "--also-tracker", "--peer", &knows_home];
    let mut both = started(&data("both"), &at_both, &of_both);
    let seen = both.get("/.well-known/sbp").await;
    assert_eq!(seen["role"], "both", "{seen}");
    let manifest = Manifest::read(seen.to_string().as_bytes()).unwrap();
    assert_eq!(
        (manifest.role, &manifest.endpoints),
        (Role::Both, &Endpoints::of_both(&manifest.url))
    );
    // It is a gateway as any other.
    let session = session_of(&both.say(None, "echo here").await);
    assert_eq!(both.log(&session).await, ["echo here", "here"]);

    let tracker = format!("both=http://{at_both}");
    let flags = ["--federation", "--gateway-id", "home", "--tracker", &tracker];
    let home = started(&data("home"), &at_home, &flags);
    let session = session_of(&home.say(None, "echo canary-zq").await);
    let path = format!("/v1/sbp/sessions/{session}/export");
    let exported = home.post(&path, json!({ "announce": true })).await;
    let cid = exported["bundle_cid"].as_str().unwrap().parse().unwrap();
    let named = StaticPeer { id: manifest.gateway_id, url: manifest.url, key: Some(manifest.key) };
    let (third, target) = (third(), Target::named(&named));
    let known = async || {
        let begun = Instant::now();
        loop {
            let answer = third.look_up(&target, cid).await.unwrap();
            if let [holder] = &answer.gateways[..] {
                return holder.url.to_string();
            }
            assert!(begun.elapsed() < DEADLINE, "home announces it: {answer:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert_eq!(known().await, home.url);
    let at = home.url.clone();
    drop(home);
    // A registry of its own, which outlives the process, and takes nothing but announcements.
    both.terminate();
    assert!(both.ended().success());
    both = started(&data("both"), &at_both, &of_both);
    assert_eq!(known().await, at);
    let announcement = Announcement {
        gateway_id: "home".parse().unwrap(),
        url: at.parse().unwrap(),
        cids: Vec::new(),
        withdraw: Vec::new(),
        issued_at: Timestamp::now().as_second(),
    };
    let signed = announcement.sign(&GatewayIdentity::from_seed(&[1; 32]));
    let mut content: Value = serde_json::from_str(&signed).unwrap();
    content["messages"] = json!(["canary-zq"]);
    let pushed = reqwest::Client::new().post(both.url.clone() + "/v1/sbp/registry").json(&content);
    assert_eq!(pushed.send().await.unwrap().status(), 422);
    let refused = reqwest::Client::new().delete(both.url.clone() + "/v1/sbp/registry");
    assert_eq!(refused.send().await.unwrap().status(), 405);
    let mut records = Vec::new();
    for file in ["tracker.db", "tracker.db-wal"] {
        records.extend(std::fs::read(data("both").join(file)).unwrap_or_default());
    }
    let is_in = |words: &[u8]| records.windows(words.len()).any(|part| part == words);
    assert!(is_in(at_home.as_bytes()) && !is_in(b"canary-zq"));
    // Without the setting there is no registry.
    let plain = started(&data("plain"), "127.0.0.1:0", &["--federation", "--gateway-id", "plain"]);
    let seen = plain.get("/.well-known/sbp").await;
    assert_eq!((&seen["role"], &seen["endpoints"]["registry"]), (&"gateway".into(), &Value::Null));
    let none = reqwest::get(format!("{}/v1/sbp/registry/{cid}", plain.url)).await.unwrap();
    assert_eq!(none.status(), 404);
}

#[test]
fn sbp_l6_08_a_tracker_beside_a_gateway_says_why_it_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |args: &[&str]| {
        let output = gateway(folder.path(), "127.0.0.1:0", args).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        said[said.find("error: ").unwrap_or_else(|| panic!("{said}"))..].to_owned()
    };
    insta::assert_snapshot!(fails(&["--also-tracker"]), @r"
    error: the flag --also-tracker: `federation.serve_registry` takes `federation.enabled` (--federation)

    hint: `bowline help federation` says what it takes
    ");
    std::fs::write(folder.path().join("tracker.db"), "not a database at all, but some text")
        .unwrap();
    let said = fails(&["--also-tracker", "--federation", "--gateway-id", "both"]);
    insta::assert_snapshot!(said.replace(&folder.path().display().to_string(), "[FOLDER]"), @r"
    error: the flag --also-tracker: the registry cannot be kept: cannot open the database: file is not a database

    hint: check the disk and the data folder; if tracker.db is damaged, remove it: gateways announce again
    ");
}
