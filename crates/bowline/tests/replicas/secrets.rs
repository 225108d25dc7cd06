//! The master secret of an installation: one for all replicas, in a file or, with a warning, in PostgreSQL.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::client::Client;
use crate::installation::{Addresses, Installation, KEY, Servers, gateway, log_of, refusal};
use crate::process::Process;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_a_replica_with_other_secrets_is_refused_and_says_why() {
    let world = Installation::start("");
    let refused = |name: &str, file: Option<&Path>, more: &[&str]| {
        let data = world.folder.path().join(name);
        let mut command = gateway(&data, &world.addresses);
        command.args(more).envs(file.map(|file| ("BOWLINE_SECRETS_FILE", file)));
        let said = refusal(command, &data);
        said.replace(&world.folder.path().display().to_string(), "[FOLDER]")
    };
    // Of another installation.
    let other = world.folder.path().join("other.key");
    write_private(&other, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n");
    insta::assert_snapshot!(refused("other", Some(&other), &[]), @r"
    exit code 2
    error: the environment variable BOWLINE_SECRETS_FILE: the secrets in the database are sealed with another master secret than the one in [FOLDER]/other.key

    hint: give every replica the same one, or restore it from a backup; or start once with --new-secrets: session tokens stay valid, roaming tokens that were not used yet do not, and an identity in the database is replaced
    ");
    // Nor can it have them replaced while the others run.
    insta::assert_snapshot!(refused("new", Some(&other), &["--new-secrets"]), @r"
    exit code 2
    error: the environment variable BOWLINE_SECRETS_FILE: the master secret cannot be replaced while other replicas use it (3 of them run)

    hint: stop the other replicas first, then start them after this one
    ");
    insta::assert_snapshot!(refused("none", None, &[]), @r"
    exit code 2
    error: the secrets in the database are sealed, and neither secrets.file nor secrets.command is set

    hint: set secrets.file to the file that they were sealed with: that of the other replicas, or, of a database that was copied from a data folder, its secrets.key; or start once with --new-secrets
    ");
    let missing = world.folder.path().join("missing.key");
    insta::assert_snapshot!(refused("missing", Some(&missing), &[]), @r"
    exit code 2
    error: the environment variable BOWLINE_SECRETS_FILE: [FOLDER]/missing.key is missing, and the secrets in the database are sealed with it

    hint: give every replica the same one, or restore it from a backup; or start once with --new-secrets: session tokens stay valid, roaming tokens that were not used yet do not, and an identity in the database is replaced
    ");
    assert!(!missing.exists(), "nothing is made that fits nothing");
    // With the right one it is one more of them.
    let data = world.folder.path().join("right");
    let mut command = gateway(&data, &world.addresses);
    command.env("BOWLINE_SECRETS_FILE", world.folder.path().join("master.key"));
    let process = Process::spawned(command, &data);
    let [a, ..] = world.clients();
    let session = a.session().await;
    let fourth = Client::new(process.address(), &session.token);
    assert_eq!(fourth.say(&session, "echo hello").await.content(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_a_master_secret_that_postgresql_holds_is_warned_of_at_each_start() {
    let servers = Servers::shared();
    let store = servers.postgres.url(&servers.database());
    let addresses = Addresses { store, bus: servers.redis.url() };
    let folder = tempfile::tempdir().unwrap();
    let warned = "the master secret is in the database, so who steals a copy of it can make tokens";
    let mut tokens = Vec::new();
    let mut running = Vec::new();
    for name in ["one", "two"] {
        let data = folder.path().join(name);
        let process = Process::spawned(gateway(&data, &addresses), &data);
        let log = log_of(&data);
        assert!(log.contains("WARN") && log.contains(warned), "{log}");
        let owner = Client::new(process.address(), KEY);
        tokens.push(owner.session().await);
        running.push(process);
    }
    // They share it: a token of one opens its session at the other.
    for (process, session) in running.iter().rev().zip(&tokens) {
        let client = Client::new(process.address(), &session.token);
        assert_eq!(client.say(session, "echo hello").await.content(), "hello");
    }
}

/// As the gateway makes such a file.
fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
