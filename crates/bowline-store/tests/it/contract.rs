//! What every backend must do with sessions, turns and surfaces.

use std::sync::Arc;

use bowline_sbp::lifecycle::{Change, Status};
use bowline_store::{Accepted, EntryKind, Error, Page, Store, TurnSession};

use crate::backends::backends;
use crate::fixture::*;

backends! {
    sbp_l1_01_a_session_is_made_idle_and_found_again
    a_session_that_is_not_listed_is_found_by_its_id_only
    sbp_l1_01_two_sessions_never_share_a_token
    g1_positions_are_contiguous_under_concurrency
    g3_the_same_key_and_body_give_the_same_turn
    g3_another_body_under_the_same_key_is_refused
    g3_keys_are_forgotten_when_old_but_not_while_their_turn_runs
    g4_an_abandoned_turn_leaves_nothing
    g5_the_cursor_never_moves_back_or_past_the_log
    g6_an_older_attachment_cannot_act
    g14_order_does_not_follow_the_clock
    sbp_l2_12_turns_wait_until_confirmed
    sbp_l2_13_unfinished_turns_are_taken_over_and_counted
    sbp_l2_14_a_snapshot_is_taken_every_so_many_turns
    sbp_l2_15_a_suspended_session_is_not_run_unasked
    sbp_l2_19_an_untethered_turn_is_never_pending
    a_superseded_instance_cannot_finish
    an_ended_session_takes_no_turn
    a_failed_operation_does_not_disturb_its_neighbours
    history_leaves_out_notes_and_pages_go_both_ways
    lists_are_newest_first_and_paged
    a_deleted_session_is_gone_with_all_it_held
    a_secret_is_made_once
}

type S = Arc<dyn Store>;

async fn sbp_l1_01_a_session_is_made_idle_and_found_again(store: S) {
    let new = new_session();
    let made = store.create_session(new.clone(), None).await.unwrap().session;
    assert_eq!((made.status, made.step_count, made.last_seq), (Status::Idle, 0, 0));
    assert_eq!(store.session(new.id).await.unwrap().unwrap().id, new.id);
    assert_eq!(store.session_by_token(new.token_hash).await.unwrap().unwrap().id, new.id);
    assert!(store.session(new_session().id).await.unwrap().is_none());
}

async fn a_session_that_is_not_listed_is_found_by_its_id_only(store: S) {
    let new = bowline_store::NewSession { listed: false, ..new_session() };
    store.create_session(new.clone(), None).await.unwrap();
    assert!(store.session_by_token(new.token_hash).await.unwrap().is_none());
    assert_eq!(store.session(new.id).await.unwrap().unwrap().token_hash, new.token_hash);
}

async fn sbp_l1_01_two_sessions_never_share_a_token(store: S) {
    let first = new_session();
    let mut second = new_session();
    second.token_hash = first.token_hash;
    store.create_session(first, None).await.unwrap();
    assert_eq!(store.create_session(second, None).await.unwrap_err(), Error::TokenTaken);
}

async fn g1_positions_are_contiguous_under_concurrency(store: S) {
    let me = instance();
    let sessions = [made(&*store).await.id, made(&*store).await.id, made(&*store).await.id];
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                take_turn(&*store, sessions[n % 3], me, &n.to_string()).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for id in sessions {
        let entries = store.entries_after(id, 0, 1000).await.unwrap();
        let seqs: Vec<_> = entries.iter().map(|e| e.seq).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<_>>());
        let session = store.session(id).await.unwrap().unwrap();
        assert_eq!((session.step_count, session.last_seq), (20, 40));
        assert_eq!(session.cost_usd, 10.0);
    }
}

