//! Contract of every backend: leases, so that a session has one owner (G19).
//!
//! Commits are made by hand here, since an actor never makes an invalid one.

use std::collections::HashSet;
use std::sync::Arc;

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Lease, Loaded, Placed, Write};
use bowline_store::{Commit, CommitError, ReplicaId, ReplicaLease};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g19_a_commit_with_an_older_fence_is_refused
    g19_a_commit_with_another_version_is_refused
    g19_a_commit_of_another_owner_is_refused
    g19_a_session_that_somebody_alive_owns_is_not_taken
    g19_a_replica_that_is_retired_writes_nothing
    g19_a_replica_that_never_registered_writes_nothing
    g19_a_session_of_a_retired_owner_is_taken
    g19_a_session_that_was_released_is_taken
    g19_an_owner_takes_its_own_session_anew
    g19_of_two_who_take_one_succeeds
    g19_the_same_commit_again_is_applied_once
    g19_a_late_copy_of_an_earlier_commit_is_refused
    g19_a_session_that_is_gone_is_not_written
    g19_a_session_is_made_by_somebody_alive
    g19_everybody_learns_who_owns_a_session
    g19_a_replica_renews_its_lease_until_it_is_dead
    g19_a_replica_whose_lease_has_not_expired_is_not_declared_dead
    sbp_l2_13_unfinished_turns_are_taken_over_and_counted
}

/// A registered replica, which may write.
pub(crate) async fn replica(store: &S) -> ReplicaId {
    let id = ReplicaId(Uuid::new_v4());
    store.register(id).await.unwrap();
    id
}

pub(crate) async fn load(store: &S, id: SessionId) -> Loaded {
    store.load(id).await.unwrap().unwrap()
}

/// A commit that appends one entry, by the holder of the lease.
pub(crate) fn append(loaded: &Loaded, owner: ReplicaId, text: &str) -> Arc<Commit> {
    let mut head = loaded.head.clone();
    head.last_seq += 1;
    let placed = Placed {
        seq: head.last_seq,
        turn_id: new_turn(),
        step: head.step_count,
        tether_no: None,
        at: at(),
        entry: said(text),
    };
    Arc::new(Commit {
        id: Uuid::new_v4(),
        session: loaded.id,
        lease: Lease { owner, fence: loaded.fence, take: false },
        version: loaded.version,
        make: None,
        head,
        writes: vec![Write::Append { entries: vec![placed], advances: None }],
    })
}

/// A commit that appends one entry and takes the lease.
pub(crate) fn take(loaded: &Loaded, owner: ReplicaId, text: &str) -> Arc<Commit> {
    let mut commit = append(loaded, owner, text);
    Arc::make_mut(&mut commit).lease.take = true;
    commit
}

/// A session with one entry and `owner` as the holder of its lease.
pub(crate) async fn owned(store: &S, owner: ReplicaId) -> Loaded {
    let id = made(store).await.id;
    store.commit(take(&load(store, id).await, owner, "first")).await.unwrap();
    load(store, id).await
}

async fn g19_everybody_learns_who_owns_a_session(store: S) {
    let (me, heir) = (replica(&store).await, replica(&store).await);
    let loaded = owned(&store, me).await;
    let owner = async || {
        let (owner, loaded) =
            (store.owner(loaded.id).await.unwrap(), load(&store, loaded.id).await);
        assert_eq!(owner, loaded.owner);
        owner
    };
    assert_eq!(owner().await, Some(me));
    store.release(me, vec![(loaded.id, loaded.fence)]).await.unwrap();
    assert_eq!(owner().await, None);
    store.commit(take(&loaded, heir, "second")).await.unwrap();
    assert_eq!(owner().await, Some(heir));
    store.retire(heir).await.unwrap();
    assert_eq!(owner().await, None, "the dead own nothing");
}

