//! One roaming token, and everybody at once.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::installation::{Installation, REPLICAS};

const RACERS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_of_1000_racers_at_three_replicas_one_gets_the_session() {
    let world = Installation::start("");
    let [a, b, c] = world.clients();
    let session = a.session().await;
    a.say(&session, "echo take me along").await;
    let exported = a.post(&session.path("export"), json!({})).await;
    let body = json!({ "roaming_token": exported.body["roaming_token"] });

    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = JoinSet::new();
    for number in 0..RACERS {
        let client = world.clients()[number % REPLICAS].clone();
        let (body, start) = (body.clone(), Arc::clone(&start));
        racers.spawn(async move {
            // All are connected before anybody races.
            client.get("/readyz").await;
            start.wait().await;
            client.post("/v1/sbp/sessions/import", body).await
        });
    }
    let begun = std::time::Instant::now();
    let answers = racers.join_all().await;
    println!("{RACERS} racers: {:?}", begun.elapsed());
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(won.len(), 1, "exactly one has it");
    for answer in lost {
        assert_eq!(answer.refusal(), (410, "SBP_TOKEN_CONSUMED"), "{}", answer.text);
    }
    for client in [a, b, c] {
        let listed = client.get("/v1/sessions").await;
        assert_eq!(listed.body["sessions"].as_array().unwrap().len(), 2, "{}", listed.text);
        let exports = client.get(&session.path("exports")).await;
        let used = &exports.body["exports"][0]["import_session_id"];
        assert_eq!(used, &won[0].body["session_id"], "{}", exports.text);
    }
}