async fn g3_the_same_key_and_body_give_the_same_turn(store: S) {
    let me = instance();
    let mut first = turn(TurnSession::New(new_session()), me);
    first.key = Some(key("caller", "k", 1));
    let Accepted::Fresh { session, .. } = store.accept_turn(first.clone()).await.unwrap() else {
        panic!()
    };
    let mut again = turn(TurnSession::New(new_session()), me);
    again.key = first.key.clone();
    let known = |accepted| match accepted {
        Accepted::Known { turn_id, session, result } => (turn_id, session.id, result),
        other => panic!("{other:?}"),
    };
    let running = known(store.accept_turn(again.clone()).await.unwrap());
    assert_eq!(running, (first.id, session.id, None));

    let mut end = finish(first.id, me, vec![said("q"), answered("a")]);
    end.result = Some("the answer".into());
    store.finish_turn(end).await.unwrap();
    let ended = known(store.accept_turn(again).await.unwrap());
    assert_eq!(ended, (first.id, session.id, Some("the answer".into())));
    let all = Page { before: None, limit: 10, status: None };
    assert_eq!(store.sessions(all).await.unwrap().len(), 1, "no second session was made");

    let new = new_session();
    let made = store.create_session(new.clone(), Some(key("c", "s", 1))).await.unwrap();
    let again = store.create_session(new_session(), Some(key("c", "s", 1))).await.unwrap();
    assert_eq!((made.replayed, again.replayed, again.session.id), (false, true, new.id));
}

async fn g3_another_body_under_the_same_key_is_refused(store: S) {
    let me = instance();
    let session = made(&*store).await;
    let mut first = turn_in(session.id, me);
    first.key = Some(key("s", "k", 1));
    store.accept_turn(first).await.unwrap();
    let mut other = turn_in(session.id, me);
    other.key = Some(key("s", "k", 2));
    assert_eq!(store.accept_turn(other.clone()).await.unwrap_err(), Error::KeyReused);
    other.key = Some(key("another scope", "k", 2));
    assert!(matches!(store.accept_turn(other).await.unwrap(), Accepted::Fresh { .. }));
}

async fn g3_keys_are_forgotten_when_old_but_not_while_their_turn_runs(store: S) {
    let me = instance();
    let session = made(&*store).await;
    let mut running = turn_in(session.id, me);
    running.key = Some(key("s", "running", 1));
    store.accept_turn(running.clone()).await.unwrap();
    store.create_session(new_session(), Some(key("s", "old", 1))).await.unwrap();
    let later = at().checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    assert_eq!(store.forget_keys(at()).await.unwrap(), 0);
    assert_eq!(store.forget_keys(later).await.unwrap(), 1);
    assert!(matches!(store.accept_turn(running).await.unwrap(), Accepted::Known { .. }));
}

async fn g4_an_abandoned_turn_leaves_nothing(store: S) {
    let me = instance();
    let new = new_session();
    let mut first = turn(TurnSession::New(new.clone()), me);
    first.key = Some(key("c", "k", 1));
    store.accept_turn(first.clone()).await.unwrap();
    store.abandon_turn(first.id, me).await.unwrap();
    assert!(store.session(new.id).await.unwrap().is_none());
    assert!(matches!(store.accept_turn(first.clone()).await.unwrap(), Accepted::Fresh { .. }));
    store.finish_turn(finish(first.id, me, vec![said("q"), answered("a")])).await.unwrap();

    // In a session with a history only the turn goes.
    let second = turn_in(new.id, me);
    store.accept_turn(second.clone()).await.unwrap();
    store.abandon_turn(second.id, me).await.unwrap();
    let session = store.session(new.id).await.unwrap().unwrap();
    assert_eq!((session.last_seq, session.status), (2, Status::Running));

    // A session that was there before and never ran is idle again.
    let idle = made(&*store).await;
    let third = turn_in(idle.id, me);
    store.accept_turn(third.clone()).await.unwrap();
    assert_eq!(store.session(idle.id).await.unwrap().unwrap().status, Status::Running);
    store.abandon_turn(third.id, me).await.unwrap();
    assert_eq!(store.session(idle.id).await.unwrap().unwrap().status, Status::Idle);

    // One that was resumed for the turn is suspended again.
    store.change_status(new.id, Change::Suspend, at()).await.unwrap();
    let fourth = turn_in(new.id, me);
    store.accept_turn(fourth.clone()).await.unwrap();
    store.abandon_turn(fourth.id, me).await.unwrap();
    assert_eq!(store.session(new.id).await.unwrap().unwrap().status, Status::Suspended);
}

