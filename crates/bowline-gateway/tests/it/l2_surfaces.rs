//! SBP-L2-20, SBP-L2-21, SBP-L2-16: several surfaces of one session, each with its own cursor.

use bowline_gateway::config::Policy;
use serde_json::{Value, json};

use crate::bench::{Bench, Phone, Session, eventually, hello, joined, list, turn};
use crate::upstream::{MockUpstream, Piece};

/// Attaches with extra fields in the first frame.
async fn attach(bench: &Bench, session: &Session, surface: Value, more: Value) -> (Phone, Value) {
    let mut phone = bench.socket(&session.id).await;
    let mut first = hello(session, surface);
    for (name, value) in more.as_object().unwrap() {
        first[name] = value.clone();
    }
    phone.send(first).await;
    let welcome = phone.next().await;
    assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
    (phone, welcome)
}

/// Attaches with `join`.
pub(crate) async fn join(bench: &Bench, session: &Session, surface_id: &str) -> (Phone, Value) {
    let surface = json!({ "surface_id": surface_id });
    attach(bench, session, surface, json!({ "join": true })).await
}

pub(crate) async fn plain(bench: &Bench, session: &Session, surface_id: &str) -> (Phone, Value) {
    attach(bench, session, json!({ "surface_id": surface_id }), json!({})).await
}

/// Detaches, and waits until the gateway has noticed.
pub(crate) async fn leave(mut phone: Phone, bench: &Bench, session: &Session, surface_id: &str) {
    phone.send(json!({ "type": "DETACH" })).await;
    assert_eq!(phone.closed().await, 1000);
    let path = format!("/v1/sessions/{}/surfaces", session.id);
    eventually("gone", async || {
        let known = list(&bench.get(&path).await.body["surfaces"]);
        known.iter().all(|known| known["surface_id"] != surface_id || known["attached"] == false)
    })
    .await;
}

/// The frames before the answer to a `PING`, which shows that the surface is still attached.
pub(crate) async fn alive(phone: &mut Phone) -> Vec<Value> {
    phone.send(json!({ "type": "PING" })).await;
    let mut before = phone.until("PONG").await;
    before.pop();
    before
}

/// The attached surfaces in the next `SURFACES` frame.
async fn who(phone: &mut Phone) -> Vec<(Value, bool, bool)> {
    let told = phone.until("SURFACES").await.pop().unwrap();
    let flag = |value: &Value| value.as_bool().unwrap();
    let one = |s: &Value| (s["surface_id"].clone(), flag(&s["joined"]), flag(&s["you"]));
    list(&told["list"]).iter().map(one).collect()
}

/// Confirms everything that is pending for this device.
async fn confirm(phone: &mut Phone, bench: &Bench, session: &Session, surface_id: &str) {
    let last = bench.entries(session).await.last().unwrap()["seq"].as_u64().unwrap();
    phone.send(json!({ "type": "TETHER_ACK", "seq": last })).await;
    let id = session.id.parse().unwrap();
    eventually("confirmed", async || {
        let devices = bowline_store::Devices::devices(&*bench.store, id).await.unwrap();
        devices.iter().any(|d| d.surface_id == surface_id && d.delivered_seq == Some(last))
    })
    .await;
}

pub(crate) fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

