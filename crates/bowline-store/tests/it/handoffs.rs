//! What every backend must do with sessions that change hands.

use std::sync::Arc;

use bowline_sbp::lifecycle::{Change, Status};
use bowline_store::{Accepted, Error, Session, Store, TurnSession};

use crate::backends::backends;
use crate::fixture::*;

backends! {
    sbp_l3_10_the_successor_has_all_the_history_and_the_bridge
    sbp_l3_10_turns_before_a_handoff_stay_with_the_agent_that_took_them
    sbp_l3_14_an_ended_session_can_be_handed_over
    g3_a_handoff_under_a_key_is_made_once
    g6_a_handoff_ends_the_attachment
    g8_a_session_that_moved_on_is_not_handed_over
    g8_a_session_that_was_handed_over_never_runs_again
    g8_one_of_many_handoffs_succeeds
}

type S = Arc<dyn Store>;

async fn with_two_turns(store: &dyn Store) -> Session {
    store.import(import_of("elsewhere", 2)).await.unwrap().session
}

async fn sbp_l3_10_the_successor_has_all_the_history_and_the_bridge(store: S) {
    let source = with_two_turns(&*store).await;
    let handoff = handoff_of(&source);
    let made = store.hand_off(handoff.clone()).await.unwrap();
    assert_eq!(
        (made.point, made.export_id, made.replayed),
        ((4, 2), Some(handoff.export.id), false)
    );
    let new = made.session;
    assert_eq!((new.id, new.agent_id.as_str()), (handoff.id, "successor"));
    assert_eq!((new.status, new.step_count, new.last_seq), (Status::Running, 2, 5));
    assert_eq!((new.pending_turns, new.cost_usd, new.handed_to), (0, 0.0, None));
    assert_eq!(new.snapshot.map(|s| (s.id, s.seq)), Some((handoff.snapshot, 5)));
    assert_eq!(texts(&*store, new.id).await, ["ask 1", "1", "ask 2", "2", "go on"]);
    take_turn(&*store, new.id, instance(), "gladly").await;
    assert_eq!(pending(&*store, new.id).await, ["gladly"]);

    let old = store.session(source.id).await.unwrap().unwrap();
    assert_eq!((old.status, old.handed_to), (Status::Suspended, Some(new.id)));
    assert_eq!((old.last_seq, old.agent_id), (4, source.agent_id));
    let (export, bundle) = store.export(handoff.export.id).await.unwrap().unwrap();
    assert_eq!((export.imported, bundle.is_some()), (Some((at(), new.id)), true));
}

async fn sbp_l3_10_turns_before_a_handoff_stay_with_the_agent_that_took_them(store: S) {
    let mut import = import_of("elsewhere", 2);
    import.entries[1].entry.agent_id = Some("guest".parse().unwrap());
    let source = store.import(import).await.unwrap().session;
    let new = store.hand_off(handoff_of(&source)).await.unwrap().session;
    let fork = store.fork(fork_of(new.id, None)).await.unwrap().session;
    for deleted in [false, true] {
        if deleted {
            store.delete_session(source.id).await.unwrap();
        }
        for id in [new.id, fork.id] {
            let packed = store.pack(id).await.unwrap().unwrap();
            let who: Vec<_> =
                packed.entries.iter().map(|e| e.agent_id.as_ref().map(|a| a.as_str())).collect();
            let theirs = Some("default");
            assert_eq!(who, [theirs, Some("guest"), theirs, theirs, None]);
        }
    }
}

async fn sbp_l3_14_an_ended_session_can_be_handed_over(store: S) {
    for (change, status) in [(Change::Complete, Status::Completed), (Change::Fail, Status::Failed)]
    {
        let source = with_two_turns(&*store).await;
        store.change_status(source.id, change, at()).await.unwrap();
        let new = store.hand_off(handoff_of(&source)).await.unwrap().session;
        let old = store.session(source.id).await.unwrap().unwrap();
        assert_eq!((old.status, old.handed_to), (status, Some(new.id)));
        take_turn(&*store, new.id, instance(), "on").await;
    }
}

async fn g3_a_handoff_under_a_key_is_made_once(store: S) {
    let source = with_two_turns(&*store).await;
    let mut first = handoff_of(&source);
    first.key = Some(key("s", "k", 1));
    store.hand_off(first.clone()).await.unwrap();
    take_turn(&*store, first.id, instance(), "since").await;
    let mut again = handoff_of(&source);
    again.key = first.key.clone();
    let same = store.hand_off(again.clone()).await.unwrap();
    assert_eq!((same.session.id, same.point, same.replayed), (first.id, (4, 2), true));
    assert_eq!(same.export_id, Some(first.export.id));
    assert_eq!(store.exports(source.id).await.unwrap().len(), 1);
    again.key = Some(key("s", "k", 2));
    assert_eq!(store.hand_off(again).await.unwrap_err(), Error::KeyReused);
}

