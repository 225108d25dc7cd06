//! One relay of several: presences that were replaced elsewhere, and a relay that is drained.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::*;
use bowline_sbrp::frame::Signal;
use serde_json::json;

use super::issuer::Issuer;
use super::peer::{Peer, data};
use super::server::{Server, start, start_at, until};

#[tokio::test]
async fn sbrp_relay_18_a_presence_of_an_older_epoch_is_refused_even_while_nobody_is_there() {
    let server = start().await;
    let daemon = server.connect(&server.issuer.daemon_of("d", 8)).await;
    let (status, body) = server.refusal(&server.issuer.daemon_of("d", 7)).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("replaced")));
    daemon.close().await;
    server.until_metric("bowline_relay_connections{role=\"daemon\"}", 0).await;
    assert_eq!(server.refusal(&server.issuer.daemon_of("d", 7)).await.0, 409);
    assert_eq!(server.refusal(&server.issuer.daemon("d")).await.0, 409, "none is the oldest");
    let rejected = "bowline_relay_rejected_tokens_total{reason=\"replaced\"}";
    assert_eq!(server.metric(rejected).await, Some(3));
    // Others, and the same or a later presence, come in.
    server.connect(&server.issuer.daemon_of("other", 1)).await;
    server.connect(&server.issuer.daemon_of("d", 8)).await;
    server.connect(&server.issuer.daemon_of("d", 9)).await;
}

#[tokio::test]
async fn sbrp_relay_10_a_reconnect_of_the_same_epoch_resumes_its_sessions() {
    let server = start().await;
    let daemon = server.connect(&server.issuer.daemon_of("d", 8)).await;
    let mut client = server.connect(&server.issuer.client_of("d", 7, 8)).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 7).await;
    let mut daemon = server.connect(&server.issuer.daemon_of("d", 8)).await;
    client.expect_code(SessionPending, 7).await;
    daemon.signal(7, Signal::READY).await;
    client.expect_code(SessionResumed, 7).await;
    client.send(&data(7, "on")).await;
    daemon.expect(&data(7, "on")).await;
}

#[tokio::test]
async fn a_client_is_not_paired_with_a_presence_that_was_replaced_elsewhere() {
    let server = start().await;
    let mut stale = server.connect(&server.issuer.daemon_of("d", 7)).await;
    let mut client = server.connect(&server.issuer.client_of("d", 7, 8)).await;
    client.expect_code(DaemonOffline, 7).await;
    client.expect_close(1013).await;
    stale.expect_quiet().await;
    // When the later presence comes here, it gets the client.
    let mut daemon = server.connect(&server.issuer.daemon_of("d", 8)).await;
    stale.expect_close(4009).await;
    let mut client = server.connect(&server.issuer.client_of("d", 7, 8)).await;
    client.send(&data(7, "to the right one")).await;
    daemon.expect(&data(7, "to the right one")).await;
}

async fn named(name: &str) -> Server {
    let issuer = Issuer::start().await;
    issuer.drain(&[]);
    start_at(issuer, |config| {
        config.name = Some(name.into());
        config.keys.revoked_every = Duration::from_millis(20);
        config.limits.handover = Duration::from_millis(500);
    })
    .await
}

#[tokio::test]
async fn g16_a_drained_relay_hands_its_daemons_over_and_takes_no_more() {
    let server = named("eu-1").await;
    let mut daemons = Vec::new();
    for name in ["a", "b", "c"] {
        daemons.push(server.daemon(name).await);
    }
    let mut client = server.client("a", 7).await;
    client.expect_quiet().await;
    server.issuer.drain(&["eu-2"]);
    server.issuer.looked_at().await;
    for daemon in &mut daemons {
        daemon.expect_quiet().await;
    }
    server.issuer.drain(&["eu-1"]);
    for daemon in &mut daemons {
        daemon.expect_close(1012).await;
    }
    // The client first waits, then is told to ask again: its daemon is elsewhere by then.
    client.expect_code(SessionPaused, 7).await;
    client.expect_last(SessionExpired, 7).await;
    let (status, body) = server.refusal(&server.issuer.daemon("a")).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("draining")));
    // Back in service.
    server.issuer.drain(&[]);
    let url = format!("ws://{}/relay?token={}", server.address, server.issuer.daemon("a"));
    until("let in again", || async { Peer::connect(&url).await.is_ok() }).await;
}

#[tokio::test]
async fn a_relay_without_a_name_is_never_drained() {
    let issuer = Issuer::start().await;
    issuer.drain(&["", "eu-1"]);
    let server =
        start_at(issuer, |config| config.keys.revoked_every = Duration::from_millis(20)).await;
    let mut daemon = server.daemon("a").await;
    server.issuer.looked_at().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    daemon.expect_quiet().await;
}
