//! SBP-L6-05: surfaces go where their session goes, between two real gateways.

use std::time::Duration;

use bowline_gateway::config::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, eventually, hello};
use crate::disk::{busy, on_a_bad_disk_with};
use crate::federation_move::{Two, arrived, free, knows};
use crate::phone::Phone;
use crate::roaming::text;
use crate::upstream::MockUpstream;

const KEY: &str = "a key of the gateway away, long enough";

/// A surface that attaches to the session of that token.
async fn arriving(bench: &Bench, session: &Session, token: &str, surface: Value) -> Phone {
    let mut phone = bench.socket(&session.id).await;
    let attach = hello(&Session { token: String::new(), ..session.clone() }, surface);
    phone.send(with(attach, "roaming_token", json!(token))).await;
    phone
}

fn with(mut frame: Value, name: &str, value: Value) -> Value {
    frame[name] = value;
    frame
}

/// Where a surface is sent on.
async fn sent_on(phone: &mut Phone) -> Value {
    let moved = phone.until("SESSION_MOVED").await.pop().unwrap();
    assert_eq!(phone.closed().await, 4011);
    moved
}

/// Attaches with an attach token; the frame that answers.
async fn admitted(bench: &Bench, moved: &Value) -> (Phone, Value) {
    let session =
        Session { id: text(&moved["new_session_id"]), token: text(&moved["attach_token"]) };
    let mut phone = bench.socket(&session.id).await;
    phone.send(hello(&session, json!({ "surface_id": "phone" }))).await;
    let answer = phone.next().await;
    (phone, answer)
}

/// Gateways of which `away` wants a key.
async fn with_key(change: impl FnOnce(&mut Config)) -> Two {
    let (home, away) = (("home", free()), ("away", free()));
    let at_home = Bench::with(|config| knows(config, home, away)).await;
    let away = Bench::with(|config| {
        knows(config, away, home);
        config.auth.api_keys = vec![KEY.into()];
        change(config);
    });
    Two { home: at_home, away: away.await }
}

#[tokio::test]
async fn sbp_l6_05_a_surface_with_a_roaming_token_brings_its_session_and_what_it_has_not_got() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(2).await;
    // One turn was delivered there, and two were not.
    let (mut phone, _) = home.attach_as(&session, json!({ "surface_id": "phone" })).await;
    phone.confirm(&home, &session).await;
    phone.send(json!({ "type": "DETACH" })).await;
    assert_eq!(phone.closed().await, 1000);
    home.grow(&session, 3..=4).await;
    let known = home.entries(&session).await;
    let token = home.token_of(&session).await;
    let mut ids = Vec::new();
    // Again, as a client does that was cut off before it heard that it is attached.
    for _ in 0..2 {
        let mut phone = arriving(&away, &session, &token, json!({ "surface_id": "phone" })).await;
        let welcome = phone.next().await;
        assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
        assert_eq!(welcome["tether_turns_pending"], 2);
        ids.push((text(&welcome["session_id"]), text(&welcome["session_token"])));
        for n in ["3", "4"] {
            let turn = phone.next().await;
            assert_eq!((&turn["type"], &turn["content"]), (&json!("TETHER_TURN"), &json!(n)));
            let at_home = known.iter().find(|entry| entry["message"]["content"] == n).unwrap();
            assert_eq!(turn["turn_id"], at_home["turn_id"], "a surface recognises what it has");
        }
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0].0, session.id);
    assert_eq!(away.sessions().await.len(), 1);
    assert_eq!(home.show(&session).await["handed_off_to"], json!(ids[0].0));
    let there = Session { id: ids[0].0.clone(), token: ids[0].1.clone() };
    assert_eq!(away.say(&there, "echo 5").await.status, 200);
    // Another device is where the furthest was; it gets what nobody has got.
    let (_, welcome) = away.attach_as(&there, json!({ "surface_id": "new" })).await;
    assert_eq!(welcome["tether_turns_pending"], 3);
}

