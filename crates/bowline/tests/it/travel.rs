//! Import, fork and handoff with the built binary: from one gateway to another in a file, and with
//! a crash at every failpoint.

use std::path::Path;
use std::time::Duration;

use bowline_store::failpoint::PLACES;
use reqwest::StatusCode;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::process::{Process, session_of};

/// A session and the operation under test.
struct Trip {
    gateway: Process,
    /// `import`, `fork` or `handoff`.
    what: String,
    source: String,
    token: String,
}

impl Trip {
    /// A gateway that crashes at this failpoint, with a session of two turns and an export of it.
    async fn doomed(data: &Path, place: &str) -> Self {
        let what = place.split('-').next().unwrap().to_owned();
        let failpoints = format!("{place}=return");
        let environment = [("FAILPOINTS", failpoints.as_str())];
        let gateway = Process::start_at(data, "127.0.0.1:0", &environment);
        let source = session_of(&gateway.say(None, "echo 1").await);
        gateway.say(Some(&source), "echo 2").await;
        let memory = json!({ "memories": [{ "text": "tea" }] });
        gateway.post("/v1/agents/default/memory", memory).await;
        let exported = gateway.post(&format!("/v1/sbp/sessions/{source}/export"), json!({})).await;
        let token = exported["roaming_token"].as_str().unwrap().to_owned();
        Self { gateway, what, source, token }
    }

    /// Runs the operation with an idempotency key; `None` if the gateway crashed before its
    /// response.
    async fn go(&self) -> Option<(StatusCode, Value)> {
        let source = &self.source;
        let (path, body) = match self.what.as_str() {
            "import" => {
                ("import".to_owned(), json!({ "roaming_token": self.token, "with_memory": true }))
            }
            "fork" => (format!("{source}/fork"), json!({ "label": "f" })),
            _ => (format!("{source}/handoff"), json!({ "to_agent_id": "cook" })),
        };
        let request = reqwest::Client::new()
            .post(format!("{}/v1/sbp/sessions/{path}", self.gateway.url))
            .header("Idempotency-Key", "once")
            .timeout(Duration::from_secs(30))
            .json(&body);
        let response = request.send().await.ok()?;
        Some((response.status(), response.json().await.unwrap()))
    }

    async fn sessions(&self) -> Vec<Value> {
        self.gateway.get("/v1/sessions").await["sessions"].as_array().unwrap().clone()
    }

    /// The session that the operation made, if any.
    async fn outcome(&self) -> Option<String> {
        let sessions = self.sessions().await;
        assert!(sessions.len() <= 2, "{sessions:?}");
        let id = |session: &Value| session["session_id"].as_str().unwrap().to_owned();
        sessions.iter().map(id).find(|id| *id != self.source)
    }

    /// Checks over HTTP that the operation happened completely or not at all.
    async fn check(&self, place: &str) {
        let made = self.outcome().await;
        let source = self.gateway.get(&format!("/v1/sessions/{}", self.source)).await;
        let inspected = self.gateway.get(&format!("/v1/sbp/token/{}", self.token)).await;
        let imported = self.what == "import" && made.is_some();
        assert_eq!(inspected["consumed"], imported, "{place}");
        assert_eq!(inspected["valid"], !imported, "{place}: a token is used up with its session");
        if let Some(made) = &made {
            let words = self.gateway.log(made).await;
            assert_eq!(words[..4], ["echo 1", "1", "echo 2", "2"], "{place}");
            // System notes: the origin, and with a handoff also the agent's memory.
            let notes = match self.what.as_str() {
                "fork" => 0,
                "import" => 1,
                _ => 2,
            };
            assert_eq!(words.len(), 4 + notes, "{place}");
            let lineage = self.gateway.get(&format!("/v1/sbp/sessions/{made}/lineage")).await;
            assert_eq!(lineage["origin"]["kind"], self.what, "{place}");
            assert_eq!(lineage["origin"]["from_session_id"], self.source, "{place}");
        }
        let handed = made.clone().filter(|_| self.what == "handoff");
        assert_eq!(source["handed_off_to"].as_str(), handed.as_deref(), "{place}");
        let exports = self.gateway.get(&format!("/v1/sbp/sessions/{}/exports", self.source)).await;
        let exports = exports["exports"].as_array().unwrap().len();
        assert_eq!(exports, 1 + usize::from(handed.is_some()), "{place}");
    }

