//! SBP L6 on the command line: `bowline peers`, `bowline move`, and a lineage across gateways.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

use bowline_gateway::identity_file;
use serde_json::Value;

use crate::process::{Process, bowline, session_of};

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bowline_servers::quiet_port()))
}

/// Two gateways that know each other.
struct Two {
    folder: tempfile::TempDir,
    home: Process,
    away: Process,
}

fn started(folder: &Path, me: (&str, SocketAddr), other: (&str, SocketAddr)) -> Process {
    let data = folder.join(me.0);
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--federation", "--gateway-id", me.0]);
    command.args([
        "--listen",
        &me.1.to_string(),
        "--peer",
        &format!("{}=http://{}", other.0, other.1),
    ]);
    command.arg("--data").arg(&data).env("BOWLINE_OFFLINE_PACE", "0ms");
    Process::spawned(command, &data)
}

impl Two {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (home, away) = (("home", free()), ("away", free()));
        let (at_home, at_away) =
            (started(folder.path(), home, away), started(folder.path(), away, home));
        Self { folder, home: at_home, away: at_away }
    }

    /// Asks the first gateway.
    fn run(&self, words: &[&str]) -> Output {
        bowline().args(words).arg("--data").arg(&self.home.data).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

fn out(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn sbp_l6_05_a_session_is_moved_and_the_same_command_again_says_where_it_is() {
    let two = Two::start();
    let session = session_of(&two.home.say(None, "echo one").await);
    let to = two.away.url.clone();
    let moved = two.run(&["move", &session, "--to", &to]);
    let (id, said) = out(&moved);
    assert!(moved.status.success(), "{said}");
    let id = id.trim().to_owned();
    assert!(said.contains(&format!("bowline chat --session {id} --url {to}")), "{said}");
    assert_eq!(two.away.log(&id).await[..2], ["echo one", "one"]);
    assert!(two.away.say(Some(&id), "echo two").await["choices"].is_array());

    let again = two.run(&["move", &session, "--to", &to]);
    let (same, said) = out(&again);
    assert!(again.status.success() && said.contains("has moved there before"), "{said}");
    assert_eq!(same.trim(), id);
    let lineage = bowline().args(["lineage", &id, "--data"]).arg(&two.away.data).output().unwrap();
    let tree = out(&lineage).0;
    assert!(tree.contains(&format!("{session} at home")), "{tree}");
    assert!(tree.contains("moved as") && tree.contains("◀ this one"), "{tree}");
    let drawn = two.run(&["lineage", &session, "--svg"]);
    assert!(out(&drawn).0.contains("at away"), "{:?}", out(&drawn));
    let graph = out(&two.run(&["lineage", &session, "--dot"])).0;
    assert!(graph.starts_with("digraph") && graph.contains("at away"), "{graph}");
    assert!(graph.contains(" -> ") && graph.trim_end().ends_with('}'), "{graph}");
}

#[tokio::test]
async fn sbp_l6_05_a_move_that_fails_says_where_the_session_is() {
    let mut two = Two::start();
    let session = session_of(&two.home.say(None, "echo one").await);
    let itself = two.run(&["move", &session, "--to", &two.home.url]);
    assert_eq!(itself.status.code(), Some(2), "{:?}", out(&itself));
    // That is no name of an agent: the gateway there refuses before it asks for the session.
    let agent = "a".repeat(200);
    let wrong = two.run(&["move", &session, "--to", &two.away.url, "--agent", &agent]);
    let (_, said) = out(&wrong);
    assert!(!wrong.status.success() && said.contains("still at home"), "{said}");
    let to = two.away.url.clone();
    two.away.kill();
    let down = two.run(&["move", &session, "--to", &to]);
    assert_eq!(down.status.code(), Some(5), "{:?}", out(&down));
    assert!(two.home.say(Some(&session), "echo two").await["choices"].is_array());
    let plain = tempfile::tempdir().unwrap();
    let alone = Process::start(plain.path());
    let (_, said) = out(&two.run(&["move", &session, "--to", &alone.url]));
    assert!(
        said.contains("takes part in no federation") && said.contains("--federation"),
        "{said}"
    );
}

#[tokio::test]
async fn sbp_l6_01_peers_are_listed_checked_and_a_changed_key_is_approved() {
    let mut two = Two::start();
    let (listed, _) = out(&two.run(&["peers", "list"]));
    assert!(listed.contains("away") && listed.contains("not seen yet"), "{listed}");
    let checked = two.run(&["peers", "check"]);
    let (said, _) = out(&checked);
    assert!(checked.status.success() && said.starts_with("away: ok, "), "{said}");
    let first = two.json(&["peers", "check", "away", "--json"])["peers"][0].clone();
    let key = identity_file::load(&two.away.data).unwrap().unwrap().public();
    assert_eq!(first["fingerprint"], key.fingerprint().to_string());

    let address: SocketAddr = two.away.address().parse().unwrap();
    two.away.kill();
    let down = two.run(&["peers", "check", "away"]);
    assert_eq!(down.status.code(), Some(1), "{:?}", out(&down));
    std::fs::remove_file(two.away.data.join(identity_file::IDENTITY_FILE)).unwrap();
    let at_home = ("home", two.home.address().parse().unwrap());
    two.away = started(two.folder.path(), ("away", address), at_home);
    let unsure = two.run(&["peers", "approve", "away"]);
    let (_, said) = out(&unsure);
    let new = identity_file::load(&two.away.data).unwrap().unwrap().public().fingerprint();
    assert_eq!(unsure.status.code(), Some(6), "{said}");
    assert!(
        said.contains(&key.fingerprint().to_string()) && said.contains(&new.to_string()),
        "{said}"
    );
    let approved = two.run(&["peers", "approve", "away", &new.to_string()]);
    assert!(approved.status.success(), "{:?}", out(&approved));
    assert!(two.run(&["peers", "check"]).status.success());
    let (_, removed) = out(&two.run(&["peers", "remove", "away"]));
    assert!(removed.contains("[federation.peers.away]"), "{removed}");
}

#[tokio::test]
async fn sbp_l6_04_lines_for_the_configuration_name_a_peer_and_work() {
    let two = Two::start();
    let url = two.away.url.clone();
    let wrong = bowline().args(["peers", "add", &format!("other={url}")]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{:?}", out(&wrong));
    let added = bowline().args(["peers", "add", &format!("away={url}"), "--allow", "all"]).output();
    let (lines, _) = out(&added.unwrap());
    let file = two.folder.path().join("third.toml");
    let head = "[federation]\nenabled = true\ngateway_id = \"third\"\n";
    std::fs::write(&file, format!("{head}{lines}")).unwrap();
    let data = two.folder.path().join("third");
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    command.arg("--data").arg(&data);
    let _third = Process::spawned(command, &data);
    let listed = bowline().args(["peers", "list", "--json", "--data"]).arg(&data).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let peer = &listed["peers"][0];
    assert_eq!((&peer["allow"], &peer["pin"]), (&"all".into(), &"configured".into()));
}
