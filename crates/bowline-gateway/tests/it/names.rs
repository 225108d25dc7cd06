//! Titles of sessions, what a text names, full-text search, and what a view says of now.

use bowline_gateway::config::{Config, Policy};
use bowline_store::Error;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session, turn};
use crate::disk::on_a_bad_disk_with;
use crate::roaming::{STRANGER, sealed};
use crate::upstream::MockUpstream;

async fn rename(bench: &Bench, session: &Session, title: impl Into<Value>) -> Answer {
    let path = format!("/v1/sessions/{}", session.id);
    bench.call(Method::PATCH, &path, &[], &json!({ "title": title.into() })).await
}

async fn named(bench: &Bench, text: &str) -> Vec<String> {
    let url = format!("{}?named={text}", bench.url("/v1/sessions"));
    let list: Value = bench.http.get(url).send().await.unwrap().json().await.unwrap();
    let ids = list["sessions"].as_array().unwrap().iter();
    ids.map(|session| session["session_id"].as_str().unwrap().to_owned()).collect()
}

async fn search(bench: &Bench, q: &str) -> Vec<(String, u64)> {
    let found = bench.get(&format!("/v1/sessions/search?q={q}")).await;
    assert_eq!((found.status, &found.body["complete"]), (200, &json!(true)), "{}", found.text);
    let hits = found.body["hits"].as_array().unwrap().iter();
    hits.map(|hit| (hit["session_id"].as_str().unwrap().into(), hit["seq"].as_u64().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_session_is_called_by_its_first_words_or_as_a_person_says() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    assert_eq!(bench.show(&session).await["title"], Value::Null);
    bench.say(&session, "echo the\n\tfirst   words").await;
    bench.say(&session, "echo others").await;
    assert_eq!(bench.show(&session).await["title"], "echo the first words");
    let before = bench.show(&session).await;

    let renamed = rename(&bench, &session, " Knots\n& splices ").await;
    assert_eq!((renamed.status, &renamed.body["title"]), (200, &json!("Knots & splices")));
    assert_eq!(renamed.body["updated_at"], before["updated_at"], "nothing happened in it");
    bench.say(&session, "echo more").await;
    assert_eq!(bench.sessions().await[0]["title"], "Knots & splices");
    for (title, named) in [(json!("x".repeat(121)), json!("title")), (json!(5), Value::Null)] {
        let refused = rename(&bench, &session, title).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"));
        assert_eq!(refused.body["error"]["param"], named);
    }
    assert_eq!(rename(&bench, &session, "").await.body["title"], "echo the first words");
    let nobody = Session { id: uuid::Uuid::now_v7().to_string(), token: String::new() };
    assert_eq!(rename(&bench, &nobody, "x").await.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
}

#[tokio::test]
async fn an_ended_session_can_be_renamed() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    crate::l1_sessions::patch(&bench, &session, "completed").await;
    let renamed = rename(&bench, &session, "Old").await;
    assert_eq!((renamed.status, &renamed.body["title"]), (200, &json!("Old")));
    assert_eq!(renamed.body["status"], "completed");
}

#[tokio::test]
async fn labels_are_titles_and_titles_travel() {
    let bench = Bench::start().await;
    let bundle: Value = serde_json::from_str(&sealed(STRANGER)).unwrap();
    let imported = bench.post("/v1/sbp/sessions/import", json!({ "bundle": bundle })).await;
    let imported = Session::of(&imported.body);
    assert_eq!(bench.show(&imported).await["title"], "from afar");
    let session = bench.session().await;
    bench.say(&session, "echo one").await;
    let fork = |body: Value| bench.post_to(&session, "fork", body);
    let (plain, labelled) = (fork(json!({})).await, fork(json!({ "label": "plan B" })).await);
    let title = async |made: &Value| {
        let id = made["fork_session_id"].as_str().unwrap().to_owned();
        bench.show(&Session { id, token: String::new() }).await["title"].clone()
    };
    assert_eq!(title(&plain).await, "echo one");
    assert_eq!(title(&labelled).await, "plan B");

    rename(&bench, &session, "Lisbon").await;
    let exported = bench.post_to(&session, "export", json!({})).await;
    assert_eq!(exported["label"], "Lisbon");
    let token = json!({ "roaming_token": exported["roaming_token"] });
    let there = bench.post("/v1/sbp/sessions/import", token).await;
    assert_eq!(bench.show(&Session::of(&there.body)).await["title"], "Lisbon");
}

impl Bench {
    async fn post_to(&self, session: &Session, what: &str, body: Value) -> Value {
        self.post(&format!("/v1/sbp/sessions/{}/{what}", session.id), body).await.body
    }
}

#[tokio::test]
async fn a_text_names_sessions_by_id_prefix_and_title() {
    let bench = Bench::start().await;
    let (a, b) = (bench.session().await, bench.session().await);
    bench.say(&a, "echo apples").await;
    bench.say(&b, "echo apples and pears").await;
    for (text, found) in [
        (a.id.as_str(), vec![&a]),
        (&a.id.to_uppercase(), vec![&a]),
        (&b.id[..35], vec![&b]),
        (&a.id[..4], vec![&b, &a]),
        ("echo%20apples", vec![&a]),
        ("ECHO%20Apples%20and", vec![&b]),
        ("echo", vec![&b, &a]),
        ("apples", vec![]),
        ("", vec![]),
        ("%25", vec![]),
    ] {
        let found: Vec<_> = found.iter().map(|session| session.id.clone()).collect();
        assert_eq!(named(&bench, text).await, found, "{text}");
    }
}

#[tokio::test]
async fn what_was_said_is_found_until_its_session_is_deleted() {
    let bench = Bench::start().await;
    let (a, b) = (bench.session().await, bench.session().await);
    bench.say(&a, "echo a bowline holds").await;
    bench.say(&b, "echo a bowline slips").await;
    let both = [(b.id.clone(), 2), (b.id.clone(), 1), (a.id.clone(), 2), (a.id.clone(), 1)];
    assert_eq!(search(&bench, "bowline").await, both);
    assert_eq!(search(&bench, "echo%20HOLDS").await, [(a.id.clone(), 1)]);
    let found = bench.get("/v1/sessions/search?q=slips&limit=1").await.body;
    let hit = json!({ "session_id": b.id, "title": "echo a bowline slips", "seq": 2,
        "role": "assistant", "created_at": found["hits"][0]["created_at"],
        "snippet": "a bowline slips" });
    assert_eq!(found["hits"], json!([hit]));
    let path = format!("/v1/sessions/{}", b.id);
    assert_eq!(bench.call(Method::DELETE, &path, &[], &Value::Null).await.status, 204);
    assert_eq!(search(&bench, "slips").await, []);
    assert_eq!(search(&bench, "bowline").await, both[2..]);
    // What is special to the search engine is not special here.
    for q in ["%22", "%28", "AND", "NEAR%28", "%2A", "%00", "a%3Ab", "%F0%9F%8E%89"] {
        search(&bench, q).await;
    }
    let many = vec!["w"; 33].join("+");
    for q in ["", "?q=", "?q=+", &format!("?q={many}")] {
        let refused = bench.get(&format!("/v1/sessions/search{q}")).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{q}");
    }
}

#[tokio::test]
async fn a_search_that_cannot_index_says_that_it_is_incomplete() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "marker before").await;
    let before = search(&bench, "marker").await;
    assert!(before.contains(&(session.id.clone(), 1)), "{before:?}");
    bench.say(&session, "marker after").await;
    disk.fail("index", Error::Unavailable("a test says so".into()));
    let found = bench.get("/v1/sessions/search?q=marker").await.body;
    assert_eq!(found["complete"], false);
    assert_eq!(found["hits"].as_array().unwrap().len(), before.len(), "what was indexed before");
    let after = search(&bench, "marker").await;
    assert!(after.contains(&(session.id.clone(), 3)), "{after:?}");
}