    /// Exactly the sessions that should accept a turn accept it.
    async fn check_owners(&self, place: &str) {
        let takes_turns = async |session: &str| {
            let body = crate::process::turn(Some(session), "echo mine");
            let url = format!("{}/v1/chat/completions", self.gateway.url);
            let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
            match answer.status().as_u16() {
                200 => true,
                409 => false,
                other => panic!("{place}: {other}"),
            }
        };
        let made = self.outcome().await.expect("it was made by now");
        assert!(takes_turns(&made).await, "{place}");
        assert_eq!(takes_turns(&self.source).await, self.what != "handoff", "{place}");
    }
}

/// Checks that the database's tables are consistent; returns the number of entries.
fn check_tables(data: &Path, place: &str) -> i64 {
    let file = data.join(bowline_store::sqlite::FILE);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags).unwrap();
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    let whole: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok", "{place}");
    for (what, sql) in [
        (
            "entries without a session",
            "SELECT count(*) FROM entries WHERE place >> 32 NOT IN
             (SELECT key FROM sessions UNION SELECT key FROM trunks)",
        ),
        (
            "sessions whose log is not as long as they say",
            "SELECT count(*) FROM sessions s WHERE last_seq - coalesce(base_seq, 0) <>
             (SELECT count(*) FROM entries WHERE place >> 32 = s.key)",
        ),
        (
            "logs that are based on nothing",
            "SELECT count(*) FROM sessions WHERE base_key IS NOT NULL
             AND base_key NOT IN (SELECT key FROM sessions UNION SELECT key FROM trunks)",
        ),
        (
            "derived sessions without lineage, and lineage without a session",
            "SELECT abs((SELECT count(*) FROM sessions) - 1 - (SELECT count(*) FROM edges))",
        ),
        (
            "exports used up by nobody",
            "SELECT count(*) FROM exports WHERE imported_as IS NOT NULL
             AND imported_as NOT IN (SELECT id FROM sessions)",
        ),
        (
            "exports without a bundle; a handoff's has none to give",
            "SELECT count(*) FROM exports WHERE number NOT IN (SELECT export FROM bundles)
             AND id NOT IN (SELECT export_id FROM edges WHERE kind = 'handoff')",
        ),
        (
            "sessions that were handed to nobody",
            "SELECT count(*) FROM sessions WHERE handed_to IS NOT NULL
             AND handed_to NOT IN (SELECT id FROM sessions)",
        ),
        (
            "keys of nothing",
            "SELECT count(*) FROM keys WHERE session NOT IN (SELECT key FROM sessions)",
        ),
        (
            "luggage of nobody",
            "SELECT count(*) FROM carried WHERE session NOT IN (SELECT key FROM sessions)",
        ),
        (
            "instructions of nobody",
            "SELECT count(*) FROM instructions WHERE session NOT IN (SELECT key FROM sessions)",
        ),
        ("turns under way", "SELECT count(*) FROM turns"),
    ] {
        assert_eq!(number(sql), 0, "{place}: {what}");
    }
    number("SELECT count(*) FROM entries")
}

