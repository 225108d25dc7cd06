//! `import`, `export`, `fork`, `handoff` and `inspect`: bad files, lost requests and responses,
//! retries and idempotency keys.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::process::{Process, bowline, session_of};

/// What the proxy does with a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Forwards the request and its response.
    Good,
    /// Answers with an error and does not forward the request.
    Refused,
    /// Forwards the request and drops its response.
    Unanswered,
}

/// A proxy in front of a gateway that treats POSTs as scripted. GETs, and POSTs after the end of
/// the script, are forwarded.
struct Line {
    url: String,
    /// The idempotency keys of the POSTs, in order.
    keys: Arc<Mutex<Vec<String>>>,
}

impl Line {
    fn to(gateway: &Process, script: Vec<Fate>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(Vec::new()));
        let (address, noted) = (gateway.address().to_owned(), Arc::clone(&keys));
        let mut script = script.into_iter();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = request(&mut stream) else { continue };
                let mut fate = Fate::Good;
                if request.starts_with("POST ") {
                    let key = request.lines().find_map(|l| l.strip_prefix("idempotency-key: "));
                    noted.lock().unwrap().push(key.unwrap_or_default().to_owned());
                    fate = script.next().unwrap_or(Fate::Good);
                }
                let answer = match fate {
                    Fate::Refused => REFUSAL.as_bytes().to_vec(),
                    Fate::Good | Fate::Unanswered => forwarded(&address, &request),
                };
                if fate != Fate::Unanswered {
                    stream.write_all(&answer).unwrap();
                }
            }
        });
        Self { url, keys }
    }

    fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

/// Reads one whole request; `None` if the connection was closed without one.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text.into_owned());
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).unwrap() {
            0 => return None,
            read => bytes.extend(&piece[..read]),
        }
    }
}

fn forwarded(address: &str, request: &str) -> Vec<u8> {
    let mut gateway = TcpStream::connect(address).unwrap();
    let request = request.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
    gateway.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    gateway.read_to_end(&mut answer).unwrap();
    answer
}

const REFUSAL: &str = "HTTP/1.1 507 Insufficient Storage\r\nconnection: close\r\n\
                       content-length: 0\r\n\r\n";

/// A gateway, and a folder for files to import.
struct World {
    gateway: Process,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { gateway: Process::start(folder.path()), folder }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, url: &str, args: &[&str]) -> Output {
        let mut command = bowline();
        command.args(args).args(["--url", url, "--data"]).arg(self.folder.path());
        // One caller on both ways: the key in the data folder goes to the gateway's own port only.
        command.env("BOWLINE_API_KEY", "the-key-of-one-caller");
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn import(&self, url: &str, file: &Path) -> (Option<i32>, Value) {
        let output = self.run(url, &["import", file.to_str().unwrap(), "--json"]);
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }

    async fn sessions(&self) -> Vec<String> {
        let listed = self.gateway.get("/v1/sessions?limit=200").await;
        ids(&listed["sessions"])
    }
}

