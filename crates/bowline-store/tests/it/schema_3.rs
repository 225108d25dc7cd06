//! Migration of a data folder with schema version 3: `tests/data/schema-3`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::ApprovalState;
use bowline_sbp::id::{AgentId, SessionId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{Done, Effect, TurnRequest};
use bowline_store::sqlite::{FILE, Sqlite};
use bowline_store::{EdgeKind, IdempotencyKey, MemoryKind, MemoryOwner, Page, Session, TokenHash};
use rusqlite::types::Value;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::fixture::*;
use crate::live::*;

#[tokio::test]
async fn g16_a_folder_of_schema_3_opens_complete() {
    let folder = copied();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let store = open(folder.path());
        let found = Found::read(&store).await;
        found.sessions_are_there(&store).await;
        found.logs_are_there(&store).await;
        found.keys_are_there(&store).await;
        found.devices_and_questions_are_there(&store).await;
        found.travels_are_there(&store).await;
        found.unfinished_turns_are_there(&store).await;
        memories_are_there(&store).await;
        store.close().await;
        seen.push(everything(folder.path()));
    }
    assert!(seen[0].contains("count to 10000"));
    assert_eq!(seen[0], seen[1], "opening it again changes nothing more");
}

#[tokio::test]
async fn g16_turns_of_schema_3_are_taken_up_in_their_order() {
    let folder = copied();
    let store = open(folder.path());
    let found = Found::read(&store).await;
    let mut live = Live::of(&store, found.attached.id).await;
    live.take_up().await;
    for answer in ["1 to 10000", "second in line", "third in line"] {
        live.answer(answer).await;
    }
    let texts = texts(&store, found.attached.id).await;
    let expected = [
        "count to 10000",
        "1 to 10000",
        "echo second in line",
        "second in line",
        "echo third in line",
        "third in line",
    ];
    assert_eq!(texts[4..], expected);
    // The turn that waits for an approval continues where it was.
    let mut live = Live::of(&store, found.asks.id).await;
    let left = store.load(found.asks.id).await.unwrap().unwrap().turns.remove(0);
    let again = Effect::Replan { turn: left.id, attempt: 2 };
    assert_eq!(live.take_up().await, [again]);
}

/// The sessions of the folder, by purpose.
struct Found {
    attached: Session,
    asks: Session,
    completed: Session,
    trunk_fork: Session,
    successor: Session,
    handed: Session,
    idle: Session,
    own: Session,
    fork: Session,
    imported: Session,
    talk: Session,
}

impl Found {
    async fn read(store: &S) -> Self {
        let all = Page { user: OWNER, before: None, limit: 99, status: None };
        let all: [Session; 11] = store.sessions(all).await.unwrap().try_into().unwrap();
        let [attached, asks, completed, trunk_fork, successor, handed, idle, own, rest @ ..] = all;
        let [fork, imported, talk] = rest;
        Self {
            attached,
            asks,
            completed,
            trunk_fork,
            successor,
            handed,
            idle,
            own,
            fork,
            imported,
            talk,
        }
    }

