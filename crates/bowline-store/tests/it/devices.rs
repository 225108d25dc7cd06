//! What every backend must do with devices that have tokens, and with tools that ask first.

use std::sync::Arc;

use bowline_sbp::approval::{State, Step};
use bowline_sbp::id::{ApprovalId, SessionId, TurnId};
use bowline_sbp::surface::SurfaceContext;
use bowline_store::{Attach, Error, Forgotten, NewApproval, NewDeviceToken, Store, TokenHash};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::{at, attach_to, finish, instance, made, turn_in};

backends! {
    sbp_l4_05_a_device_attaches_by_its_token_as_itself
    sbp_l4_05_a_token_that_is_forgotten_or_over_opens_nothing
    sbp_l4_05_devices_with_tokens_are_kept_and_bounded
    an_approval_is_asked_once_and_the_first_verdict_counts
    a_turn_that_waits_for_leave_is_known_and_its_approval_outlives_it_for_a_while
}

fn later(seconds: i64) -> Timestamp {
    at().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

fn token(session_id: SessionId, surface_id: &str, hash: u8) -> NewDeviceToken {
    NewDeviceToken {
        session_id,
        surface_id: surface_id.into(),
        hash: TokenHash([hash; 32]),
        at: at(),
        expires_at: later(60),
    }
}

fn attach_with(id: SessionId, hash: u8, claims: &str) -> Attach {
    let surface_id = Some(claims.to_owned());
    Attach {
        surface: SurfaceContext { surface_id, ..SurfaceContext::default() },
        device: Some(TokenHash([hash; 32])),
        ..attach_to(id, instance())
    }
}

async fn sbp_l4_05_a_device_attaches_by_its_token_as_itself(store: Arc<dyn Store>) {
    let session = made(&*store).await;
    store.add_device_token(token(session.id, "watch", 1)).await.unwrap();
    let known = store.surfaces(session.id).await.unwrap();
    assert_eq!((known[0].last_seen, known[0].token_expires_at), (None, Some(later(60))));
    let watch = store.device_of(session.id, TokenHash([1; 32]), at()).await.unwrap();
    assert_eq!(watch.as_deref(), Some("watch"));
    let attached = store.attach(attach_with(session.id, 1, "someone else")).await.unwrap();
    let surface = attached.session.surface.unwrap();
    assert_eq!(surface.surface_id.as_deref(), Some("watch"), "whatever it says");
    assert_eq!(attached.until, Some(later(60)), "no longer than its token");
    let replaced = store.add_device_token(token(session.id, "watch", 2)).await.unwrap();
    assert_eq!(replaced, Forgotten::CutOff { epoch: attached.epoch + 1 });
    let known = store.surfaces(session.id).await.unwrap();
    assert_eq!((known.len(), known[0].last_seen), (1, Some(at())));
}

async fn sbp_l4_05_a_token_that_is_forgotten_or_over_opens_nothing(store: Arc<dyn Store>) {
    let (session, other) = (made(&*store).await, made(&*store).await);
    store.add_device_token(token(session.id, "watch", 1)).await.unwrap();
    let hash = TokenHash([1; 32]);
    assert_eq!(store.device_of(other.id, hash, at()).await.unwrap(), None);
    assert_eq!(store.device_of(session.id, hash, later(60)).await.unwrap(), None);
    let late = Attach { at: later(61), ..attach_with(session.id, 1, "watch") };
    assert_eq!(store.attach(late).await.unwrap_err(), Error::Revoked);

    let attached = store.attach(attach_with(session.id, 1, "watch")).await.unwrap();
    let forgotten = store.forget_surface(session.id, "watch".into(), at()).await.unwrap();
    assert_eq!(forgotten, Forgotten::CutOff { epoch: attached.epoch + 1 });
    let after = store.session(session.id).await.unwrap().unwrap();
    assert_eq!(after.surface, None);
    assert_eq!(after.attach_epoch, attached.epoch + 1, "what it still does counts for nothing");
    let again = store.attach(attach_with(session.id, 1, "watch")).await;
    assert_eq!(again.unwrap_err(), Error::Revoked);
    let unknown = store.forget_surface(session.id, "watch".into(), at()).await.unwrap();
    assert_eq!(unknown, Forgotten::Unknown);

    // One that came with the session's token is forgotten and stays.
    let plain = Attach { device: None, ..attach_with(session.id, 1, "phone") };
    store.attach(plain).await.unwrap();
    let forgotten = store.forget_surface(session.id, "phone".into(), at()).await.unwrap();
    assert_eq!(forgotten, Forgotten::Gone);
    assert!(store.session(session.id).await.unwrap().unwrap().surface.is_some());
}

async fn sbp_l4_05_devices_with_tokens_are_kept_and_bounded(store: Arc<dyn Store>) {
    let session = made(&*store).await;
    for n in 0..64 {
        store.add_device_token(token(session.id, &format!("t{n}"), n)).await.unwrap();
    }
    let one_more = store.add_device_token(token(session.id, "t64", 64)).await;
    assert_eq!(one_more.unwrap_err(), Error::TooManyDevices(64));
    store.add_device_token(token(session.id, "t3", 99)).await.unwrap();
    assert_eq!(store.device_of(session.id, TokenHash([3; 32]), at()).await.unwrap(), None);
    for n in 0..70 {
        let plain = Attach { device: None, ..attach_with(session.id, 0, &format!("p{n}")) };
        store.attach(plain).await.unwrap();
    }
    assert_eq!(store.surfaces(session.id).await.unwrap().len(), 128);
    let kept = store.device_of(session.id, TokenHash([99; 32]), at()).await.unwrap();
    assert_eq!(kept.as_deref(), Some("t3"));
}

fn question(session_id: SessionId, turn_id: TurnId, nth: u32) -> NewApproval {
    NewApproval {
        id: ApprovalId(Uuid::now_v7()),
        session_id,
        turn_id,
        place: (2, nth),
        tool: "camera".into(),
        input: json!({ "mode": "photo" }),
        at: at(),
        expires_at: later(60),
    }
}

async fn an_approval_is_asked_once_and_the_first_verdict_counts(store: Arc<dyn Store>) {
    let (session, other) = (made(&*store).await, made(&*store).await);
    let turn = TurnId(Uuid::now_v7());
    let asked = store.ask_approval(question(session.id, turn, 0)).await.unwrap();
    assert_eq!((asked.state, &asked.tool_input), (State::Pending, &json!({ "mode": "photo" })));
    let again = store.ask_approval(question(session.id, turn, 0)).await.unwrap();
    assert_eq!(again, asked, "the same call, after a restart");
    let second = store.ask_approval(question(session.id, turn, 1)).await.unwrap();
    assert_ne!(second.approval_id, asked.approval_id);

    let id = asked.approval_id;
    assert_eq!(store.step_approval(other.id, id, Step::Approve, at()).await.unwrap(), None);
    let step =
        async |step| store.step_approval(session.id, id, step, at()).await.unwrap().unwrap().state;
    assert_eq!(step(Step::Use).await, State::Pending, "not before someone agreed");
    assert_eq!(step(Step::Approve).await, State::Approved);
    assert_eq!(step(Step::Deny).await, State::Approved);
    assert_eq!(step(Step::Use).await, State::Used);
    let late = store.step_approval(session.id, second.approval_id, Step::Approve, later(61)).await;
    assert_eq!(late.unwrap().unwrap().state, State::Expired, "too late is a no");
    let listed = store.approvals(session.id).await.unwrap();
    let states: Vec<_> = listed.iter().map(|approval| approval.state).collect();
    assert_eq!(states, [State::Expired, State::Used]);
    store.delete_session(session.id).await.unwrap();
    let gone = store.ask_approval(question(session.id, turn, 2)).await;
    assert_eq!(gone.unwrap_err(), Error::NoSession);
}

async fn a_turn_that_waits_for_leave_is_known_and_its_approval_outlives_it_for_a_while(
    store: Arc<dyn Store>,
) {
    let (session, owner) = (made(&*store).await, instance());
    let turn = turn_in(session.id, owner);
    let turn_id = turn.id;
    store.accept_turn(turn).await.unwrap();
    let asked = store.ask_approval(question(session.id, turn_id, 0)).await.unwrap();
    assert!(store.awaits_approval(turn_id, 2).await.unwrap());
    assert!(!store.awaits_approval(turn_id, 1).await.unwrap(), "those are others");
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 0, "its turn is not over");
    store.step_approval(session.id, asked.approval_id, Step::Deny, at()).await.unwrap();
    assert!(store.awaits_approval(turn_id, 2).await.unwrap(), "a no has to be told yet");
    store.finish_turn(finish(turn_id, owner, Vec::new())).await.unwrap();
    assert_eq!(store.forget_approvals(later(10)).await.unwrap(), 0);
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 1);
}