async fn g6_a_handoff_ends_the_attachment(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    let source = take_turn(&*store, id, me, "a").await;
    let epoch = store.attach(attach_to(id, me)).await.unwrap().epoch;
    store.hand_off(handoff_of(&source)).await.unwrap();
    let old = store.session(id).await.unwrap().unwrap();
    assert_eq!((old.surface, old.attach_epoch), (None, epoch + 1));
    store.confirm(id, epoch, 2).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["a"], "the old socket has no rights");
    assert!(!store.detach(id, epoch, at()).await.unwrap());
    // What waits there can still be fetched, but that wakes nobody.
    let attached = store.attach(attach_to(id, me)).await.unwrap();
    assert_eq!(attached.session.status, Status::Suspended);
    store.confirm(id, attached.epoch, 2).await.unwrap();
    assert!(pending(&*store, id).await.is_empty());
    assert!(store.detach(id, attached.epoch, at()).await.unwrap());
    assert_eq!(store.session(id).await.unwrap().unwrap().status, Status::Suspended);
}

async fn g8_a_session_that_moved_on_is_not_handed_over(store: S) {
    let me = instance();
    let source = with_two_turns(&*store).await;
    let early = handoff_of(&source);
    let running = turn_in(source.id, me);
    store.accept_turn(running.clone()).await.unwrap();
    assert_eq!(store.hand_off(early.clone()).await.unwrap_err(), Error::MovedOn);
    store.finish_turn(finish(running.id, me, vec![said("q"), answered("a")])).await.unwrap();
    assert_eq!(store.hand_off(early.clone()).await.unwrap_err(), Error::MovedOn);

    let unchanged = store.session(source.id).await.unwrap().unwrap();
    assert_eq!((unchanged.status, unchanged.handed_to), (Status::Running, None));
    assert!(store.session(early.id).await.unwrap().is_none());
    assert!(store.export(early.export.id).await.unwrap().is_none());
    assert_eq!(store.family(early.id.to_string(), 9).await.unwrap().edges, []);
    take_turn(&*store, source.id, me, "still here").await;
    let mut nobody = handoff_of(&source);
    nobody.source = new_session().id;
    assert_eq!(store.hand_off(nobody).await.unwrap_err(), Error::NoSession);
}

async fn g8_a_session_that_was_handed_over_never_runs_again(store: S) {
    let me = instance();
    let source = with_two_turns(&*store).await;
    let new = store.hand_off(handoff_of(&source)).await.unwrap().session.id;
    let gone = Error::HandedOver(new);
    assert_eq!(store.hand_off(handoff_of(&source)).await.unwrap_err(), gone);
    assert_eq!(store.accept_turn(turn_in(source.id, me)).await.unwrap_err(), gone);
    let woken = store.change_status(source.id, Change::Resumed, at()).await;
    assert_eq!(woken.unwrap_err(), gone);
    let unasked = turn(TurnSession::Existing { id: source.id, resume: false }, me);
    assert_eq!(store.accept_turn(unasked).await.unwrap_err(), gone);
    assert_eq!(texts(&*store, source.id).await.len(), 4);
    // A fork of it is a session of its own, and it can be ended.
    let fork = store.fork(fork_of(source.id, None)).await.unwrap().session.id;
    take_turn(&*store, fork, me, "on").await;
    let ended = store.change_status(source.id, Change::Complete, at()).await.unwrap();
    assert_eq!(ended.status, Status::Completed);
    // Not even its successor's end brings it back.
    store.delete_session(new).await.unwrap();
    assert!(store.accept_turn(turn_in(source.id, me)).await.is_err());
}

async fn g8_one_of_many_handoffs_succeeds(store: S) {
    let me = instance();
    let source = with_two_turns(&*store).await;
    let handoffs: Vec<_> = (0..16)
        .map(|_| {
            let (store, handoff) = (Arc::clone(&store), handoff_of(&source));
            tokio::spawn(async move { store.hand_off(handoff).await.map(|made| made.session.id) })
        })
        .collect();
    let turn = {
        let (store, turn) = (Arc::clone(&store), turn_in(source.id, me));
        tokio::spawn(async move { store.accept_turn(turn).await })
    };
    let mut made = Vec::new();
    for handoff in handoffs {
        made.extend(handoff.await.unwrap().ok());
    }
    let turn = turn.await.unwrap();
    let accepted = matches!(turn, Ok(Accepted::Fresh { .. }));
    let source = store.session(source.id).await.unwrap().unwrap();
    assert_eq!(made.len(), usize::from(!accepted), "the turn or one handoff, never both");
    assert_eq!(source.handed_to, made.first().copied());
    assert_eq!(store.exports(source.id).await.unwrap().len(), made.len());
}
