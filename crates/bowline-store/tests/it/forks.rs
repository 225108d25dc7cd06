//! Contract of every backend: forks, which share the log of their origin.

use bowline_sbp::id::SessionId;
use bowline_sbp::lifecycle::{Change, Status};
use bowline_store::{Entry, Error, NewImport, SnapshotKind};

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l3_11_a_fork_is_the_log_up_to_that_step_at_every_step
    sbp_l3_11_a_fork_has_its_origins_agent_and_its_own_counters
    sbp_l3_11_there_is_no_fork_beyond_the_last_step
    sbp_l3_11_a_fork_and_its_origin_go_their_own_ways
    sbp_l3_11_a_fork_of_a_fork_reads_through_all_of_them
    sbp_l3_11_a_fork_delivers_only_what_is_its_own
    sbp_l3_11_steps_before_an_imported_log_leave_an_empty_fork
    sbp_l3_14_ended_sessions_can_be_forked
    g3_a_fork_under_a_key_is_made_once
    g8_no_order_of_deletions_takes_anything_from_a_fork
}

async fn sbp_l3_11_a_fork_is_the_log_up_to_that_step_at_every_step(store: S) {
    let origin = store.import(import_of("elsewhere", 12)).await.unwrap().session;
    // A question without an answer belongs to no step.
    let mut live = Live::of(&store, origin.id).await;
    live.submit("and?").await;
    live.answer_with(said("well")).await;
    let all = texts(&store, origin.id).await;
    for step in 0..=12 {
        let made = store.fork(fork_of(origin.id, Some(step))).await.unwrap();
        assert_eq!(made.point, (2 * step, step));
        assert_eq!(texts(&store, made.session.id).await, all[..2 * step as usize]);
    }
    let now = store.fork(fork_of(origin.id, None)).await.unwrap();
    assert_eq!((now.point, now.export_id, now.replayed), ((26, 12), None, false));
    assert_eq!(texts(&store, now.session.id).await, all);
}

