//! A surface follows its session to another gateway (SBP-L6-05).

use bowline_client::surface::{CloseReason, Event, Surface};
use bowline_sbp::error::Close;
use bowline_sbp::frame::{AcceptedMessage, Attach, ClientFrame, ServerFrame, SessionMoved};
use bowline_sbp::id::SessionId;
use uuid::Uuid;

use crate::gateway::{Gateway, Peer, SESSION, TOKEN, accepted, attached, next, turn, turn_id};

const THERE: SessionId = SessionId(Uuid::from_u128(8));

fn moved(to: &Gateway, token: Option<&str>, accepted: &[(&str, u64)]) -> ServerFrame {
    let accepted = accepted.iter().map(|(client_turn_id, seq)| AcceptedMessage {
        client_turn_id: (*client_turn_id).into(),
        turn_id: turn_id(*seq),
    });
    ServerFrame::SessionMoved(Box::new(SessionMoved {
        session_id: SESSION,
        new_session_id: THERE,
        gateway_id: "away".into(),
        url: to.config().gateway.to_string(),
        attach_token: token.map(str::to_owned),
        accepted: accepted.collect(),
    }))
}

fn told(to: &Gateway) -> Event {
    let url = to.config().gateway.to_string();
    Event::Moved { session: THERE, gateway: "away".into(), url }
}

/// A surface that comes with an attach token; attaches it.
async fn admit(gateway: &Gateway, token: &str) -> Peer {
    let (mut peer, shown) = gateway.accept_any(THERE).await;
    assert_eq!(shown, None, "a key is for the gateway that it is of");
    let first = peer.hear().await;
    let ClientFrame::Attach(Attach { session_id, session_token, .. }) = &first else {
        panic!("{first:?}")
    };
    assert_eq!((session_id.as_str(), session_token.as_str()), (&*THERE.to_string(), token));
    peer
}

async fn message_of(peer: &mut Peer) -> String {
    match peer.hear().await {
        ClientFrame::UserMessage(message) => message.client_turn_id,
        frame => panic!("{frame:?}"),
    }
}

#[tokio::test]
async fn sbp_l6_05_a_surface_follows_with_what_was_not_accepted_and_gets_no_turn_twice() {
    let (home, away) = (Gateway::start().await, Gateway::start().await);
    let mut surface = home.surface();
    let mut peer = home.attach().await;
    assert_eq!(next(&mut surface).await, attached(false));
    peer.say(ServerFrame::TetherTurn(turn(2, "hi"))).await;
    assert_eq!(next(&mut surface).await, Event::Turn(turn(2, "hi")));
    peer.hear().await;
    for id in ["went", "waits"] {
        surface.send(id.into(), id.into(), None).await.unwrap();
        assert_eq!(message_of(&mut peer).await, id);
    }
    peer.say(moved(&away, Some("once"), &[("went", 4)])).await;
    peer.close(Close::Moved).await;
    assert_eq!(next(&mut surface).await, accepted("went", 4));
    assert_eq!(next(&mut surface).await, told(&away));

    let mut peer = admit(&away, "once").await;
    peer.say_attached_as(THERE, Some("the token there")).await;
    assert_eq!(next(&mut surface).await, attached(true));
    assert_eq!(message_of(&mut peer).await, "waits", "and nothing else");
    // It has this one, and could not confirm it.
    peer.say(ServerFrame::TetherTurn(turn(2, "hi"))).await;
    peer.say(ServerFrame::TetherTurn(turn(4, "new"))).await;
    assert_eq!(next(&mut surface).await, Event::Turn(turn(4, "new")));
    // It comes again with what it was given there.
    drop(peer);
    assert!(matches!(next(&mut surface).await, Event::Lost { .. }));
    admit(&away, "the token there").await;
}

#[tokio::test]
async fn sbp_l6_05_a_surface_that_comes_too_late_asks_where_it_was_sent_from() {
    let (home, away) = (Gateway::start().await, Gateway::start().await);
    let mut surface = home.surface();
    let mut peer = home.attach().await;
    assert_eq!(next(&mut surface).await, attached(false));
    peer.say(moved(&away, Some("late"), &[])).await;
    peer.close(Close::Moved).await;
    assert_eq!(next(&mut surface).await, told(&away));
    let mut peer = admit(&away, "late").await;
    peer.say(ServerFrame::Forbidden { detail: "used".into() }).await;
    peer.close(Close::Forbidden).await;
    assert!(matches!(next(&mut surface).await, Event::Lost { .. }));
    let mut peer = home.accept_unanswered().await;
    peer.say(moved(&away, Some("another"), &[])).await;
    peer.close(Close::Moved).await;
    assert_eq!(next(&mut surface).await, told(&away));
    admit(&away, "another").await;
}

#[tokio::test]
async fn sbp_l6_05_a_surface_that_may_not_follow_says_where_its_session_is() {
    for (follow, token) in [(false, Some("once")), (true, None)] {
        let (home, away) = (Gateway::start().await, Gateway::start().await);
        let mut config = home.config();
        config.follow = follow;
        let mut surface = Surface::connect(config).unwrap();
        let mut peer = home.attach().await;
        assert_eq!(next(&mut surface).await, attached(false));
        peer.say(moved(&away, token, &[])).await;
        let url = away.config().gateway.to_string();
        let reason = CloseReason::Moved { session: THERE.to_string(), gateway: "away".into(), url };
        assert_eq!(next(&mut surface).await, Event::Closed(reason));
        assert!(!away.has_caller());
    }
}

#[tokio::test]
async fn sbp_l6_05_a_surface_that_brings_its_session_learns_its_id_and_token() {
    let gateway = Gateway::start().await;
    let mut config = gateway.config();
    config.session_token = String::new();
    config.roaming_token = Some("roaming".into());
    let mut surface = Surface::connect(config).unwrap();
    let mut peer = gateway.accept().await;
    let first = peer.hear().await;
    let ClientFrame::Attach(attach) = &first else { panic!("{first:?}") };
    assert_eq!(attach.roaming_token.as_deref(), Some("roaming"));
    assert_ne!(attach.session_token, TOKEN);
    peer.say_attached_as(THERE, Some("the token here")).await;
    assert_eq!(next(&mut surface).await, attached(false));
    assert_eq!(next(&mut surface).await, Event::Arrived { session: THERE });
    drop(peer);
    assert!(matches!(next(&mut surface).await, Event::Lost { .. }));
    let (mut peer, _) = gateway.accept_any(THERE).await;
    let again = peer.hear().await;
    let ClientFrame::Attach(attach) = &again else { panic!("{again:?}") };
    let (token, roaming) = (attach.session_token.as_str(), &attach.roaming_token);
    assert_eq!((token, roaming), ("the token here", &None));
}
