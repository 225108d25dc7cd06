//! Tests that need a simulated clock and an in-memory connection; the rest uses real sockets.

use std::time::Duration;

use super::*;
use crate::surface::SurfaceConfig;
use crate::surface::place::Place;
use crate::surface::socket::{Target, limits};
use bowline_net::backoff::Backoff;
use bowline_sbp::surface::SurfaceContext;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

struct Rig {
    driver: Driver,
    socket: Socket<DuplexStream>,
    gateway: WebSocketStream<DuplexStream>,
    commands: mpsc::Sender<HandleCommand>,
    events: mpsc::Receiver<Event>,
}

async fn rig(wire: usize) -> Rig {
    let target = Target::new(&SurfaceConfig {
        gateway: "https://gateway.invalid".parse().unwrap(),
        socket: None,
        session_id: "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f".parse().unwrap(),
        session_token: String::new(),
        roaming_token: None,
        follow: true,
        bearer: None,
        surface: SurfaceContext::default(),
        join: false,
        take_over: false,
        approves: true,
        backoff: Backoff::default(),
    });
    let (near, far) = tokio::io::duplex(wire);
    let (commands, asked) = mpsc::channel(4);
    let (given, events) = mpsc::channel(4);
    // `Ping` in place of the attach: these tests are about what follows it.
    let place = Place { target: target.ok().unwrap(), attach: ClientFrame::Ping };
    let (places, retry) = (Places::new(place), Retry::new(Backoff::default()));
    Rig {
        driver: Driver::new(places, true, retry, asked, given),
        socket: Socket(WebSocketStream::from_raw_socket(near, Role::Client, Some(limits())).await),
        gateway: WebSocketStream::from_raw_socket(far, Role::Server, None).await,
        commands,
        events,
    }
}

#[tokio::test(start_paused = true)]
async fn sbp_l2_17_a_gateway_unheard_for_60_s_is_lost_and_any_sign_counts() {
    let mut rig = rig(4096).await;
    let start = Instant::now();
    let gateway = tokio::spawn(async move {
        for sign in [Message::Ping("x".into()), Message::text(r#"{"type":"PING"}"#)] {
            sleep(Duration::from_secs(59)).await;
            rig.gateway.send(sign).await.unwrap();
        }
        // Keeps the connection open and sends nothing more.
        while rig.gateway.next().await.is_some() {}
    });
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!((ending, start.elapsed().as_secs()), (Ending::Silent, 59 + 59 + 60));
    gateway.abort();
}

#[tokio::test(start_paused = true)]
async fn commands_do_not_pass_for_signs_of_life() {
    let mut rig = rig(4096).await;
    let start = Instant::now();
    let commands = rig.commands.clone();
    let program = tokio::spawn(async move {
        loop {
            let (reply, answer) = oneshot::channel();
            commands.send(HandleCommand::Cancel(reply)).await.ok().unwrap();
            assert_eq!(answer.await.unwrap(), Err(Refused::NotAttached));
            sleep(Duration::from_secs(7)).await;
        }
    });
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!((ending, start.elapsed().as_secs()), (Ending::Silent, 60));
    program.abort();
}

#[tokio::test(start_paused = true)]
async fn g12_a_gateway_that_takes_nothing_for_10_s_is_lost() {
    let mut rig = rig(1).await;
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!(ending, Ending::Broken("the gateway read nothing for 10 s".into()));
}

#[tokio::test(start_paused = true)]
async fn sbp_l2_16_replaced_is_heard_though_writing_fails_first() {
    let mut rig = rig(4096).await;
    rig.gateway.send(Message::text(r#"{"type":"PING"}"#)).await.unwrap();
    let close = CloseFrame { code: 4009.into(), reason: "replaced".into() };
    rig.gateway.close(Some(close)).await.unwrap();
    drop(rig.gateway);
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!(ending, Ending::Closed(4009));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_detaches() {
    let mut rig = rig(4096).await;
    drop(rig.commands);
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!(ending, Ending::Detached);
    drop(rig.socket);
    assert_eq!(heard(rig.gateway).await, [ClientFrame::Ping, ClientFrame::Detach]);
}

#[tokio::test(start_paused = true)]
async fn sbp_l2_06_a_turn_that_nobody_takes_is_not_acknowledged() {
    let mut rig = rig(4096).await;
    let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
    let turn = json!({
        "type": "TETHER_TURN", "turn_index": 0, "turn_id": id, "seq": 2, "role": "assistant",
        "content": "x", "created_at": "1970-01-01T00:00:00Z", "session_id": id,
        "status": "complete", "turn": {"role": "assistant", "content": "x"},
    });
    rig.gateway.send(Message::text(turn.to_string())).await.unwrap();
    drop(rig.events);
    let Err(ending) = rig.driver.converse(&mut rig.socket).await;
    assert_eq!(ending, Ending::Detached);
    drop(rig.socket);
    assert_eq!(heard(rig.gateway).await, [ClientFrame::Ping, ClientFrame::Detach]);
}

/// All frames that the gateway received.
async fn heard(mut gateway: WebSocketStream<DuplexStream>) -> Vec<ClientFrame> {
    let mut heard = Vec::new();
    while let Some(Ok(message)) = gateway.next().await {
        heard.push(ClientFrame::read(message.to_text().unwrap()).unwrap());
    }
    heard
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_succeeded_shortens_the_wait_unless_its_end_may_recur() {
    for (open, ending, shortened) in [
        (true, Ending::Closed(1012), true),
        (true, Ending::Silent, true),
        (true, Ending::Unreadable, false),
        (false, Ending::Closed(1012), false),
    ] {
        let mut rig = rig(1).await;
        for _ in 0..20 {
            rig.driver.retry.wait(0);
        }
        rig.driver.open = open;
        rig.driver.wait_after(ending.clone()).await.unwrap();
        let second_bound = Duration::from_millis(500);
        assert_eq!(rig.driver.retry.wait(u32::MAX) <= second_bound, shortened, "{ending:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sbp_l2_06_no_pong_leaves_before_the_program_has_the_turns_before_it() {
    let mut rig = rig(4096).await;
    let full = r#"{"type":"TURN_FAILED","client_turn_id":null,"turn_id":null,"code":"c","message":"m",
                   "session_id":"0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f"}"#;
    // One event more than the queue holds, then the barrier.
    for _ in 0..5 {
        rig.gateway.send(Message::text(full)).await.unwrap();
    }
    rig.gateway.send(Message::Ping("barrier".into())).await.unwrap();
    let gateway = tokio::spawn(async move {
        let mut heard = Vec::new();
        while !matches!(heard.last(), Some(Message::Pong(_))) {
            heard.push(rig.gateway.next().await.unwrap().unwrap());
        }
    });
    let conversation = tokio::spawn(async move { rig.driver.converse(&mut rig.socket).await });
    sleep(Duration::from_secs(1)).await;
    assert!(!gateway.is_finished(), "the fifth event is still in hand");
    assert!(rig.events.recv().await.is_some());
    gateway.await.unwrap();
    conversation.abort();
}
