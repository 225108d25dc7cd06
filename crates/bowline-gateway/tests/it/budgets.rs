//! Budgets of users and keys: checked before every model call, counted with what is stored.

use bowline_gateway::config::{BudgetsConfig, DefaultLimits};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

use crate::bench::{Answer, Bench, LOCAL_KEY, Session, eventually, list, plain, turn};
use crate::l4_translate;
use crate::people::{Person, add_user, call, get, key, person, session_of, share};
use crate::upstream::MockUpstream;

async fn limit(bench: &Bench, user: &str, limits: Value) -> Answer {
    let path = format!("/v1/users/{user}");
    let patch = json!({ "limits": limits });
    let limited = call(bench, LOCAL_KEY, Method::PATCH, &path, patch).await;
    assert_eq!(limited.status, 200, "{}", limited.text);
    limited
}

async fn ask(bench: &Bench, key: &str, body: Value) -> Answer {
    call(bench, key, Method::POST, "/v1/chat/completions", body).await
}

fn assert_spent(said: &Answer, what: &str) {
    assert_eq!(said.status, 429, "{}", said.text);
    let error = &said.body["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("insufficient_quota"), &json!("insufficient_quota"))
    );
    assert!(error["message"].as_str().unwrap().contains(what), "{error}");
    assert_eq!(said.header("x-should-retry"), "false");
}

/// A user who has used the tokens of the day.
async fn spent(bench: &Bench) -> (Person, Session) {
    let ada = person(bench, "ada").await;
    let session = session_of(bench, &ada.key).await;
    limit(bench, "ada", json!({ "tokens_per_day": 1 })).await;
    let first = ask(bench, &ada.key, turn(&session, "m", "echo one")).await;
    assert_eq!(first.status, 200, "an answer that runs is not cut: {}", first.text);
    (ada, session)
}

#[tokio::test]
async fn a_model_is_not_asked_when_the_tokens_of_the_day_are_used_up() {
    let bench = Bench::start().await;
    let (ada, session) = spent(&bench).await;
    let refused = ask(&bench, &ada.key, turn(&session, "m", "echo two")).await;
    assert_spent(&refused, "tokens a day are used up until ");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=86_401).contains(&wait), "{wait}");
    // Nor by another way: without a session, in a new one, by the session's token, over MCP.
    assert_spent(&ask(&bench, &ada.key, plain("m", "echo x")).await, "tokens");
    assert_spent(
        &ask(
            &bench,
            &ada.key,
            json!({ "model": "m", "sbp": {}, "messages": [{ "role": "user", "content": "echo" }] }),
        )
        .await,
        "tokens",
    );
    assert_spent(&ask(&bench, &session.token, turn(&session, "m", "echo x")).await, "tokens");
    let shown = get(&bench, &ada.key, &format!("/v1/sessions/{}/messages", session.id)).await;
    assert_eq!(list(&shown.body["messages"]).len(), 2, "nothing of it is stored: {}", shown.text);
    assert_eq!(list(&get(&bench, &ada.key, "/v1/sessions").await.body["sessions"]).len(), 1);
    // The owner has no limits, and whoever has more may go on at once.
    assert_eq!(ask(&bench, LOCAL_KEY, plain("m", "echo x")).await.status, 200);
    limit(&bench, "ada", json!({ "tokens_per_day": 1_000_000 })).await;
    assert_eq!(ask(&bench, &ada.key, turn(&session, "m", "echo two")).await.status, 200);
}

#[tokio::test]
async fn a_surface_is_told_of_a_spent_budget_and_of_what_it_had_sent_before() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let (mut phone, _) = bench.attach(&session).await;
    limit(&bench, "ada", json!({ "tokens_per_day": 1 })).await;
    let say =
        |id: &str| json!({ "type": "USER_MESSAGE", "client_turn_id": id, "content": "echo x" });
    phone.send(say("a")).await;
    phone.until("TURN_ACCEPTED").await;
    phone.until("TURN_COMPLETE").await;
    phone.send(say("b")).await;
    let failed = phone.until("TURN_FAILED").await.pop().unwrap();
    assert_eq!(
        (&failed["client_turn_id"], &failed["code"]),
        (&json!("b"), &json!("SBP_RATE_LIMITED"))
    );
    assert!(
        failed["message"].as_str().unwrap().starts_with("your 1 tokens a day are used up"),
        "{failed}"
    );
    // G3: a message that is sent again is the one that was accepted.
    phone.send(say("a")).await;
    let accepted = phone.until("TURN_ACCEPTED").await.pop().unwrap();
    assert_eq!(accepted["client_turn_id"], "a");
}