async fn g5_the_cursor_never_moves_back_or_past_the_log(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    for n in 0..3 {
        take_turn(&*store, id, me, &n.to_string()).await;
    }
    let epoch = store.attach(attach_to(id, me)).await.unwrap().epoch;
    store.confirm(id, epoch, 4).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["2"]);
    store.confirm(id, epoch, 2).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["2"], "never back");
    store.confirm(id, epoch, 400).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["2"], "never past the log");
    store.confirm(id, epoch, 6).await.unwrap();
    assert!(pending(&*store, id).await.is_empty());
}

async fn g6_an_older_attachment_cannot_act(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    take_turn(&*store, id, me, "a").await;
    let older = store.attach(attach_to(id, me)).await.unwrap().epoch;
    let newer = store.attach(attach_to(id, me)).await.unwrap().epoch;
    assert!(newer > older);
    store.confirm(id, older, 2).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["a"]);
    assert!(!store.detach(id, older, at()).await.unwrap());
    let session = store.session(id).await.unwrap().unwrap();
    assert!(session.surface.is_some() && session.status == Status::Running);
    assert!(store.detach(id, newer, at()).await.unwrap());
    assert!(!store.detach(id, newer, at()).await.unwrap(), "once");
    assert_eq!(store.session(id).await.unwrap().unwrap().status, Status::Suspended);
}

async fn g14_order_does_not_follow_the_clock(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    // The wall clock is set back an hour with every turn.
    for n in 0..4i64 {
        let turn = turn_in(id, me);
        store.accept_turn(turn.clone()).await.unwrap();
        let mut end = finish(turn.id, me, vec![said("q"), answered(&n.to_string())]);
        end.at = at().checked_sub(jiff::SignedDuration::from_hours(n)).unwrap();
        store.finish_turn(end).await.unwrap();
    }
    assert_eq!(pending(&*store, id).await, ["0", "1", "2", "3"]);
    let entries = store.entries_after(id, 0, 100).await.unwrap();
    assert!(entries.is_sorted_by_key(|entry| entry.seq));
    assert!(entries.first().unwrap().created_at > entries.last().unwrap().created_at);
}

async fn sbp_l2_12_turns_wait_until_confirmed(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    let long = "and so on ".repeat(100);
    let all: Vec<_> = (0..700).map(|n| format!("{n} {long}")).collect();
    for text in &all {
        take_turn(&*store, id, me, text).await;
    }
    assert_eq!(pending(&*store, id).await, all, "in order, over several pages");
    let attached = store.attach(attach_to(id, me)).await.unwrap();
    assert_eq!(attached.session.pending_turns, 700);
    assert_eq!(pending(&*store, id).await, all, "attaching delivers nothing");
    store.confirm(id, attached.epoch, 1000).await.unwrap();
    assert_eq!(pending(&*store, id).await, all[500..]);
}

