//! Coming, going and coming back: pauses, graces, replacements.

use std::time::Duration;

use bowline_sbrp::control::ControlCode::*;
use bowline_sbrp::frame::{Frame, Reason, Signal};
use bytes::Bytes;

use super::issuer::sid;
use super::peer::data;
use super::server::{start, start_with};

#[tokio::test]
async fn sbrp_relay_02_frames_pass_unmodified_in_order_and_uninspected() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 7).await;
    // Of any size, the wrong one included: only ends know what is right.
    let session = sid(7);
    let frames = [
        Frame::HandshakeInit { session, payload: Bytes::from_static(&[1; 32]) },
        Frame::HandshakeInit { session, payload: Bytes::from_static(b"short") },
        data(7, vec![2; 28]),
        data(7, Bytes::new()),
        data(7, vec![3; 65_536]),
        data(7, vec![4; 200]),
    ];
    for frame in &frames {
        client.send(frame).await;
    }
    for frame in &frames {
        daemon.expect(frame).await;
    }
    let frames = [
        Frame::HandshakeAccept { session, payload: Bytes::from_static(&[5; 128]) },
        Frame::HandshakeAccept { session, payload: Bytes::new() },
        data(7, vec![6; 65_536]),
        data(7, vec![7; 1]),
    ];
    for frame in &frames {
        daemon.send(frame).await;
    }
    for frame in &frames {
        client.expect(frame).await;
    }
}

#[tokio::test]
async fn sbrp_relay_01_both_paths_and_both_places_for_a_token_work() {
    use super::peer::Peer;
    let server = start().await;
    let token = server.issuer.daemon("d");
    for path in ["/", "/relay"] {
        let url = format!("ws://{}{path}", server.address);
        let mut peer = Peer::connect(&format!("{url}?x=1&token={token}")).await.unwrap();
        peer.expect_quiet().await;
        let mut peer = Peer::connect_as(&url, Some(&token), None).await.unwrap();
        peer.expect_quiet().await;
    }
    let elsewhere = Peer::connect(&format!("ws://{}/d?token={token}", server.address)).await;
    assert_eq!(elsewhere.map(drop).unwrap_err().0, 404, "no path but these");
}

#[tokio::test]
async fn sbrp_relay_03_close_expires_one_session_and_no_other() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut ann = server.client("d", 1).await;
    let mut bob = server.client("d", 2).await;
    ann.expect_quiet().await;
    bob.expect_quiet().await;
    daemon.signal(1, Signal::close(Reason::Policy)).await;
    ann.expect_last(SessionExpired, 1).await;
    bob.expect_quiet().await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_09_10_a_session_outlives_its_daemons_connection() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    let mut daemon = server.daemon("d").await;
    client.expect_code(SessionPending, 1).await;
    // Not before its ready: the daemon has no session yet (towards it, no reason to close).
    daemon.send(&data(1, "early")).await;
    daemon.expect_code(SessionNotFound, 1).await;
    daemon.signal(1, Signal::READY).await;
    client.expect_code(SessionResumed, 1).await;
    client.send(&data(1, "on")).await;
    daemon.expect(&data(1, "on")).await;
    daemon.send(&data(1, "and on")).await;
    client.expect(&data(1, "and on")).await;
}

#[tokio::test]
async fn sbrp_relay_10_the_grace_ends_paused_sessions() {
    let server = start_with(|config| config.grace = Duration::from_millis(50)).await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    client.expect_last(SessionExpired, 1).await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
}

