//! SBP L1: sessions and their logs, read page by page.

use serde_json::json;

use crate::bench::{Bench, Session, list};
use crate::l1_sessions::{is_time, names, patch};

#[tokio::test]
async fn sessions_are_listed_newest_first_page_by_page() {
    let bench = Bench::start().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.insert(0, bench.session().await.id);
    }
    patch(&bench, &Session { id: made[3].clone(), token: String::new() }, "failed").await;

    let (mut listed, mut sizes, mut next) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = bench.get(&format!("/v1/sessions?limit=2{next}")).await.body;
        let ids = list(&page["sessions"]);
        sizes.push(ids.len());
        listed.extend(ids.iter().map(|s| s["session_id"].as_str().unwrap().to_owned()));
        let Some(before) = page["next"].as_str() else { break };
        next = format!("&before={before}");
    }
    assert_eq!((listed, sizes), (made.clone(), vec![2, 2, 1]));

    let failed = bench.get("/v1/sessions?status=failed").await.body;
    assert_eq!(list(&failed["sessions"]).len(), 1);
    assert_eq!(failed["sessions"][0]["session_id"], made[3]);
    assert_eq!(list(&bench.get("/v1/sessions?limit=0").await.body["sessions"]).len(), 1);
    assert_eq!(list(&bench.get("/v1/sessions?limit=9999").await.body["sessions"]).len(), 5);
    for (query, status, code) in [
        ("status=active", 422, "SBP_INVALID_REQUEST"),
        ("before=x", 422, "SBP_INVALID_UUID"),
        ("before=0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f", 404, "SBP_SESSION_NOT_FOUND"),
        ("limit=many", 422, "SBP_INVALID_REQUEST"),
    ] {
        let refused = bench.get(&format!("/v1/sessions?{query}")).await;
        assert_eq!(refused.refusal(), (status, code), "{query}: {}", refused.text);
    }
}

#[tokio::test]
async fn messages_are_read_page_by_page_in_both_directions() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for n in 0..4 {
        bench.say(&session, &format!("echo {n}")).await;
    }
    for (query, seqs, more) in [
        ("", (1..=8).collect::<Vec<u64>>(), false),
        ("limit=3", vec![1, 2, 3], true),
        ("after=3&limit=3", vec![4, 5, 6], true),
        ("after=6&limit=3", vec![7, 8], false),
        ("after=8", vec![], false),
        ("before=9&limit=3", vec![6, 7, 8], true),
        ("before=4&limit=3", vec![1, 2, 3], false),
        ("before=1", vec![], false),
        ("before=999&limit=0", vec![8], true),
    ] {
        let page = bench.get(&format!("/v1/sessions/{}/messages?{query}", session.id)).await.body;
        let read: Vec<_> =
            list(&page["messages"]).iter().map(|m| m["seq"].as_u64().unwrap()).collect();
        assert_eq!((read, &page["more"]), (seqs, &json!(more)), "{query}");
    }
    let wrong = bench.get(&format!("/v1/sessions/{}/messages?after=x", session.id)).await;
    assert_eq!(wrong.refusal(), (422, "SBP_INVALID_REQUEST"), "{}", wrong.text);
}

#[tokio::test]
async fn a_message_is_shown_with_where_when_and_whose_it_is() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let said = bench.say(&session, "echo x").await;
    let entries = bench.entries(&session).await;
    for (entry, seq, kind, role) in
        [(&entries[0], 1, "message", "user"), (&entries[1], 2, "turn", "assistant")]
    {
        let fields =
            ["cost_usd", "created_at", "kind", "message", "model_used", "seq", "status", "turn_id"];
        assert_eq!(names(entry), fields);
        assert_eq!((&entry["seq"], &entry["kind"]), (&json!(seq), &json!(kind)));
        assert_eq!(
            (&entry["message"]["role"], &entry["status"]),
            (&json!(role), &json!("complete"))
        );
        assert_eq!(entry["turn_id"], said.body["sbp"]["turn_id"]);
        assert!(is_time(&entry["created_at"]));
    }
}
