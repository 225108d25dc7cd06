//! Contract of every backend: creating, finding, listing, suspending, ending and deleting sessions.

use bowline_sbp::access::OWNER;
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::session::{Command, Refusal, Reply, Submit};
use bowline_store::{CommitError, Error, NewSession, Page, TokenHash};

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l1_01_a_session_is_made_idle_and_found_again
    sbp_l1_01_two_sessions_never_share_a_token
    sbp_l1_01_a_session_is_made_by_its_first_turn
    sbp_l2_15_a_suspended_session_is_not_run_unasked
    a_session_that_is_not_listed_is_found_by_its_id_only
    an_ended_session_takes_no_turn
    lists_are_newest_first_and_paged
    a_deleted_session_is_gone_with_all_it_held
    a_secret_is_made_once_and_can_be_stored_in_another_form
    g7_a_secret_is_swapped_by_exactly_one_of_several
    g7_a_token_is_replaced_by_exactly_one_of_several
}

async fn sbp_l1_01_a_session_is_made_idle_and_found_again(store: S) {
    let new = new_session();
    let made = store.create_session(new.clone(), None).await.unwrap().session;
    assert_eq!((made.status, made.step_count, made.last_seq), (Status::Idle, 0, 0));
    assert_eq!(store.session(new.id).await.unwrap().unwrap().id, new.id);
    assert_eq!(store.session_by_token(new.token_hash).await.unwrap().unwrap().id, new.id);
    assert!(store.session(new_session().id).await.unwrap().is_none());
    assert!(store.load(new_session().id).await.unwrap().is_none());
}

async fn sbp_l1_01_two_sessions_never_share_a_token(store: S) {
    let first = new_session();
    let second = || NewSession { token_hash: first.token_hash, ..new_session() };
    store.create_session(first.clone(), None).await.unwrap();
    assert_eq!(store.create_session(second(), None).await.unwrap_err(), Error::TokenTaken);
    // A first turn that would create it is refused, too, and stores nothing.
    let mut live = Live::making(&store, second()).await;
    let commit = live.prepare(whole_turn("a"));
    assert_eq!(store.commit(commit).await, Err(CommitError::TokenTaken));
    assert_eq!(all_sessions(&store).await, [first.id]);
    assert!(texts(&store, live.id()).await.is_empty());
    assert!(store.unfinished(ME).await.unwrap().is_empty());
}