async fn sbp_l3_11_a_fork_has_its_origins_agent_and_its_own_counters(store: S) {
    let mut new = import_of("elsewhere", 3);
    new.session.agent_id = "travel-desk".parse().unwrap();
    new.session.metadata = r#"{"trip":1}"#.into();
    new.carried = Some(r#"{"memory":"opaque"}"#.into());
    let origin = store.import(new).await.unwrap().session;
    Live::of(&store, origin.id).await.attach(None).await;
    let wanted = fork_of(origin.id, Some(2));
    let fork = store.fork(wanted.clone()).await.unwrap().session;
    assert_eq!((fork.id, fork.token_hash), (wanted.id, wanted.token_hash));
    assert_eq!((fork.agent_id.as_str(), &*fork.metadata), ("travel-desk", r#"{"trip":1}"#));
    assert_eq!((fork.last_seq, fork.delivered_seq, fork.step_count), (4, 4, 2));
    assert_eq!((fork.pending_turns, fork.attach_epoch, fork.surface), (0, 0, None));
    assert_eq!(fork.cost_usd, 0.0, "what was spent before was spent by the origin");
    assert_eq!(fork.status, Status::Running);
    let snapshot = fork.snapshot.unwrap();
    assert_eq!((snapshot.id, snapshot.seq), (wanted.snapshot, 4));
    assert_eq!(snapshot.kind, SnapshotKind::Checkpoint);
    let packed = store.pack(fork.id).await.unwrap().unwrap();
    assert_eq!((packed.entries.len(), packed.session.id), (4, fork.id));
    assert_eq!(packed.carried.unwrap(), r#"{"memory":"opaque"}"#);
    let found = store.session(fork.id).await.unwrap().unwrap();
    assert_eq!((found.snapshot, found.step_count), (fork.snapshot, 2), "answered as stored");
}

async fn sbp_l3_11_there_is_no_fork_beyond_the_last_step(store: S) {
    let origin = store.import(import_of("elsewhere", 3)).await.unwrap().session;
    let refused = store.fork(fork_of(origin.id, Some(4))).await.unwrap_err();
    assert_eq!(refused, Error::NoStep(3));
    let nobody = store.fork(fork_of(new_session().id, None)).await.unwrap_err();
    assert_eq!(nobody, Error::NoSession);
    let empty = store.fork(fork_of(made(&store).await.id, None)).await.unwrap();
    assert_eq!((empty.point, empty.session.status), ((0, 0), Status::Idle));
    let first = store.fork(fork_of(origin.id, Some(0))).await.unwrap();
    assert_eq!((first.point, first.session.status), ((0, 0), Status::Idle));
    assert!(texts(&store, first.session.id).await.is_empty());
    take_turn(&store, first.session.id, "anew").await;
    assert_eq!(texts(&store, first.session.id).await, ["ask anew", "anew"]);
}

async fn sbp_l3_11_a_fork_and_its_origin_go_their_own_ways(store: S) {
    let origin = store.import(import_of("elsewhere", 2)).await.unwrap().session.id;
    let fork = store.fork(fork_of(origin, Some(1))).await.unwrap().session.id;
    take_turn(&store, origin, "old way").await;
    take_turn(&store, fork, "new way").await;
    let shared = ["ask 1", "1"];
    let old = ["ask 1", "1", "ask 2", "2", "ask old way", "old way"];
    assert_eq!(texts(&store, origin).await, old);
    let new = [&shared[..], &["ask new way", "new way"]].concat();
    assert_eq!(texts(&store, fork).await, new);
    let session = store.session(fork).await.unwrap().unwrap();
    assert_eq!((session.last_seq, session.step_count, session.cost_usd), (4, 2, 0.5));
    let seqs: Vec<_> =
        store.entries_after(fork, 0, 9).await.unwrap().iter().map(|e| (e.seq, e.step)).collect();
    assert_eq!(seqs, [(1, 0), (2, 1), (3, 1), (4, 2)], "contiguous (G1)");
}

async fn sbp_l3_11_a_fork_of_a_fork_reads_through_all_of_them(store: S) {
    let mut last = store.import(import_of("elsewhere", 2)).await.unwrap().session.id;
    for n in 0..40 {
        last = store.fork(fork_of(last, None)).await.unwrap().session.id;
        take_turn(&store, last, &format!("fork {n}")).await;
    }
    let all = texts(&store, last).await;
    assert_eq!(all.len(), 84);
    let contents = |page: Vec<Entry>| page.iter().map(|e| e.message.content()).collect::<Vec<_>>();
    // Pages of several sizes, across all borders between shared and own entries, in both
    // directions.
    for limit in [1, 3, 84, 100] {
        let mut seen = Vec::new();
        while seen.len() < all.len() {
            let page = store.entries_after(last, seen.len() as u64, limit).await.unwrap();
            assert!(!page.is_empty() && page.len() <= limit as usize);
            seen.extend(contents(page));
        }
        assert_eq!(seen, all);
        assert!(store.entries_after(last, 84, limit).await.unwrap().is_empty());
        let mut rest = all.clone();
        let mut before = u64::MAX;
        while !rest.is_empty() {
            let page = store.entries_before(last, before, limit).await.unwrap();
            before = page[0].seq;
            let expected = rest.split_off(rest.len().saturating_sub(limit as usize));
            assert_eq!(contents(page), expected);
        }
    }
    // At every step, wherever its turn lies.
    for step in 0..=42 {
        let made = store.fork(fork_of(last, Some(step))).await.unwrap();
        assert_eq!(made.point, (2 * step, step));
        assert_eq!(texts(&store, made.session.id).await, all[..2 * step as usize]);
    }
}

async fn sbp_l3_11_a_fork_delivers_only_what_is_its_own(store: S) {
    let origin = made(&store).await.id;
    for n in 0..3 {
        take_turn(&store, origin, &n.to_string()).await;
    }
    let fork = store.fork(fork_of(origin, Some(2))).await.unwrap().session.id;
    assert!(pending(&store, fork).await.is_empty());
    assert!(shown(&store, fork, 0, true).await.is_empty(), "not even when asked");
    take_turn(&store, fork, "a").await;
    take_turn(&store, fork, "b").await;
    assert_eq!(pending(&store, fork).await, ["a", "b"]);
    let mut live = Live::of(&store, fork).await;
    let epoch = live.attach(None).await.epoch;
    live.confirm(epoch, 3).await;
    assert_eq!(pending(&store, fork).await, ["a", "b"], "never back (G5)");
    live.confirm(epoch, 6).await;
    assert_eq!(pending(&store, fork).await, ["b"]);
    assert_eq!(pending(&store, origin).await, ["0", "1", "2"], "the origin's Tether is its own");
}

async fn sbp_l3_11_steps_before_an_imported_log_leave_an_empty_fork(store: S) {
    // A bundle with two of its session's nine turns.
    let mut late = import_of("elsewhere", 2);
    late.step_count = 9;
    let late = store.import(late).await.unwrap().session;
    for (step, seq) in [(0, 0), (4, 0), (7, 0), (8, 2), (9, 4)] {
        let made = store.fork(fork_of(late.id, Some(step))).await.unwrap();
        assert_eq!((made.point, made.session.step_count), ((seq, step), step));
    }
    // A bundle with more turns than steps, and one with steps but no turns.
    let mut early = import_of("elsewhere", 3);
    early.step_count = 1;
    let early = store.import(early).await.unwrap().session;
    assert_eq!(store.fork(fork_of(early.id, Some(1))).await.unwrap().point, (6, 1));
    take_turn(&store, early.id, "more").await;
    assert_eq!(store.fork(fork_of(early.id, Some(2))).await.unwrap().point, (8, 2));
    let mut bare = import_of("elsewhere", 0);
    bare.step_count = 5;
    let bare = store.import(bare).await.unwrap().session;
    assert_eq!(store.fork(fork_of(bare.id, Some(5))).await.unwrap().point, (0, 5));
}

async fn sbp_l3_14_ended_sessions_can_be_forked(store: S) {
    for change in [Change::Complete, Change::Fail, Change::Suspend] {
        let origin = store.import(import_of("elsewhere", 2)).await.unwrap().session.id;
        change_status(&store, origin, change).await;
        let before = store.session(origin).await.unwrap().unwrap();
        let fork = store.fork(fork_of(origin, None)).await.unwrap().session;
        assert_eq!(fork.status, Status::Running);
        take_turn(&store, fork.id, "on").await;
        assert_eq!(store.session(origin).await.unwrap().unwrap().status, before.status);
    }
}

async fn g3_a_fork_under_a_key_is_made_once(store: S) {
    let origin = store.import(import_of("elsewhere", 2)).await.unwrap().session.id;
    let mut first = fork_of(origin, Some(1));
    first.key = Some(key("s", "k", 1));
    let made = store.fork(first.clone()).await.unwrap();
    take_turn(&store, made.session.id, "since").await;
    let mut again = fork_of(origin, Some(1));
    again.key = first.key.clone();
    let same = store.fork(again.clone()).await.unwrap();
    assert_eq!((same.session.id, same.point, same.replayed), (first.id, (2, 1), true));
    assert_eq!(same.session.last_seq, 4, "as it stands now");
    assert!(store.session(again.id).await.unwrap().is_none());
    again.key = Some(key("s", "k", 2));
    assert_eq!(store.fork(again.clone()).await.unwrap_err(), Error::KeyReused);
    // The same key and body for another operation is a conflicting request.
    store.create_session(new_session(), Some(key("s", "session", 1))).await.unwrap();
    again.key = Some(key("s", "session", 1));
    assert_eq!(store.fork(again).await.unwrap_err(), Error::KeyReused);
    // Deleting the session also deletes its idempotency key.
    delete(&store, first.id).await;
    assert!(!store.fork(first).await.unwrap().replayed);
}

async fn g8_no_order_of_deletions_takes_anything_from_a_fork(store: S) {
    for order in orders(4) {
        let tree = grow_tree(&store).await;
        let mut whole = Vec::new();
        for id in tree {
            whole.push(texts(&store, id).await);
        }
        for (deleted, gone) in order.iter().enumerate() {
            delete(&store, tree[*gone]).await;
            // A new session must not see anything of the deleted ones.
            let new = made(&store).await.id;
            take_turn(&store, new, "new").await;
            assert_eq!(texts(&store, new).await, ["ask new", "new"]);
            delete(&store, new).await;
            for left in &order[deleted + 1..] {
                assert_eq!(texts(&store, tree[*left]).await, whole[*left], "{order:?}");
            }
            assert!(texts(&store, tree[*gone]).await.is_empty());
        }
    }
}

/// Four sessions that share a log: the first, its fork, the fork's successor by a handoff, and a
/// fork of the successor at a step of the first.
pub(crate) async fn grow_tree(store: &S) -> [SessionId; 4] {
    let root = NewImport { carried: Some("{}".into()), ..import_of("elsewhere", 4) };
    let root = store.import(root).await.unwrap().session.id;
    let fork = store.fork(fork_of(root, Some(3))).await.unwrap().session.id;
    take_turn(store, fork, "fork").await;
    let successor = hand_off(store, fork, handoff()).await.id;
    let short = store.fork(fork_of(successor, Some(2))).await.unwrap().session.id;
    take_turn(store, short, "short").await;
    take_turn(store, root, "root").await;
    [root, fork, successor, short]
}

/// All permutations of `0..n`.
pub(crate) fn orders(n: usize) -> Vec<Vec<usize>> {
    (0..n).fold(vec![Vec::new()], |orders, _| {
        let longer = |order: Vec<usize>| {
            let left: Vec<_> = (0..n).filter(|next| !order.contains(next)).collect();
            left.into_iter().map(move |next| [&order[..], &[next]].concat())
        };
        orders.into_iter().flat_map(longer).collect()
    })
}
