//! Contract of every backend: periodic upkeep.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bowline_sbp::approval::ApprovalState;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g3_keys_are_forgotten_when_old_but_not_while_their_turn_runs
    many_old_keys_are_forgotten
    upkeep_lets_others_write_between_its_steps
    an_approval_outlives_its_turn_for_a_while
    many_old_approvals_are_forgotten
    a_store_that_works_says_so
}

async fn g3_keys_are_forgotten_when_old_but_not_while_their_turn_runs(store: S) {
    let mut live = Live::new(&store).await;
    live.submit_as(request("runs"), Some(key("s", "running", 1))).await;
    live.submit_as(request("waits"), Some(key("s", "waiting", 1))).await;
    store.create_session(new_session(), Some(key("s", "old", 1))).await.unwrap();
    assert_eq!(store.forget_keys(at()).await.unwrap(), 0);
    assert_eq!(store.forget_keys(later(1)).await.unwrap(), 1);
    assert_eq!(store.known(key("s", "old", 1)).await.unwrap(), None);
    live.answer("ran").await;
    assert!(store.known(key("s", "running", 1)).await.unwrap().unwrap().1.result.is_some());
    assert!(store.known(key("s", "waiting", 1)).await.unwrap().is_some());
    assert_eq!(store.forget_keys(later(1)).await.unwrap(), 1, "its turn has ended");
    assert!(store.known(key("s", "waiting", 1)).await.unwrap().is_some());
}

/// Keys of running turns are the oldest and are kept; they must not prevent the deletion of others.
async fn many_old_keys_are_forgotten(store: S) {
    let mut live = Live::new(&store).await;
    for n in 0..40 {
        live.submit_as(request("runs"), Some(key("s", &format!("running {n}"), 1))).await;
    }
    for n in 0..600 {
        let mut new = new_session();
        new.at = later(1);
        store.create_session(new, Some(key("s", &n.to_string(), 1))).await.unwrap();
    }
    store.create_session(new_session(), Some(key("s", "at once", 1))).await.unwrap();
    let mut young = new_session();
    young.at = later(2);
    store.create_session(young, Some(key("s", "young", 1))).await.unwrap();
    assert_eq!(store.forget_keys(later(2)).await.unwrap(), 601);
    assert_eq!(store.forget_keys(later(2)).await.unwrap(), 0, "once");
    assert!(store.known(key("s", "young", 1)).await.unwrap().is_some());
    assert!(store.known(key("s", "running 39", 1)).await.unwrap().is_some());
    assert_eq!(store.known(key("s", "599", 1)).await.unwrap(), None);
}

/// Upkeep goes on only while it is polled: here it gets as far as to its second step of three.
async fn upkeep_lets_others_write_between_its_steps(store: S) {
    for n in 0..600 {
        let mut new = new_session();
        new.at = later(n);
        store.create_session(new, Some(key("s", &n.to_string(), 1))).await.unwrap();
    }
    let mut forgetting = pin!(store.forget_keys(later(600)));
    // The oldest go first.
    while store.known(key("s", "0", 1)).await.unwrap().is_some() {
        let outcome = poll_fn(|cx| Poll::Ready(forgetting.as_mut().poll(cx))).await;
        assert!(outcome.is_pending(), "nobody saw its first step alone: {outcome:?}");
    }
    store.create_session(new_session(), None).await.unwrap();
    let newest = store.known(key("s", "599", 1)).await.unwrap();
    assert!(newest.is_some(), "nobody could write before its last step");
    assert_eq!(forgetting.await.unwrap(), 600);
}

async fn an_approval_outlives_its_turn_for_a_while(store: S) {
    let mut live = Live::new(&store).await;
    live.submit("hi").await;
    let asked = live.call_tools(&["camera"]).await;
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 0, "its turn is not over");
    live.decide(asked[0], false).await;
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 0, "a no has to be told yet");
    live.answer("well then").await;
    assert_eq!(store.forget_approvals(later(10)).await.unwrap(), 0);
    assert_eq!(store.approvals(live.id()).await.unwrap()[0].state, ApprovalState::Denied);
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 1);
    assert!(store.approvals(live.id()).await.unwrap().is_empty());
}

async fn many_old_approvals_are_forgotten(store: S) {
    let mut live = Live::new(&store).await;
    for _ in 0..10 {
        live.submit("hi").await;
        for approval in live.call_tools(&["camera"; 60]).await {
            live.decide(approval, false).await;
        }
        live.answer("well then").await;
    }
    live.submit("hi").await;
    live.call_tools(&["camera"]).await;
    assert_eq!(store.approvals(live.id()).await.unwrap().len(), 100, "a list has an end");
    assert_eq!(store.forget_approvals(later(100)).await.unwrap(), 600);
    assert_eq!(store.approvals(live.id()).await.unwrap().len(), 1);
}

async fn a_store_that_works_says_so(store: S) {
    assert_eq!(store.check().await, Ok(()));
}