pub(crate) fn message(id: &str, text: &str) -> Value {
    json!({ "type": "USER_MESSAGE", "content": text, "client_turn_id": id, "model": "m" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_joined_surfaces_share_a_live_turn_and_know_of_each_other() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    let (mut a, _) = join(&bench, &session, "a").await;
    let there = |name: &str, joined: bool, you: bool| (json!(name), joined, you);
    assert_eq!(who(&mut a).await, [there("desk", false, false), there("a", true, true)]);
    let (mut b, _) = join(&bench, &session, "b").await;
    let three = [there("desk", false, false), there("a", true, true), there("b", true, false)];
    assert_eq!(who(&mut a).await, three);
    let three = [there("desk", false, false), there("a", true, false), there("b", true, true)];
    assert_eq!(who(&mut b).await, three);

    let gate = upstream.gate();
    let asked = tokio::spawn({
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        request.json(&turn(&session, "gated", "go")).send()
    });
    gate.send(Piece::Text("both ".into())).unwrap();
    let mut seen = Vec::new();
    for phone in [&mut desk, &mut a, &mut b] {
        seen.push(phone.until("TURN_CHUNK").await);
    }
    gate.send(Piece::Text("see it".into())).unwrap();
    drop(gate);
    assert_eq!(asked.await.unwrap().unwrap().status(), 200);
    for (phone, frames) in [&mut desk, &mut a, &mut b].into_iter().zip(&mut seen) {
        frames.extend(phone.until("TURN_COMPLETE").await);
        assert_eq!(joined(frames), "both see it");
        assert_eq!(frames.last().unwrap()["turn_id"], seen_turn(frames));
    }
    assert!(!kinds(&seen[0]).contains(&"SURFACES"), "a plain one is not told: {:?}", seen[0]);
    assert!(!kinds(&seen[0]).contains(&"USER_TURN"), "nor what was asked over HTTP");
    for joined in &seen[1..] {
        let asked = joined.iter().find(|frame| frame["type"] == "USER_TURN").unwrap();
        assert_eq!((&asked["content"], &asked["surface_id"]), (&json!("go"), &Value::Null));
        let first_chunk = joined.iter().position(|frame| frame["type"] == "TURN_CHUNK");
        assert!(joined.iter().position(|frame| frame == asked) < first_chunk);
    }
    leave(b, &bench, &session, "b").await;
    assert_eq!(who(&mut a).await, [there("desk", false, false), there("a", true, true)]);
    assert!(!kinds(&alive(&mut desk).await).contains(&"SURFACES"));
}

fn seen_turn(frames: &[Value]) -> Value {
    frames.iter().find(|frame| frame["type"] == "TURN_CHUNK").unwrap()["chunk_id"].clone()
}

#[tokio::test]
async fn sbp_l2_16_a_plain_attach_replaces_the_older_plain_one_and_leaves_joined_ones() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut first, _) = plain(&bench, &session, "one").await;
    let (mut beside, _) = join(&bench, &session, "beside").await;
    alive(&mut first).await;
    let (mut second, _) = plain(&bench, &session, "two").await;
    assert_eq!(first.closed().await, 4009);
    alive(&mut beside).await;
    let (mut unnamed, _) = bench.attach_as(&session, json!({})).await;
    assert_eq!(second.closed().await, 4009);
    alive(&mut beside).await;
    bench.say(&session, "echo hi").await;
    for phone in [&mut beside, &mut unnamed] {
        assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "hi");
    }
}

#[tokio::test]
async fn sbp_l2_20_the_same_surface_id_replaces_itself_however_it_comes() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut other, _) = join(&bench, &session, "other").await;
    let (mut joined_one, _) = join(&bench, &session, "same").await;
    let (mut again, _) = join(&bench, &session, "same").await;
    assert_eq!(joined_one.closed().await, 4009);
    let (mut plain_one, _) = plain(&bench, &session, "same").await;
    assert_eq!(again.closed().await, 4009);
    let (mut last, _) = join(&bench, &session, "same").await;
    assert_eq!(plain_one.closed().await, 4009);
    alive(&mut other).await;
    alive(&mut last).await;
    assert!(bench.show(&session).await["surface"].is_object());
}

#[tokio::test]
async fn sbp_l2_20_a_take_over_closes_all_others() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    let (mut a, _) = join(&bench, &session, "a").await;
    let (mut b, _) = join(&bench, &session, "b").await;
    let all = json!({ "take_over": true, "join": true });
    let (mut only, _) = attach(&bench, &session, json!({ "surface_id": "only" }), all).await;
    for phone in [&mut desk, &mut a, &mut b] {
        assert_eq!(phone.closed().await, 4009);
    }
    assert_eq!(who(&mut only).await, [(json!("only"), true, true)]);
    let all = json!({ "take_over": true });
    let (mut last, _) = attach(&bench, &session, json!({}), all).await;
    assert_eq!(only.closed().await, 4009);
    alive(&mut last).await;
}