#[tokio::test]
async fn g8_a_crash_at_any_step_leaves_all_of_an_import_fork_or_handoff_or_nothing() {
    let mut happened = Vec::new();
    for place in PLACES {
        let folder = tempfile::tempdir().unwrap();
        let mut trip = Trip::doomed(folder.path(), place).await;
        assert_eq!(trip.go().await, None, "{place} was never reached");
        assert!(!trip.gateway.ended().success());
        let before = check_tables(folder.path(), place);

        trip.gateway = Process::start(folder.path());
        trip.check(place).await;
        let survived = trip.outcome().await;
        happened.push((place, survived.is_some()));
        // The client does not know the outcome, and retries with the same key.
        let (status, answer) = trip.go().await.unwrap();
        assert_eq!(status, 201, "{place}: {answer}");
        let made = trip.outcome().await.unwrap();
        assert!(survived.is_none_or(|survived| survived == made), "{place}: one, and the same");
        let name = if trip.what == "fork" { "fork_session_id" } else { "session_id" };
        assert_eq!(answer[name], json!(made), "{place}");
        assert_eq!(trip.go().await.unwrap(), (status, answer), "{place}: and again");
        trip.check(place).await;
        let after = check_tables(folder.path(), place);
        if trip.what == "fork" {
            assert_eq!((before, after), (4, 4), "a fork copies nothing (SBP-L3-11)");
        }
        trip.check_owners(place).await;
    }
    // The operation takes effect at the commit, not before.
    for (place, survived) in happened {
        let committed = place.ends_with("-committed") || place.ends_with("-answer");
        assert_eq!(survived, committed, "{place}");
    }
}

#[test]
fn g8_no_build_for_users_has_places_to_die_at() {
    let tree = |edges: &str| {
        let output = std::process::Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--package",
                "bowline",
                "--prefix",
                "none",
                "--edges",
                edges,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().any(|line| line.starts_with("fail v"))
    };
    assert!(tree("normal,build,dev"), "the tests have them");
    assert!(!tree("normal,build"));
}

#[tokio::test]
async fn sbp_l3_05_a_session_goes_to_another_gateway_in_a_file() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = Process::start(here.path());
    let source = session_of(&a.say(None, "echo packed").await);
    let exported = a.post(&format!("/v1/sbp/sessions/{source}/export"), json!({})).await;
    let export = exported["export_id"].as_str().unwrap();
    let url = format!("{}/v1/sbp/sessions/{source}/exports/{export}/bundle", a.url);
    let file = here.path().join("bundle.json");
    let bundle = reqwest::get(url).await.unwrap().bytes().await.unwrap();
    std::fs::write(&file, &bundle).unwrap();
    drop(a);

    // A token is valid only on the gateway that issued it; a file can be imported anywhere.
    let b = Process::start(there.path());
    let import = async |body: String| {
        let request = reqwest::Client::new().post(format!("{}/v1/sbp/sessions/import", b.url));
        let response = request.body(body).send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap())
    };
    let by_token = json!({ "roaming_token": exported["roaming_token"] }).to_string();
    let (status, refused) = import(by_token).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (422, &json!("SBP_TOKEN_INVALID")));
    let bundle = std::fs::read_to_string(&file).unwrap();
    let (status, imported) = import(format!(r#"{{"bundle": {bundle}}}"#)).await;
    assert_eq!(status, 201, "{imported}");
    assert_eq!(imported["origin_export_id"], export);
    assert_eq!(imported["provenance"]["bundle_cid"], exported["bundle_cid"]);
    let new = imported["session_id"].as_str().unwrap();

    let mut turn = crate::process::turn(Some(new), "echo unpacked");
    turn["model"] = json!("another-model");
    let said = b.post("/v1/chat/completions", turn).await;
    assert_eq!(said["choices"][0]["message"]["content"], "unpacked");
    let words = b.log(new).await;
    assert_eq!((words.len(), &words[..2]), (5, &["echo packed".into(), "packed".into()][..]));
    let b = b.crash_and_restart();
    assert_eq!(b.log(new).await, words);
    let origin = b.get(&format!("/v1/sbp/sessions/{new}/lineage")).await["origin"].clone();
    assert_eq!((&origin["kind"], &origin["from_session_id"]), (&json!("import"), &json!(source)));
    assert_eq!(origin["detail"]["origin_export_id"], export);
    assert_eq!(origin["detail"]["bundle_cid"], exported["bundle_cid"]);
}
