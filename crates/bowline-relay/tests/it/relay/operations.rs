//! For those who run a relay: health, readiness, status, metrics.

use bowline_relay::MetricsAccess;
use bowline_sbrp::api::{DaemonStatus, RelayStatus};

use super::peer::data;
use super::server::{start, start_with, until};

#[tokio::test]
async fn health_and_unknown_paths() {
    let server = start().await;
    assert_eq!(server.get("/healthz", None).await.0, 200);
    assert_eq!(server.get("/nowhere", None).await.0, 404);
    let posted = reqwest::Client::new().post(format!("http://{}/relay", server.address));
    assert_eq!(posted.send().await.unwrap().status(), 405);
    until("ready", || async { server.get("/readyz", None).await.0 == 200 }).await;
}

#[tokio::test]
async fn status_says_whether_the_tokens_daemon_is_here() {
    let server = start().await;
    let tokens = [server.issuer.daemon("d"), server.issuer.client("d", 1)];
    let status = async |token: &str| {
        let (status, body) = server.get("/status", Some(token)).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<RelayStatus>(&body).unwrap().daemon
    };
    for token in &tokens {
        assert_eq!(status(token).await, DaemonStatus::Offline);
    }
    let daemon = server.daemon("d").await;
    // From the moment it is connected.
    assert_eq!(status(&tokens[0]).await, DaemonStatus::Online);
    assert_eq!(status(&tokens[1]).await, DaemonStatus::Online);
    assert_eq!(status(&server.issuer.daemon("other")).await, DaemonStatus::Offline);
    daemon.close().await;
    until("gone", || async { status(&tokens[0]).await == DaemonStatus::Offline }).await;
    // Only with a token, and only in its header.
    assert_eq!(server.get("/status", None).await.0, 401);
    assert_eq!(server.get(&format!("/status?token={}", tokens[0]), None).await.0, 401);
    assert_eq!(server.get("/status", Some("a.b.c")).await.0, 401);
}

#[tokio::test]
async fn metrics_count_what_happens() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.send(&data(1, "12345")).await;
    daemon.expect(&data(1, "12345")).await;
    for (name, value) in [
        ("bowline_relay_connections{role=\"client\"}", 1),
        ("bowline_relay_connections{role=\"daemon\"}", 1),
        ("bowline_relay_pairs{state=\"paired\"}", 1),
        ("bowline_relay_pairs{state=\"paused\"}", 0),
        ("bowline_relay_frames_total{role=\"daemon\"}", 1),
        ("bowline_relay_bytes_total{role=\"daemon\"}", 18),
        ("bowline_relay_queued_frames", 0),
    ] {
        server.until_metric(name, value).await;
    }
    daemon.close().await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 1).await;
    client.close().await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
    server.until_metric("bowline_relay_closes_total{code=\"1005\"}", 2).await;
    server.until_metric("bowline_relay_connections{role=\"client\"}", 0).await;
}

#[tokio::test]
async fn metrics_are_for_this_machine_and_for_who_has_their_key() {
    let key = "the-operators-key-for-metrics";
    let server = start_with(|config| config.metrics = MetricsAccess::with_key(key)).await;
    assert_eq!(server.get("/metrics", None).await.0, 200);
    let forwarded = async |shown: &str| {
        let url = format!("http://{}/metrics", server.address);
        let request = reqwest::Client::new().get(url).bearer_auth(shown);
        let request = request.header("forwarded", "for=127.0.0.1");
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(forwarded(key).await, 200);
    assert_eq!(forwarded("another").await, 401);
    assert_eq!(forwarded(&server.issuer.daemon("d")).await, 401);
}