#[tokio::test]
async fn g3_a_retry_gets_its_answer_whatever_was_spent_since() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    limit(&bench, "ada", json!({ "tokens_per_day": 1 })).await;
    let bearer = format!("Bearer {}", ada.key);
    let send = async |id: &str| {
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", id)];
        bench.chat_as(&headers, turn(&session, "m", "echo one")).await
    };
    let first = send("a").await;
    assert_eq!(first.status, 200);
    assert_eq!(send("a").await.text, first.text);
    assert_spent(&send("b").await, "tokens");
}

#[tokio::test]
async fn g4_a_turn_that_runs_out_between_its_rounds_is_not_told_as_if_nothing_was_stored() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    limit(&bench, "ada", json!({ "tokens_per_day": 1 })).await;
    let said = ask(&bench, &ada.key, turn(&session, "m", "remember that I like tea")).await;
    assert_eq!(said.status, 502, "{}", said.text);
    assert_eq!(said.body["error"]["code"], "insufficient_quota");
    assert_eq!(said.header("x-should-retry"), "false");
    let path = format!("/v1/sessions/{}/messages?limit=100", session.id);
    let log = get(&bench, &ada.key, &path).await.text;
    assert!(log.contains("remember") && log.contains("tokens a day are used up"), "{log}");
}

#[tokio::test]
async fn requests_a_minute_are_refused_until_the_next_one() {
    let bench = Bench::start().await;
    add_user(&bench, "ada").await;
    let ada = key(&bench, "ada", json!({ "limits": { "requests_per_minute": 2 } })).await;
    let other = key(&bench, "ada", json!({})).await;
    // The minute may end in between, once.
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(get(&bench, &ada.key, "/v1/sessions").await);
    }
    assert_eq!((answers[0].status, answers[1].status), (200, 200));
    let refused = answers.iter().find(|said| said.status == 429).expect("the third, or the fifth");
    assert_eq!(refused.code(), "SBP_RATE_LIMITED");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
    assert_eq!(refused.header("x-should-retry"), "", "a retry is fine");
    assert!(refused.text.contains("this key's 2 requests a minute"), "{}", refused.text);
    assert_eq!(get(&bench, &other.key, "/v1/sessions").await.status, 200);
}

