//! Contract of every backend: handoffs.

use std::sync::Arc;

use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::session::{Command, HandOff, Input, Refusal, Reply};
use bowline_store::{CommitError, EdgeKind, Error, Session};

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l3_10_the_successor_has_all_the_history_and_the_bridge
    sbp_l3_10_turns_before_a_handoff_stay_with_the_agent_that_took_them
    sbp_l3_10_turns_behind_a_handoff_are_not_run
    sbp_l3_14_an_ended_session_can_be_handed_over
    g3_a_handoff_under_a_key_is_made_once
    g6_a_handoff_ends_the_attachment
    g8_a_session_that_moved_on_is_not_handed_over
    g8_a_session_that_was_handed_over_never_runs_again
    g8_one_of_many_handoffs_succeeds
}

async fn with_two_turns(store: &S) -> Session {
    store.import(import_of("elsewhere", 2)).await.unwrap().session
}

async fn sbp_l3_10_the_successor_has_all_the_history_and_the_bridge(store: S) {
    let source = with_two_turns(&store).await;
    let handoff = HandOff { key: Some(key("s", "k", 1)), ..handoff() };
    let new = hand_off(&store, source.id, handoff.clone()).await;
    assert_eq!((new.id, new.agent_id.as_str()), (handoff.id, "successor"));
    assert_eq!(new.token_hash, handoff.token_hash);
    assert_eq!((new.status, new.step_count, new.last_seq), (Status::Running, 2, 5));
    assert_eq!((new.pending_turns, new.cost_usd, new.handed_to), (0, 0.0, None));
    assert_eq!(new.snapshot.map(|snapshot| snapshot.seq), Some(5));
    assert_eq!(texts(&store, new.id).await, ["ask 1", "1", "ask 2", "2", "go on"]);
    let (made, edge) = store.made_under(key("s", "k", 1)).await.unwrap().unwrap();
    assert_eq!((made.session.id, made.point, made.replayed), (new.id, (4, 2), true));
    assert_eq!(made.export_id, Some(handoff.export_id));
    assert_eq!((edge.kind, edge.export_id), (EdgeKind::Handoff, Some(handoff.export_id)));
    assert_eq!((edge.origin, edge.session), (source.id.to_string(), new.id.to_string()));
    assert_eq!((&*edge.detail, edge.at), (r#"{"reason":"because"}"#, at()));
    take_turn(&store, new.id, "gladly").await;
    assert_eq!(pending(&store, new.id).await, ["gladly"]);

    let old = store.session(source.id).await.unwrap().unwrap();
    assert_eq!((old.status, old.handed_to), (Status::Suspended, Some(new.id)));
    assert_eq!((old.last_seq, old.agent_id), (4, source.agent_id));
    let (export, bundle) = store.export(handoff.export_id).await.unwrap().unwrap();
    assert_eq!((export.imported, bundle), (Some((at(), new.id)), None), "used up as it is made");
    assert_eq!((export.session_id, export.message_count), (source.id, 2));
    assert_eq!((export.cid, export.expires_at), ([7; 32], later(3600)));
}

async fn sbp_l3_10_turns_before_a_handoff_stay_with_the_agent_that_took_them(store: S) {
    let mut import = import_of("elsewhere", 2);
    import.entries[1].entry.agent_id = Some("guest".parse().unwrap());
    let source = store.import(import).await.unwrap().session;
    let new = hand_off(&store, source.id, handoff()).await;
    let fork = store.fork(fork_of(new.id, None)).await.unwrap().session;
    for deleted in [false, true] {
        if deleted {
            delete(&store, source.id).await;
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

async fn sbp_l3_10_turns_behind_a_handoff_are_not_run(store: S) {
    let mut live = Live::of(&store, with_two_turns(&store).await.id).await;
    live.submit("before").await;
    let handoff = handoff();
    assert_eq!(live.ask(Command::HandOff(handoff.clone())).await, None, "it waits");
    live.submit("behind").await;
    live.answer("answered").await;
    assert!(store.session(handoff.id).await.unwrap().is_none(), "its bundle is being made");
    let packed = live.packed(handoff.id);
    live.fact(packed).await;
    let new = store.session(handoff.id).await.unwrap().unwrap();
    let history = texts(&store, new.id).await;
    assert_eq!(history[4..], ["before", "answered", "go on"]);
    assert_eq!(new.step_count, 3);
    assert!(store.load(live.id()).await.unwrap().unwrap().turns.is_empty());
    assert_eq!(pending(&store, live.id()).await.len(), 2, "its sender finds a note");
}

async fn sbp_l3_14_an_ended_session_can_be_handed_over(store: S) {
    for (change, status) in [(Change::Complete, Status::Completed), (Change::Fail, Status::Failed)]
    {
        let source = with_two_turns(&store).await;
        change_status(&store, source.id, change).await;
        let new = hand_off(&store, source.id, handoff()).await;
        let old = store.session(source.id).await.unwrap().unwrap();
        assert_eq!((old.status, old.handed_to), (status, Some(new.id)));
        take_turn(&store, new.id, "on").await;
    }
}

async fn g3_a_handoff_under_a_key_is_made_once(store: S) {
    let source = with_two_turns(&store).await;
    let named = |body| HandOff { key: Some(key("s", "k", body)), ..handoff() };
    let first = named(1);
    hand_off(&store, source.id, first.clone()).await;
    take_turn(&store, first.id, "since").await;
    let (same, _) = store.made_under(key("s", "k", 1)).await.unwrap().unwrap();
    assert_eq!((same.session.id, same.point, same.replayed), (first.id, (4, 2), true));
    assert_eq!(same.export_id, Some(first.export_id));
    assert_eq!(same.session.last_seq, 7, "as it stands now");
    let other = store.made_under(key("s", "k", 2)).await;
    assert_eq!(other.unwrap_err(), Error::KeyReused);
    let again = Live::of(&store, source.id).await.hand_off(named(1)).await;
    assert_eq!(again, Some(Reply::Refused(Refusal::KeyReused)));
    assert_eq!(store.exports(source.id).await.unwrap().len(), 1);
}

async fn g6_a_handoff_ends_the_attachment(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.turn("a").await;
    let epoch = live.join(None).await.epoch;
    live.join(Some("phone")).await;
    let to = handoff();
    assert!(is_handed_to(to.id, live.hand_off(to.clone()).await.as_ref()));
    let old = live.stored().await;
    assert_eq!((old.surface, old.attach_epoch), (None, epoch + 2));
    assert!(store.attached(id).await.unwrap().is_empty());
    live.confirm(epoch, 2).await;
    assert_eq!(pending(&store, id).await, ["a"], "the old socket has no rights");
    // Undelivered turns of a handed-off session can still be fetched, but it is not resumed.
    let attached = live.attach(None).await;
    assert_eq!(live.stored().await.status, Status::Suspended);
    live.confirm(attached.epoch, 2).await;
    assert!(pending(&store, id).await.is_empty());
    live.leave(attached.epoch).await;
    assert_eq!(live.stored().await.status, Status::Suspended);
}

/// Prepares the commit of a handoff.
async fn ready(live: &mut Live, handoff: &HandOff) -> Arc<bowline_store::Commit> {
    assert_eq!(live.ask(Command::HandOff(handoff.clone())).await, None);
    let packed = live.packed(handoff.id);
    live.prepare(vec![Input::Fact(packed)])
}

async fn g8_a_session_that_moved_on_is_not_handed_over(store: S) {
    let source = with_two_turns(&store).await;
    let early = HandOff { key: Some(key("s", "k", 1)), ..handoff() };
    let commit = ready(&mut Live::of(&store, source.id).await, &early).await;
    take_turn(&store, source.id, "still here").await;
    assert_eq!(store.commit(commit).await, Err(CommitError::Fenced));

    let unchanged = store.session(source.id).await.unwrap().unwrap();
    assert_eq!((unchanged.status, unchanged.handed_to), (Status::Running, None));
    assert!(store.session(early.id).await.unwrap().is_none());
    assert!(store.export(early.export_id).await.unwrap().is_none());
    assert_eq!(
        store.family(early.id.to_string(), bowline_sbp::access::OWNER, 9).await.unwrap().edges,
        []
    );
    assert_eq!(store.known(key("s", "k", 1)).await.unwrap(), None);
    take_turn(&store, source.id, "and here").await;
}

async fn g8_a_session_that_was_handed_over_never_runs_again(store: S) {
    let source = with_two_turns(&store).await;
    let mut live = Live::of(&store, source.id).await;
    let first = handoff();
    assert!(is_handed_to(first.id, live.hand_off(first.clone()).await.as_ref()));
    // The next owner of the lease knows about the handoff, too.
    for mut owner in [live, Live::of(&store, source.id).await] {
        let gone = Some(Reply::Refused(Refusal::HandedOver(first.id)));
        assert_eq!(owner.hand_off(handoff()).await, gone);
        let turn = Command::Submit(submit(new_turn(), request("more"), None));
        assert_eq!(owner.ask(turn).await, gone);
        assert_eq!(owner.ask(Command::SetStatus(Change::Resumed)).await, gone);
    }
    assert_eq!(texts(&store, source.id).await.len(), 4);
    // A fork of it is an independent session, and the source can still be ended.
    let fork = store.fork(fork_of(source.id, None)).await.unwrap().session.id;
    take_turn(&store, fork, "on").await;
    change_status(&store, source.id, Change::Complete).await;
    let ended = store.session(source.id).await.unwrap().unwrap();
    assert_eq!(ended.status, Status::Completed);
    // Deleting its successor does not reactivate it.
    delete(&store, first.id).await;
    let turn = Command::Submit(submit(new_turn(), request("more"), None));
    let refused = Live::of(&store, source.id).await.ask(turn).await;
    assert!(matches!(refused, Some(Reply::Refused(_))), "{refused:?}");
}

async fn g8_one_of_many_handoffs_succeeds(store: S) {
    let source = with_two_turns(&store).await;
    let mut commits = Vec::new();
    for _ in 0..16 {
        let (mut live, handoff) = (Live::of(&store, source.id).await, handoff());
        commits.push((Some(handoff.id), ready(&mut live, &handoff).await));
    }
    commits.push((None, Live::of(&store, source.id).await.prepare(whole_turn("a turn"))));
    let tasks: Vec<_> = commits
        .into_iter()
        .map(|(made, commit)| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { (made, store.commit(commit).await) })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            (made, Ok(())) => won.push(made),
            (_, Err(refused)) => assert_eq!(refused, CommitError::Fenced),
        }
    }
    assert_eq!(won.len(), 1, "the turn or one handoff, never both");
    let after = store.session(source.id).await.unwrap().unwrap();
    assert_eq!(after.handed_to, won[0]);
    let exports = store.exports(source.id).await.unwrap();
    assert_eq!(exports.len(), usize::from(won[0].is_some()));
    assert_eq!(all_sessions(&store).await.len(), 1 + exports.len());
}
