//! Daemons that come and go under load: what a client hears is always in order (SBRP-RELAY-18).

use bowline_sbrp::control::{Code, ControlCode};
use bowline_sbrp::frame::{Frame, Signal};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::issuer::sid;
use super::peer::data;
use super::server::{PATIENCE, start_with};

const CLIENTS: u64 = 6;
const DAEMONS: u32 = 25;

/// Every daemon says its number, as fast as it can, until the next replaces it. After each
/// `session_resumed` a client hears one daemon and no other, newer than those before, and between
/// `session_paused` and `session_resumed` it hears none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbrp_relay_18_nothing_of_a_replaced_daemon_comes_after_its_replacement() {
    let server = start_with(|config| config.limits.queue_frames = 100_000).await;
    let mut first = server.daemon("d").await;
    // It joins its slot a moment after its token was accepted.
    first.expect_quiet().await;
    let mut clients = Vec::new();
    for session in 1..=CLIENTS {
        let mut client = server.client("d", session).await;
        client.expect_quiet().await;
        let (mut to, mut from) = client.socket.split();
        // Says something all the time, and reads all the time.
        tokio::spawn(async move {
            let message = data(session, vec![1; 100]).encode();
            while to.send(Message::Binary(message.clone())).await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        clients.push(tokio::spawn(async move {
            let (mut current, mut resumed, mut paused, mut heard) = (0, false, false, 0);
            while let Some(Ok(message)) = from.next().await {
                let Message::Binary(bytes) = message else { continue };
                match Frame::decode(bytes).unwrap() {
                    Frame::Data { payload, .. } => {
                        let daemon = u32::from_be_bytes(payload[..4].try_into().unwrap());
                        assert!(!paused, "heard {daemon} in a pause");
                        // One that was replaced before it was ready is never heard.
                        if std::mem::take(&mut resumed) {
                            assert!(daemon > current, "heard {daemon} after {current}");
                            current = daemon;
                        }
                        assert_eq!(daemon, current, "heard another daemon");
                        heard += 1;
                        if daemon == DAEMONS - 1 {
                            return heard;
                        }
                    }
                    Frame::Control { control, .. } => match control.code {
                        Code::Known(ControlCode::SessionPaused | ControlCode::SessionPending) => {
                            paused = true;
                        }
                        Code::Known(ControlCode::SessionResumed) => {
                            (paused, resumed) = (false, true);
                        }
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                }
            }
            panic!("ended with {current}")
        }));
    }
    for session in 1..=CLIENTS {
        first.send(&data(session, 0_u32.to_be_bytes().to_vec())).await;
    }
    let mut old = vec![first];
    for number in 1..DAEMONS {
        let daemon = server.daemon("d").await;
        let (mut to, mut from) = daemon.socket.split();
        for session in 1..=CLIENTS {
            let frame = Frame::Signal { session: sid(session), signal: Signal::READY };
            to.send(Message::Binary(frame.encode())).await.unwrap();
        }
        // It reads what clients say, or it would hold them back.
        tokio::spawn(async move { while let Some(Ok(_)) = from.next().await {} });
        let talk = tokio::spawn(async move {
            loop {
                for session in 1..=CLIENTS {
                    let message = data(session, number.to_be_bytes().to_vec()).encode();
                    if to.send(Message::Binary(message)).await.is_err() {
                        return;
                    }
                }
                tokio::task::yield_now().await;
            }
        });
        old.clear();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        drop(talk);
    }
    for client in clients {
        let heard = tokio::time::timeout(PATIENCE, client).await.expect("in time").unwrap();
        assert!(heard > 0);
    }
}