async fn g19_a_replica_renews_its_lease_until_it_is_dead(store: S) {
    let (me, other) = (replica(&store).await, replica(&store).await);
    assert!(store.renew(me).await.unwrap() && store.renew(other).await.unwrap());
    let living =
        |replicas: Vec<ReplicaLease>| replicas.iter().map(|lease| lease.id).collect::<HashSet<_>>();
    let alive = living(store.replicas().await.unwrap());
    assert!(alive.contains(&me) && alive.contains(&other));
    store.retire(other).await.unwrap();
    assert!(store.renew(me).await.unwrap() && !store.renew(other).await.unwrap());
    let alive = living(store.replicas().await.unwrap());
    assert!(alive.contains(&me) && !alive.contains(&other));
    assert!(!store.renew(ReplicaId(Uuid::new_v4())).await.unwrap(), "it never registered");
}

async fn g19_a_replica_whose_lease_has_not_expired_is_not_declared_dead(store: S) {
    let me = replica(&store).await;
    // It lasts some seconds, which a busy machine may need from one statement to the next.
    let lease = loop {
        assert!(store.renew(me).await.unwrap());
        let lease = store.replicas().await.unwrap().into_iter().find(|lease| lease.id == me);
        let lease = lease.filter(|lease| !lease.has_expired);
        if let Some(lease) = lease {
            break lease;
        }
    };
    let seen = lease.expires_at.unwrap_or(at());
    assert!(!store.declare_dead(me, seen).await.unwrap());
    assert!(store.renew(me).await.unwrap());
}

/// Checks that the commit is fenced and the session unchanged.
async fn assert_fenced(store: &S, commit: Arc<Commit>) {
    let id = commit.session;
    let before = (load(store, id).await, texts(store, id).await);
    assert_eq!(store.commit(commit).await, Err(CommitError::Fenced));
    assert_eq!((load(store, id).await, texts(store, id).await), before, "nothing is left of it");
}

async fn g19_a_commit_with_an_older_fence_is_refused(store: S) {
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    assert_eq!((loaded.fence, loaded.version), (1, 1));
    for fence in [0, 2] {
        let wrong = Loaded { fence, ..loaded.clone() };
        assert_fenced(&store, append(&wrong, me, "no")).await;
        assert_fenced(&store, take(&wrong, me, "no")).await;
    }
    store.commit(append(&loaded, me, "second")).await.unwrap();
    let loaded = load(&store, loaded.id).await;
    assert_eq!((loaded.fence, loaded.version), (1, 2), "a fence counts owners, not commits");
    assert_eq!(texts(&store, loaded.id).await, ["first", "second"]);
}

async fn g19_a_commit_with_another_version_is_refused(store: S) {
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    for version in [0, 2] {
        let wrong = Loaded { version, ..loaded.clone() };
        assert_fenced(&store, append(&wrong, me, "no")).await;
        assert_fenced(&store, take(&wrong, me, "no")).await;
    }
}

async fn g19_a_commit_of_another_owner_is_refused(store: S) {
    let (me, other) = (replica(&store).await, replica(&store).await);
    let loaded = owned(&store, me).await;
    assert_fenced(&store, append(&loaded, other, "no")).await;
    // A released lease must be taken before a write.
    store.release(me, vec![(loaded.id, loaded.fence)]).await.unwrap();
    assert_fenced(&store, append(&loaded, other, "no")).await;
    assert_fenced(&store, append(&loaded, me, "no")).await;
}

async fn g19_a_session_that_somebody_alive_owns_is_not_taken(store: S) {
    let (me, other) = (replica(&store).await, replica(&store).await);
    let loaded = owned(&store, me).await;
    assert_fenced(&store, take(&loaded, other, "no")).await;
    store.commit(append(&loaded, me, "second")).await.unwrap();
}

async fn g19_a_replica_that_is_retired_writes_nothing(store: S) {
    let me = replica(&store).await;
    let (loaded, unowned) = (owned(&store, me).await, made(&store).await.id);
    store.retire(me).await.unwrap();
    assert_fenced(&store, append(&loaded, me, "no")).await;
    assert_fenced(&store, take(&loaded, me, "no")).await;
    assert_fenced(&store, take(&load(&store, unowned).await, me, "no")).await;
    // A replica that was declared dead stays dead: it must register again with a new id.
    store.register(me).await.unwrap();
    assert_fenced(&store, append(&loaded, me, "no")).await;
}