#[tokio::test]
async fn sbrp_relay_10_the_grace_ends_pending_sessions_too() {
    let server = start_with(|config| config.grace = Duration::from_secs(3)).await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    let mut daemon = server.daemon("d").await;
    client.expect_code(SessionPending, 1).await;
    client.expect_last(SessionExpired, 1).await;
    daemon.expect_code(SessionEnded, 1).await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_10_close_ends_a_pending_session() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    let mut daemon = server.daemon("d").await;
    client.expect_code(SessionPending, 1).await;
    daemon.signal(1, Signal::close(Reason::StateLost)).await;
    client.expect_last(SessionExpired, 1).await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_11_a_daemon_that_cannot_resume_ends_its_sessions_at_once() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    let mut daemon = server.connect(&server.issuer.forgetful("d")).await;
    client.expect_last(SessionExpired, 1).await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_12_a_client_that_leaves_is_told_to_its_daemon() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.send(&data(1, "last")).await;
    client.close().await;
    daemon.expect(&data(1, "last")).await;
    daemon.expect_code(SessionEnded, 1).await;
    // Without a goodbye, too.
    let client = server.client("d", 2).await;
    drop(client);
    daemon.expect_code(SessionEnded, 2).await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_12_nobody_is_told_when_nobody_is_there() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    client.close().await;
    server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
    let mut daemon = server.daemon("d").await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_13_an_offline_daemon_makes_no_pair() {
    let server = start().await;
    let mut client = server.client("d", 1).await;
    client.expect_last(DaemonOffline, 1).await;
    let mut daemon = server.daemon("d").await;
    daemon.expect_quiet().await;
    daemon.send(&data(1, "anyone?")).await;
    daemon.expect_code(SessionNotFound, 1).await;
}

#[tokio::test]
async fn sbrp_relay_18_a_newer_daemon_replaces_the_older() {
    let server = start().await;
    let mut old = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    let mut new = server.daemon("d").await;
    old.expect_close(4009).await;
    client.expect_code(SessionPaused, 1).await;
    client.expect_code(SessionPending, 1).await;
    new.signal(1, Signal::READY).await;
    client.expect_code(SessionResumed, 1).await;
    // The old one's end, noticed late, changes nothing.
    drop(old);
    server.until_metric("bowline_relay_connections{role=\"daemon\"}", 1).await;
    client.send(&data(1, "to the new")).await;
    new.expect(&data(1, "to the new")).await;
}

#[tokio::test]
async fn sbrp_relay_19_what_comes_in_a_pause_is_discarded_and_never_silently() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    for _ in 0..3 {
        client.send(&data(1, "lost")).await;
        client.expect_code(SessionPaused, 1).await;
    }
    let mut daemon = server.daemon("d").await;
    client.expect_code(SessionPending, 1).await;
    client.send(&data(1, "lost")).await;
    client.expect_code(SessionPending, 1).await;
    daemon.signal(1, Signal::READY).await;
    client.expect_code(SessionResumed, 1).await;
    client.send(&data(1, "kept")).await;
    daemon.expect(&data(1, "kept")).await;
    assert_eq!(server.metric("bowline_relay_discarded_total").await, Some(4));
}

/// Hundreds at once: each is answered, whatever the queue holds.
#[tokio::test]
async fn sbrp_relay_19_every_discarded_frame_is_told() {
    let server = start().await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.close().await;
    client.expect_code(SessionPaused, 1).await;
    for _ in 0..1000 {
        client.send(&data(1, "lost")).await;
    }
    for _ in 0..1000 {
        client.expect_code(SessionPaused, 1).await;
    }
    client.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_20_a_session_in_use_is_not_taken_over() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut first = server.client("d", 1).await;
    first.expect_quiet().await;
    let mut second = server.client("d", 1).await;
    second.expect_last(Forbidden, 0).await;
    drop(second);
    first.send(&data(1, "still mine")).await;
    daemon.expect(&data(1, "still mine")).await;
    // And once it is free, it can be had again, at another daemon at any time.
    first.close().await;
    daemon.expect_code(SessionEnded, 1).await;
    let mut again = server.client("d", 1).await;
    again.send(&data(1, "mine now")).await;
    daemon.expect(&data(1, "mine now")).await;
    daemon.send(&data(1, "yours")).await;
    again.expect(&data(1, "yours")).await;
}

#[tokio::test]
async fn sessions_of_other_daemons_are_out_of_reach() {
    let server = start().await;
    let mut mine = server.daemon("mine").await;
    let mut other = server.daemon("other").await;
    let mut client = server.client("mine", 1).await;
    client.expect_quiet().await;
    other.send(&data(1, "boo")).await;
    other.expect_code(SessionNotFound, 1).await;
    other.signal(1, Signal::close(Reason::None)).await;
    other.expect_code(SessionNotFound, 1).await;
    mine.send(&data(1, "hello")).await;
    client.expect(&data(1, "hello")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbrp_relay_13_a_daemon_is_online_from_the_moment_it_is_connected() {
    let server = start().await;
    for round in 0..200 {
        let name = format!("d{round}");
        let mut daemon = server.daemon(&name).await;
        let mut client = server.client(&name, 1).await;
        // Nothing waits for the relay to catch up.
        client.send(&data(1, "there?")).await;
        daemon.expect(&data(1, "there?")).await;
    }
}