fn ids(sessions: &Value) -> Vec<String> {
    let id = |session: &Value| session["session_id"].as_str().unwrap().to_owned();
    sessions.as_array().unwrap().iter().map(id).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn shown(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Conversations without ids and timestamps.
fn conversations(contents: &[&str]) -> String {
    let dialogue = |content: &&str| {
        json!({ "messages": [{ "role": "user", "content": content }] }).to_string()
    };
    contents.iter().map(dialogue).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn unrelated_imports_are_no_family() {
    let world = World::new();
    let url = &world.gateway.url;
    let one = world.file("one.jsonl", &conversations(&["about cats", "about dogs"]));
    let other = world.file("other.json", r#"[{"role":"user","content":"about ropes"}]"#);
    for file in [&one, &other] {
        assert_eq!(world.import(url, file).0, Some(0));
    }
    for session in world.sessions().await {
        let lineage = world.gateway.get(&format!("/v1/sbp/sessions/{session}/lineage")).await;
        assert_eq!(lineage["tree"].as_array().unwrap().len(), 1, "{lineage}");
    }
}

#[tokio::test]
async fn an_import_goes_on_after_a_refusal_and_a_second_run_makes_only_what_is_missing() {
    let world = World::new();
    let file = world.file("three.jsonl", &conversations(&["one", "two", "three"]));
    let line = Line::to(&world.gateway, vec![Fate::Good, Fate::Refused]);
    let (code, answer) = world.import(&line.url, &file);
    assert_eq!(code, Some(1), "{answer}");
    assert_eq!(answer["imported"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(answer["without_place"], json!([]));
    let [failed] = &answer["failed"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(failed["error"], "the gateway answered 507 Insufficient Storage");
    assert!(failed["origin_session_id"].as_str().unwrap().starts_with("file:"), "{answer}");
    let made = ids(&answer["imported"]);

    let (code, again) = world.import(&world.gateway.url, &file);
    assert_eq!((code, &again["failed"]), (Some(0), &json!([])));
    let all = ids(&again["imported"]);
    assert_eq!((&all[0], &all[2]), (&made[0], &made[1]), "the same sessions as before");
    assert_eq!(world.sessions().await.len(), 3);
    // A different request, here with --agent, has a different idempotency key.
    let file = file.to_str().unwrap();
    let output = world.run(&world.gateway.url, &["import", file, "--agent", "cook"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(world.sessions().await.len(), 6);
}

#[tokio::test]
async fn an_import_that_fails_midway_tells_people_both_lists() {
    let world = World::new();
    let file = world.file("two.jsonl", &conversations(&["one", "two"]));
    let line = Line::to(&world.gateway, vec![Fate::Refused]);
    let output = world.run(&line.url, &["import", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(shown(&output).trim(), world.sessions().await[0]);
    let said = said(&output);
    let (_, lists) = said.split_once("Not imported:").unwrap();
    let (failed, error) = lists.split_once("error: ").unwrap();
    assert!(failed.contains(": the gateway answered 507 Insufficient Storage"), "{said}");
    insta::assert_snapshot!(error, @r"
    1 of 2 conversations could not be imported

    hint: run the same command again: within 24 hours, what was imported from a file is not imported a second time
    ");
}

#[tokio::test]
async fn conversations_that_are_alike_are_a_session_each() {
    let world = World::new();
    let file = world.file("alike.jsonl", &conversations(&["same", "same"]));
    for _ in 0..2 {
        let (code, answer) = world.import(&world.gateway.url, &file);
        assert_eq!(code, Some(0), "{answer}");
        assert_eq!(world.sessions().await.len(), 2);
    }
}

#[tokio::test]
async fn an_import_stops_asking_a_gateway_that_does_not_answer() {
    let world = World::new();
    let file = world.file("three.jsonl", &conversations(&["one", "two", "three"]));
    let lost = vec![Fate::Good, Fate::Unanswered, Fate::Unanswered];
    let line = Line::to(&world.gateway, lost);
    let (code, answer) = world.import(&line.url, &file);
    assert_eq!((code, line.keys().len()), (Some(1), 3));
    let why: Vec<_> = answer["failed"].as_array().unwrap().iter().map(|f| &f["error"]).collect();
    assert!(why[0].as_str().unwrap().starts_with("the import may have happened: "), "{answer}");
    assert_eq!(why[1..], ["not tried, since the gateway does not answer"]);
    let (code, _) = world.import(&line.url, &file);
    assert_eq!((code, world.sessions().await.len()), (Some(0), 3));
}

#[test]
fn an_import_without_a_gateway_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.jsonl");
    std::fs::write(&file, conversations(&["one", "two"])).unwrap();
    let output = bowline().arg("import").arg(file).args(["--url", "http://127.0.0.1:1"]).output();
    let said = said(&output.unwrap());
    assert!(said.contains("not tried, since the gateway does not answer"), "{said}");
    let (_, error) = said.split_once("\n\nerror: ").unwrap();
    insta::assert_snapshot!(error, @r"
    nothing listens at http://127.0.0.1:1/

    hint: start a gateway with `bowline up`, or name another with --url
    ");
}

#[tokio::test]
async fn what_travels_happens_once_although_its_answer_was_lost() {
    let world = World::new();
    let source = session_of(&world.gateway.say(None, "echo 1").await);
    let path = format!("/v1/sbp/sessions/{source}/export");
    let token = world.gateway.post(&path, json!({})).await["roaming_token"].clone();
    let mut keys = Vec::new();
    for args in [
        &["import", token.as_str().unwrap(), "--json"][..],
        &["fork", &source, "--json"],
        &["fork", &source, "--json"],
        &["handoff", &source, "--to", "cook", "--json"],
    ] {
        let before = world.sessions().await;
        let line = Line::to(&world.gateway, vec![Fate::Unanswered]);
        let output = world.run(&line.url, args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        let sessions = world.sessions().await;
        assert_eq!(sessions.len(), before.len() + 1, "{args:?}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        let name = if args[0] == "fork" { "fork_session_id" } else { "session_id" };
        assert!(sessions.contains(&made[name].as_str().unwrap().to_owned()), "{args:?}: {made}");
        let sent = line.keys();
        assert_eq!((sent.len(), &sent[0]), (2, &sent[1]), "{args:?}");
        assert!(!sent[0].is_empty() && !keys.contains(&sent[0]), "{args:?}: a key of its own");
        keys.extend(sent);
    }
}

#[tokio::test]
async fn what_nobody_confirmed_is_said_to_be_possible_with_where_to_look() {
    let world = World::new();
    let source = session_of(&world.gateway.say(None, "echo 1").await);
    let line = Line::to(&world.gateway, vec![Fate::Unanswered; 2]);
    let output = world.run(&line.url, &["handoff", &source, "--to", "cook"]);
    assert_eq!(output.status.code(), Some(5));
    let said = said(&output).replace(&line.url, "[URL]").replace(&source, "[ID]");
    insta::assert_snapshot!(said, @r"
    error: the handoff may have happened: the gateway at [URL]/ did not answer the request or its retry

    hint: before you try again, check with `bowline lineage [ID]` or `bowline sessions list` whether it did
    ");
    let seen = world.gateway.get(&format!("/v1/sessions/{source}")).await;
    assert!(seen["handed_off_to"].is_string(), "it did: {seen}");
}

#[tokio::test]
async fn a_token_comes_from_a_file_or_from_standard_input() {
    let world = World::new();
    let source = session_of(&world.gateway.say(None, "echo 1").await);
    let path = format!("/v1/sbp/sessions/{source}/export");
    let exported = async || world.gateway.post(&path, json!({})).await["roaming_token"].clone();
    let url = &world.gateway.url;
    let token = exported().await;
    let token = token.as_str().unwrap();
    let file = world.file("trip.token", &format!("{token}\n"));
    let file = file.to_str().unwrap();
    for command in [&["inspect", "--token-file", file][..], &["inspect", file]] {
        let output = world.run(url, command);
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
        assert!(shown(&output).contains(&source), "{}", shown(&output));
    }
    let output = world.run(url, &["import", "--token-file", file, "--json", "--fork"]);
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let mut command = bowline();
    command.args(["import", "-", "--json", "--url", url]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let output = world.run(url, &["import", "--token-file", file]);
    assert_eq!(output.status.code(), Some(3), "it was used: {}", said(&output));

    let token = exported().await;
    let output = world.run(url, &["import", token.as_str().unwrap(), "--json"]);
    assert!(output.status.success(), "an old spelling: {}", said(&output));
    insta::assert_snapshot!(said(&output), @"hint: other users of this machine can see a token on the command line, which goes away with the next release: use --token-file FILE, or `-` and standard input");
}

#[test]
fn a_file_that_is_missing_is_not_taken_for_a_token() {
    for source in ["ey..", "eyes.sbp.json", "eyJ.a.b", "eyJhIjoxfQ.a.b", "eyé.x.y"] {
        for command in
            [&["import", source][..], &["import", "--dry-run", source], &["inspect", source]]
        {
            let output = bowline().args(command).args(["--url", "http://127.0.0.1:1"]).output();
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(4), "{command:?}");
            let said = said(&output);
            assert!(said.starts_with(&format!("error: cannot read {source}: ")), "{said}");
        }
    }
    // {"alg":"HS256"}
    let output = bowline().args(["import", "--dry-run", "eyJhbGciOiJIUzI1NiJ9.é.b"]).output();
    insta::assert_snapshot!(said(&output.unwrap()), @r"
    hint: other users of this machine can see a token on the command line, which goes away with the next release: use --token-file FILE, or `-` and standard input
    error: --dry-run is for files

    hint: look at a token with `bowline inspect --token-file FILE`
    ");
}

#[tokio::test]
async fn a_file_with_a_byte_order_mark_can_be_inspected_and_imported() {
    let world = World::new();
    let url = &world.gateway.url;
    let source = session_of(&world.gateway.say(None, "echo 1").await);
    let bundle = world.folder.path().join("trip.sbp.json");
    let out = bundle.to_str().unwrap();
    assert!(world.run(url, &["export", &source, "--out", out]).status.success());
    let marked = format!("\u{feff}{}", std::fs::read_to_string(&bundle).unwrap());
    let marked = world.file("marked.sbp.json", &marked);
    for command in ["inspect", "import"] {
        let output = world.run(url, &[command, marked.to_str().unwrap()]);
        assert!(output.status.success(), "{command}: {}", said(&output));
    }
}

#[tokio::test]
async fn an_export_onto_a_file_keeps_its_mode_and_a_new_one_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let source = session_of(&world.gateway.say(None, "echo 1").await);
    let bundle = world.folder.path().join("trip.sbp.json");
    let mode = || std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777;
    let export = ["export", &source, "--out", bundle.to_str().unwrap()];
    for expected in [0o600, 0o644, 0o640] {
        if expected != 0o600 {
            std::fs::write(&bundle, "old").unwrap();
            std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(expected)).unwrap();
        }
        assert!(world.run(&world.gateway.url, &export).status.success());
        assert_eq!(mode(), expected);
        assert!(std::fs::read_to_string(&bundle).unwrap().contains("bundle_cid"));
    }
}

#[tokio::test]
async fn a_strangers_file_cannot_play_with_the_terminal() {
    let world = World::new();
    let url = &world.gateway.url;
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}2J\nintact         true";
    let dialogue = json!({ "title": hostile, "messages": [{ "role": "user", "content": "hi" }] });
    let chat = world.file("chat.json", &dialogue.to_string());
    let mut contents = json!({
        "sbp_version": "1.0", "exported_at": "2026-01-02T03:04:05Z", "label": hostile,
        "session": {
            "id": hostile, "agent_external_id": hostile, "status": "idle", "step_count": 0,
            "created_at": "2026-01-02T03:04:05Z",
        },
        "messages": [{ "role": "user", "content": "hi" }], "metadata": {},
    });
    let sealed = |contents: &mut Value| {
        let text = contents.to_string();
        let cid = bowline_sbp::cid::Cid::of(&bowline_pyjson::Value::parse(&text).unwrap());
        contents["bundle_cid"] = json!(cid);
        contents.to_string()
    };
    let bundle = world.file("bundle.json", &sealed(&mut contents.clone()));
    contents["sbp_version"] = json!(hostile);
    let of_another_version = world.file("version.json", &sealed(&mut contents));
    for (file, good) in [(&chat, true), (&bundle, true), (&of_another_version, false)] {
        let file = file.to_str().unwrap();
        for command in [&["inspect", file][..], &["import", "--dry-run", file], &["import", file]] {
            let output = world.run(url, command);
            assert_eq!(output.status.success(), good, "{command:?}: {}", said(&output));
            let all = format!("{}{}", shown(&output), said(&output));
            let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            assert!(!all.contains(control), "{command:?}: {all:?}");
            if good {
                let forged = all.lines().any(|line| line == "intact         true");
                assert_eq!(forged, file.ends_with("bundle.json") && command[0] == "inspect");
            }
        }
    }
    let seen = shown(&world.run(url, &["inspect", bundle.to_str().unwrap()]));
    assert_eq!(seen.matches("\nintact ").count(), 1, "{seen}");
}