#[tokio::test]
async fn a_view_says_whether_a_turn_runs_and_who_is_attached() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let now = |view: &Value| {
        (view["status"].clone(), view["turn_running"].clone(), view["attached"].clone())
    };
    assert_eq!(now(&bench.show(&session).await), (json!("idle"), json!(false), json!([])));
    let surface = json!({ "device_type": "mobile", "surface_id": "pixel" });
    let (_phone, _) = bench.attach_as(&session, surface).await;
    let gate = upstream.gate();
    let asking = bench.chat(turn(&session, "gated", "what now?"));
    let looking = async {
        bench.until(&session, "runs", |view| view["turn_running"] == true).await;
        let seen = bench.show(&session).await;
        assert_eq!(seen["title"], "what now?", "before there is an answer");
        assert_eq!(seen["attached"], json!([{ "surface_id": "pixel", "device_type": "mobile" }]));
        drop(gate);
    };
    tokio::join!(asking, looking);
    bench.until(&session, "rests", |view| view["turn_running"] == false).await;
}

#[tokio::test]
async fn a_view_counts_the_approvals_that_wait() {
    let asks = |config: &mut Config| {
        config.tools.policy.insert("camera".into(), Policy::Ask);
    };
    let bench = Bench::with(asks).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    let device = async {
        let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
        let seen = bench.show(&session).await;
        assert_eq!((&seen["approvals_pending"], &seen["turn_running"]), (&json!(1), &json!(true)));
        let id = asked["approval_id"].as_str().unwrap();
        let path = format!("/v1/sessions/{}/approvals/{id}", session.id);
        bench.post_as_owner(&path, json!({ "approved": false })).await;
    };
    tokio::join!(bench.say(&session, "call surface tool camera with {}"), device);
    assert_eq!(bench.show(&session).await["approvals_pending"], 0);
}