#[tokio::test]
async fn turns_at_once_end_before_others_begin() {
    let bench = Bench::with(|config| config.offline.pace = Duration::from_millis(20)).await;
    let ada = person(&bench, "ada").await;
    limit(&bench, "ada", json!({ "turns_at_once": 1 })).await;
    let (one, two) = (session_of(&bench, &ada.key).await, session_of(&bench, &ada.key).await);
    let (mut phone, _) = bench.attach(&one).await;
    let long =
        json!({ "type": "USER_MESSAGE", "client_turn_id": "a", "content": "count to 10000" });
    phone.send(long).await;
    phone.until("TURN_CHUNK").await;
    let refused = ask(&bench, &ada.key, turn(&two, "m", "echo x")).await;
    assert_eq!(refused.refusal(), (429, "SBP_RATE_LIMITED"), "{}", refused.text);
    assert_eq!(refused.header("retry-after"), "1");
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    eventually("the turn ends", async || {
        ask(&bench, &ada.key, turn(&two, "m", "echo x")).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn keys_and_users_have_their_own_budgets_and_defaults_are_for_members() {
    let limits =
        |tokens| DefaultLimits { tokens_per_day: Some(tokens), ..DefaultLimits::default() };
    let budgets = BudgetsConfig { user: limits(1), key: DefaultLimits::default() };
    let bench = Bench::with(|config| config.budgets = budgets).await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    for user in [&ada, &bob] {
        assert_eq!(ask(&bench, &user.key, plain("m", "echo x")).await.status, 200);
        assert_spent(&ask(&bench, &user.key, plain("m", "echo x")).await, "your 1 tokens");
    }
    let owner = key(&bench, "owner", json!({})).await;
    for _ in 0..2 {
        assert_eq!(ask(&bench, &owner.key, plain("m", "echo x")).await.status, 200);
    }
    // No limit at all is a limit of one's own, and a key may have less than its user.
    let shown = limit(&bench, "ada", json!({ "tokens_per_day": "none" })).await;
    assert_eq!(shown.body["limits"], json!({ "tokens_per_day": "none" }));
    let small = key(&bench, "ada", json!({ "limits": { "tokens_per_day": 1 } })).await;
    assert_eq!(ask(&bench, &small.key, plain("m", "echo x")).await.status, 200);
    assert_spent(&ask(&bench, &small.key, plain("m", "echo x")).await, "this key's 1 tokens");
    assert_eq!(ask(&bench, &ada.key, plain("m", "echo x")).await.status, 200);
    let made = session_of(&bench, &small.key).await;
    assert_eq!(made.token, "", "a token would have no such limit");
    limit(&bench, "ada", json!({ "tokens_per_day": null })).await;
    assert_spent(&ask(&bench, &ada.key, plain("m", "echo x")).await, "your 1 tokens");
}

#[tokio::test]
async fn in_a_shared_session_who_speaks_pays() {
    let bench = Bench::start().await;
    let (ada, session) = spent(&bench).await;
    let bob = person(&bench, "bob").await;
    share(&bench, &ada.key, &session, "bob", "talk").await;
    assert_eq!(ask(&bench, &bob.key, turn(&session, "m", "echo x")).await.status, 200);
    assert_spent(&ask(&bench, &ada.key, turn(&session, "m", "echo x")).await, "tokens");
    let usage = get(&bench, &bob.key, "/v1/usage").await.body;
    assert_eq!(usage["users"][0]["days"][0]["turns"], 1, "{usage}");
}

#[tokio::test]
async fn in_a_shared_session_what_a_guest_says_needs_room_of_its_user() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let session = session_of(&bench, &ada.key).await;
    share(&bench, &ada.key, &session, "bob", "talk").await;
    limit(&bench, "ada", json!({ "stored_bytes": 40 })).await;
    assert_eq!(ask(&bench, &bob.key, turn(&session, "m", "echo one")).await.status, 200);
    let full = ask(&bench, &bob.key, turn(&session, "m", "echo two")).await;
    assert_spent(&full, "stored sessions of this session's user");
    let own = session_of(&bench, &bob.key).await;
    assert_eq!(ask(&bench, &bob.key, turn(&own, "m", "echo x")).await.status, 200);
}

#[tokio::test]
async fn exports_of_a_day_and_stored_bytes_are_bounded() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    limit(&bench, "ada", json!({ "exports_per_day": 1, "stored_bytes": 40 })).await;
    let export = format!("/v1/sessions/{}/export", session.id);
    let export = async || call(&bench, &ada.key, Method::POST, &export, json!({})).await;
    assert_eq!(export().await.status, 201);
    assert_spent(&export().await, "your 1 exports a day");
    assert_eq!(ask(&bench, &ada.key, turn(&session, "m", "echo one")).await.status, 200);
    let full = ask(&bench, &ada.key, turn(&session, "m", "echo two")).await;
    assert_spent(&full, "your limit of 40B of stored sessions is reached; delete sessions");
    assert_eq!(full.header("retry-after"), "");
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(call(&bench, &ada.key, Method::DELETE, &path, Value::Null).await.status, 204);
    let usage = get(&bench, &ada.key, "/v1/usage").await.body;
    assert_eq!(usage["users"][0]["stored_bytes"], 0, "what is deleted is not counted: {usage}");
    assert_eq!(ask(&bench, &ada.key, plain("m", "echo two")).await.status, 200);
}

#[tokio::test]
async fn dollars_are_counted_where_a_price_is_known_and_tokens_everywhere() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        let price = bowline_gateway::config::Price { input: 1e6, output: 1e6 };
        config.prices.insert("dear".into(), price);
    })
    .await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    limit(&bench, "ada", json!({ "usd_per_day": 1 })).await;
    for model in ["cheap", "cheap", "dear"] {
        let said = ask(&bench, &ada.key, turn(&session, model, "hello")).await;
        assert_eq!(said.status, 200, "{}", said.text);
    }
    let asked = upstream.calls().len();
    assert_spent(
        &ask(&bench, &ada.key, turn(&session, "cheap", "hello")).await,
        "US dollars a day",
    );
    assert_spent(&ask(&bench, &ada.key, plain("cheap", "hello")).await, "US dollars a day");
    let embeddings = json!({ "model": "cheap", "input": "x" });
    let said = call(&bench, &ada.key, Method::POST, "/v1/embeddings", embeddings).await;
    assert_spent(&said, "US dollars a day");
    assert_eq!(upstream.calls().len(), asked, "no model was asked");
    let today = get(&bench, &ada.key, "/v1/usage").await.body["users"][0]["days"][0].clone();
    assert_eq!((&today["turns"], &today["model_calls"]), (&json!(3), &json!(3)), "{today}");
    assert!(today["usd"].as_f64().unwrap() > 1.0 && today["prompt_tokens"] != 0, "{today}");
}