async fn sbp_l2_13_unfinished_turns_are_taken_over_and_counted(store: S) {
    let dead = instance();
    let id = made(&*store).await.id;
    take_turn(&*store, id, dead, "before").await;
    store.attach(attach_to(id, dead)).await.unwrap();
    let running = turn_in(id, dead);
    store.accept_turn(running.clone()).await.unwrap();
    let mut waiting = turn_in(id, dead);
    waiting.started = false;
    store.accept_turn(waiting.clone()).await.unwrap();

    let next = instance();
    let found = store.take_over(next, at()).await.unwrap();
    let found: Vec<_> = found.iter().map(|t| (t.id, t.session_id, t.attempt)).collect();
    assert_eq!(found, [(running.id, id, 2), (waiting.id, id, 1)]);
    let session = store.session(id).await.unwrap().unwrap();
    assert_eq!((session.status, session.surface), (Status::Suspended, None));
    assert!(store.take_over(next, at()).await.unwrap().is_empty(), "they are ours now");

    // Only what ran counts as interrupted again.
    store.start_turn(running.id, next).await.unwrap();
    let last = instance();
    let attempts: Vec<_> =
        store.take_over(last, at()).await.unwrap().iter().map(|t| t.attempt).collect();
    assert_eq!(attempts, [3, 1]);
}

async fn sbp_l2_14_a_snapshot_is_taken_every_so_many_turns(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    let mut seen = Vec::new();
    for n in 0..4 {
        let turn = turn_in(id, me);
        store.accept_turn(turn.clone()).await.unwrap();
        let mut end = finish(turn.id, me, vec![said("q"), answered(&n.to_string())]);
        end.checkpoint_every = 2;
        let seq = store.finish_turn(end).await.unwrap();
        let session = store.session(id).await.unwrap().unwrap();
        assert_eq!(session.last_seq, seq, "what is answered is what is stored");
        seen.push(session.snapshot.map(|s| s.seq));
    }
    assert_eq!(seen, [None, Some(4), Some(4), Some(8)]);
}

async fn sbp_l2_15_a_suspended_session_is_not_run_unasked(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    take_turn(&*store, id, me, "a").await;
    store.change_status(id, Change::Suspend, at()).await.unwrap();
    let unasked = turn(TurnSession::Existing { id, resume: false }, me);
    let Accepted::Suspended { session } = store.accept_turn(unasked).await.unwrap() else {
        panic!()
    };
    assert_eq!(session.step_count, 1);
    assert!(store.take_over(instance(), at()).await.unwrap().is_empty(), "nothing was stored");
    let Accepted::Fresh { session, .. } = store.accept_turn(turn_in(id, me)).await.unwrap() else {
        panic!()
    };
    assert_eq!(session.status, Status::Running);
}

async fn sbp_l2_19_an_untethered_turn_is_never_pending(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    take_turn(&*store, id, me, "for the phone").await;
    let turn = turn_in(id, me);
    store.accept_turn(turn.clone()).await.unwrap();
    let mut quiet = answered("for the script");
    quiet.tethered = false;
    store.finish_turn(finish(turn.id, me, vec![said("q"), quiet])).await.unwrap();
    assert_eq!(pending(&*store, id).await, ["for the phone"]);
}

async fn a_superseded_instance_cannot_finish(store: S) {
    let asleep = instance();
    let id = made(&*store).await.id;
    let turn = turn_in(id, asleep);
    store.accept_turn(turn.clone()).await.unwrap();
    let awake = instance();
    store.take_over(awake, at()).await.unwrap();
    let entries = || vec![said("q"), answered("a")];
    let late = store.finish_turn(finish(turn.id, asleep, entries())).await;
    assert_eq!(late.unwrap_err(), Error::Superseded);
    assert_eq!(store.abandon_turn(turn.id, asleep).await, Err(Error::Superseded));
    assert_eq!(store.start_turn(turn.id, asleep).await, Err(Error::Superseded));
    store.finish_turn(finish(turn.id, awake, entries())).await.unwrap();
    let twice = store.finish_turn(finish(turn.id, awake, entries())).await;
    assert_eq!(twice.unwrap_err(), Error::Superseded);
    assert_eq!(store.entries_after(id, 0, 10).await.unwrap().len(), 2);
}

