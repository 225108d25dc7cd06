//! A daemon that was revoked, and everybody who was with it (SBRP-RELAY-16, G15).

use std::time::Duration;

use bowline_sbrp::control::ControlCode::*;
use serde_json::json;

use super::issuer::{Issuer, Mood};
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