#[tokio::test]
async fn g20_usage_shows_ones_own_and_with_admin_everybodys() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let session = session_of(&bench, &ada.key).await;
    ask(&bench, &ada.key, turn(&session, "m", "echo one")).await;
    ask(&bench, &bob.key, plain("m", "echo one")).await;
    let own = get(&bench, &ada.key, "/v1/usage").await.body;
    let names = |report: &Value| -> Vec<String> {
        list(&report["users"])
            .iter()
            .map(|user| user["user"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&own), ["ada"]);
    let days = list(&own["users"][0]["days"]);
    assert_eq!(days.len(), 2, "in all, and by the key: {own}");
    assert_eq!((days[0]["key"].is_null(), &days[1]["key"]), (true, &json!(ada.id)));
    assert!(own["users"][0]["stored_bytes"].as_u64().unwrap() > 20, "{own}");
    assert_eq!(get(&bench, &ada.key, "/v1/usage?user=Ada").await.status, 200);
    for other in ["bob", "nobody"] {
        let said = get(&bench, &ada.key, &format!("/v1/usage?user={other}")).await;
        assert_eq!(said.refusal(), (403, "SBP_FORBIDDEN"), "{other}");
    }
    let all = get(&bench, LOCAL_KEY, "/v1/usage?days=1").await.body;
    assert_eq!(names(&all), ["owner", "ada", "bob"]);
    let bobs = get(&bench, LOCAL_KEY, "/v1/usage?user=bob").await.body;
    let day = &bobs["users"][0]["days"][0];
    assert_eq!(
        (&day["turns"], &day["model_calls"]),
        (&json!(0), &json!(1)),
        "passed through: {bobs}"
    );
    assert!(day["completion_tokens"].as_u64().unwrap() > 0, "{bobs}");
}

#[tokio::test]
async fn an_answer_that_is_cancelled_before_its_end_is_counted_by_estimate() {
    let bench = Bench::with(|config| config.offline.pace = Duration::from_millis(5)).await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let (mut phone, _) = bench.attach(&session).await;
    let long =
        json!({ "type": "USER_MESSAGE", "client_turn_id": "a", "content": "count to 10000" });
    phone.send(long).await;
    phone.until("TURN_CHUNK").await;
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    phone.until("TURN_COMPLETE").await;
    let usage = get(&bench, &ada.key, "/v1/usage").await.body;
    let day = &usage["users"][0]["days"][0];
    assert!(day["prompt_tokens"] != 0 && day["completion_tokens"] != 0, "{usage}");
}

#[tokio::test]
async fn what_passes_through_and_is_cancelled_before_its_answer_is_counted_by_estimate() {
    let upstream = MockUpstream::start().await;
    // A client that is gone is known soon.
    let soon = std::time::Duration::from_millis(100);
    let bench = Bench::before_with(&upstream, |config| config.limits.half_closed = soon).await;
    let ada = person(&bench, "ada").await;
    let request = bench.http.post(bench.url("/v1/chat/completions")).bearer_auth(&ada.key);
    let asked = tokio::spawn(request.json(&plain("hang", "x")).send());
    upstream.until_calls(1).await;
    asked.abort();
    let today =
        async || get(&bench, &ada.key, "/v1/usage").await.body["users"][0]["days"][0].clone();
    eventually("it is counted", async || today().await["model_calls"] == 1).await;
    let counted = today().await;
    assert!(counted["prompt_tokens"] != 0 && counted["completion_tokens"] == 0, "{counted}");
    assert_eq!(ask(&bench, &ada.key, plain("status-400", "x")).await.status, 400);
    assert_eq!(ask(&bench, &ada.key, plain("m", "x")).await.status, 200);
    eventually("the answer is counted", async || today().await["completion_tokens"] != 0).await;
    assert_eq!(today().await["model_calls"], 2, "what was refused is not");
}

#[tokio::test]
async fn sbp_l4_03_a_translation_over_budget_is_not_begun_and_the_rules_take_its_place() {
    let upstream = MockUpstream::start().await;
    let bench = l4_translate::bench(&upstream, "m").await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let (mut phone, _) = bench.attach_as(&session, l4_translate::watch()).await;
    limit(&bench, "ada", json!({ "tokens_per_day": 1 })).await;
    let echo = format!("echo {}", l4_translate::ORIGINAL);
    let said = ask(&bench, &ada.key, turn(&session, "bowline/offline", &echo)).await;
    assert_eq!(said.status, 200, "{}", said.text);
    let whole = phone.until("TURN_COMPLETE").await;
    assert!(serde_json::to_string(&whole).unwrap().contains("Lyon"), "{whole:?}");
    assert!(upstream.calls().is_empty(), "its model was not asked");
}