async fn g19_a_replica_that_never_registered_writes_nothing(store: S) {
    let stranger = ReplicaId(Uuid::new_v4());
    let id = made(&store).await.id;
    assert_fenced(&store, take(&load(&store, id).await, stranger, "no")).await;
}

async fn g19_a_session_of_a_retired_owner_is_taken(store: S) {
    let (dead, heir) = (replica(&store).await, replica(&store).await);
    let loaded = owned(&store, dead).await;
    store.retire(dead).await.unwrap();
    assert_fenced(&store, append(&loaded, heir, "no")).await;
    store.commit(take(&loaded, heir, "second")).await.unwrap();
    let taken = load(&store, loaded.id).await;
    assert_eq!((taken.fence, taken.version), (2, 2));
    assert_fenced(&store, append(&loaded, dead, "late")).await;
    assert_fenced(&store, append(&taken, dead, "late")).await;
    assert_eq!(texts(&store, loaded.id).await, ["first", "second"]);
}

async fn g19_a_session_that_was_released_is_taken(store: S) {
    let (me, next) = (replica(&store).await, replica(&store).await);
    let loaded = owned(&store, me).await;
    store.release(next, vec![(loaded.id, loaded.fence)]).await.unwrap();
    assert_fenced(&store, take(&loaded, next, "not its own to release")).await;
    store.release(me, vec![(loaded.id, loaded.fence)]).await.unwrap();
    store.commit(take(&loaded, next, "second")).await.unwrap();
    // A late release does not affect the next owner.
    store.release(me, vec![(loaded.id, loaded.fence)]).await.unwrap();
    store.release(next, vec![(loaded.id, loaded.fence)]).await.unwrap();
    let taken = load(&store, loaded.id).await;
    assert_fenced(&store, take(&taken, me, "no")).await;
    store.commit(append(&taken, next, "third")).await.unwrap();
}

async fn g19_an_owner_takes_its_own_session_anew(store: S) {
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    store.commit(take(&loaded, me, "second")).await.unwrap();
    let taken = load(&store, loaded.id).await;
    assert_eq!((taken.fence, taken.version), (2, 2));
    // An earlier actor of the same process is fenced, too.
    let earlier = Loaded { version: taken.version, ..loaded };
    assert_fenced(&store, append(&earlier, me, "no")).await;
}

async fn g19_of_two_who_take_one_succeeds(store: S) {
    for _ in 0..20 {
        let (one, other) = (replica(&store).await, replica(&store).await);
        let free = load(&store, made(&store).await.id).await;
        let (first, second) = tokio::join!(
            store.commit(take(&free, one, "one")),
            store.commit(take(&free, other, "other"))
        );
        assert_ne!(first.is_ok(), second.is_ok());
        assert_eq!(texts(&store, free.id).await.len(), 1);
        assert_eq!(load(&store, free.id).await.fence, 1);
    }
}

async fn g19_the_same_commit_again_is_applied_once(store: S) {
    let me = replica(&store).await;
    let id = made(&store).await.id;
    let commit = take(&load(&store, id).await, me, "once");
    assert_eq!(store.commit(commit.clone()).await, Ok(()));
    let stored = load(&store, id).await;
    assert_eq!(store.commit(commit.clone()).await, Ok(()));
    // A resent commit counts as applied even if others have written and its sender was declared
    // dead since.
    owned(&store, me).await;
    owned(&store, replica(&store).await).await;
    assert_eq!(store.commit(commit.clone()).await, Ok(()));
    store.retire(me).await.unwrap();
    assert_eq!(store.commit(commit).await, Ok(()));
    let stored = Loaded { owner: None, ..stored };
    assert_eq!((load(&store, id).await, texts(&store, id).await), (stored, vec!["once".into()]));

    let mut live = Live::making(&store, new_session()).await;
    let making = live.prepare(whole_turn("made once"));
    assert_eq!(store.commit(making.clone()).await, Ok(()));
    assert_eq!(store.commit(making).await, Ok(()));
    assert_eq!(texts(&store, live.id()).await, ["ask made once", "made once"]);
}