/// The turns that a device gets; `queued_turns` must be their number.
async fn drained(phone: &mut Phone, welcome: &Value) -> Vec<String> {
    let frames = alive(phone).await;
    let turns = frames.iter().filter(|frame| frame["type"] == "TETHER_TURN");
    let turns: Vec<_> = turns.map(|turn| turn["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(welcome["queued_turns"], turns.len(), "{frames:?}");
    turns
}

#[tokio::test]
async fn sbp_l2_20_each_device_gets_what_it_missed_itself() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let say = async |bench: &Bench, n: u32| {
        assert_eq!(bench.say(&session, &format!("echo {n}")).await.status, 200);
    };
    let pending = async |bench: &Bench| bench.show(&session).await["tether_turns_pending"].clone();
    say(&bench, 1).await;
    let (mut a, welcome) = join(&bench, &session, "a").await;
    assert_eq!(drained(&mut a, &welcome).await, ["1"]);
    confirm(&mut a, &bench, &session, "a").await;
    assert_eq!(pending(&bench).await, 0);
    leave(a, &bench, &session, "a").await;

    say(&bench, 2).await;
    say(&bench, 3).await;
    assert_eq!(pending(&bench).await, 2);
    // One that was never here begins where the session does.
    let (mut b, welcome) = plain(&bench, &session, "b").await;
    assert_eq!(drained(&mut b, &welcome).await, ["2", "3"]);
    confirm(&mut b, &bench, &session, "b").await;
    assert_eq!(pending(&bench).await, 0, "somebody has them");
    leave(b, &bench, &session, "b").await;

    say(&bench, 4).await;
    assert_eq!(pending(&bench).await, 1);
    // The others have not moved what this one missed.
    let (mut a, welcome) = plain(&bench, &session, "a").await;
    assert_eq!(drained(&mut a, &welcome).await, ["2", "3", "4"]);
    confirm(&mut a, &bench, &session, "a").await;
    assert_eq!(pending(&bench).await, 0);
    leave(a, &bench, &session, "a").await;
    // One without a name gets what the session has pending; a new name, too.
    let (mut unnamed, welcome) = bench.attach_as(&session, json!({})).await;
    assert!(drained(&mut unnamed, &welcome).await.is_empty());
    drop(unnamed);
    bench.until_status(&session, "suspended").await;
    say(&bench, 5).await;
    let explicit = json!({ "ack": "explicit" });
    let (mut unnamed, welcome) = attach(&bench, &session, json!({}), explicit).await;
    assert_eq!(drained(&mut unnamed, &welcome).await, ["5"]);
    let (mut c, welcome) = join(&bench, &session, "c").await;
    assert_eq!(drained(&mut c, &welcome).await, ["5"]);
    drop((unnamed, c));
    bench.until_status(&session, "suspended").await;

    // Positions outlive the process.
    let bench = bench.reopened().await;
    let (mut b, welcome) = join(&bench, &session, "b").await;
    assert_eq!(drained(&mut b, &welcome).await, ["4", "5"]);
    let (mut a, welcome) = join(&bench, &session, "a").await;
    assert_eq!(drained(&mut a, &welcome).await, ["5"]);
}

#[tokio::test]
async fn sbp_l2_20_the_sessions_tether_starts_after_the_furthest_position() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    // Both are there and only one of them confirms.
    let explicit = json!({ "join": true, "ack": "explicit" });
    let surface = |name: &str| json!({ "surface_id": name });
    let (mut quick, _) = attach(&bench, &session, surface("quick"), explicit.clone()).await;
    let (mut behind, _) = attach(&bench, &session, surface("behind"), explicit.clone()).await;
    for n in 0..3 {
        bench.say(&session, &format!("echo {n}")).await;
    }
    behind.send(json!({ "type": "TETHER_ACK", "seq": 2 })).await;
    bench.until_pending(&session, 2).await;
    let mut complete = 0;
    while complete < 3 {
        complete += usize::from(quick.next().await["type"] == "TURN_COMPLETE");
    }
    quick.send(json!({ "type": "TETHER_ACK", "seq": 6 })).await;
    bench.until_pending(&session, 0).await;
    // It is late, and moves nothing back.
    alive(&mut behind).await;
    behind.send(json!({ "type": "TETHER_ACK", "seq": 4 })).await;
    alive(&mut behind).await;
    leave(behind, &bench, &session, "behind").await;
    assert_eq!(bench.show(&session).await["tether_turns_pending"], 0);
    let (mut behind, welcome) = attach(&bench, &session, surface("behind"), explicit).await;
    assert_eq!(drained(&mut behind, &welcome).await, ["2"], "its own position is its own");
}

#[tokio::test]
async fn sbp_l2_20_at_most_64_surfaces_and_the_next_is_told_why() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let mut phones = Vec::new();
    for n in 0..64 {
        phones.push(join(&bench, &session, &format!("s{n}")).await.0);
    }
    let mut first = hello(&session, json!({ "surface_id": "one too many" }));
    first["join"] = json!(true);
    let mut late = bench.socket(&session.id).await;
    late.send(first).await;
    let told = late.next().await;
    assert_eq!(told["type"], "PROTOCOL_ERROR", "{told}");
    assert!(told["detail"].as_str().unwrap().contains("64"), "{told}");
    assert_eq!(late.closed().await, 1013);
    // One that replaces another takes no more room.
    let (mut again, _) = join(&bench, &session, "s7").await;
    alive(&mut again).await;
    leave(phones.remove(0), &bench, &session, "s0").await;
    join(&bench, &session, "one too many").await;
}

#[tokio::test]
async fn sbp_l2_20_a_session_is_suspended_only_when_its_last_surface_goes() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo x").await;
    let (a, _) = join(&bench, &session, "a").await;
    let (mut b, _) = join(&bench, &session, "b").await;
    assert_eq!(who(&mut b).await.len(), 2);
    drop(a);
    assert_eq!(who(&mut b).await.len(), 1);
    assert_eq!(bench.show(&session).await["status"], "running");
    drop(b);
    bench.until_status(&session, "suspended").await;
}

