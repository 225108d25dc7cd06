//! SBP-L2-20, G12: a surface that does not read affects no other surface, and loses nothing itself.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::bench::{Bench, Phone, Session, eventually, hello, joined, list};
use crate::l2_surfaces::{join, message, plain};

/// A session with eight turns of 2 MiB each: more than any socket buffers.
async fn long_session(bench: &Bench) -> Session {
    let session = bench.session().await;
    let long = format!("echo {}", "x".repeat(2 << 20));
    for _ in 0..8 {
        assert_eq!(bench.say(&session, &long).await.status, 200);
    }
    session
}

/// A surface that attaches, reads `SESSION_ATTACHED` and nothing more.
async fn silent(bench: &Bench, session: &Session, surface_id: &str) -> Phone {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.gateway.address()).await.unwrap();
    let url = format!("ws://{}/v1/sbp/ws/{}", bench.gateway.address(), session.id);
    let stream = tokio_tungstenite::MaybeTlsStream::Plain(stream);
    let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let mut phone = Phone { socket };
    let mut first = hello(session, json!({ "surface_id": surface_id }));
    first["join"] = json!(true);
    phone.send(first).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
    phone
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_a_surface_that_does_not_read_delays_no_other() {
    let bench = Bench::with(|config| {
        // For as long as the test takes, it is not even let go.
        config.limits.write_timeout = Duration::from_secs(3600);
        config.limits.ping_every = Duration::from_secs(3600);
        config.limits.answer = 4 << 20;
    })
    .await;
    let session = long_session(&bench).await;
    let _stuck = silent(&bench, &session, "stuck").await;
    let (mut reader, _) = join(&bench, &session, "reader").await;
    for n in 0..3 {
        reader.send(message(&format!("m{n}"), &format!("echo {n}"))).await;
        assert_eq!(joined(&reader.until("TURN_COMPLETE").await), n.to_string());
    }
    assert_eq!(bench.say(&session, "echo over HTTP").await.content(), "over HTTP");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_a_joined_surface_that_does_not_read_is_let_go_and_loses_nothing() {
    let bench = Bench::with(|config| {
        // Long enough for the other one, which reads.
        config.limits.write_timeout = Duration::from_secs(5);
        config.limits.answer = 4 << 20;
    })
    .await;
    let session = long_session(&bench).await;
    let stuck = silent(&bench, &session, "stuck").await;
    let (mut reader, _) = plain(&bench, &session, "reader").await;
    let path = format!("/v1/sessions/{}/surfaces", session.id);
    let read = async {
        loop {
            if let Packet::Close(close) = reader.packet().await {
                panic!("the other one was let go: {close:?}");
            }
        }
    };
    tokio::select! {
        () = eventually("let go", async || {
            let known = list(&bench.get(&path).await.body["surfaces"]);
            known.iter().any(|s| s["surface_id"] == "stuck" && s["attached"] == false)
        }) => {}
        () = read => {}
    }
    assert_eq!(bench.show(&session).await["status"], "running", "the reader is still there");
    drop(stuck);
    let (_again, welcome) = join(&bench, &session, "stuck").await;
    assert_eq!(welcome["queued_turns"], 8, "it has confirmed nothing");
}
