//! Many pairs at once, both ways: order, and nothing lost (G10).

use bowline_sbrp::frame::Frame;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::peer::data;
use super::server::{PATIENCE, start_with};

const CLIENTS: u64 = 24;
const FRAMES: u32 = 400;

/// A payload that says whose it is and which, of a size that varies.
fn numbered(session: u64, number: u32) -> Vec<u8> {
    let size = match number % 97 {
        0 => 20_000,
        rest => 8 + rest as usize,
    };
    let mut payload = vec![session as u8; size];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_frames_of_each_session_keep_their_order_in_both_directions() {
    // Kept well below what would be a slow client: this is about order.
    let server = start_with(|config| {
        config.limits.queue_frames = 100_000;
        config.limits.queue_bytes = 64 << 20;
    })
    .await;
    let mut tasks = Vec::new();
    for name in ["d1", "d2"] {
        let daemon = server.daemon(name).await;
        let (mut to, mut from) = daemon.socket.split();
        for session in 1..=CLIENTS {
            let client = server.client(name, session).await;
            let (mut to, mut from) = client.socket.split();
            tasks.push(tokio::spawn(async move {
                for number in 0..FRAMES {
                    let message = data(session, numbered(session, number)).encode();
                    to.feed(Message::Binary(message)).await.unwrap();
                }
                to.flush().await.unwrap();
            }));
            tasks.push(tokio::spawn(async move {
                for number in 0..FRAMES {
                    let Some(Ok(Message::Binary(bytes))) = from.next().await else {
                        panic!("{name} {session} ended at {number}")
                    };
                    let expected = data(session, numbered(session, number));
                    assert_eq!(Frame::decode(bytes), Ok(expected), "{session} {number}");
                }
                // Leaving would tell the daemon.
                std::mem::forget(from);
            }));
        }
        tasks.push(tokio::spawn(async move {
            for number in 0..FRAMES {
                for session in 1..=CLIENTS {
                    let message = data(session, numbered(session, number)).encode();
                    to.feed(Message::Binary(message)).await.unwrap();
                }
            }
            to.flush().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            let mut next = [0; CLIENTS as usize + 1];
            for _ in 0..CLIENTS as u32 * FRAMES {
                let Some(Ok(Message::Binary(bytes))) = from.next().await else {
                    panic!("{next:?}")
                };
                let Ok(Frame::Data { session, payload }) = Frame::decode(bytes) else {
                    panic!("no data")
                };
                let session = session.to_wire();
                let number = &mut next[session as usize];
                assert_eq!(payload, numbered(session, *number), "{session}");
                *number += 1;
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(PATIENCE * 6, task).await.expect("in time").unwrap();
    }
    let each = 2 * CLIENTS * u64::from(FRAMES);
    assert_eq!(server.metric("bowline_relay_frames_total{role=\"daemon\"}").await, Some(each));
    assert_eq!(server.metric("bowline_relay_frames_total{role=\"client\"}").await, Some(each));
}

/// A small queue at the daemon: clients are held back and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_daemon_with_a_small_queue_loses_nothing() {
    let server = start_with(|config| {
        config.limits.daemon_queue_frames = 3;
        config.limits.queue_bytes = 70_000;
    })
    .await;
    let mut daemon = server.daemon("d").await;
    let mut tasks = Vec::new();
    for session in 1..=8 {
        let mut client = server.client("d", session).await;
        tasks.push(tokio::spawn(async move {
            for number in 0..500 {
                client.send(&data(session, numbered(session, number))).await;
            }
            client
        }));
    }
    let mut next = [0; 9];
    for _ in 0..8 * 500 {
        let Ok(Frame::Data { session, payload }) = daemon.next().await else { panic!() };
        let session = session.to_wire() as usize;
        assert_eq!(payload, numbered(session as u64, next[session]));
        next[session] += 1;
    }
    for task in tasks {
        task.await.unwrap().expect_quiet().await;
    }
}