#[tokio::test]
async fn sbp_l2_20_a_tool_is_called_on_the_newest_surface_that_declared_it() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let with = async |name: &str, tools: Value| {
        let surface = json!({ "surface_id": name, "mcp_tools": tools });
        attach(&bench, &session, surface, json!({ "join": true })).await.0
    };
    let mut old = with("old", json!(["camera", "gps"])).await;
    let mut new = with("new", json!(["camera"])).await;
    let mut bare = with("bare", json!([])).await;
    let answer = async |phone: &mut Phone, tool: &str| {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        assert_eq!(call["tool_name"], tool);
        phone
            .send(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"],
                          "result": format!("{tool} here") }))
            .await;
    };
    let both = json!([["surface_camera", "{}"], ["surface_gps", "{}"]]).to_string();
    let asked = bench.say_to(&session, "calls", &both);
    let devices = async {
        answer(&mut new, "camera").await;
        answer(&mut old, "gps").await;
    };
    let (said, ()) = tokio::join!(asked, devices);
    assert_eq!(said.content(), "camera here | gps here");
    let seen = bare.until("TURN_COMPLETE").await;
    assert!(!kinds(&seen).contains(&"TOOL_CALL"), "{seen:?}");
    // Each tool is offered once.
    let tools = list(&upstream.calls()[0].body["tools"]);
    let names: Vec<_> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names.iter().filter(|name| **name == "surface_camera").count(), 1, "{names:?}");
    assert_eq!(names.len(), 2);
}

#[tokio::test]
async fn sbp_l2_20_an_approval_is_answered_on_any_surface_and_the_others_are_told() {
    let bench = Bench::with(|config| {
        config.tools.policy.insert("camera".into(), Policy::Ask);
    })
    .await;
    let session = bench.session().await;
    let camera = json!({ "surface_id": "camera", "mcp_tools": ["camera"] });
    let (mut camera, _) = attach(&bench, &session, camera, json!({ "join": true })).await;
    let (mut desk, _) = join(&bench, &session.as_owner(), "desk").await;
    let (mut third, _) = join(&bench, &session, "third").await;
    let asked = bench.say(&session, "call surface tool camera with {}");
    let people = async {
        let seen = third.until("APPROVAL_REQUEST").await.pop().unwrap();
        camera.until("APPROVAL_REQUEST").await;
        let request = desk.until("APPROVAL_REQUEST").await.pop().unwrap();
        let id = &request["approval_id"];
        assert_eq!(id, &seen["approval_id"], "the same question");
        desk.send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true }))
            .await;
        for phone in [&mut desk, &mut third] {
            let resolved = phone.until("APPROVAL_RESOLVED").await.pop().unwrap();
            assert_eq!((&resolved["approval_id"], &resolved["state"]), (id, &json!("used")));
        }
        let mut told = [camera.next().await, camera.next().await];
        told.sort_by_key(|frame| frame["type"].to_string());
        assert_eq!(kinds(&told), ["APPROVAL_RESOLVED", "TOOL_CALL"]);
        let call = &told[1]["call_id"];
        camera.send(json!({ "type": "TOOL_RESULT", "call_id": call, "result": "a cat" })).await;
    };
    let (said, ()) = tokio::join!(asked, people);
    assert_eq!(said.content(), "The tool answered: a cat");
}

#[tokio::test]
async fn sbp_l2_21_a_surface_that_acks_by_itself_confirms_nothing_by_pongs() {
    let bench = Bench::start().await;
    // Said beside the surface's description, or in it.
    for (surface, more) in [
        (json!({ "surface_id": "page" }), json!({ "ack": "explicit" })),
        (json!({ "ack": "explicit" }), json!({})),
    ] {
        let session = bench.session().await;
        for n in 0..2 {
            bench.say(&session, &format!("echo {n}")).await;
        }
        let (mut page, welcome) = attach(&bench, &session, surface.clone(), more.clone()).await;
        assert_eq!(welcome["queued_turns"], 2);
        // Pings on the way are answered; behind the second answer, all pongs have been read.
        let mut turns = alive(&mut page).await;
        alive(&mut page).await;
        bench.say(&session, "echo live").await;
        page.until("TURN_COMPLETE").await;
        alive(&mut page).await;
        alive(&mut page).await;
        assert_eq!(bench.show(&session).await["tether_turns_pending"], 3);
        turns.retain(|frame| frame["type"] == "TETHER_TURN");
        page.send(json!({ "type": "TETHER_ACK", "seq": turns[0]["seq"] })).await;
        bench.until_pending(&session, 2).await;
        drop(page);
        bench.until_status(&session, "suspended").await;
        let (mut page, welcome) = attach(&bench, &session, surface, more).await;
        assert_eq!(drained(&mut page, &welcome).await, ["1", "live"]);
        page.send(json!({ "type": "TETHER_ACK", "seq": 6 })).await;
        bench.until_pending(&session, 0).await;
    }
}