#[tokio::test]
async fn sbp_l6_05_bringing_a_session_takes_a_key_or_an_origin_that_is_trusted() {
    let two = with_key(|_| {}).await;
    let session = two.home.session_with(1).await;
    let token = two.home.token_of(&session).await;
    let mut phone = arriving(&two.away, &session, &token, json!({})).await;
    assert_eq!(phone.next().await["type"], "FORBIDDEN");
    assert_eq!(phone.closed().await, 4003);
    assert_eq!(two.home.say(&session, "echo 2").await.status, 200, "nothing has happened");
    // The key may be in the frame, as a browser must show it.
    let mut phone = two.away.socket(&session.id).await;
    let shown = Session { token: KEY.into(), ..session.clone() };
    phone.send(with(hello(&shown, json!({})), "roaming_token", json!(token))).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");

    let trusts = |config: &mut Config| {
        config.federation.peers.get_mut("home").unwrap().trusted = true;
    };
    let two = with_key(trusts).await;
    let session = two.home.session_with(1).await;
    let token = two.home.token_of(&session).await;
    let mut phone = arriving(&two.away, &session, &token, json!({})).await;
    let welcome = phone.next().await;
    assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
    let there =
        Session { id: text(&welcome["session_id"]), token: text(&welcome["session_token"]) };
    let (_, again) = two.away.attach(&there).await;
    assert_eq!(again["session_id"], json!(there.id));
}

#[tokio::test]
async fn g20_a_used_token_opens_alone_only_what_it_brought_alone() {
    let two = with_key(|config| {
        config.federation.peers.get_mut("home").unwrap().trusted = true;
    })
    .await;
    let session = two.home.session_with(1).await;
    let token = two.home.token_of(&session).await;
    let (bearer, body) = (format!("Bearer {KEY}"), json!({ "roaming_token": token }));
    let shown = [("authorization", bearer.as_str())];
    let imported = two.away.call(Method::POST, crate::roaming::IMPORT, &shown, &body).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let mut phone = arriving(&two.away, &session, &token, json!({})).await;
    assert_eq!(phone.next().await["type"], "FORBIDDEN", "it came by a key");

    let session = two.home.session_with(1).await;
    let token = two.home.token_of(&session).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut phone = arriving(&two.away, &session, &token, json!({})).await;
        let welcome = phone.next().await;
        assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
        ids.push(text(&welcome["session_id"]));
    }
    assert_eq!(ids[0], ids[1], "it was cut off, and comes again");
}

#[tokio::test]
async fn g20_a_key_that_could_not_be_read_is_not_taken_for_none() {
    let (home, away) = (("home", free()), ("away", free()));
    let at_home = Bench::with(|config| knows(config, home, away)).await;
    let upstream = MockUpstream::start().await;
    let change = |config: &mut Config| {
        knows(config, away, home);
        config.federation.peers.get_mut("home").unwrap().trusted = true;
        config.auth.api_keys = vec![KEY.into()];
    };
    let (there, disk) = on_a_bad_disk_with(&upstream, change).await;
    let made = there.post_as_owner("/v1/keys", json!({ "name": "laptop" })).await;
    let session = at_home.session_with(1).await;
    let token = at_home.token_of(&session).await;
    let shown = Session { token: text(&made.body["key"]), ..session.clone() };
    let attach = with(hello(&shown, json!({})), "roaming_token", json!(token));
    disk.fail("key", busy());
    let mut phone = there.socket(&session.id).await;
    phone.send(attach.clone()).await;
    assert_eq!(phone.closed().await, 1013, "with nothing shown it would be the owner's");
    assert!(disk.has_failed());
    assert_eq!(at_home.say(&session, "echo 2").await.status, 200, "nothing has happened");
    let mut phone = there.socket(&session.id).await;
    phone.send(attach).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
}

#[tokio::test]
async fn sbp_l6_05_a_token_of_another_session_or_gateway_brings_nothing() {
    let Two { home, away } = Two::start().await;
    let (one, other) = (home.session_with(1).await, home.session_with(1).await);
    let token = home.token_of(&one).await;
    let mut phone = arriving(&away, &other, &token, json!({})).await;
    assert_eq!(phone.next().await["type"], "FORBIDDEN");
    let mut changed = token.clone();
    let last = changed.pop().unwrap();
    changed.push(if last == 'A' { 'B' } else { 'A' });
    let mut phone = arriving(&away, &one, &changed, json!({})).await;
    assert_eq!(phone.next().await["type"], "FORBIDDEN");
    let mut phone = arriving(&away, &one, "no token", json!({})).await;
    assert_ne!(phone.next().await["type"], "SESSION_ATTACHED");
    assert!(away.sessions().await.is_empty());
    assert_eq!(home.import_token(&token).await.status, 201, "still importable");
}