async fn g19_a_late_copy_of_an_earlier_commit_is_refused(store: S) {
    let me = replica(&store).await;
    let id = made(&store).await.id;
    let first = take(&load(&store, id).await, me, "first");
    store.commit(first.clone()).await.unwrap();
    let second = append(&load(&store, id).await, me, "second");
    store.commit(second.clone()).await.unwrap();
    assert_fenced(&store, first.clone()).await;
    store.commit(append(&load(&store, id).await, me, "third")).await.unwrap();
    assert_fenced(&store, first).await;
    assert_fenced(&store, second).await;
    assert_eq!(texts(&store, id).await, ["first", "second", "third"]);

    let mut live = Live::making(&store, new_session()).await;
    let making = live.prepare(whole_turn("a"));
    store.commit(making.clone()).await.unwrap();
    live.report(Ok(()));
    live.turn("b").await;
    assert_fenced(&store, making).await;
}

async fn g19_a_session_that_is_gone_is_not_written(store: S) {
    let me = replica(&store).await;
    let loaded = owned(&store, me).await;
    store.release(me, vec![(loaded.id, loaded.fence)]).await.unwrap();
    delete(&store, loaded.id).await;
    for late in [append(&loaded, me, "no"), take(&loaded, me, "no")] {
        assert_eq!(store.commit(late).await, Err(CommitError::Fenced));
    }
    assert!(store.load(loaded.id).await.unwrap().is_none());
    assert!(all_sessions(&store).await.is_empty());
}

async fn g19_a_session_is_made_by_somebody_alive(store: S) {
    let mut live = Live::making(&store, new_session()).await;
    let mut making = live.prepare(whole_turn("a"));
    Arc::make_mut(&mut making).lease.owner = ReplicaId(Uuid::new_v4());
    assert_eq!(store.commit(making.clone()).await, Err(CommitError::Fenced));
    store.register(making.lease.owner).await.unwrap();
    store.retire(making.lease.owner).await.unwrap();
    assert_eq!(store.commit(making).await, Err(CommitError::Fenced));
    assert!(all_sessions(&store).await.is_empty());
}

async fn sbp_l2_13_unfinished_turns_are_taken_over_and_counted(store: S) {
    let (one, other) = (replica(&store).await, replica(&store).await);
    let (first, second) = (made(&store).await.id, made(&store).await.id);
    take_turn(&store, made(&store).await.id, "ended").await;
    let mut live = Live::owned_by(&store, first, one).await;
    let running = live.submit("runs").await;
    let waiting = live.submit("waits").await;
    Live::owned_by(&store, second, other).await.submit("runs").await;

    assert_eq!(store.unfinished(one).await.unwrap(), [(first, 2)], "its own, if it has no actor");
    assert_eq!(store.unfinished(other).await.unwrap(), [(second, 1)]);
    assert!(store.unfinished(ME).await.unwrap().is_empty());
    store.retire(one).await.unwrap();
    assert_eq!(store.unfinished(other).await.unwrap(), [(first, 2), (second, 1)]);
    assert_eq!(store.unfinished(ME).await.unwrap(), [(first, 2)]);

    // The next owner counts another attempt of the started turn, and keeps the order of the others.
    let mut heir = Live::owned_by(&store, first, other).await;
    heir.take_up().await;
    let turns = load(&store, first).await.turns;
    let turns: Vec<_> = turns.iter().map(|t| (t.id, t.started, t.attempt)).collect();
    assert_eq!(turns, [(running, true, 2), (waiting, false, 1)]);
    heir.answer("ran").await;
    heir.answer("waited").await;
    assert_eq!(texts(&store, first).await, ["runs", "ran", "waits", "waited"]);
    store.release(other, vec![(second, 1)]).await.unwrap();
    assert_eq!(store.unfinished(ME).await.unwrap(), [(second, 1)]);
}
