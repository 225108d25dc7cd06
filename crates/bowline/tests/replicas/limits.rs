//! Limits of a user count what all replicas let in.

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, eventually, soon};
use crate::installation::{Installation, REPLICAS};

/// A user with these limits; their clients, one of each replica.
async fn limited(world: &Installation, name: &str, limits: Value) -> Vec<Client> {
    let [a, b, c] = world.clients();
    let user = json!({ "name": name, "limits": limits });
    assert_eq!(a.post("/v1/users", user).await.status, 201);
    let made = a.post("/v1/keys", json!({ "user": name, "name": "laptop" })).await;
    let key = made.body["key"].as_str().unwrap();
    let clients: Vec<_> = [a, b, c].map(|client| client.with(key)).into();
    for client in &clients {
        eventually("the key is known", async || {
            client.get("/v1/memory?limit=1").await.status != 403
        })
        .await;
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_a_day_at_three_replicas_are_one_limit() {
    let world = Installation::start("");
    let clients = limited(&world, "ada", json!({ "exports_per_day": 6 })).await;
    let session = clients[0].session().await;
    clients[0].say(&session, "echo something to take along").await;
    let export = async |number: usize| {
        clients[number % REPLICAS].post(&session.path("export"), json!({})).await
    };
    for number in 0..6 {
        let exported = export(number).await;
        assert_eq!(exported.status, 201, "{number}: {}", exported.text);
    }
    for number in 6..9 {
        let refused = export(number).await;
        assert_eq!(refused.refusal(), (429, "insufficient_quota"), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_a_day_at_three_replicas_are_one_limit() {
    let world = Installation::start("");
    let clients = limited(&world, "ada", json!({})).await;
    let session = clients[0].session().await;
    let say =
        async |number: usize| clients[number % REPLICAS].say(&session, "echo one two three").await;
    // What one turn of each replica uses, each a little more than the one before.
    let mut used = 0;
    for number in 0..REPLICAS {
        let said = say(number).await;
        used += said.body["usage"]["total_tokens"].as_u64().expect(&said.text);
    }
    let limits = json!({ "limits": { "tokens_per_day": used } });
    let [owner, ..] = world.clients();
    let changed = owner.call(Method::PATCH, "/v1/users/ada", limits).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    for number in 0..REPLICAS {
        let took = eventually("the limit is met", async || {
            say(number).await.refusal() == (429, "insufficient_quota")
        });
        assert!(took.await < soon());
    }
    // One token more, and there is room for one turn, wherever.
    let limits = json!({ "limits": { "tokens_per_day": used + 1 } });
    assert_eq!(owner.call(Method::PATCH, "/v1/users/ada", limits).await.status, 200);
    eventually("there is room", async || say(1).await.status == 200).await;
    for number in 0..REPLICAS {
        let refused = say(number).await;
        assert_eq!(refused.refusal(), (429, "insufficient_quota"), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_at_once_at_three_replicas_are_one_limit() {
    let world = Installation::paced("20ms");
    let clients = limited(&world, "ada", json!({ "turns_at_once": 3 })).await;
    let mut sessions = Vec::new();
    let mut running = Vec::new();
    for client in &clients {
        let session = client.session().await;
        let request = client.request(Method::POST, "/v1/chat/completions");
        let request = request.json(&session.turn("count to 10000"));
        let sending = client.clone();
        running.push(tokio::spawn(async move { sending.send(request).await }));
        eventually("it runs", async || {
            client.get(&session.path("")).await.body["turn_running"] == true
        })
        .await;
        sessions.push(session);
    }
    for client in &clients {
        let one_more = client.session().await;
        let took = eventually("a fourth is refused", async || {
            client.say(&one_more, "echo x").await.refusal() == (429, "SBP_RATE_LIMITED")
        })
        .await;
        println!("a fourth turn is refused after {took:?}");
        assert!(took < soon(), "{took:?}");
    }
    let one_more = clients[2].session().await;
    let cancelled = clients[1].post(&sessions[0].path("cancel"), json!({})).await;
    assert_eq!(cancelled.body["cancelled"], true, "{}", cancelled.text);
    eventually("it may run instead", async || {
        clients[2].say(&one_more, "echo x").await.status == 200
    })
    .await;
    for session in &sessions[1..] {
        clients[0].post(&session.path("cancel"), json!({})).await;
    }
    for turn in running {
        assert_eq!(turn.await.unwrap().expect("it is answered").status, 200);
    }
}

fn minute() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_a_minute_at_three_replicas_are_one_limit() {
    const LIMIT: usize = 90;
    let world = Installation::start("");
    for attempt in 0.. {
        let name = format!("ada{attempt}");
        let clients = limited(&world, &name, json!({ "requests_per_minute": LIMIT })).await;
        let begun = minute();
        // A third at each replica, beside those that asked for the key: no replica by itself is near the limit.
        for number in 0..LIMIT - 30 {
            let answer = clients[number % REPLICAS].get("/v1/sessions").await;
            assert_eq!(answer.status, 200, "{number}: {}", answer.text);
        }
        let mut more = 0;
        let refused = eventually("all refuse", async || {
            let mut refused = 0;
            for client in &clients {
                let status = client.get("/v1/sessions").await.status;
                refused += usize::from(status == 429);
                more += usize::from(status == 200);
            }
            refused == REPLICAS
        })
        .await;
        if minute() != begun {
            assert!(attempt < 3, "it never fits into a minute");
            continue;
        }
        println!("refused everywhere after {refused:?}, {more} more were let in");
        assert!(refused < soon(), "{refused:?}");
        return;
    }
}
