//! Contract of every backend: idempotency keys.

use bowline_sbp::session::{Command, Done, KnownKey, Refusal, Reply};
use bowline_store::{CommitError, Error};

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g3_the_same_key_and_body_give_the_same_turn
    g3_the_same_key_and_body_give_the_same_session
    g3_another_body_under_the_same_key_is_refused
    g3_a_first_turn_that_meets_its_key_makes_nothing
    g3_a_key_is_free_again_when_its_turn_came_to_nothing
}

fn named(body: u8) -> Option<bowline_store::IdempotencyKey> {
    Some(key("caller", "k", body))
}

async fn g3_the_same_key_and_body_give_the_same_turn(store: S) {
    let mut live = Live::making(&store, new_session()).await;
    let turn_id = live.submit_as(request("q"), named(1)).await;
    let (session, running) = store.known(key("caller", "k", 1)).await.unwrap().unwrap();
    assert_eq!(session, live.id());
    let known = KnownKey { same_body: true, turn_id: Some(turn_id), result: None };
    assert_eq!(running, known);

    live.answer("a").await;
    let (_, ended) = store.known(key("caller", "k", 1)).await.unwrap().unwrap();
    let result = Done::from_json(&ended.result.unwrap()).unwrap();
    assert_eq!((result.info.turn_id, result.info.seq), (Some(turn_id), Some(2)));
    let again = Command::Submit(submit(new_turn(), request("q"), named(1)));
    match live.ask(again).await {
        Some(Reply::Ended { turn, outcome }) => {
            assert_eq!((turn, *outcome), (turn_id, Ok(result)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(texts(&store, live.id()).await.len(), 2, "it ran once");
}

async fn g3_the_same_key_and_body_give_the_same_session(store: S) {
    let new = new_session();
    let made = store.create_session(new.clone(), named(1)).await.unwrap();
    let again = store.create_session(new_session(), named(1)).await.unwrap();
    assert_eq!((made.replayed, again.replayed, again.session.id), (false, true, new.id));
    assert_eq!(all_sessions(&store).await, [new.id]);
    let other = store.create_session(new_session(), named(2)).await;
    assert_eq!(other.unwrap_err(), Error::KeyReused);
    let (session, known) = store.known(key("caller", "k", 1)).await.unwrap().unwrap();
    let nothing_else = KnownKey { same_body: true, turn_id: None, result: None };
    assert_eq!((session, known), (new.id, nothing_else));
}

async fn g3_another_body_under_the_same_key_is_refused(store: S) {
    let mut live = Live::new(&store).await;
    let first = live.submit_as(request("q"), named(1)).await;
    let (_, known) = store.known(key("caller", "k", 2)).await.unwrap().unwrap();
    assert_eq!((known.same_body, known.turn_id), (false, Some(first)));
    let other = Command::Submit(submit(new_turn(), request("q"), named(2)));
    assert_eq!(live.ask(other).await, Some(Reply::Refused(Refusal::KeyReused)));
    assert_eq!(store.known(key("another scope", "k", 2)).await.unwrap(), None);
    live.submit_as(request("q"), Some(key("another scope", "k", 2))).await;
    assert_eq!(store.load(live.id()).await.unwrap().unwrap().turns.len(), 2);
}

async fn g3_a_first_turn_that_meets_its_key_makes_nothing(store: S) {
    let mut first = Live::making(&store, new_session()).await;
    let mut second = Live::making(&store, new_session()).await;
    // Both look the key up before either has stored it.
    let ask = async |live: &mut Live| {
        let turn = submit(new_turn(), request("q"), named(1));
        let input = live.command(Command::Submit(turn)).await;
        live.prepare(vec![input])
    };
    let (one, other) = (ask(&mut first).await, ask(&mut second).await);
    assert_eq!(store.commit(one).await, Ok(()));
    assert_eq!(store.commit(other.clone()).await, Err(CommitError::KeyTaken));
    assert_eq!(store.commit(other).await, Err(CommitError::KeyTaken), "however often");
    assert_eq!(all_sessions(&store).await, [first.id()]);
    assert!(store.load(second.id()).await.unwrap().is_none());
    assert_eq!(store.unfinished(ME).await.unwrap(), [(first.id(), 1)]);
    assert_eq!(store.known(key("caller", "k", 1)).await.unwrap().unwrap().0, first.id());
}

async fn g3_a_key_is_free_again_when_its_turn_came_to_nothing(store: S) {
    let mut live = Live::new(&store).await;
    live.submit_as(request("q"), named(1)).await;
    live.refuse().await;
    assert_eq!(store.known(key("caller", "k", 1)).await.unwrap(), None);
    // Its caller was told, and the log says nothing: the same.
    live.submit_as(watched("q"), named(1)).await;
    live.refuse().await;
    assert_eq!(store.known(key("caller", "k", 1)).await.unwrap(), None);
    live.submit_as(request("q"), named(2)).await;
    live.answer("a").await;
    let (_, known) = store.known(key("caller", "k", 2)).await.unwrap().unwrap();
    assert!(known.same_body && known.result.is_some());
}