async fn an_ended_session_takes_no_turn(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    store.change_status(id, Change::Complete, at()).await.unwrap();
    let refused = store.accept_turn(turn_in(id, me)).await.unwrap_err();
    assert_eq!(refused, Error::Ended(Status::Completed));
    let illegal = store.change_status(id, Change::Resumed, at()).await.unwrap_err();
    assert!(matches!(illegal, Error::Illegal(_)));
    let nobody = new_session().id;
    assert_eq!(store.accept_turn(turn_in(nobody, me)).await.unwrap_err(), Error::NoSession);
}

async fn a_failed_operation_does_not_disturb_its_neighbours(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    let nobody = new_session().id;
    let (good, bad, also_good) = tokio::join!(
        store.accept_turn(turn_in(id, me)),
        store.accept_turn(turn_in(nobody, me)),
        store.accept_turn(turn_in(id, me)),
    );
    assert!(good.is_ok() && also_good.is_ok());
    assert_eq!(bad.unwrap_err(), Error::NoSession);
    assert_eq!(store.take_over(instance(), at()).await.unwrap().len(), 2);
}

async fn history_leaves_out_notes_and_pages_go_both_ways(store: S) {
    let me = instance();
    let id = made(&*store).await.id;
    take_turn(&*store, id, me, "a").await;
    let turn = turn_in(id, me);
    store.accept_turn(turn.clone()).await.unwrap();
    let mut note = answered("note");
    note.kind = EntryKind::Note;
    store.finish_turn(finish(turn.id, me, vec![said("b"), note])).await.unwrap();
    let history: Vec<_> = store.history(id).await.unwrap().iter().map(|m| m.content()).collect();
    assert_eq!(history, ["ask a", "a", "b"]);
    let texts = |page: Vec<bowline_store::Entry>| -> Vec<String> {
        page.iter().map(|e| e.message.content()).collect()
    };
    assert_eq!(texts(store.entries_after(id, 1, 2).await.unwrap()), ["a", "b"]);
    assert_eq!(texts(store.entries_before(id, 4, 2).await.unwrap()), ["a", "b"]);
    assert_eq!(texts(store.entries_before(id, u64::MAX, 1).await.unwrap()), ["note"]);
    assert_eq!(pending(&*store, id).await, ["a", "note"]);
    assert_eq!(store.session(id).await.unwrap().unwrap().step_count, 1, "a note is no step");
}

async fn lists_are_newest_first_and_paged(store: S) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(made(&*store).await.id);
    }
    store.change_status(ids[1], Change::Complete, at()).await.unwrap();
    ids.reverse();
    let page = |before, limit, status| Page { before, limit, status };
    let list = async |page| -> Vec<_> {
        store.sessions(page).await.unwrap().iter().map(|s| s.id).collect()
    };
    let first: Vec<_> = list(page(None, 3, None)).await;
    assert_eq!(first, ids[..3]);
    let rest: Vec<_> = list(page(Some(first[2]), 3, None)).await;
    assert_eq!(rest, ids[3..]);
    let done: Vec<_> = list(page(None, 9, Some(Status::Completed))).await;
    assert_eq!(done, [ids[3]]);
}

async fn a_deleted_session_is_gone_with_all_it_held(store: S) {
    let me = instance();
    let kept = made(&*store).await.id;
    let gone = made(&*store).await.id;
    for id in [kept, gone] {
        take_turn(&*store, id, me, "a").await;
    }
    store.accept_turn(turn_in(gone, me)).await.unwrap();
    assert!(store.delete_session(gone).await.unwrap());
    assert!(!store.delete_session(gone).await.unwrap());
    assert!(store.session(gone).await.unwrap().is_none());
    assert!(store.history(gone).await.unwrap().is_empty());
    assert_eq!(store.history(kept).await.unwrap().len(), 2);
    assert!(store.take_over(instance(), at()).await.unwrap().is_empty());
}

async fn a_secret_is_made_once(store: S) {
    assert_eq!(store.secret("a", [1; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.secret("a", [2; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.secret("b", [2; 32]).await.unwrap(), [2; 32]);
}
