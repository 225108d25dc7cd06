//! The audit: who did what, from where; ids only.

use bowline_gateway::config::{AuditConfig, Policy};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, LOCAL_KEY, list, plain, turn};
use crate::people::{call, get, person, session_of, share};

pub(crate) async fn audit(bench: &Bench) -> Vec<Value> {
    let said = get(bench, LOCAL_KEY, "/v1/audit?limit=1000").await;
    assert_eq!(said.status, 200, "{}", said.text);
    list(&said.body["entries"])
}

fn named<'a>(entries: &'a [Value], action: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["action"] == action).collect()
}

#[tokio::test]
async fn changes_of_users_keys_shares_and_sessions_say_who_and_from_where() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    person(&bench, "bob").await;
    let session = session_of(&bench, &ada.key).await;
    call(&bench, &ada.key, Method::POST, "/v1/chat/completions", turn(&session, "m", "echo hush"))
        .await;
    share(&bench, &ada.key, &session, "bob", "talk").await;
    let of = |rest: &str| format!("/v1/sessions/{}{rest}", session.id);
    let delete = async |path: &str| call(&bench, &ada.key, Method::DELETE, path, Value::Null).await;
    delete(&of("/shares/bob")).await;
    for path in [of("/export"), of("/fork")] {
        let made = call(&bench, &ada.key, Method::POST, &path, json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    let made =
        json!({ "model": "m", "sbp": {}, "messages": [{ "role": "user", "content": "echo" }] });
    let made = call(&bench, &ada.key, Method::POST, "/v1/chat/completions", made).await;
    assert_eq!(delete(&of("")).await.status, 204);
    let limits = json!({ "limits": { "turns_at_once": 9 }, "disabled": true });
    call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/bob", limits).await;
    let path = format!("/v1/keys/{}", ada.id);
    call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
    bench.post_as_owner("/v1/sbp/keys/rotate", json!({})).await;

    let entries = audit(&bench).await;
    for (action, times, by) in [
        ("user.add", 2, "local"),
        ("user.limit", 1, "local"),
        ("user.disable", 1, "local"),
        ("key.make", 2, "local"),
        ("key.revoke", 1, "local"),
        ("signing_key.rotate", 1, "local"),
        ("session.create", 2, "key"),
        ("session.share", 1, "key"),
        ("session.unshare", 1, "key"),
        ("session.export", 1, "key"),
        ("session.fork", 1, "key"),
        ("session.delete", 1, "key"),
    ] {
        let found = named(&entries, action);
        assert_eq!(found.len(), times, "{action}: {entries:?}");
        for entry in found {
            let (user, credential) = match by {
                "key" => ("ada", ada.id.clone()),
                _ => ("owner", "local".to_owned()),
            };
            assert_eq!((&entry["user"], &entry["credential"]), (&json!(user), &json!(credential)));
            assert_eq!((&entry["result"], &entry["address"]), (&json!("ok"), &json!("127.0.0.1")));
        }
    }
    let about = |action: &str| named(&entries, action)[0]["object"].as_str().unwrap().to_owned();
    assert_eq!(about("session.delete"), session.id);
    assert_eq!(about("session.create"), made.body["sbp"]["session_id"].as_str().unwrap());
    assert!(about("session.share").starts_with(&session.id));
    assert_eq!(about("key.revoke"), ada.id);
    assert_eq!(named(&entries, "gateway.start").len(), 1);
    let text = serde_json::to_string(&entries).unwrap();
    for secret in ["hush", &ada.key, &session.token, "echo"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    // Uses of a key are one entry an hour, and turns are none.
    let uses = named(&entries, "key.use");
    let uses: Vec<_> = uses.iter().filter(|entry| entry["user"] == "ada").collect();
    assert!((1..=2).contains(&uses.len()), "{uses:?}");
    let times: u64 = uses.iter().map(|entry| entry["times"].as_u64().unwrap()).sum();
    assert!(times >= 7, "{uses:?}");
}

#[tokio::test]
async fn g11_wrong_keys_cannot_flood_the_audit() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    for n in 0..60 {
        let wrong = format!("bk_00000000000000{n:02x}.wrong");
        assert_eq!(get(&bench, &wrong, "/v1/sessions").await.status, 403);
    }
    assert_eq!(bench.get("/v1/sessions").await.status, 401);
    assert_eq!(get(&bench, &ada.key, "/v1/users").await.status, 403);
    let mut phone = bench.socket(&session.id).await;
    let hello = json!({ "type": "ATTACH_SESSION", "session_id": session.id, "session_token": "x" });
    phone.send(hello).await;
    phone.until("FORBIDDEN").await;
    let entries = audit(&bench).await;
    let refused = |credential: &str| -> (usize, u64) {
        let all = named(&entries, "request");
        let all: Vec<_> = all.iter().filter(|entry| entry["credential"] == credential).collect();
        assert!(all.iter().all(|entry| entry["result"] == "denied"));
        (all.len(), all.iter().map(|entry| entry["times"].as_u64().unwrap()).sum())
    };
    // The hour may end in between.
    let (entries_of_wrong, times) = refused("wrong");
    assert!(entries_of_wrong <= 2 && times == 61, "{entries_of_wrong} {times}");
    assert_eq!(refused("none").1, 1);
    assert_eq!(refused(&ada.id).1, 1);
}

#[tokio::test]
async fn g21_decisions_and_the_calls_they_allowed_are_recorded() {
    let bench = Bench::with(|config| {
        config.tools.policy.insert("camera".into(), Policy::Ask);
    })
    .await;
    let session = bench.session().await;
    let tools = json!({ "mcp_tools": ["camera"] });
    let (mut phone, _) = bench.attach_as(&session.as_owner(), tools).await;
    for approved in [false, true] {
        let said = bench.say(&session, "call surface tool camera with {}");
        let device = async {
            let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
            let approval = asked["approval_id"].as_str().unwrap().to_owned();
            match approved {
                true => {
                    let path = format!("/v1/sessions/{}/approvals/{approval}", session.id);
                    bench.post_as_owner(&path, json!({ "approved": true })).await;
                    let call = phone.until("TOOL_CALL").await.pop().unwrap();
                    let id = &call["call_id"];
                    phone.send(json!({ "type": "TOOL_RESULT", "call_id": id, "result": 1 })).await;
                }
                false => {
                    let no = json!({ "type": "APPROVAL_DECISION", "approval_id": approval, "approved": false });
                    phone.send(no).await;
                }
            }
            approval
        };
        let (_, approval) = tokio::join!(said, device);
        let entries = audit(&bench).await;
        let decided = named(&entries, "approval.decide")[0];
        let object = format!("{} {approval}", session.id);
        assert_eq!(decided["object"], json!(object));
        assert_eq!(decided["result"], if approved { "approved" } else { "denied" });
        assert_eq!((&decided["user"], &decided["address"]), (&json!("owner"), &json!("127.0.0.1")));
        let ran: Vec<_> = named(&entries, "tool.run").iter().map(|e| e["object"].clone()).collect();
        assert_eq!(ran, if approved { vec![json!(object)] } else { Vec::new() });
    }
}

#[tokio::test]
async fn nothing_is_recorded_where_it_is_turned_off() {
    let off = AuditConfig { enabled: false, ..AuditConfig::default() };
    let bench = Bench::with(|config| config.audit = off).await;
    let ada = person(&bench, "ada").await;
    session_of(&bench, &ada.key).await;
    call(&bench, &ada.key, Method::POST, "/v1/chat/completions", plain("m", "echo x")).await;
    assert_eq!(get(&bench, "bk_wrong", "/v1/sessions").await.status, 403);
    assert_eq!(audit(&bench).await, Vec::<Value>::new());
}
