//! Contract of every backend: a session's log.

use std::sync::Arc;

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::session::{
    Allowed, Command, Consent, Fact, Input, OpenCall, OpenCalls, SentCall, TurnRequest, Write,
};
use bowline_store::{Commit, CommitError, Entry, EntryKind, NewEntry, SnapshotKind};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g1_positions_are_contiguous_under_concurrency
    g1_positions_go_on_over_calls_notes_and_waiting_turns
    g4_an_abandoned_turn_leaves_nothing
    g14_order_does_not_follow_the_clock
    sbp_l2_14_a_snapshot_is_taken_every_so_many_turns
    sbp_l2_14_a_snapshot_is_taken_before_and_after_an_action
    sbp_l2_14_an_advanced_turn_goes_on_after_a_crash
    g16_what_an_owner_leaves_open_is_loaded_by_the_next_one
    history_leaves_out_notes_and_pages_go_both_ways
    an_entry_comes_back_as_it_was_written
    a_failed_operation_does_not_disturb_its_neighbours
    a_commit_that_meets_its_key_does_not_disturb_its_neighbours
}

/// Many actors of each session at once: one whose commit is fenced reloads and retries.
async fn g1_positions_are_contiguous_under_concurrency(store: S) {
    let sessions = [made(&store).await.id, made(&store).await.id, made(&store).await.id];
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let (store, id) = (Arc::clone(&store), sessions[n % 3]);
            tokio::spawn(async move {
                for _ in 0..1000 {
                    let mut live = Live::of(&store, id).await;
                    match live.feed(whole_turn(&n.to_string())).await {
                        Ok(_) => return,
                        Err(refused) => assert_eq!(refused, CommitError::Fenced),
                    }
                    tokio::task::yield_now().await;
                }
                panic!("turn {n} never got through");
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for (nth, id) in sessions.into_iter().enumerate() {
        let entries = store.entries_after(id, 0, 1000).await.unwrap();
        let seqs: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<_>>());
        let session = store.session(id).await.unwrap().unwrap();
        assert_eq!((session.step_count, session.last_seq), (20, 40));
        assert_eq!((session.cost_usd, session.pending_turns), (10.0, 20));
        let mut answers = pending(&store, id).await;
        answers.sort_by_key(|text| text.parse::<usize>().unwrap());
        let all: Vec<_> = (nth..60).step_by(3).map(|n| n.to_string()).collect();
        assert_eq!(answers, all, "each turn once");
    }
}

async fn g1_positions_go_on_over_calls_notes_and_waiting_turns(store: S) {
    let mut live = Live::new(&store).await;
    let first = live.submit("first").await;
    let second = live.submit("second").await;
    let asked = live.call_tools(&["camera"]).await;
    let calls = live.decide(asked[0], true).await;
    live.call_ended(calls[0]).await;
    live.answer("1").await;
    live.refuse().await;
    let entries = store.entries_after(live.id(), 0, 99).await.unwrap();
    let seen: Vec<_> = entries.iter().map(|e| (e.seq, e.kind, e.turn_id, e.step)).collect();
    use EntryKind::{Action, Message, Note, Turn};
    let expected = [
        (1, Message, first, 0),
        (2, Action, first, 0),
        (3, Action, first, 0),
        (4, Turn, first, 1),
        (5, Note, second, 1),
    ];
    assert_eq!(seen, expected);
    assert!(store.unfinished(ME).await.unwrap().is_empty(), "all have ended");
}

async fn g4_an_abandoned_turn_leaves_nothing(store: S) {
    let new = new_session();
    let named = || Some(key("c", "k", 1));
    let mut live = Live::making(&store, new.clone()).await;
    live.submit_as(watched("a"), named()).await;
    live.refuse().await;
    assert!(store.session(new.id).await.unwrap().is_none());
    assert_eq!(store.known(key("c", "k", 1)).await.unwrap(), None);
    let mut live = Live::making(&store, new.clone()).await;
    live.submit_as(watched("a"), named()).await;
    live.answer("a").await;

    // In a session with earlier turns only the refused turn is removed.
    live.submit_as(watched("b"), None).await;
    live.refuse().await;
    let session = live.stored().await;
    assert_eq!((session.last_seq, session.status), (2, Status::Running));
    assert!(store.load(new.id).await.unwrap().unwrap().turns.is_empty());

    // An existing session without earlier turns is idle again.
    let mut idle = Live::new(&store).await;
    idle.submit_as(watched("a"), None).await;
    assert_eq!(idle.stored().await.status, Status::Running);
    idle.refuse().await;
    assert_eq!(idle.stored().await.status, Status::Idle);

    // A session that was resumed for the turn is suspended again.
    live.set_status(Change::Suspend).await;
    live.submit_as(watched("c"), None).await;
    live.refuse().await;
    assert_eq!(live.stored().await.status, Status::Suspended);
}

async fn g14_order_does_not_follow_the_clock(store: S) {
    let mut live = Live::new(&store).await;
    // The wall clock is set back an hour with every turn.
    for n in 0..4i64 {
        live.at = later(-3600 * n);
        live.turn(&n.to_string()).await;
    }
    let id = live.id();
    assert_eq!(pending(&store, id).await, ["0", "1", "2", "3"]);
    let entries = store.entries_after(id, 0, 100).await.unwrap();
    assert!(entries.is_sorted_by_key(|entry| entry.seq));
    assert!(entries.first().unwrap().created_at > entries.last().unwrap().created_at);
}

async fn sbp_l2_14_a_snapshot_is_taken_every_so_many_turns(store: S) {
    let mut live = Live::new(&store).await;
    let mut seen = Vec::new();
    for n in 0..4 {
        let every_other = TurnRequest { checkpoint_every: 2, ..request("q") };
        live.submit_as(every_other, None).await;
        live.answer(&n.to_string()).await;
        seen.push(live.stored().await.snapshot.map(|snapshot| snapshot.seq));
    }
    assert_eq!(seen, [None, Some(4), Some(4), Some(8)]);
}

async fn sbp_l2_14_a_snapshot_is_taken_before_and_after_an_action(store: S) {
    let mut live = Live::new(&store).await;
    live.submit("hi").await;
    let asked = live.call_tools(&["camera"]).await;
    let session = live.stored().await;
    let snapshot = session.snapshot.unwrap();
    assert_eq!((snapshot.kind, snapshot.seq), (SnapshotKind::PreAction, 2));
    assert_eq!((session.last_seq, session.step_count, session.pending_turns), (2, 0, 0));
    let calls = live.decide(asked[0], true).await;
    live.call_ended(calls[0]).await;
    let snapshot = live.stored().await.snapshot.unwrap();
    assert_eq!((snapshot.kind, snapshot.seq), (SnapshotKind::PostAction, 3));
    live.answer("done").await;
    let snapshot = live.stored().await.snapshot.unwrap();
    assert_eq!((snapshot.kind, snapshot.seq), (SnapshotKind::Checkpoint, 4));
}

async fn sbp_l2_14_an_advanced_turn_goes_on_after_a_crash(store: S) {
    let mut live = Live::new(&store).await;
    let turn = live.submit("hi").await;
    live.call_tools(&["camera"]).await;
    let loaded = store.load(live.id()).await.unwrap().unwrap();
    let left = &loaded.turns[0];
    assert_eq!((left.id, left.started, left.advanced, left.attempt), (turn, true, true, 1));
    let history = store.history(live.id()).await.unwrap();
    assert_eq!(history.entries.len(), 2, "the model sees what was done");
    let mut heir = Live::of(&store, live.id()).await;
    heir.take_up().await;
    let left = store.load(live.id()).await.unwrap().unwrap().turns.remove(0);
    assert_eq!((left.started, left.advanced, left.attempt), (true, true, 2));
}

async fn g16_what_an_owner_leaves_open_is_loaded_by_the_next_one(store: S) {
    let mut live = Live::new(&store).await;
    let turn = live.submit("hi").await;
    live.call_tools(&["camera", "gps"]).await;
    let id = live.id();
    let left = async || store.load(id).await.unwrap().unwrap().turns.remove(0).open_calls;
    assert_eq!(left().await, None);
    let consent = Consent::Person(Allowed {
        device: Some("phone\u{0}\u{1F4F1}".into()),
        definition: "{}".into(),
        epoch: 3,
        newer_than: 4,
    });
    let sent = SentCall {
        id: Uuid::now_v7(),
        device: Some("phone".into()),
        older: 4,
        until: later(30),
        consent,
    };
    let calls = vec![OpenCall { n: 0, sent: Some(sent) }, OpenCall { n: 1, sent: None }];
    let open = OpenCalls { attempt: 1, stops: 1, calls };
    let mut commit = Commit::clone(&*live.prepare(vec![Input::Fact(Fact::Stop)]));
    commit.writes = vec![
        Write::LeaveOpen { turn, open: OpenCalls { calls: Vec::new(), ..open.clone() } },
        Write::LeaveOpen { turn, open: open.clone() },
    ];
    store.commit(Arc::new(commit)).await.unwrap();
    assert_eq!(left().await, Some(open), "the last one counts");
}

async fn history_leaves_out_notes_and_pages_go_both_ways(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    live.submit("ask b").await;
    live.answer_with(NewEntry { kind: EntryKind::Note, ..answered("note") }).await;
    let id = live.id();
    assert_eq!(texts(&store, id).await, ["ask a", "a", "ask b"]);
    let texts =
        |page: Vec<Entry>| -> Vec<String> { page.iter().map(|e| e.message.content()).collect() };
    assert_eq!(texts(store.entries_after(id, 1, 2).await.unwrap()), ["a", "ask b"]);
    assert_eq!(texts(store.entries_before(id, 4, 2).await.unwrap()), ["a", "ask b"]);
    assert_eq!(texts(store.entries_before(id, u64::MAX, 1).await.unwrap()), ["note"]);
    assert_eq!(pending(&store, id).await, ["a", "note"]);
    assert_eq!(live.stored().await.step_count, 1, "a note is no step");
}

async fn an_entry_comes_back_as_it_was_written(store: S) {
    let mut live = Live::new(&store).await;
    live.at = later(7);
    let turn = live.submit("q").await;
    let written = NewEntry {
        status: TurnStatus::Cancelled,
        agent_id: Some("guest".parse().unwrap()),
        carried: Some(r#"{"x":1}"#.into()),
        ..answered("half an answ")
    };
    live.answer_with(written.clone()).await;
    let read = store.entries_after(live.id(), 1, 9).await.unwrap().remove(0);
    assert_eq!((read.seq, read.turn_id, read.step, read.created_at), (2, turn, 1, later(7)));
    assert_eq!(read.message.as_json(), written.message.as_json());
    assert_eq!((read.kind, read.status, read.tethered), (EntryKind::Turn, written.status, true));
    assert_eq!((read.model, read.cost_usd), (written.model, 0.5));
    assert_eq!((read.agent_id, read.carried), (written.agent_id, written.carried));
}

async fn a_failed_operation_does_not_disturb_its_neighbours(store: S) {
    let (mut one, mut other) = (Live::new(&store).await, Live::new(&store).await);
    let mut stale = Live::new(&store).await;
    Live::of(&store, stale.id()).await.turn("before").await;
    let (first, second) = (one.prepare(whole_turn("a")), other.prepare(whole_turn("b")));
    let refused = stale.prepare(whole_turn("c"));
    let (good, bad, also_good) =
        tokio::join!(store.commit(first), store.commit(refused), store.commit(second));
    assert_eq!((good, also_good), (Ok(()), Ok(())));
    assert_eq!(bad, Err(CommitError::Fenced));
    assert_eq!(texts(&store, one.id()).await, ["ask a", "a"]);
    assert_eq!(texts(&store, other.id()).await, ["ask b", "b"]);
    assert_eq!(texts(&store, stale.id()).await, ["ask before", "before"]);
}

/// The idempotency key is looked up before the first turn with it is stored; that turn has ended
/// when the commit arrives.
async fn a_commit_that_meets_its_key_does_not_disturb_its_neighbours(store: S) {
    let (mut live, mut other) = (Live::new(&store).await, Live::new(&store).await);
    let named = || Some(key("s", "k", 1));
    let late = live.command(Command::Submit(submit(new_turn(), request("q"), named()))).await;
    live.submit_as(request("q"), named()).await;
    live.answer("a").await;
    let before = store.load(live.id()).await.unwrap();
    let (late, neighbour) = (live.prepare(vec![late]), other.prepare(whole_turn("b")));
    let (refused, stored) = tokio::join!(store.commit(late), store.commit(neighbour));
    assert!(matches!(refused, Err(CommitError::Refused(_))), "{refused:?}");
    assert_eq!(stored, Ok(()));
    assert_eq!(store.load(live.id()).await.unwrap(), before);
    assert_eq!(texts(&store, other.id()).await, ["ask b", "b"]);
    live.report(refused);

    // A key whose turn is refused in the same commit can be used again.
    let again = submit(new_turn(), request("q"), Some(key("s", "other", 1)));
    let again = live.command(Command::Submit(again)).await;
    live.submit_as(request("q"), Some(key("s", "other", 1))).await;
    live.feed(vec![live.refusal(), again]).await.unwrap();
    let (_, known) = store.known(key("s", "other", 1)).await.unwrap().unwrap();
    let turns = store.load(live.id()).await.unwrap().unwrap().turns;
    assert_eq!((turns.len(), known.turn_id), (1, Some(turns[0].id)));
}
