//! SBP-L6-05: what is said to a session while it moves is run once, at one of the two gateways.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_gateway::identity_file;
use bowline_sbp::federation::migration::Stage;
use bowline_sbp::federation::{FederationAction, ForeignRoamingClaims};
use bowline_store::Federation;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::bench::{Answer, Bench, DEADLINE, Session, eventually};
use crate::disk::{busy, on_a_bad_disk_with};
use crate::federation_move::{Two, arrived, free, knows, reserving, signed, staged};
use crate::l2_surfaces::join;
use crate::phone::Phone;
use crate::upstream::MockUpstream;

/// What was asked in a session.
async fn asked(bench: &Bench, session: &Session) -> BTreeSet<String> {
    let log = bench.log(session).await;
    log.into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
}

#[tokio::test]
async fn sbp_l6_05_what_is_said_while_a_session_is_reserved_is_said_where_it_goes() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let (mut phone, _) = home.attach(&session).await;
    phone.confirm(&home, &session).await;
    let (id, there) = staged(&home, &away, &session).await;
    phone.send(json!({ "type": "USER_MESSAGE", "content": "echo 2", "client_turn_id": "c" })).await;
    // The gateway has read the message when it answers the ping behind it.
    phone.send(json!({ "type": "PING" })).await;
    let seen = phone.until("PONG").await;
    assert!(seen.iter().all(|frame| frame["type"] != "TURN_ACCEPTED"), "{seen:?}");
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    eventually("active", async || {
        away.store.migration(id).await.unwrap().unwrap().stage == Stage::Active
    })
    .await;
    let seen = phone.until("SESSION_MOVED").await;
    let is_verdict = |kind: &str| ["TURN_ACCEPTED", "TURN_FAILED"].contains(&kind);
    let verdicts = seen.iter().filter(|frame| is_verdict(frame["type"].as_str().unwrap()));
    assert_eq!(verdicts.count(), 0, "its client sends it again: {seen:?}");
    assert_eq!(seen.last().unwrap()["new_session_id"], json!(there));
    assert!(!asked(&home, &session).await.contains("echo 2"));
}

#[tokio::test]
async fn g16_what_waits_when_the_gateway_stops_is_not_answered() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    // Several: which of them learns first that the gateway stops, and which that nothing waits any more, is chance.
    let mut phones = Vec::new();
    for n in 0..16 {
        phones.push(join(&home, &session, &format!("phone-{n}")).await.0);
    }
    staged(&home, &away, &session).await;
    for (n, phone) in phones.iter_mut().enumerate() {
        let said =
            json!({ "type": "USER_MESSAGE", "content": "echo 2", "client_turn_id": n.to_string() });
        phone.send(said).await;
        // The gateway has read the message when it answers the ping behind it.
        phone.send(json!({ "type": "PING" })).await;
        phone.until("PONG").await;
    }
    let ended = join_all(phones.iter_mut().map(Phone::ended));
    let (ended, ()) = tokio::join!(ended, home.gateway.stop());
    for (frames, close) in ended {
        let is_verdict = |kind: &str| ["TURN_ACCEPTED", "TURN_FAILED"].contains(&kind);
        let verdict = frames.iter().find(|frame| is_verdict(frame["type"].as_str().unwrap()));
        assert_eq!((verdict, close), (None, 1012), "its client would not send it again");
    }
}

#[tokio::test]
async fn sbp_l6_05_a_reservation_that_is_given_up_lets_what_waits_through() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| {
        knows(config, at_home, at_away);
        config.federation.reservation = Duration::from_secs(2);
    })
    .await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let (id, _) = staged(&home, &away, &session).await;
    let until = home.store.reservation(id).await.unwrap().unwrap().reservation.until;
    // Nobody confirms: it is accepted when the time is over, and by a later owner of the session, too.
    assert_eq!(home.say(&session, "echo 2").await.content(), "2");
    assert!(Timestamp::now() >= until, "it was not held");
}

#[tokio::test]
async fn sbp_l6_05_a_bundle_that_is_too_large_to_come_is_released_and_its_session_goes_on_at_once()
{
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| {
        knows(config, at_home, at_away);
        // Longer than this test may take.
        config.federation.reservation = Duration::from_secs(3600);
    })
    .await;
    let away = Bench::with(|config| {
        knows(config, at_away, at_home);
        config.limits.import_body = 16 << 10;
    })
    .await;
    let session = home.session_with(1).await;
    let long = format!("echo {}", "x".repeat(20 << 10));
    assert_eq!(home.say(&session, &long).await.status, 200);
    let token = home.token_of(&session).await;
    let refused = away.import_token(&token).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    let goes_on = home.say(&session, "echo 3");
    let said = tokio::time::timeout(DEADLINE, goes_on).await.expect("its turns are still held");
    assert_eq!(said.content(), "3");
    assert_eq!(home.import_token(&token).await.status, 201, "its token is free, too");
}