async fn sbp_l1_01_a_session_is_made_by_its_first_turn(store: S) {
    let new = NewSession { metadata: r#"{"trip":1}"#.into(), ..new_session() };
    let mut live = Live::making(&store, new.clone()).await;
    let turn = live.submit("hi").await;
    let made = store.session_by_token(new.token_hash).await.unwrap().unwrap();
    assert_eq!((made.id, &*made.metadata), (new.id, r#"{"trip":1}"#));
    assert_eq!((made.status, made.created_at), (Status::Running, at()));
    let loaded = store.load(new.id).await.unwrap().unwrap();
    assert_eq!((loaded.turns[0].id, loaded.turns[0].found), (turn, None));
    live.answer("hello").await;
    assert_eq!(texts(&store, new.id).await, ["hi", "hello"]);
}

async fn sbp_l2_15_a_suspended_session_is_not_run_unasked(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    live.set_status(Change::Suspend).await;
    let before = store.load(live.id()).await.unwrap();
    let unasked = submit(new_turn(), request("b"), None);
    let unasked = Command::Submit(Submit { resume: false, ..unasked });
    assert_eq!(live.ask(unasked).await, Some(Reply::Suspended));
    assert_eq!(store.load(live.id()).await.unwrap(), before, "nothing was stored");
    live.submit("c").await;
    assert_eq!(live.stored().await.status, Status::Running);
}

async fn a_session_that_is_not_listed_is_found_by_its_id_only(store: S) {
    let new = NewSession { listed: false, ..new_session() };
    store.create_session(new.clone(), None).await.unwrap();
    assert!(store.session_by_token(new.token_hash).await.unwrap().is_none());
    assert_eq!(store.session(new.id).await.unwrap().unwrap().token_hash, new.token_hash);
}

async fn an_ended_session_takes_no_turn(store: S) {
    let mut live = Live::new(&store).await;
    live.set_status(Change::Complete).await;
    assert_eq!(live.stored().await.status, Status::Completed);
    let late = Command::Submit(submit(new_turn(), request("b"), None));
    let refused = Some(Reply::Refused(Refusal::Ended(Status::Completed)));
    assert_eq!(live.ask(late).await, refused);
    assert!(store.unfinished(ME).await.unwrap().is_empty());
}

async fn lists_are_newest_first_and_paged(store: S) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(made(&store).await.id);
    }
    change_status(&store, ids[1], Change::Complete).await;
    ids.reverse();
    let page = |before, limit, status| Page { user: OWNER, before, limit, status };
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
    let (kept, mut gone) = (made(&store).await.id, Live::new(&store).await);
    take_turn(&store, kept, "a").await;
    gone.turn("a").await;
    gone.attach(Some("phone")).await;
    gone.submit_as(request("b"), Some(key("s", "k", 1))).await;
    gone.call_tools(&["camera"]).await;
    gone.delete().await;
    let id = gone.id();
    assert!(store.session(id).await.unwrap().is_none());
    assert!(store.load(id).await.unwrap().is_none());
    assert!(store.history(id).await.unwrap().entries.is_empty());
    assert!(store.attached(id).await.unwrap().is_empty());
    assert!(store.devices(id).await.unwrap().is_empty());
    assert!(store.approvals(id).await.unwrap().is_empty());
    assert_eq!(store.known(key("s", "k", 1)).await.unwrap(), None);
    assert!(store.unfinished(ME).await.unwrap().is_empty());
    assert_eq!(store.history(kept).await.unwrap().entries.len(), 2);
}

async fn a_secret_is_made_once_and_can_be_stored_in_another_form(store: S) {
    let bytes = |n: u8| vec![n; 32];
    assert_eq!(store.secret("a", bytes(1)).await.unwrap(), bytes(1));
    assert_eq!(store.secret("a", bytes(2)).await.unwrap(), bytes(1));
    assert_eq!(store.secret("b", bytes(2)).await.unwrap(), bytes(2));
    store.signing_keys(bytes(3), at()).await.unwrap();
    store.check().await.unwrap();
    let mut all = store.all_secrets().await.unwrap();
    let values: Vec<_> = all.iter().map(|secret| secret.bytes[0]).collect();
    assert_eq!(values, [1, 2, 3]);
    all.iter_mut().for_each(|secret| secret.bytes = vec![secret.bytes[0] + 10; 60]);
    store.replace_secrets(all.clone()).await.unwrap();
    assert_eq!(store.all_secrets().await.unwrap(), all);
    assert_eq!(store.secret("a", bytes(9)).await.unwrap(), [11; 60]);
    assert_eq!(store.signing_keys(bytes(9), at()).await.unwrap()[0].bytes, [13; 60]);
}

async fn g7_a_secret_is_swapped_by_exactly_one_of_several(store: S) {
    let bytes = |n: u8| vec![n; 32];
    let after = |n: u8| vec![("a", bytes(n)), ("b", vec![n])];
    assert!(!store.swap_secret("a", bytes(1), after(2)).await.unwrap(), "there is none");
    store.secret("a", bytes(1)).await.unwrap();
    let before = store.access_revision().await.unwrap();
    assert!(!store.swap_secret("a", bytes(9), after(2)).await.unwrap());
    assert_eq!(store.access_revision().await.unwrap(), before);
    assert_eq!(store.all_secrets().await.unwrap().len(), 1, "nothing of it is stored");
    let swaps = (2..10).map(|n| {
        let (store, after) = (store.clone(), after(n));
        tokio::spawn(async move { store.swap_secret("a", vec![1; 32], after).await.unwrap() })
    });
    let mut swapped = Vec::new();
    for (n, swap) in (2..10).zip(swaps.collect::<Vec<_>>()) {
        swapped.extend(swap.await.unwrap().then_some(n));
    }
    let [winner] = swapped[..] else { panic!("{swapped:?}") };
    assert_eq!(store.secret("a", bytes(0)).await.unwrap(), bytes(winner));
    assert_eq!(store.secret("b", bytes(0)).await.unwrap(), [winner], "both are of the same one");
    assert!(store.access_revision().await.unwrap() > before);
    assert!(store.swap_secret("a", bytes(winner), after(11)).await.unwrap());
    assert_eq!(store.secret("b", bytes(0)).await.unwrap(), [11]);
}

async fn g7_a_token_is_replaced_by_exactly_one_of_several(store: S) {
    let new = new_session();
    let id = store.create_session(new, None).await.unwrap().session.id;
    let (new, later) = (|n: u8| TokenHash([n; 32]), at() + jiff::SignedDuration::from_secs(9));
    assert!(store.replace_token(id, 0, new(1), later).await.unwrap());
    assert!(!store.replace_token(id, 0, new(2), later).await.unwrap());
    let session = store.session(id).await.unwrap().unwrap();
    assert_eq!((session.token_hash, session.token_number), (new(1), 1));
    assert_eq!(session.token_at, later);
    assert!(store.replace_token(id, 1, new(3), later).await.unwrap());
    assert!(store.session_by_token(new(3)).await.unwrap().is_none(), "it names its session");
}
