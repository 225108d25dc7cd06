//! The identity of replicas, which is in PostgreSQL: replaced while they run, and followed by who knew the old one.

use std::path::Path;
use std::process::Output;

use bowline_sbp::federation::{Manifest, Trust};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::{Client, eventually};
use crate::installation::{Addresses, Installation, Servers};
use crate::process::{Process, bowline};

const FEDERATION: &str = "[federation]\nenabled = true\ngateway_id = \"home\"\n";

/// `bowline identity` with the settings of the replicas.
fn identity(world: &Installation, words: &[&str]) -> Output {
    let file = |name: &str| world.folder.path().join(name);
    let mut command = bowline();
    command.arg("identity").args(words).arg("--json").arg("--data").arg(file("elsewhere"));
    command.env("BOWLINE_STORE_URL", &world.addresses.store);
    command.env("BOWLINE_CONFIG", file("bowline.toml"));
    command.env("BOWLINE_SECRETS_FILE", file("master.key")).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

async fn manifest(client: &Client) -> Manifest {
    Manifest::read(client.get("/.well-known/sbp").await.text.as_bytes()).unwrap()
}

async fn takes(what: &str, client: &Client, key: &Value) {
    eventually(what, async || manifest(client).await.key.to_string() == *key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l6_01_the_key_of_replicas_is_replaced_while_they_run_and_their_peers_follow() {
    let world = Installation::start(FEDERATION);
    let all = world.clients();
    let before = manifest(all[0]).await;
    let shown = json_of(&identity(&world, &["show"]));
    assert_eq!((&shown["key"], &shown["previous"]), (&before.key.to_string().into(), &json!([])));
    // Another gateway knows the old key, and somebody has a token that it signed.
    let folder = tempfile::tempdir().unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--federation"]);
    command.args(["--gateway-id", "away", "--peer", &format!("home=http://{}", all[1].address)]);
    command.arg("--data").arg(folder.path());
    let _away = Process::spawned(command, folder.path());
    let checked = || {
        let mut check = bowline();
        check.args(["peers", "check", "home", "--json", "--data"]).arg(folder.path());
        let output = check.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        json_of(&output)["peers"][0]["fingerprint"].clone()
    };
    assert_eq!(checked(), shown["fingerprint"]);
    let session = all[0].session().await;
    assert_eq!(all[0].say(&session, "echo hello").await.content(), "hello");
    let exported = all[0].post(&session.path("export"), json!({})).await;
    let token = exported.body["roaming_token"].as_str().unwrap_or_else(|| panic!("{exported:?}"));

    let rotated = json_of(&identity(&world, &["rotate", "--overlap", "1d"]));
    assert_eq!((&rotated["gateway_id"], &rotated["old"]), (&"home".into(), &shown["fingerprint"]));
    for client in all {
        takes("a replica signs with the new key", client, &rotated["key"]).await;
        let after = manifest(client).await;
        let trust = after.trust(None, Some(&before.pin()), Timestamp::now());
        assert_eq!(trust, Ok(Trust::Rotated));
        let inspected = client.get(&format!("/v1/sbp/token/{token}")).await;
        assert_eq!(inspected.status, 200, "what the old key signed counts: {}", inspected.text);
    }
    assert_eq!(checked(), rotated["new"], "it followed, and nobody was asked");
    let shown = json_of(&identity(&world, &["show"]));
    assert_eq!((&shown["key"], shown["previous"].as_array().unwrap().len()), (&rotated["key"], 1));
    assert_eq!(shown["previous"][0]["fingerprint"], rotated["old"]);

    // It is in the database, not in memory alone; and several commands at once make one chain of it.
    world.replica(0).stop();
    world.replica(0).start();
    assert_eq!(manifest(all[0]).await.key.to_string(), rotated["key"]);
    let made = std::thread::scope(|scope| {
        let rotate = || scope.spawn(|| identity(&world, &["rotate"]));
        [rotate(), rotate(), rotate()].map(|rotating| rotating.join().unwrap())
    });
    assert!(made.iter().any(|output| output.status.success()), "{made:?}");
    for lost in made.iter().filter(|output| !output.status.success()) {
        let said = String::from_utf8_lossy(&lost.stderr);
        assert!(said.contains("replaced by another command meanwhile"), "{said}");
    }
    let key = json_of(&identity(&world, &["show"]))["key"].clone();
    takes("a replica signs with the newest key", all[2], &key).await;
    let trust = manifest(all[2]).await.trust(None, Some(&before.pin()), Timestamp::now());
    assert_eq!(trust, Ok(Trust::Rotated), "the first key leads to it by those in between");
}

#[test]
fn sbp_l6_01_an_identity_that_is_not_there_or_cannot_be_opened_is_not_replaced() {
    let servers = Servers::shared();
    let store = servers.postgres.url(&servers.database());
    let folder = tempfile::tempdir().unwrap();
    let rotate = |store: &str, data: &Path| {
        let mut command = bowline();
        command.args(["identity", "rotate", "--gateway-id", "home", "--store", store, "--data"]);
        let output = command.arg(data).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    insta::assert_snapshot!(rotate(&store, folder.path()), @r"
    error: this database has no identity yet

    hint: a gateway makes it when it starts
    ");
    let addresses = Addresses { store: store.clone(), bus: servers.redis.url() };
    let data = folder.path().join("one");
    let mut command = crate::installation::gateway(&data, &addresses);
    command.env("BOWLINE_SECRETS_FILE", folder.path().join("master.key"));
    let _gateway = Process::spawned(command, &data);
    insta::assert_snapshot!(rotate(&store, folder.path()), @r"
    error: the secrets in the database are sealed, and neither secrets.file nor secrets.command is set

    hint: set secrets.file to the file that they were sealed with: that of the other replicas, or, of a database that was copied from a data folder, its secrets.key; or start once with --new-secrets
    ");
}

/// Each replica would have a registry of its own.
#[test]
fn sbp_l6_08_replicas_are_no_tracker() {
    let servers = Servers::shared();
    let addresses =
        Addresses { store: servers.postgres.url(&servers.database()), bus: servers.redis.url() };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("one");
    let mut command = crate::installation::gateway(&data, &addresses);
    command.args(["--federation", "--gateway-id", "home", "--also-tracker"]);
    insta::assert_snapshot!(crate::installation::refusal(command, &data), @r"
    exit code 2
    error: the flag --also-tracker: `federation.serve_registry` is for one gateway alone: each replica would have a registry of its own, and know a part of what was announced

    hint: run `bowline tracker run` beside the replicas
    ");
    assert!(!data.join("tracker.db").exists());
}
