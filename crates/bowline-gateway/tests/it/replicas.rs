//! G19, G17: several replicas on one store and one bus. Any request may go to any of them.

use std::sync::Arc;
use std::time::Duration;

use bowline_bus::{Bus, Memory};
use bowline_gateway::config::{Config, OFFLINE, Policy};
use bowline_store::Leases;
use bowline_store::sqlite::Sqlite;
use futures_util::SinkExt;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::bench::{
    Bench, LOCAL_KEY, Phone, Session, answer, eventually, joined, list, open, turn,
};
use crate::l2_surfaces::{alive, join, message, plain};
use crate::lossy::Lossy;
use crate::upstream::{MockUpstream, Piece};

/// Replicas before one upstream, and the store's folder.
pub(crate) struct Replicas {
    pub(crate) all: Vec<Bench>,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) upstream: MockUpstream,
    _folder: tempfile::TempDir,
}

impl Replicas {
    pub(crate) async fn start(count: usize) -> Self {
        Self::on(count, Arc::new(Memory::new()), |_| {}).await
    }

    pub(crate) async fn on(count: usize, bus: Arc<impl Bus>, change: impl Fn(&mut Config)) -> Self {
        Self::before(open(), count, bus, change).await
    }

    /// In front of a store of which they know that others may use it, too.
    async fn shared(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap().for_several_gateways();
        Self::before((Arc::new(store), folder), count, Arc::new(Memory::new()), |_| {}).await
    }

    async fn before(
        (store, folder): (Arc<Sqlite>, tempfile::TempDir),
        count: usize,
        bus: Arc<impl Bus>,
        change: impl Fn(&mut Config),
    ) -> Self {
        let upstream = MockUpstream::start().await;
        let mut all = Vec::new();
        for _ in 0..count {
            let replica = Bench::replica(&store, &bus, |config| {
                upstream.configure(config);
                change(config);
            });
            all.push(replica.await);
        }
        Self { all, store, upstream, _folder: folder }
    }

    /// A session that the first replica owns.
    pub(crate) async fn session(&self) -> Session {
        let session = self.all[0].session().await;
        self.all[0].give_to(&self.all[0].gateway, &session).await;
        self.owned_by(0, &session).await;
        session
    }

    async fn owned_by(&self, replica: usize, session: &Session) {
        let owner = self.store.owner(session.id.parse().unwrap()).await.unwrap();
        assert_eq!(owner, Some(self.all[replica].gateway.replica()));
    }
}

/// Sends a streamed turn, and returns its whole body.
pub(crate) fn stream(
    bench: &Bench,
    session: &Session,
    key: &str,
) -> tokio::task::JoinHandle<(u16, String)> {
    let mut body = turn(session, "gated", "go");
    body["stream"] = json!(true);
    let request = bench.http.post(bench.url("/v1/chat/completions")).json(&body);
    let request = request.header("Idempotency-Key", key);
    tokio::spawn(async move {
        let answered = answer(request).await;
        (answered.status, answered.text)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l5_05_a_turn_at_one_replica_calls_a_tool_of_a_surface_at_another() {
    let replicas = Replicas::start(3).await;
    let [a, b, c] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut desk, _) = join(a, &session, "desk").await;
    let mut phone = c.socket(&session.id).await;
    let surface = json!({ "surface_id": "phone", "mcp_tools": ["gps"] });
    let mut first = crate::bench::hello(&session, surface);
    first["join"] = json!(true);
    phone.send(first).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
    let calls = json!([("surface_gps", "{}")]).to_string();
    let device = async {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        assert!(call["timeout_ms"].as_u64().is_some_and(|left| left > 1000), "{call}");
        let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "here" });
        phone.send(result).await;
        phone.until("TURN_COMPLETE").await
    };
    let (said, _) = tokio::join!(b.chat(turn(&session, "calls", &calls)), device);
    assert_eq!((said.status, said.content()), (200, "here"), "{}", said.text);
    desk.until("TURN_COMPLETE").await;
    replicas.owned_by(0, &session).await;
    for bench in &replicas.all {
        assert_eq!(bench.show(&session).await["attached"].as_array().unwrap().len(), 2);
    }
}