    async fn sessions_are_there(&self, store: &S) {
        use Status::{Completed, Idle, Running, Suspended};
        let named = |name: &str| format!(r#"{{"name":"{name}"}}"#);
        let own = r#"{"name":"own","trip":{"to":"Kyoto","days":9}}"#.to_owned();
        // Agent, status, steps, last position, delivered, turns that wait for a surface.
        for (session, metadata, agent, status, counts) in [
            // Their surfaces were attached when the older build was killed.
            (&self.attached, named("attached"), "default", Suspended, (2, 4, 2, 1)),
            (&self.asks, named("asks"), "default", Suspended, (1, 6, 0, 1)),
            (&self.completed, named("completed"), "default", Completed, (1, 2, 0, 1)),
            (&self.trunk_fork, named("trunk"), "default", Running, (1, 2, 2, 0)),
            (&self.successor, named("handed"), "booking", Running, (2, 5, 2, 1)),
            (&self.handed, named("handed"), "default", Suspended, (1, 2, 0, 1)),
            (&self.idle, named("idle"), "default", Idle, (0, 0, 0, 0)),
            (&self.own, own, "default", Running, (1, 2, 0, 1)),
            (&self.fork, named("talk"), "default", Running, (3, 6, 4, 1)),
            (&self.imported, named("talk"), "traveller", Running, (5, 13, 11, 1)),
            (&self.talk, named("talk"), "default", Running, (4, 10, 0, 4)),
        ] {
            assert_eq!(session.metadata, metadata);
            assert_eq!((session.agent_id.as_str(), session.status), (agent, status), "{metadata}");
            let Session { step_count, last_seq, delivered_seq, pending_turns, .. } = *session;
            let found = (step_count, last_seq, delivered_seq, pending_turns);
            assert_eq!(found, counts, "{metadata}");
            assert_eq!(session.surface, None, "{metadata}");
            assert_eq!(pending(store, session.id).await.len() as u64, counts.3);
            let snapshot = session.snapshot.map(|snapshot| snapshot.seq);
            assert_eq!(snapshot, Some(last_seq).filter(|seq| *seq > 0), "{metadata}");
        }
        assert_eq!(self.handed.handed_to, Some(self.successor.id));
        let title = |session: &Session| session.titles.shown().map(str::to_owned);
        assert_eq!(title(&self.talk).as_deref(), Some("echo one"));
        assert_eq!(title(&self.fork).as_deref(), Some("plan B"), "its label");
        assert_eq!(self.fork.titles.automatic, self.talk.titles.automatic);
        assert_eq!(self.imported.titles.automatic, self.talk.titles.automatic);
        assert_eq!(title(&self.successor), title(&self.handed));
        assert_eq!(title(&self.idle), None, "nothing was said");
        let token = TokenHash(sha256("a-token-that-the-caller-chose-itself"));
        let by_token = store.session_by_token(token).await.unwrap().unwrap();
        assert_eq!(by_token.id, self.own.id);
    }

    async fn logs_are_there(&self, store: &S) {
        let remembered = r#"The tool answered: {"remembered":true}"#;
        let talk = [
            "echo one",
            "one",
            "echo two",
            "two",
            "remember that the cat is called Ada",
            "",
            r#"{"remembered":true}"#,
            remembered,
            "count to 3",
            "1\n2\n3\n",
        ];
        let fork = ["echo one", "one", "echo two", "two", "echo another way", "another way"];
        let photo = r#"call surface tool camera with {"mode":"photo"}"#;
        let denied = r#"{"error":"the user does not allow this call"}"#;
        let answer = format!("The tool answered: {denied}");
        let selfie = photo.replace("photo", "selfie");
        let asks = [&selfie, "", denied, &answer, photo, ""];
        for (session, expected) in [
            (&self.talk, &talk[..]),
            (&self.fork, &fork),
            (&self.own, &["echo keyed", "keyed"]),
            (&self.idle, &[]),
            (&self.handed, &["echo plan", "plan"]),
            (&self.trunk_fork, &["echo shared", "shared"]),
            (&self.completed, &["echo the end", "the end"]),
            (&self.asks, &asks),
            (&self.attached, &["echo delivered", "delivered", "echo pending", "pending"]),
        ] {
            assert_eq!(texts(store, session.id).await, expected);
            let entries = store.entries_after(session.id, 0, 99).await.unwrap();
            let seqs: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
            assert_eq!(seqs, (1..=session.last_seq).collect::<Vec<_>>(), "contiguous (G1)");
        }
        let imported = texts(store, self.imported.id).await;
        assert_eq!(imported[..10], talk);
        assert!(imported[10].starts_with("This session was imported. Its 10 messages"));
        assert_eq!(imported[11..], ["echo arrived", "arrived"]);
        let successor = texts(store, self.successor.id).await;
        assert_eq!((successor.len(), &*successor[1]), (5, "plan"));
        assert!(successor[2].ends_with("Reason: planned\nBook it."));
        assert_eq!(successor[3..], ["echo booked", "booked"]);
        assert_eq!(pending(store, self.attached.id).await, ["pending"]);
        assert_eq!(pending_for(store, self.attached.id, Some("annas-phone")).await, ["pending"]);
        let carried = store.pack(self.imported.id).await.unwrap().unwrap().carried;
        assert_eq!(carried.as_deref(), Some(r#"{"last_task":[10,"count to 3"]}"#));
    }

    async fn keys_are_there(&self, store: &S) {
        let id = self.own.id;
        let body = format!(
            r#"{{"model": "bowline/offline", "messages": [{{"role": "user", "content": "echo keyed"}}], "sbp": {{"session_id": "{id}"}}}}"#
        );
        let (session, known) = store.known(named(id, "turn-1", &body)).await.unwrap().unwrap();
        assert_eq!((session, known.same_body), (id, true));
        let result = Done::from_json(&known.result.unwrap()).unwrap();
        assert_eq!((result.info.turn_id, result.info.seq), (known.turn_id, Some(2)));
        assert!(result.completion.contains(r#""content":"keyed""#));

        let new = "new:0000000000000000";
        let made = named(new, "made-1", r#"{"metadata": {"name": "idle"}}"#);
        let again = store.create_session(new_session(), Some(made)).await.unwrap();
        assert_eq!((again.session.id, again.replayed), (self.idle.id, true));
        let (session, _) = store.known(named(new, "import-1", "")).await.unwrap().unwrap();
        assert_eq!(session, self.imported.id);

        let body = r#"{"at_step": 2, "label": "plan B"}"#;
        let fork = named(format!("fork:{}", self.talk.id), "fork-1", body);
        let (made, edge) = store.made_under(fork).await.unwrap().unwrap();
        assert_eq!((made.session.id, made.point), (self.fork.id, (4, 2)));
        assert_eq!((edge.kind, &*edge.detail), (EdgeKind::Fork, r#"{"label":"plan B"}"#));
        let body =
            r#"{"to_agent_id": "booking", "handoff_message": "Book it.", "reason": "planned"}"#;
        let handoff = named(format!("handoff:{}", self.handed.id), "handoff-1", body);
        let (made, edge) = store.made_under(handoff).await.unwrap().unwrap();
        assert_eq!((made.session.id, made.point), (self.successor.id, (2, 1)));
        assert_eq!(edge.kind, EdgeKind::Handoff);

        let turns = store.load(self.attached.id).await.unwrap().unwrap().turns;
        for (nth, turn) in turns.iter().enumerate() {
            let key = named(self.attached.id, &format!("c-{nth}"), "");
            let (session, known) = store.known(key).await.unwrap().unwrap();
            assert_eq!((session, known.turn_id), (self.attached.id, Some(turn.id)));
            assert_eq!(known.result, None, "it has not ended");
        }
    }

    async fn devices_and_questions_are_there(&self, store: &S) {
        let devices = store.devices(self.talk.id).await.unwrap();
        let watch = &devices[0];
        assert_eq!((devices.len(), &*watch.surface_id, watch.last_seen), (1, "watch", None));
        let (hash, expires_at) = watch.token.unwrap();
        assert!(expires_at > watch.first_seen);
        let known = store.device_of(self.talk.id, hash, watch.first_seen).await.unwrap();
        assert_eq!(known.as_deref(), Some("watch"));

        let devices = store.devices(self.attached.id).await.unwrap();
        let phone = &devices[0];
        assert_eq!((devices.len(), &*phone.surface_id), (1, "annas-phone"));
        assert_eq!((phone.last_seen, phone.token), (Some(phone.first_seen), None));
        assert_eq!(phone.context.device_type.as_str(), "mobile");
        assert_eq!(phone.context.locale.as_deref(), Some("de-CH"));
        let devices = store.devices(self.asks.id).await.unwrap();
        assert_eq!((devices.len(), &*devices[0].surface_id), (1, "camera-phone"));
        for session in [&self.attached, &self.asks] {
            assert!(store.attached(session.id).await.unwrap().is_empty(), "their sockets are gone");
        }

        let asked = store.approvals(self.asks.id).await.unwrap();
        let seen: Vec<_> =
            asked.iter().map(|a| (&*a.tool_name, a.tool_input.clone(), a.state)).collect();
        let question = |mode: &str, state| ("camera", json!({ "mode": mode }), state);
        let expected =
            [question("photo", ApprovalState::Pending), question("selfie", ApprovalState::Denied)];
        assert_eq!(seen, expected);
        let loaded = store.load(self.asks.id).await.unwrap().unwrap();
        let open: Vec<_> =
            loaded.asked.iter().map(|row| (row.approval.approval_id, row.place)).collect();
        assert_eq!(open, [(asked[0].approval_id, (6, 0))]);
        assert_eq!(loaded.asked[0].approval.turn_id, loaded.turns[0].id);
    }

    async fn travels_are_there(&self, store: &S) {
        let exports = store.exports(self.talk.id).await.unwrap();
        let seen: Vec<_> = exports
            .iter()
            .map(|e| (e.label.as_deref(), e.message_count, e.imported.map(|(_, by)| by)))
            .collect();
        let used = (Some("used up"), 10, Some(self.imported.id));
        assert_eq!(seen, [used, (Some("for the road"), 10, None)]);
        let (_, bundle) = store.export(exports[1].id).await.unwrap().unwrap();
        assert!(String::from_utf8(bundle.unwrap()).unwrap().contains("echo one"), "it can be used");
        let handed = store.exports(self.handed.id).await.unwrap();
        assert_eq!(handed[0].imported.map(|(_, by)| by), Some(self.successor.id));

        let kinds = async |of: SessionId| -> Vec<(EdgeKind, String, String)> {
            let family = store.family(of.to_string(), OWNER, 99).await.unwrap();
            family.edges.into_iter().map(|edge| (edge.kind, edge.origin, edge.session)).collect()
        };
        let edge =
            |kind, from: &Session, to: &Session| (kind, from.id.to_string(), to.id.to_string());
        let travels = [
            edge(EdgeKind::Import, &self.talk, &self.imported),
            edge(EdgeKind::Fork, &self.talk, &self.fork),
        ];
        assert_eq!(kinds(self.fork.id).await, travels);
        // The cost of each session, in thousandths; imported turns are not counted again.
        let family = store.family(self.talk.id.to_string(), OWNER, 99).await.unwrap();
        let spent = |member: &Session| {
            let id = member.id.to_string();
            let found = family.members.iter().find(|other| other.session == id).unwrap();
            (found.spent.unwrap().0 * 1000.0).round()
        };
        assert_eq!([&self.talk, &self.imported, &self.fork].map(spent), [94.0, 115.0, 13.0]);
        assert_eq!((self.imported.cost_usd * 1000.0).round(), 94.0 + 115.0);
        let handoff = [edge(EdgeKind::Handoff, &self.handed, &self.successor)];
        assert_eq!(kinds(self.handed.id).await, handoff);
        let of_a_deleted_one = kinds(self.trunk_fork.id).await;
        assert_eq!((of_a_deleted_one.len(), of_a_deleted_one[0].0), (1, EdgeKind::Fork));
    }

    async fn unfinished_turns_are_there(&self, store: &S) {
        let left = store.unfinished(ME).await.unwrap();
        assert_eq!(left, [(self.asks.id, 1), (self.attached.id, 3)]);
        let mut seen = Vec::new();
        for session in [&self.asks, &self.attached] {
            let loaded = store.load(session.id).await.unwrap().unwrap();
            assert_eq!(loaded.head.turns_accepted, loaded.turns.last().unwrap().place);
            for turn in loaded.turns {
                let request = TurnRequest::from_json(&turn.request).unwrap();
                let asked = request.question().unwrap();
                assert_eq!((turn.attempt, turn.found), (1, Some(Status::Running)));
                seen.push((asked, turn.started, turn.advanced, turn.keyed));
            }
        }
        let turn = |asked: &str, started, advanced, keyed| (asked.into(), started, advanced, keyed);
        let camera = r#"call surface tool camera with {"mode":"photo"}"#;
        let expected = [
            turn(camera, true, true, false),
            turn("count to 10000", true, false, true),
            turn("echo second in line", false, false, true),
            turn("echo third in line", false, false, true),
        ];
        assert_eq!(seen, expected);
    }
}

pub(crate) async fn memories_are_there(store: &S) {
    for agent in [AgentId::fallback(), "traveller".parse().unwrap()] {
        let agent = MemoryOwner { user: OWNER, agent };
        let memories = store.memories(agent.clone(), None, 99).await.unwrap();
        let mut seen: Vec<_> = memories.iter().map(|m| (&*m.text, m.kind)).collect();
        seen.sort_by_key(|(text, _)| *text);
        let expected = [
            ("Tea, not coffee.", MemoryKind::Semantic),
            ("We moved the server in May.", MemoryKind::Episodic),
            ("the cat is called Ada", MemoryKind::Semantic),
        ];
        assert_eq!(seen, expected);
        let found = store.recall(agent, vec!["cat".into()], 9).await.unwrap();
        assert_eq!((found.len(), &*found[0].text), (1, "the cat is called Ada"));
    }
}

pub(crate) fn copied() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/schema-3").join(FILE);
    std::fs::copy(kept, folder.path().join(FILE)).unwrap();
    folder
}

fn open(folder: &Path) -> S {
    Arc::new(Sqlite::open(folder).unwrap())
}

fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn named(scope: impl ToString, key: &str, body: &str) -> IdempotencyKey {
    IdempotencyKey { scope: scope.to_string(), key: key.into(), body_hash: sha256(body) }
}

/// Every row of every table, as text.
fn everything(folder: &Path) -> String {
    let conn = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut names = conn.prepare(names).unwrap();
    let names = names.query_map([], |row| row.get(0)).unwrap();
    let mut all = String::new();
    for table in names.collect::<Result<Vec<String>, _>>().unwrap() {
        let mut statement = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
            all += &format!("{table}: {values:?}\n");
        }
    }
    all
}
