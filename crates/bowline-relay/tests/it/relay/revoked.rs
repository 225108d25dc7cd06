//! A daemon that was revoked, and everybody who was with it (SBRP-RELAY-16, G15).

use std::time::Duration;

use bowline_sbrp::control::ControlCode::*;
use bowline_sbrp::token::{PresenceGrant, SessionGrant};
use serde_json::json;

use super::issuer::{Issuer, Mood, now};
use super::peer::data;
use super::server::{Server, start_at};

/// A relay that asks often, and an issuer that publishes who is revoked.
async fn start() -> Server {
    let issuer = Issuer::start().await;
    issuer.revoke(&[]);
    start_at(issuer, |config| config.keys.revoked_every = Duration::from_millis(20)).await
}

#[tokio::test]
async fn sbrp_relay_16_a_revoked_daemon_and_its_clients_are_sent_away() {
    let server = start().await;
    let (mut lost, mut mine) = (server.daemon("lost").await, server.daemon("mine").await);
    let mut thief = server.client("lost", 7).await;
    let mut other = server.client("lost", 8).await;
    let mut owner = server.client("mine", 9).await;
    thief.expect_quiet().await;
    server.issuer.revoke(&["elsewhere", "lost"]);
    lost.expect_code(Unauthorized, 0).await;
    lost.expect_close(1008).await;
    for (client, session) in [(&mut thief, 7), (&mut other, 8)] {
        client.expect_code(DaemonNotFound, session).await;
        client.expect_close(1008).await;
    }
    // Nobody else notices.
    owner.send(&data(9, "still here")).await;
    mine.expect(&data(9, "still here")).await;
    owner.expect_quiet().await;
    server.until_metric("bowline_relay_connections{role=\"daemon\"}", 1).await;
    server.until_metric("bowline_relay_pairs{state=\"paired\"}", 1).await;
    for state in ["paused", "pending"] {
        let left = server.metric(&format!("bowline_relay_pairs{{state=\"{state}\"}}")).await;
        assert_eq!(left, Some(0), "{state}");
    }
}

#[tokio::test]
async fn sbrp_relay_16_good_tokens_do_not_open_what_is_revoked() {
    let server = start().await;
    let mut seen = server.daemon("lost").await;
    server.issuer.revoke(&["lost"]);
    seen.expect_last(Unauthorized, 0).await;
    let (status, body) = server.refusal(&server.issuer.daemon("lost")).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")));
    assert_eq!(body["error"]["reason"], "revoked");
    let rejected = "bowline_relay_rejected_tokens_total{reason=\"revoked\"}";
    assert_eq!(server.metric(rejected).await, Some(1));
    let mut client = server.client("lost", 7).await;
    client.expect_code(DaemonNotFound, 7).await;
    client.expect_close(1008).await;
    // One that is merely away is another matter.
    server.client("mine", 8).await.expect_last(DaemonOffline, 8).await;
}

#[tokio::test]
async fn a_session_that_waits_for_its_daemon_ends_with_the_revocation() {
    let server = start().await;
    let daemon = server.daemon("lost").await;
    let mut client = server.client("lost", 7).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 7).await;
    server.issuer.revoke(&["lost"]);
    client.expect_last(DaemonNotFound, 7).await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
}

#[tokio::test]
async fn g15_a_list_that_cannot_be_had_or_read_leaves_the_last_one_in_force() {
    let server = start().await;
    let mut daemon = server.daemon("lost").await;
    server.issuer.revoke(&["lost"]);
    daemon.expect_last(Unauthorized, 0).await;
    let mut good = server.daemon("mine").await;
    for list in ["{}", "nonsense", "{\"daemons\":[\"mine\"]}"] {
        server.issuer.publish_revoked(list.into());
        server.issuer.looked_at().await;
        assert_eq!(server.refusal(&server.issuer.daemon("lost")).await.0, 401, "{list}");
    }
    server.issuer.set(Mood::Down);
    server.issuer.looked_at().await;
    assert_eq!(server.refusal(&server.issuer.daemon("lost")).await.0, 401);
    good.expect_quiet().await;
    // And the next good list counts again.
    server.issuer.set(Mood::Well);
    server.issuer.revoke(&["lost", "mine"]);
    good.expect_last(Unauthorized, 0).await;
}

/// A client's token for session 7 of daemon `d`, issued this many seconds ago.
fn token(server: &Server, seconds: u64) -> String {
    let issued_at = now() - seconds;
    let grant = SessionGrant { issued_at, ..server.issuer.session("d", 7) };
    server.issuer.signer("a").session(&grant)
}

#[tokio::test]
async fn sbrp_relay_16_sessions_of_a_replaced_key_end_in_good_order_and_new_ones_begin() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut old = server.connect(&token(&server, 20)).await;
    let mut other = server.client("d", 8).await;
    old.expect_quiet().await;
    server.issuer.end_tokens("user-7", now() - 10);
    old.expect_code(SessionExpired, 7).await;
    old.expect_close(1000).await;
    daemon.expect_code(SessionEnded, 7).await;
    // Nobody else notices.
    other.send(&data(8, "still here")).await;
    daemon.expect(&data(8, "still here")).await;
    // The old token opens nothing any more, a new one does.
    let (status, body) = server.refusal(&token(&server, 10)).await;
    assert_eq!((status, &body["error"]["reason"]), (401, &json!("revoked")));
    let mut new = server.connect(&token(&server, 9)).await;
    new.send(&data(7, "with the new key")).await;
    daemon.expect(&data(7, "with the new key")).await;
}

#[tokio::test]
async fn sbrp_relay_16_a_daemon_that_came_with_a_replaced_key_is_sent_away_and_may_return() {
    let server = start().await;
    let presence = |seconds: u64| {
        let (owner, issued_at) = (Some("u_1".to_owned()), now() - seconds);
        let grant = PresenceGrant { owner, issued_at, ..server.issuer.presence("d") };
        server.issuer.signer("a").presence(&grant)
    };
    let mut daemon = server.connect(&presence(20)).await;
    let mut client = server.client("d", 7).await;
    client.expect_quiet().await;
    server.issuer.end_tokens("u_1", now() - 10);
    daemon.expect_code(Unauthorized, 0).await;
    daemon.expect_close(1008).await;
    client.expect_code(SessionPaused, 7).await;
    assert_eq!(server.refusal(&presence(10)).await.0, 401);
    // With the new key it goes on where it was.
    let mut daemon = server.connect(&presence(9)).await;
    client.expect_code(SessionPending, 7).await;
    daemon.signal(7, bowline_sbrp::frame::Signal::READY).await;
    client.expect_code(SessionResumed, 7).await;
}

#[tokio::test]
async fn a_session_that_waits_for_its_daemon_ends_with_its_users_key() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.connect(&token(&server, 20)).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 7).await;
    server.issuer.end_tokens("user-7", now() - 10);
    client.expect_last(SessionExpired, 7).await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
}

#[tokio::test]
async fn no_session_becomes_older_than_it_may() {
    let age = Duration::from_secs(3);
    let server = start_at(Issuer::start().await, |config| config.limits.session_age = age).await;
    let mut daemon = server.daemon("d").await;
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        let mut client = server.client("d", 7).await;
        client.expect_quiet().await;
        client.expect_code(SessionExpired, 7).await;
        // Not in the first nine tenths.
        assert!(begun.elapsed() >= age * 9 / 10, "{:?}", begun.elapsed());
        client.expect_close(1000).await;
        daemon.expect_code(SessionEnded, 7).await;
    }
    daemon.expect_quiet().await;
}
