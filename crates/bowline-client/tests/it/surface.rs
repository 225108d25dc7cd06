//! An attached surface: receives turns, sends messages, reconnects.

use bowline_client::surface::{CloseReason, Event, Refused};
use bowline_sbp::error::Close;
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::{Gateway, accepted, attached, chunk, complete, next, shown, turn, within};

#[tokio::test]
async fn sbp_l2_02_messages_wait_for_the_attach_on_every_socket() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    for again in [false, true] {
        let mut peer = gateway.accept_unanswered().await;
        surface.send("hi".into(), format!("c{again}"), Some("m".into())).await.unwrap();
        peer.say(ServerFrame::Ping {}).await;
        assert_eq!(peer.hear().await, ClientFrame::Pong, "nothing before the attach is answered");
        peer.say_attached().await;
        assert_eq!(peer.accept_message(2).await, format!("c{again}"));
        assert_eq!(next(&mut surface).await, attached(again));
        assert_eq!(next(&mut surface).await, accepted(&format!("c{again}"), 2));
        drop(peer);
        let lost = next(&mut surface).await;
        assert!(matches!(lost, Event::Lost { .. }), "{lost:?}");
    }
}

#[tokio::test]
async fn sbp_l2_06_after_a_drop_only_what_is_new_comes_and_all_is_acknowledged() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();

    let mut peer = gateway.attach().await;
    peer.say(ServerFrame::TetherTurn(turn(2, "whole"))).await;
    peer.say(chunk(4, 0, "all")).await;
    peer.say(ServerFrame::TurnComplete(complete(4))).await;
    peer.say(chunk(6, 0, "Hel")).await;
    assert_eq!(next(&mut surface).await, attached(false));
    assert_eq!(next(&mut surface).await, Event::Turn(turn(2, "whole")));
    assert_eq!(next(&mut surface).await, shown(4, "all"));
    assert_eq!(next(&mut surface).await, Event::Complete(complete(4)));
    assert_eq!(next(&mut surface).await, shown(6, "Hel"));
    assert_eq!(peer.hear().await, ClientFrame::Ack { seq: 2 });
    assert_eq!(peer.hear().await, ClientFrame::Ack { seq: 4 });
    drop(peer);

    let lost = next(&mut surface).await;
    let Event::Lost { why, .. } = lost else { panic!("{lost:?}") };
    assert_eq!(why, "the connection broke off");

    let mut peer = gateway.attach().await;
    peer.say(ServerFrame::TetherTurn(turn(2, "whole"))).await;
    peer.say(ServerFrame::TetherTurn(turn(4, "all"))).await;
    peer.say(chunk(6, 0, "Hello")).await;
    peer.say(ServerFrame::TurnComplete(complete(6))).await;
    assert_eq!(next(&mut surface).await, attached(true));
    assert_eq!(next(&mut surface).await, shown(6, "lo"));
    assert_eq!(next(&mut surface).await, Event::Complete(complete(6)));
    for seq in [2, 4, 6] {
        assert_eq!(peer.hear().await, ClientFrame::Ack { seq });
    }
}

#[tokio::test]
async fn g3_messages_not_yet_accepted_are_sent_again_under_the_same_name() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();

    let mut peer = gateway.attach().await;
    assert_eq!(next(&mut surface).await, attached(false));
    for id in ["c1", "c2"] {
        surface.send("hi".into(), id.into(), None).await.unwrap();
    }
    assert_eq!(peer.accept_message(2).await, "c1");
    assert_eq!(next(&mut surface).await, accepted("c1", 2));
    peer.hear().await;
    peer.close(Close::ServiceRestart).await;

    let lost = next(&mut surface).await;
    let Event::Lost { why, .. } = lost else { panic!("{lost:?}") };
    assert_eq!(why, "the gateway restarts");
    assert_eq!(surface.cancel().await, Err(Refused::NotAttached));
    surface.send("hi".into(), "c3".into(), None).await.unwrap();

    let mut peer = gateway.attach().await;
    assert_eq!(peer.accept_message(4).await, "c2");
    assert_eq!(peer.accept_message(6).await, "c3");
    assert_eq!(next(&mut surface).await, attached(true));
    assert_eq!(next(&mut surface).await, accepted("c2", 4));
    assert_eq!(next(&mut surface).await, accepted("c3", 6));
}

#[tokio::test]
async fn g11_a_message_too_large_for_the_gateway_fails_instead_of_coming_back_for_ever() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    surface.send("short".into(), "c1".into(), None).await.unwrap();
    surface.send("far too long".into(), "c2".into(), None).await.unwrap();
    let mut peer = gateway.attach().await;
    peer.hear().await;
    peer.hear().await;
    peer.close(Close::TooBig).await;

    assert_eq!(next(&mut surface).await, attached(false));
    let failed = next(&mut surface).await;
    let Event::Failed { client_turn_id, code, .. } = failed else { panic!("{failed:?}") };
    assert_eq!((client_turn_id.as_deref(), code.as_str()), (Some("c2"), "SBP_INVALID_REQUEST"));
    let mut peer = gateway.attach().await;
    assert_eq!(peer.accept_message(2).await, "c1");
}