/// Two callers of one streamed turn, at two replicas.
async fn streams_are_identical(replicas: Replicas) {
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let gate = replicas.upstream.gate();
    let at_b = stream(b, &session, "key");
    replicas.upstream.until_calls(1).await;
    let at_a = stream(a, &session, "key");
    for n in 0..50 {
        gate.send(Piece::Text(format!("wörd {n} "))).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(gate);
    let (at_a, at_b) = (at_a.await.unwrap(), at_b.await.unwrap());
    assert_eq!(at_b.0, 200);
    assert!(at_b.1.contains("wörd 49") && at_b.1.ends_with("data: [DONE]\n\n"), "{}", at_b.1);
    assert_eq!(at_a, at_b);
    assert_eq!(replicas.upstream.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_stream_at_another_replica_is_byte_for_byte_the_owners() {
    streams_are_identical(Replicas::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_stream_is_the_same_over_a_bus_that_loses_doubles_and_delays() {
    for seed in 0..3 {
        let bus = Arc::new(Lossy::new(seed));
        streams_are_identical(Replicas::on(2, bus, |_| {}).await).await;
    }
}

async fn mid_sentence(replicas: Replicas) {
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut here, _) = join(a, &session, "here").await;
    let gate = replicas.upstream.gate();
    let asked = stream(a, &session, "key");
    gate.send(Piece::Text("The first half, ".into())).unwrap();
    here.until("TURN_CHUNK").await;
    let (mut there, _) = join(b, &session, "there").await;
    let mut frames = there.until("TURN_CHUNK").await;
    gate.send(Piece::Text("and the sécond.".into())).unwrap();
    drop(gate);
    frames.extend(there.until("TURN_COMPLETE").await);
    assert_eq!(joined(&frames), "The first half, and the sécond.");
    assert_eq!(asked.await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_surface_that_attaches_elsewhere_mid_sentence_gets_the_whole_text() {
    mid_sentence(Replicas::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_mid_sentence_over_a_bus_that_loses_doubles_and_delays() {
    for seed in 0..3 {
        mid_sentence(Replicas::on(2, Arc::new(Lossy::new(seed)), |_| {}).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_an_approval_is_given_at_another_replica() {
    let asks = |config: &mut Config| {
        config.tools.policy.insert("camera".into(), Policy::Ask);
    };
    let replicas = Replicas::on(2, Arc::new(Memory::new()), asks).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let surface = json!({ "mcp_tools": ["camera"] });
    let (mut phone, _) = a.attach_as(&session.as_owner(), surface).await;
    let device = async {
        let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
        // Its state comes over the bus, and may come after the frame.
        eventually("pending", async || b.show(&session).await["approvals_pending"] == 1).await;
        let id = asked["approval_id"].as_str().unwrap();
        let path = format!("/v1/sessions/{}/approvals/{id}", session.id);
        let decided = b.post_as_owner(&path, json!({ "approved": true })).await;
        assert_eq!(decided.status, 200, "{}", decided.text);
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        let result =
            json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "a cat" });
        phone.send(result).await;
        phone.until("TURN_COMPLETE").await
    };
    let (said, _) = tokio::join!(b.say_to(&session, OFFLINE, CAMERA), device);
    assert_eq!(said.content(), "The tool answered: a cat", "{}", said.text);
}

const CAMERA: &str = "call surface tool camera with {}";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_turn_is_seen_and_cancelled_at_another_replica() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let gate = replicas.upstream.gate();
    let asked = stream(a, &session, "key");
    gate.send(Piece::Text("begun".into())).unwrap();
    eventually("running", async || b.show(&session).await["turn_running"] == true).await;
    assert_eq!(b.sessions().await[0]["turn_running"], true);
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(list(&b.get(&format!("{path}/turns")).await.body["turns"]).len(), 1);
    let cancelled = b.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(cancelled.body["cancelled"], true, "{}", cancelled.text);
    assert_eq!(asked.await.unwrap().0, 200);
    let again = b.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(again.body["cancelled"], false, "{}", again.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_one_key_at_two_replicas_at_once_is_one_turn() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    for round in 0..20 {
        let session = a.session().await;
        let name = format!("key {round}");
        let key = [("Idempotency-Key", &*name)];
        let body = turn(&session, "m", "x");
        let (at_a, at_b) = tokio::join!(a.chat_as(&key, body.clone()), b.chat_as(&key, body));
        assert_eq!((at_a.status, &at_a.text), (at_b.status, &at_b.text));
        assert_eq!(a.log(&session).await.len(), 2);
        assert_eq!(replicas.upstream.calls().len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_one_key_that_makes_a_session_at_two_replicas_makes_one() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    for round in 0..20 {
        let name = format!("key {round}");
        let key = [("Idempotency-Key", &*name)];
        let body = crate::bench::asked("m", "x", json!({}));
        let (at_a, at_b) = tokio::join!(a.chat_as(&key, body.clone()), b.chat_as(&key, body));
        assert_eq!((at_a.status, &at_a.text), (at_b.status, &at_b.text));
        assert_eq!(replicas.upstream.calls().len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_what_a_dead_replica_ran_is_taken_over_and_its_callers_get_their_answers() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut phone, _) = plain(b, &session, "phone").await;
    // The first attempt never ends.
    let waits = tokio::spawn({
        let request = b.http.post(b.url("/v1/chat/completions"));
        answer(request.json(&turn(&session, "gated", "whole")))
    });
    let gate = replicas.upstream.gate();
    let second = replicas.upstream.gate();
    gate.send(Piece::Text("lost".into())).unwrap();
    phone.until("TURN_CHUNK").await;
    replicas.store.retire(a.gateway.replica()).await.unwrap();
    b.gateway.replica_died(a.gateway.replica());
    assert_eq!(phone.closed().await, 1012);
    replicas.upstream.until_calls(2).await;
    second.send(Piece::Text("found".into())).unwrap();
    drop(second);
    let said = waits.await.unwrap();
    assert_eq!((said.status, said.content()), (200, "found"), "{}", said.text);
    replicas.owned_by(1, &session).await;
    // The old owner can write nothing, and finds out who does.
    drop(gate);
    let later = a.say(&session, "later").await;
    assert_eq!(later.status, 200, "{}", later.text);
    replicas.owned_by(1, &session).await;
    assert_eq!(b.log(&session).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g18_a_stream_that_has_begun_ends_with_an_error_when_its_owner_is_lost() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (first, second) = (replicas.upstream.gate(), replicas.upstream.gate());
    let (mut phone, _) = plain(b, &session, "phone").await;
    let asked = stream(b, &session, "key");
    first.send(Piece::Text("lost".into())).unwrap();
    phone.until("TURN_CHUNK").await;
    replicas.store.retire(a.gateway.replica()).await.unwrap();
    b.gateway.replica_died(a.gateway.replica());
    replicas.upstream.until_calls(2).await;
    second.send(Piece::Text("found".into())).unwrap();
    drop(second);
    let (status, text) = asked.await.unwrap();
    assert_eq!(status, 200, "it had begun");
    assert!(text.contains("lost") && text.contains("error"), "{text}");
    assert!(!text.contains("found") && !text.contains("[DONE]"), "{text}");
    // The same key gets the whole answer.
    let again = stream(b, &session, "key").await.unwrap();
    assert!(again.1.contains("found") && again.1.contains("[DONE]"), "{}", again.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_replica_that_was_declared_dead_closes_its_surfaces_and_starts_anew() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut here, _) = join(a, &session, "here").await;
    let (mut there, _) = join(b, &session, "there").await;
    let before = a.gateway.replica();
    replicas.store.retire(before).await.unwrap();
    a.gateway.start_anew().await.unwrap();
    assert_eq!((here.closed().await, there.closed().await), (1012, 1012));
    assert_ne!(a.gateway.replica(), before);
    let (mut here, _) = join(a, &session, "here").await;
    let (mut there, _) = join(b, &session, "there").await;
    assert_eq!(b.say(&session, "again").await.status, 200);
    here.until("TURN_COMPLETE").await;
    there.until("TURN_COMPLETE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g6_surfaces_of_a_replica_that_stops_or_dies_are_gone() {
    let mut replicas = Replicas::start(3).await;
    let session = replicas.session().await;
    let (_b, _c) =
        (join(&replicas.all[1], &session, "b").await, join(&replicas.all[2], &session, "c").await);
    let a = &replicas.all[0];
    let attached = async |session: &Session| {
        list(&a.show(session).await["attached"]).iter().map(|s| s["surface_id"].clone()).collect()
    };
    let both: Vec<Value> = attached(&session).await;
    assert_eq!(both, ["b", "c"]);
    // As if it were dead: nothing comes from it any more.
    a.gateway.replica_died(replicas.all[1].gateway.replica());
    eventually("gone", async || attached(&session).await == ["c"]).await;
    replicas.all.pop().unwrap().gateway.stop().await;
    let a = &replicas.all[0];
    eventually("all gone", async || list(&a.show(&session).await["attached"]).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_a_session_is_deleted_and_handed_over_at_another_replica() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut phone, _) = plain(a, &session, "phone").await;
    let path = format!("/v1/sessions/{}", session.id);
    let gone = b.call(Method::DELETE, &path, &[], &Value::Null).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    assert_eq!(phone.closed().await, 4004);
    for bench in [a, b] {
        assert_eq!(bench.get(&path).await.status, 404);
        assert_eq!(bench.say(&session, "too late").await.status, 404);
    }
    let session = replicas.session().await;
    assert_eq!(b.say(&session, "hello").await.status, 200);
    let (mut phone, _) = plain(a, &session, "phone").await;
    let body = json!({ "to_agent_id": "other" });
    let handed = b.post_as_owner(&format!("/v1/sessions/{}/handoff", session.id), body).await;
    assert_eq!(handed.status, 201, "{}", handed.text);
    phone.until("SESSION_HANDED_OFF").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l5_06_a_host_at_another_replica_sees_and_calls_a_devices_tool() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut phone, _) = a.attach_as(&session, json!({ "mcp_tools": ["gps"] })).await;
    let rpc = async |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let accept = "application/json, text/event-stream";
        let request = b.http.post(b.url("/mcp")).bearer_auth(LOCAL_KEY).json(&body);
        answer(request.header("accept", accept).header("mcp-protocol-version", "2025-06-18")).await
    };
    let tools = rpc("tools/list", json!({})).await;
    let name = tools.text.split('"').find(|word| word.ends_with("_gps")).unwrap_or_else(|| {
        panic!("{}", tools.text);
    });
    let device = async {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "here" });
        phone.send(result).await;
    };
    let call = rpc("tools/call", json!({ "name": name, "arguments": {} }));
    let (called, ()) = tokio::join!(call, device);
    assert!(called.text.contains("here"), "{}", called.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_a_request_that_says_it_is_a_retry_joins_its_turn_at_another_replica() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let gate = replicas.upstream.gate();
    let body = turn(&session, "gated", "go");
    let request = a.http.post(a.url("/v1/chat/completions")).json(&body);
    let first = tokio::spawn(answer(request));
    replicas.upstream.until_calls(1).await;
    first.abort();
    let retried = [("x-stainless-retry-count", "1")];
    let again = b.chat_as(&retried, body.clone());
    let ends = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.send(Piece::Text("once".into())).unwrap();
        drop(gate);
    };
    let (said, ()) = tokio::join!(again, ends);
    assert_eq!((said.status, said.content()), (200, "once"), "{}", said.text);
    assert_eq!(replicas.upstream.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_a_request_whose_connection_broke_joins_its_turn_at_another_replica() {
    // They have not talked to each other yet.
    let replicas = Replicas::shared(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let gate = replicas.upstream.gate();
    let body = turn(&session, "gated", "go");
    let request = a.http.post(a.url("/v1/chat/completions")).json(&body);
    let first = tokio::spawn(answer(request));
    replicas.upstream.until_calls(1).await;
    first.abort();
    // How soon the other replica is told cannot be seen from outside.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let again = b.chat_as(&[], body.clone());
    let ends = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.send(Piece::Text("once".into())).unwrap();
        drop(gate);
    };
    let (said, ()) = tokio::join!(again, ends);
    assert_eq!((said.status, said.content()), (200, "once"), "{}", said.text);
    assert_eq!(replicas.upstream.calls().len(), 1);
}

/// Messages of one surface at a replica that does not own the session, several at once.
async fn order_is_kept(replicas: Replicas, count: usize) {
    let [_, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut phone, _) = b.attach(&session).await;
    let names: Vec<_> = (0..count).map(|n| format!("message {n}")).collect();
    // A surface may have 256 messages wait.
    for some in names.chunks(150) {
        for name in some {
            phone.socket.feed(Packet::text(message(name, name).to_string())).await.unwrap();
        }
        phone.socket.flush().await.unwrap();
        completed(&mut phone, some.len()).await;
    }
    let (mut asked, mut after) = (Vec::new(), 0);
    while asked.len() < count {
        let path = format!("/v1/sessions/{}/messages?limit=500&after={after}", session.id);
        let page = list(&b.get(&path).await.body["messages"]);
        after = page.last().unwrap()["seq"].as_u64().unwrap();
        let said = page.iter().filter(|entry| entry["message"]["role"] == "user");
        asked.extend(said.map(|e| e["message"]["content"].as_str().unwrap().to_owned()));
    }
    assert_eq!(asked, names);
    replicas.owned_by(0, &session).await;
}

async fn completed(phone: &mut Phone, count: usize) {
    for _ in 0..count {
        let frames = phone.until("TURN_COMPLETE").await;
        let failed = frames.iter().find(|frame| frame["type"] == "TURN_FAILED");
        assert!(failed.is_none(), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g17_300_messages_of_a_surface_elsewhere_are_taken_in_order() {
    order_is_kept(Replicas::start(2).await, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g17_messages_are_taken_in_order_over_a_bus_that_loses_doubles_and_delays() {
    order_is_kept(Replicas::on(2, Arc::new(Lossy::new(7)), |_| {}).await, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g19_what_an_actor_without_a_lease_says_is_not_old() {
    let replicas = Replicas::start(2).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = a.session().await;
    // Both have an actor, and neither owns the session: there is nothing to write.
    let nothing = |bench: &Bench| {
        let body = json!({ "turns": ["00000000-0000-4000-8000-000000000000"] });
        let path = bench.url(&format!("/v1/sessions/{}/cancel", session.id));
        answer(bench.http.post(path).json(&body))
    };
    for bench in [a, b] {
        let request = bench.http.patch(bench.url(&format!("/v1/sessions/{}", session.id)));
        let named = answer(request.json(&json!({ "title": "" })));
        assert_eq!(named.await.status, 200);
    }
    let gate = replicas.upstream.gate();
    let asked = stream(a, &session, "key");
    gate.send(Piece::Text("begun".into())).unwrap();
    replicas.upstream.until_calls(1).await;
    // The actor of the second one would say that nothing runs.
    let joined = stream(b, &session, "key");
    assert_eq!(nothing(b).await.body["cancelled"], false);
    let path = format!("/v1/sessions/{}/cancel", session.id);
    assert_eq!(b.post(&path, json!({})).await.body["cancelled"], true);
    drop(gate);
    let (asked, joined) = (asked.await.unwrap(), joined.await.unwrap());
    // Whoever joins after the end gets all of it in one chunk.
    assert_eq!((asked.0, joined.0), (200, 200));
    assert!(joined.1.contains("begun"), "{}", joined.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_a_proxy_that_nobody_needs_holds_nothing() {
    let replicas = Replicas::start(2).await;
    let [_, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    let (mut phone, _) = b.attach(&session).await;
    alive(&mut phone).await;
    assert_eq!(b.gateway.at_work().sessions, 1);
    drop(phone);
    eventually("idle", async || {
        replicas.all.iter().all(|bench| bench.gateway.at_work() == Default::default())
    })
    .await;
}
