//! `bowline control`: its server, its subcommands, and their errors word for word.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::process::bowline;

fn control(data: &Path, args: &[&str]) -> Command {
    let mut command = bowline();
    command.arg("control").args(args).arg("--data").arg(data);
    command
}

/// stdout and stderr of a command that succeeds.
fn says(data: &Path, args: &[&str]) -> (String, String) {
    let output = control(data, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{args:?}: {err}");
    (out, err)
}

fn json_of(data: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&says(data, &[args, &["--json"]].concat()).0).unwrap()
}

/// Exit code and stderr of a command that fails, without what differs from run to run.
fn fails(data: &Path, args: &[&str]) -> String {
    let output = control(data, args).output().unwrap();
    assert!(!output.status.success(), "{args:?} should fail");
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.replace(&data.display().to_string(), "[DATA]");
    format!("exit code {}\n{said}", output.status.code().unwrap())
}

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(data: &Path) -> Self {
        Self::start_with(data, &["--listen", "127.0.0.1:0"])
    }

    fn start_with(data: &Path, more: &[&str]) -> Self {
        let args = [&["run", "--json", "--relay-url", "ws://127.0.0.1:1/relay"], more].concat();
        let mut child = control(data, &args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).expect("it did not get ready");
        assert_eq!(ready["issuer"], ready["url"], "the issuer is where it listens, unless said");
        Self { child, url: ready["url"].as_str().unwrap().to_owned() }
    }

    async fn post(&self, path: &str, key: &str, body: Value) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url));
        let answer = request.bearer_auth(key).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A valid Ed25519 public key (canonical, of full order).
const IDENTITY: &str = "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w";