#[tokio::test]
async fn sbp_l2_17_pings_of_both_kinds_are_answered_while_idle() {
    let gateway = Gateway::start().await;
    let _surface = gateway.surface();
    let mut peer = gateway.attach().await;
    peer.say(ServerFrame::Ping {}).await;
    assert_eq!(peer.hear().await, ClientFrame::Pong);
    peer.0.send(Message::Ping("barrier".into())).await.unwrap();
    let answer = within("a pong", peer.0.next()).await.unwrap().unwrap();
    assert_eq!(answer, Message::Pong("barrier".into()));
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_is_asked_for_again_not_passed_over() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.attach().await;
    peer.0.send(Message::text(r#"{"type":"DANCE"}"#)).await.unwrap();
    peer.0.send(Message::text(r#"{"type":"TETHER_TURN","seq":2}"#)).await.unwrap();
    assert_eq!(next(&mut surface).await, attached(false));
    let lost = next(&mut surface).await;
    let Event::Lost { why, .. } = lost else { panic!("{lost:?}") };
    assert_eq!(why, "the gateway sent a frame that cannot be read");
    gateway.attach().await.say(ServerFrame::TetherTurn(turn(2, "again"))).await;
    assert_eq!(next(&mut surface).await, attached(true));
    assert_eq!(next(&mut surface).await, Event::Turn(turn(2, "again")));
}

#[tokio::test]
async fn a_program_that_sends_without_reading_is_not_locked_out() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.attach().await;
    let flood = tokio::spawn(async move {
        for seq in 1..=600 {
            peer.say(ServerFrame::TetherTurn(turn(seq, "x"))).await;
        }
        peer
    });
    for n in 0..100 {
        within("an answer", surface.send("hi".into(), format!("c{n}"), None)).await.unwrap();
    }
    assert_eq!(next(&mut surface).await, attached(false));
    for seq in 1..=600 {
        assert_eq!(next(&mut surface).await, Event::Turn(turn(seq, "x")));
    }
    let mut peer = flood.await.unwrap();
    let (mut acked, mut messages) = (0, 0);
    while acked < 600 || messages < 64 {
        match peer.hear().await {
            ClientFrame::Ack { seq } => acked = seq,
            ClientFrame::UserMessage(_) => messages += 1,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_program_that_sends_without_reading_learns_that_the_surface_closed() {
    let gateway = Gateway::start().await;
    let surface = gateway.surface();
    let mut peer = gateway.attach().await;
    // With the events for attach and close, one more than the queue holds.
    for seq in 1..=255 {
        peer.say(ServerFrame::TetherTurn(turn(seq, "x"))).await;
    }
    peer.close(Close::Replaced).await;
    let sending = async {
        while surface.send("hi".into(), "c".into(), None).await != Err(Refused::Closed) {}
    };
    within("the refusal", sending).await;
    assert_eq!(surface.detach().await.last(), Some(&Event::Closed(CloseReason::Replaced)));
}

#[tokio::test]
async fn cancel_reaches_the_gateway() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.attach().await;
    peer.say(chunk(2, 0, "on and on")).await;
    // The chunk was sent after the attach: once it is received, the surface is open.
    assert_eq!(next(&mut surface).await, attached(false));
    assert_eq!(next(&mut surface).await, shown(2, "on and on"));
    surface.cancel().await.unwrap();
    assert_eq!(peer.hear().await, ClientFrame::Cancel);
}

#[tokio::test]
async fn sbp_l2_10_detach_says_so_waits_for_the_close_and_returns_what_was_not_taken() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.attach().await;
    peer.say(ServerFrame::TetherTurn(turn(2, "untaken"))).await;
    assert_eq!(next(&mut surface).await, attached(false));
    assert_eq!(peer.hear().await, ClientFrame::Ack { seq: 2 });
    let leaving = tokio::spawn(surface.detach());
    assert_eq!(peer.hear().await, ClientFrame::Detach);
    // A turn that is sent while the surface detaches is not lost.
    peer.say(ServerFrame::TetherTurn(turn(4, "late"))).await;
    assert_eq!(peer.hear().await, ClientFrame::Ack { seq: 4 });
    peer.close(Close::Normal).await;
    let rest = within("the detach", leaving).await.unwrap();
    assert_eq!(rest[0], Event::Turn(turn(2, "untaken")));
    assert_eq!(rest[1], Event::Turn(turn(4, "late")));
    assert_eq!(rest[2..], [Event::Closed(CloseReason::Detached)]);
    assert!(!gateway.has_caller());
}