#[tokio::test]
async fn sbp_l6_05_surfaces_of_the_origin_are_sent_on_with_a_token_for_one_attachment() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let (mut phone, _) = home.attach_as(&session, json!({ "surface_id": "phone" })).await;
    phone.confirm(&home, &session).await;
    let asked = json!({ "type": "USER_MESSAGE", "content": "echo 2", "client_turn_id": "mine" });
    phone.send(asked).await;
    let accepted = phone.until("TURN_ACCEPTED").await.pop().unwrap();
    phone.until("TURN_COMPLETE").await;
    let imported = away.import_token(&home.token_of(&session).await).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let there = arrived(&imported.body);

    let moved = sent_on(&mut phone).await;
    assert_eq!(moved["new_session_id"], json!(there.id));
    assert_eq!((&moved["gateway_id"], &moved["session_id"]), (&json!("away"), &json!(session.id)));
    let url = away.url("");
    assert_eq!(moved["url"].as_str().unwrap().trim_end_matches('/'), url.trim_end_matches('/'));
    let mine = json!([{ "client_turn_id": "mine", "turn_id": accepted["turn_id"] }]);
    assert_eq!(moved["accepted"], mine, "what it need not send again");
    assert!(!moved.to_string().contains(&there.token), "session tokens do not travel");

    let (mut phone, welcome) = admitted(&away, &moved).await;
    assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
    assert_eq!(welcome["session_token"], json!(there.token));
    assert_eq!(away.say(&there, "echo 3").await.status, 200);
    phone.until("TURN_COMPLETE").await;
    // Once; and for this session.
    let (mut late, refused) = admitted(&away, &moved).await;
    assert_eq!(refused["type"], "FORBIDDEN", "{refused}");
    assert_eq!(late.closed().await, 4003);
    let other = away.session().await;
    let again = with(moved.clone(), "new_session_id", json!(other.id));
    assert_eq!(admitted(&away, &again).await.1["type"], "FORBIDDEN");

    // One that asks later is told, too, and gets a token of its own.
    let mut phone = home.socket(&session.id).await;
    phone.send(hello(&session, json!({}))).await;
    let again = sent_on(&mut phone).await;
    assert_ne!(again["attach_token"], moved["attach_token"]);
    assert_eq!(admitted(&away, &again).await.1["type"], "SESSION_ATTACHED");
    // Who may not attach here is told nothing.
    let mut stranger = home.socket(&session.id).await;
    let wrong = Session { token: "wrong".into(), ..session.clone() };
    stranger.send(hello(&wrong, json!({}))).await;
    assert_eq!(stranger.next().await["type"], "FORBIDDEN");
}

#[tokio::test]
async fn sbp_l6_05_a_turn_over_http_is_told_where_the_session_is() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let imported = away.import_token(&home.token_of(&session).await).await;
    let there = arrived(&imported.body);
    eventually("told", async || {
        let refused = home.say(&session, "echo 2").await;
        let says = |what: &str| refused.text.contains(what);
        refused.refusal() == (409, "SBP_SESSION_CONFLICT") && says("away") && says(&there.id)
    })
    .await;
}

#[tokio::test]
async fn sbp_l6_05_surfaces_follow_as_long_as_the_configuration_says() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| {
        knows(config, at_away, at_home);
        config.federation.follow_for = Duration::ZERO;
    })
    .await;
    let session = home.session_with(1).await;
    assert_eq!(away.import_token(&home.token_of(&session).await).await.status, 201);
    let mut phone = home.socket(&session.id).await;
    phone.send(hello(&session, json!({}))).await;
    let moved = sent_on(&mut phone).await;
    assert_eq!((&moved["gateway_id"], moved.get("attach_token")), (&json!("away"), None));
}

#[tokio::test]
async fn sbp_l6_05_a_device_with_a_token_of_its_own_is_told_where_and_not_let_in() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let path = format!("/v1/sessions/{}/surfaces", session.id);
    let made = home.post(&path, json!({ "surface_id": "watch" })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = text(&made.body["surface_token"]);
    assert_eq!(away.import_token(&home.token_of(&session).await).await.status, 201);
    let mut watch = home.socket(&session.id).await;
    let shown = Session { token, ..session.clone() };
    watch.send(hello(&shown, json!({ "surface_id": "watch" }))).await;
    let moved = sent_on(&mut watch).await;
    assert_eq!((&moved["gateway_id"], moved.get("attach_token")), (&json!("away"), None));
}

#[tokio::test]
async fn sbp_l6_05_only_the_origin_gets_attach_tokens_for_a_session() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    assert_eq!(away.import_token(&home.token_of(&session).await).await.status, 201);
    let path = "/v1/sbp/federation/attach";
    let body = json!({ "reservation_id": uuid::Uuid::now_v7() });
    let nobody = away.call(Method::POST, path, &[], &body).await;
    assert_eq!(nobody.refusal(), (401, "SBP_UNAUTHORIZED"), "{}", nobody.text);
}