#[tokio::test]
async fn sbp_l6_05_a_bundle_that_takes_long_arrives() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let upstream = MockUpstream::start().await;
    let (home, slow) = on_a_bad_disk_with(&upstream, |config| {
        knows(config, at_home, at_away);
        config.federation.reservation = Duration::from_secs(2);
    })
    .await;
    let (away, seen) =
        on_a_bad_disk_with(&upstream, |config| knows(config, at_away, at_home)).await;
    let token = home.token_of(&home.session_with(1).await).await;
    // Begun so long ago that nobody would go on with it.
    let long_ago = Timestamp::now() - SignedDuration::from_mins(5);
    let id = reserving(&home, &away, &token, long_ago).await;
    let until = async || home.store.reservation(id).await.unwrap().unwrap().reservation.until;
    let go = slow.hold("exports_with_cid");
    let importing = away.import_token(&token);
    let waiting = async {
        eventually("asked for the bundle", async || slow.waits()).await;
        let (before, looked) = (until().await, seen.ended("open_migrations"));
        eventually("renewed", async || until().await > before).await;
        eventually("looked at", async || seen.ended("open_migrations") > looked).await;
        go.send(()).unwrap();
    };
    let (imported, ()) = tokio::join!(importing, waiting);
    assert_eq!(imported.status, 201, "{}", imported.text);
}

/// Asks home to reserve a session, as away does.
async fn reserve(home: &Bench, away: &Bench, token: &str) -> Answer {
    let id = Uuid::now_v7();
    let bearer = signed(away, FederationAction::Reserve, &id.to_string());
    let body = json!({ "reservation_id": id, "roaming_token": token });
    let headers = [("authorization", bearer.as_str())];
    home.call(Method::POST, "/v1/sbp/federation/reservations", &headers, &body).await
}

#[tokio::test]
async fn sbp_l6_05_a_token_that_opens_nothing_any_more_holds_no_turns() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let upstream = MockUpstream::start().await;
    let (home, disk) =
        on_a_bad_disk_with(&upstream, |config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    // One that nobody has used yet: it has no owner who would have to hold it.
    let elsewhere = Bench::start().await;
    let bundle = elsewhere.bundle_of(&elsewhere.session_with(1).await).await;
    let session = arrived(&home.import_bundle(&bundle).await.body);
    let (used, good) = (home.token_of(&session).await, home.token_of(&session).await);
    assert_eq!(home.import_token(&used).await.status, 201);
    let claims = ForeignRoamingClaims::peek(&good).unwrap();
    let claims = claims.verify(&home.gateway.identity(), Timestamp::now()).unwrap();
    let exp = Timestamp::now().as_second() - 60;
    let identity = identity_file::load(home.folder.path()).unwrap().unwrap();
    let expired = ForeignRoamingClaims { iat: exp - 60, exp, ..claims }.sign(&identity);
    disk.fail("load", busy());
    let refused = reserve(&home, &away, &expired).await;
    assert_eq!(refused.refusal(), (410, "SBP_TOKEN_EXPIRED"), "{}", refused.text);
    let refused = reserve(&home, &away, &used).await;
    assert_eq!((refused.status, &refused.body["refused"]), (410, &json!("used")));
    assert!(!disk.has_failed(), "the session was loaded to be held");
    assert_eq!(reserve(&home, &away, &good).await.status, 200);
    assert!(disk.has_failed(), "for this one it was");
}

#[tokio::test]
async fn sbp_l6_05_a_busy_session_moves_and_each_turn_is_run_once() {
    let Two { home, away } = Two::start().await;
    let home = Arc::new(home);
    let session = home.session_with(1).await;
    let token = home.token_of(&session).await;
    let moved = Arc::new(AtomicBool::new(false));
    let talkers: Vec<_> = (0..4)
        .map(|talker| {
            let (home, session, moved) = (Arc::clone(&home), session.clone(), Arc::clone(&moved));
            tokio::spawn(async move {
                let (mut taken, mut n) = (Vec::new(), 0);
                loop {
                    let text = format!("echo {talker}-{n}");
                    let answer = home.say(&session, &text).await;
                    match answer.status {
                        200 => taken.push(text),
                        409 if moved.load(Ordering::Acquire) => return taken,
                        409 => {}
                        status => panic!("{status}: {}", answer.text),
                    }
                    n += 1;
                }
            })
        })
        .collect();
    let imported = away.import_token(&token).await;
    moved.store(true, Ordering::Release);
    assert_eq!(imported.status, 201, "{}", imported.text);
    let there = arrived(&imported.body);
    let mut taken = BTreeSet::from(["echo 1".to_owned()]);
    for talker in talkers {
        taken.extend(talker.await.unwrap());
    }
    assert_eq!(asked(&away, &there).await, taken, "each that was answered, and nothing else");
}
