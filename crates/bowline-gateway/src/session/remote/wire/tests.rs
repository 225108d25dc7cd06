//! What is written is read again, and what is newer than this release is not misread.

use bowline_sbp::message::Message as Said;
use bowline_sbp::session::{DeviceCall, TurnRequest};
use serde_json::json;

use super::*;
use crate::session::Live;

fn from() -> ReplicaId {
    ReplicaId(Uuid::from_u128(7))
}

fn link() -> LinkId {
    LinkId(Uuid::from_u128(8))
}

fn again(message: &Message) -> Message {
    let (sender, message) = Message::read(&message.to_bytes(from())).unwrap();
    assert_eq!(sender, from());
    message
}

#[test]
fn a_command_arrives_with_every_byte_of_its_request() {
    // `params` is raw JSON: its spelling must not change on the way.
    let mut request = TurnRequest::message("m".into(), Said::text("user", "hé\u{0}"));
    request.params.push(("seed".into(), RawValue::from_string("1.50e3".into()).unwrap()));
    let submit = bowline_sbp::session::Submit {
        turn: TurnId(Uuid::from_u128(1)),
        request: Arc::new(request),
        key: None,
        resume: true,
        sender: Some(3),
        wait: false,
        blobs: Vec::new(),
    };
    let sent = Command::Submit(submit);
    let message = Message::ToOwner(Box::new(ToOwner {
        session: SessionId(Uuid::from_u128(2)),
        link: link(),
        base: 4,
        items: vec![(4, Arc::new(Item::Command(sent.clone())))],
        took: 9,
        version: 2,
        behind: true,
        asks: false,
        watches: true,
        read: Vec::new(),
        ends: false,
    }));
    let Message::ToOwner(read) = again(&message) else { panic!() };
    let (4, Item::Command(read)) = (read.items[0].0, &*read.items[0].1) else { panic!() };
    assert_eq!(*read, sent);
}

#[test]
fn a_deadline_arrives_as_the_time_that_is_left() {
    let now = Instant::now();
    let mut state = LiveState::clone(&Live::none().state);
    let call = |id, deadline| DeviceCall {
        call: Uuid::from_u128(id),
        epoch: 1,
        tool: "camera".into(),
        input: Arc::new(json!({})),
        deadline,
    };
    state.calls = vec![call(1, Some(now + Duration::from_secs(5))), call(2, None)];
    let sent = StateAt::new(3, Arc::new(state.clone()), now);
    let text = serde_json::to_string(&sent).unwrap();
    let later = now + Duration::from_secs(60);
    let read = serde_json::from_str::<StateAt>(&text).unwrap().into_state(later);
    state.calls[0].deadline = Some(later + Duration::from_secs(5));
    assert_eq!(*read, state);
}

#[test]
fn a_message_of_a_later_format_is_as_good_as_lost() {
    let look = Look { id: Uuid::nil(), at: LookAt::Sessions(Vec::new()) };
    let bytes = Message::Look(look).to_bytes(from());
    let mut written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert!(Message::read(written.to_string().as_bytes()).is_some());
    written["format"] = json!(FORMAT + 1);
    assert!(Message::read(written.to_string().as_bytes()).is_none());
    assert!(Message::read(b"{").is_none());
}

#[test]
fn what_a_later_release_adds_to_a_message_does_not_hinder() {
    let look = Look { id: Uuid::nil(), at: LookAt::User(UserId(Uuid::nil())) };
    let bytes = Message::Look(look).to_bytes(from());
    let mut written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    written["message"]["Look"]["more"] = json!(true);
    assert!(Message::read(written.to_string().as_bytes()).is_some());
}

#[test]
fn what_a_later_release_sends_over_a_link_keeps_its_place_and_hinders_nothing_else() {
    let bytes = |kind: &str, message: serde_json::Value| {
        json!({ "format": FORMAT, "from": from(), "message": { kind: message } }).to_string()
    };
    let done =
        serde_json::to_value(Item::Fact(Fact::SurfaceGone { epoch: 3, restarts: false })).unwrap();
    let items = json!([[4, { "Command": { "Dance": {} } }], [5, { "Wish": 1 }], [6, done]]);
    let sent = json!({ "session": Uuid::nil(), "link": link(), "base": 4, "items": items, "took": 0,
                       "version": 0 });
    let read = Message::read(bytes("ToOwner", sent).as_bytes()).unwrap().1;
    let Message::ToOwner(read) = read else { panic!() };
    let numbers: Vec<_> = read.items.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [4, 5, 6]);
    assert!(matches!(*read.items[0].1, Item::Unknown) && matches!(*read.items[1].1, Item::Unknown));
    assert!(matches!(*read.items[2].1, Item::Fact(Fact::SurfaceGone { epoch: 3, .. })));
    let replies = json!([[1, { "command": 4, "version": 0, "reply": { "Danced": 1 } }],
                         [2, { "command": 5, "version": 0, "reply": "Done" }]]);
    let sent = json!({ "link": link(), "took": 6, "base": 1, "replies": replies });
    let read = Message::read(bytes("ToEdge", sent).as_bytes()).unwrap().1;
    let Message::ToEdge(read) = read else { panic!() };
    assert_eq!(read.replies[0].1.reply, Reply::Refused(Refusal::Unreachable));
    assert_eq!(read.replies[1].1.reply, Reply::Done);
    assert!(Message::read(bytes("Gossip", json!({})).as_bytes()).is_none());
}