#[tokio::test]
async fn from_the_first_user_to_a_revoked_one_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    // Before the first start of the server, as on a new machine.
    let (key, talk) = says(data, &["user", "add", "alice"]);
    let key = key.trim();
    assert!(key.starts_with("bck_") && talk.contains("shown only now"), "{key} {talk}");
    let server = Server::start(data);
    let body = json!({ "identityPublicKey": IDENTITY, "name": "laptop" });
    let (status, made) = server.post("/api/daemons/register", key, body.clone()).await;
    assert_eq!(status, 201, "{made}");
    let daemon = made["daemonId"].as_str().unwrap();
    assert_eq!(made["relayUrl"], "ws://127.0.0.1:1/relay");

    let list = json_of(data, &["daemon", "list"]);
    assert_eq!((&list[0]["id"], &list[0]["owner"]), (&json!(daemon), &json!("alice")));
    let (table, _) = says(data, &["daemon", "list"]);
    assert!(table.starts_with("DAEMON") && table.contains("laptop"), "{table}");

    let rotated = json_of(data, &["rotate"]);
    let keys = reqwest::get(format!("{}/.well-known/jwks.json", server.url)).await.unwrap();
    let keys: Value = keys.json().await.unwrap();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 3);
    assert_eq!(keys["keys"][1]["kid"], rotated["current"]);

    let open = json!({ "daemonId": daemon });
    assert_eq!(server.post("/api/sessions", key, open.clone()).await.0, 200);
    assert!(says(data, &["daemon", "revoke", daemon]).1.contains("is revoked"));
    assert_eq!(server.post("/api/sessions", key, open.clone()).await.0, 403);
    let another = json_of(data, &["user", "key", "alice", "--replace"]);
    assert_eq!(server.post("/api/sessions", key, open.clone()).await.0, 401);
    let another = another["api_key"].as_str().unwrap();
    assert_eq!(server.post("/api/sessions", another, open.clone()).await.0, 403);
    assert!(says(data, &["user", "revoke", "alice"]).1.contains("1 API keys and 0 daemons"));
    assert_eq!(server.post("/api/sessions", another, open).await.0, 401);

    let replaced = json_of(data, &["rotate", "--compromised"]);
    let keys = reqwest::get(format!("{}/.well-known/jwks.json", server.url)).await.unwrap();
    let keys: Value = keys.json().await.unwrap();
    let kids: Vec<_> = keys["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
    assert_eq!(kids, [&replaced["current"], &replaced["next"]]);

    let log = json_of(data, &["audit", "--limit", "1000"]);
    let events: Vec<_> =
        log.as_array().unwrap().iter().rev().map(|r| r["event"].as_str().unwrap()).collect();
    let expected = ["user_added", "daemon_registered", "key_rotated", "session_issued"];
    assert_eq!(events[..4], expected, "{log}");
    assert!(events.contains(&"user_revoked") && events.contains(&"api_keys_revoked"));
    let (table, _) = says(data, &["audit", "--limit", "2"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    let (table, _) = says(data, &["user", "list"]);
    assert!(table.starts_with("USER") && table.contains("revoked 2"), "{table}");
}

#[test]
fn where_nothing_is_yet_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    insta::assert_snapshot!(fails(data, &["user", "list"]), @r"
    exit code 4
    error: there is no control plane in [DATA]

    hint: make its first user with `bowline control user add NAME`, or name another folder with --data
    ");
    says(data, &["user", "add", "alice"]);
    says(data, &["user", "revoke", "alice"]);
    assert!(says(data, &["daemon", "list"]).1.starts_with("no daemons yet"));
    assert_eq!(json_of(data, &["daemon", "list"]), json!([]));
    drop(Server::start(folder.path()));

    let empty = tempfile::tempdir().unwrap();
    drop(Server::start(empty.path()));
    let (out, talk) = says(empty.path(), &["user", "list"]);
    assert_eq!(out, "");
    assert!(talk.starts_with("no users yet: bowline control user add NAME --data"), "{talk}");
    assert_eq!(json_of(empty.path(), &["user", "list"]), json!([]));
    assert!(says(empty.path(), &["audit"]).1.starts_with("the audit log is empty"));
}

#[test]
fn what_goes_wrong_is_said_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    says(data, &["user", "add", "alice"]);
    insta::assert_snapshot!(fails(data, &["user", "add", "alice"]), @r"
    exit code 3
    error: there is a user of that name

    hint: choose another name, or make another key with `bowline control user key NAME`
    ");
    insta::assert_snapshot!(fails(data, &["user", "revoke", "bob"]), @r"
    exit code 4
    error: there is no such user

    hint: `bowline control user list` lists all users
    ");
    insta::assert_snapshot!(fails(data, &["daemon", "revoke", "none"]), @r"
    exit code 4
    error: there is no such daemon

    hint: `bowline control daemon list` lists all daemons
    ");
    let public = ["run", "--listen", "0.0.0.0:0", "--relay-url", "ws://127.0.0.1:1/relay"];
    insta::assert_snapshot!(fails(data, &public), @r"
    exit code 2
    error: 0.0.0.0:0 can be reached from other machines, and without TLS keys and conversations would be readable on the way

    hint: give it a certificate with --tls-cert and --tls-key; or name the proxy that ends TLS in front of it with --behind-proxy ADDRESS; or say --insecure if plain HTTP is meant. On 127.0.0.1 none of them is needed
    ");
    let wrong = ["run", "--listen", "127.0.0.1:0", "--relay-url", "https://relay.example/relay"];
    let said = fails(data, &wrong);
    assert!(said.contains("is not a ws or wss address") && said.contains("hint:"), "{said}");
    let missing = fails(data, &["run"]);
    assert!(missing.starts_with("exit code 2") && missing.contains("--relay-url"), "{missing}");

    let file = data.join("control.db");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    insta::assert_snapshot!(fails(data, &["user", "list"]), @r"
    exit code 1
    error: [DATA]/control.db can be used by others (mode 644), and there are signing keys in it

    hint: if nobody has opened it: chmod 600 [DATA]/control.db; otherwise also run `bowline control rotate --compromised`
    ");
}

#[test]
fn relays_are_added_listed_drained_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let (_, talk) = says(data, &["relay", "add", "eu-1", "wss://eu-1.example/relay"]);
    assert!(talk.contains("--name eu-1"), "{talk}");
    let added =
        json_of(data, &["relay", "add", "eu-2", "wss://eu-2.example/relay", "--region", "eu"]);
    let expected = json!({ "name": "eu-2", "url": "wss://eu-2.example/relay", "region": "eu" });
    assert_eq!(added, expected);
    let (table, _) = says(data, &["relay", "list"]);
    let words = |line: usize| -> Vec<String> {
        table.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words(0), ["RELAY", "ADDRESS", "REGION", "DAEMONS", "STATE"]);
    assert_eq!(words(1), ["eu-1", "wss://eu-1.example/relay", "-", "0", "active"]);
    assert_eq!(words(2), ["eu-2", "wss://eu-2.example/relay", "eu", "0", "active"]);
    says(data, &["relay", "drain", "eu-1"]);
    let list = json_of(data, &["relay", "list"]);
    assert!(list[0]["drained_at"].is_u64() && list[1]["drained_at"].is_null(), "{list}");
    says(data, &["relay", "remove", "eu-1"]);
    assert_eq!(json_of(data, &["relay", "list"]).as_array().unwrap().len(), 1);
    insta::assert_snapshot!(fails(data, &["relay", "drain", "eu-1"]), @r"
    exit code 4
    error: there is no such relay

    hint: `bowline control relay list` lists all relays
    ");
    insta::assert_snapshot!(fails(data, &["relay", "add", "eu-2", "wss://x.example/relay"]), @r"
    exit code 3
    error: there is a relay of that name or address

    hint: choose another name; to change a relay's address, drain and remove it first
    ");
    insta::assert_snapshot!(fails(data, &["relay", "add", "x", "ws://x.example/relay"]), @r"
    exit code 2
    error: a relay's address begins with wss://, or ws:// on this machine

    hint: for example: bowline control relay add eu-1 wss://eu-1.example.org/relay
    ");
    let events = json_of(data, &["audit"]);
    let events: Vec<_> = events.as_array().unwrap().iter().map(|row| &row["event"]).collect();
    assert_eq!(events, ["relay_removed", "relay_draining", "relay_added", "relay_added"]);
}

#[test]
fn a_server_that_is_told_to_stop_stops() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
}

#[tokio::test]
async fn a_control_plane_serves_tls_or_stands_behind_its_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let data = &folder.path().join("control");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let metrics_key = "the-operators-key-for-metrics";
    let metrics_file = folder.path().join("metrics.key");
    std::fs::write(&metrics_file, metrics_key).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let files = [text(&cert), text(&key), text(&metrics_file)];
    let tls = ["--listen", "0.0.0.0:0", "--tls-cert", &files[0], "--tls-key", &files[1]];
    let server = Server::start_with(data, &tls);
    let port = server.url.strip_prefix("https://").unwrap().rsplit_once(':').unwrap().1;
    let http = reqwest::Client::builder().no_proxy();
    let certificate = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let http = http.tls_certs_only([certificate]).build().unwrap();
    let healthz = format!("https://localhost:{port}/healthz");
    assert_eq!(http.get(healthz).send().await.unwrap().status(), 200);
    drop(server);

    // The older spellings are the same flags.
    for flags in [["--behind-proxy", "10.0.0.0/8"], ["--trusted-proxy", "10.0.0.5"]] {
        let metrics = ["--listen", "0.0.0.0:0", "--metrics-key-file", &files[2]];
        let server = Server::start_with(data, &[&metrics[..], &flags].concat());
        let url = server.url.replace("0.0.0.0", "127.0.0.1");
        let metrics = async |shown: &str| {
            let request = http.get(format!("{url}/metrics")).header("x-forwarded-for", "192.0.2.9");
            request.bearer_auth(shown).send().await.unwrap().status().as_u16()
        };
        assert_eq!(metrics(metrics_key).await, 200);
        assert_eq!(metrics("another-key-of-some-length").await, 401);
    }
    for flag in ["--insecure", "--insecure-plain"] {
        Server::start_with(data, &["--listen", "0.0.0.0:0", flag]);
    }
    std::fs::write(&metrics_file, "short").unwrap();
    let address = ["run", "--listen", "127.0.0.1:0", "--relay-url", "ws://127.0.0.1:1/relay"];
    let said = fails(data, &[&address[..], &["--metrics-key-file", &files[2]]].concat());
    assert!(said.contains("is too short to be a key") && said.contains("hint:"), "{said}");
}
