//! Contract of every backend: users, their keys, and whose sessions and memories are whose (G20).

use bowline_sbp::access::{CredentialId, OWNER, Role, Scope, Scopes, Share};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::UserId;
use bowline_store::{
    Error, MemoryOwner, NewMemory, NewSession, Page, Session, TokenHash, User, UserKey,
};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    the_owner_is_there_from_the_start_and_others_are_added
    a_user_is_disabled_and_enabled_and_the_owner_never
    a_key_is_found_by_its_id_until_it_is_revoked
    a_device_is_found_by_its_key_and_has_one_credential
    g20_lists_names_and_search_have_a_users_own_sessions_and_shared_ones
    g20_a_page_cannot_begin_behind_another_users_session
    g20_the_same_agent_is_another_memory_for_each_user
    g20_forks_and_handoffs_belong_to_the_user_of_their_origin
    g23_a_deleted_session_is_shared_with_nobody
}

fn user(name: &str, n: u128) -> User {
    User {
        id: UserId(Uuid::from_u128(n)),
        name: name.into(),
        role: Role::Member,
        created_at: at(),
        disabled_at: None,
        limits: OwnLimits::default(),
    }
}

fn key_of(user: UserId, n: u8) -> UserKey {
    UserKey {
        id: CredentialId::from_bytes([n; 8]),
        user,
        name: format!("laptop {n}"),
        secret: TokenHash([n; 32]),
        device: None,
        scopes: Scopes::of(&[Scope::Turns, Scope::Read]),
        agents: vec!["travel-*".into(), "cook".into()],
        models: Vec::new(),
        limits: OwnLimits::default(),
        created_at: at(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

fn later(seconds: i64) -> Timestamp {
    at() + SignedDuration::from_secs(seconds)
}

async fn the_owner_is_there_from_the_start_and_others_are_added(store: S) {
    let users = store.users().await.unwrap();
    assert_eq!(users.len(), 1);
    assert_eq!((users[0].id, users[0].role, users[0].disabled_at), (OWNER, Role::Owner, None));
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    assert_eq!(store.users().await.unwrap()[1], ada);
    for taken in ["ada", "ADA", "owner"] {
        assert_eq!(store.add_user(user(taken, 2)).await, Err(Error::NameTaken), "{taken}");
    }
    assert_eq!(store.users().await.unwrap().len(), 2);
}

async fn a_user_is_disabled_and_enabled_and_the_owner_never(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let disabled = store.disable_user(ada.id, Some(later(1))).await.unwrap().unwrap();
    assert_eq!(disabled.disabled_at, Some(later(1)));
    store.add_key(key_of(ada.id, 1)).await.unwrap();
    let (_, of) = store.key(key_of(ada.id, 1).id).await.unwrap().unwrap();
    assert_eq!(of.disabled_at, Some(later(1)), "a look at the key tells");
    assert_eq!(store.disable_user(ada.id, None).await.unwrap(), Some(ada));
    let owner = store.disable_user(OWNER, Some(later(1))).await.unwrap().unwrap();
    assert_eq!(owner.disabled_at, None);
    assert_eq!(store.disable_user(UserId(Uuid::from_u128(9)), None).await.unwrap(), None);
}

async fn a_key_is_found_by_its_id_until_it_is_revoked(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let first = UserKey { expires_at: Some(later(60)), ..key_of(ada.id, 1) };
    let second = UserKey { created_at: later(1), ..key_of(OWNER, 2) };
    store.add_key(first.clone()).await.unwrap();
    store.add_key(second.clone()).await.unwrap();
    assert_eq!(store.key(first.id.clone()).await.unwrap(), Some((first.clone(), ada.clone())));
    assert_eq!(store.key(CredentialId::from_bytes([9; 8])).await.unwrap(), None);
    assert_eq!(store.keys(None).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(store.keys(Some(ada.id)).await.unwrap(), std::slice::from_ref(&first));
    assert!(first.is_valid(later(59)) && !first.is_valid(later(60)));
    store.keys_used(vec![(first.id.clone(), later(5))]).await.unwrap();
    store.keys_used(vec![(first.id.clone(), later(4))]).await.unwrap();
    assert!(store.revoke_key(first.id.clone(), later(7)).await.unwrap());
    assert!(!store.revoke_key(first.id.clone(), later(8)).await.unwrap(), "once");
    let (revoked, _) = store.key(first.id.clone()).await.unwrap().unwrap();
    assert_eq!((revoked.revoked_at, revoked.last_used_at), (Some(later(7)), Some(later(5))));
    assert!(!revoked.is_valid(later(7)));
}

async fn a_device_is_found_by_its_key_and_has_one_credential(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let device = Some([7; 32]);
    let first = UserKey { device, ..key_of(OWNER, 1) };
    let other = UserKey { device: Some([8; 32]), ..key_of(OWNER, 2) };
    for key in [&first, &other, &key_of(OWNER, 3), &key_of(OWNER, 4)] {
        assert_eq!(store.add_key(key.clone()).await.unwrap(), None, "keys without a device, too");
    }
    let (found, of) = store.key_of_device([7; 32]).await.unwrap().unwrap();
    assert_eq!((found, of.id), (first.clone(), OWNER));
    assert_eq!(store.key(first.id.clone()).await.unwrap().unwrap().0.device, device);
    assert_eq!(store.key_of_device([9; 32]).await.unwrap(), None);
    // Paired again, for another user: the older one is revoked with it.
    let second = UserKey { device, created_at: later(5), ..key_of(ada.id, 5) };
    assert_eq!(store.add_key(second.clone()).await.unwrap(), Some(first.id.clone()));
    assert_eq!(store.key_of_device([7; 32]).await.unwrap(), Some((second.clone(), ada)));
    let (revoked, _) = store.key(first.id.clone()).await.unwrap().unwrap();
    assert_eq!((revoked.revoked_at, revoked.device), (Some(later(5)), device));
    assert!(store.revoke_key(second.id.clone(), later(6)).await.unwrap());
    assert_eq!(store.key_of_device([7; 32]).await.unwrap(), None);
    let third = UserKey { device, created_at: later(7), ..key_of(OWNER, 6) };
    assert_eq!(store.add_key(third.clone()).await.unwrap(), None);
    assert_eq!(store.key_of_device([7; 32]).await.unwrap().unwrap().0, third);
    assert_eq!(store.key_of_device([8; 32]).await.unwrap().unwrap().0, other);
}

/// A session of a user with one turn.
async fn session_of(store: &S, user: UserId, words: &str) -> Session {
    let new = NewSession { user, ..new_session() };
    let id = store.create_session(new, None).await.unwrap().session.id;
    let mut live = Live::of(store, id).await;
    live.turn(words).await;
    store.session(id).await.unwrap().unwrap()
}

async fn found(store: &S, user: UserId) -> [usize; 3] {
    let page = Page { user, before: None, limit: 99, status: None };
    let listed = store.sessions(page).await.unwrap().len();
    let named = store.named(user, "ask zebra".into()).await.unwrap().len();
    store.index(1000).await.unwrap();
    let hits = store.search(user, vec!["zebra".into()], 99).await.unwrap();
    let mut sessions: Vec<_> = hits.iter().map(|hit| hit.session).collect();
    sessions.dedup();
    [listed, named, sessions.len()]
}

async fn g20_lists_names_and_search_have_a_users_own_sessions_and_shared_ones(store: S) {
    let (ada, bob) = (user("ada", 1), user("bob", 2));
    for user in [&ada, &bob] {
        store.add_user(user.clone()).await.unwrap();
    }
    let mine = session_of(&store, OWNER, "zebra").await;
    let hers = session_of(&store, ada.id, "zebra").await;
    assert_eq!(hers.user, ada.id);
    for user in [OWNER, ada.id] {
        assert_eq!(found(&store, user).await, [1; 3]);
    }
    assert_eq!(found(&store, bob.id).await, [0; 3]);
    for (session, by) in [(&mine, bob.id), (&hers, OWNER)] {
        assert!(store.named(by, session.id.to_string()).await.unwrap().is_empty());
        let beginning = session.id.to_string()[..13].to_owned();
        let named = store.named(by, beginning).await.unwrap();
        assert!(named.iter().all(|found| found.user == by));
    }
    // Shared, each way.
    store.share(hers.id, bob.id, Some(Share::Read)).await.unwrap();
    store.share(hers.id, OWNER, Some(Share::Talk)).await.unwrap();
    store.share(mine.id, bob.id, Some(Share::Read)).await.unwrap();
    store.share(mine.id, bob.id, Some(Share::Approve)).await.unwrap();
    assert_eq!(found(&store, bob.id).await, [2; 3]);
    assert_eq!(found(&store, OWNER).await, [2; 3]);
    assert_eq!(found(&store, ada.id).await, [1; 3]);
    assert_eq!(store.shared_with(mine.id, bob.id).await.unwrap(), Some(Share::Approve));
    assert_eq!(store.shared_with(mine.id, ada.id).await.unwrap(), None);
    let with: Vec<_> = store.shares(hers.id).await.unwrap().iter().map(|s| s.user).collect();
    assert_eq!(with, [OWNER, bob.id]);
    // And back.
    store.share(mine.id, bob.id, None).await.unwrap();
    store.share(hers.id, bob.id, None).await.unwrap();
    assert_eq!(found(&store, bob.id).await, [0; 3]);
    let nobody = store.share(new_session().id, bob.id, Some(Share::Read)).await;
    assert_eq!(nobody, Err(Error::NoSession));
}

async fn g20_a_page_cannot_begin_behind_another_users_session(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let mine = session_of(&store, OWNER, "a").await;
    let hers = session_of(&store, ada.id, "b").await;
    for (user, before) in [(OWNER, hers.id), (ada.id, mine.id), (OWNER, new_session().id)] {
        let page = Page { user, before: Some(before), limit: 9, status: None };
        assert_eq!(store.sessions(page).await.unwrap_err(), Error::NoSession);
    }
}

async fn g20_the_same_agent_is_another_memory_for_each_user(store: S) {
    let of =
        |n: u128| MemoryOwner { user: UserId(Uuid::from_u128(n)), agent: "cook".parse().unwrap() };
    let fact = |text: &str| NewMemory {
        id: bowline_sbp::id::MemoryId(Uuid::now_v7()),
        kind: bowline_store::MemoryKind::Semantic,
        text: text.into(),
        session_id: None,
        at: at(),
    };
    let mine = store.remember(of(1), vec![fact("likes salt")], false).await.unwrap();
    let same = store.remember(of(2), vec![fact("likes salt")], false).await.unwrap();
    assert_ne!(mine[0].id, same[0].id, "the same words of another user");
    store.remember(of(2), vec![fact("likes pepper")], false).await.unwrap();
    let texts = async |n| {
        let all = store.memories(of(n), None, 9).await.unwrap();
        let recalled = store.recall(of(n), vec!["likes".into()], 9).await.unwrap();
        let turn = store.memories_for_turn(of(n), vec!["likes".into()], 9).await.unwrap();
        (all.len(), recalled.len(), turn.matching.len())
    };
    assert_eq!((texts(1).await, texts(2).await, texts(3).await), ((1, 1, 1), (2, 2, 2), (0, 0, 0)));
    assert_eq!(store.forget(of(1), Some(same[0].id)).await.unwrap(), 0, "not its own");
    let behind = store.memories(of(1), Some(same[0].id), 9).await.unwrap();
    assert!(behind.is_empty(), "nor a place in its list");
    store.remember(of(1), vec![fact("new")], true).await.unwrap();
    assert_eq!(store.forget(of(1), None).await.unwrap(), 1);
    assert_eq!(texts(2).await, (2, 2, 2));
}

async fn g20_forks_and_handoffs_belong_to_the_user_of_their_origin(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let hers = session_of(&store, ada.id, "a").await;
    let fork = store.fork(fork_of(hers.id, None)).await.unwrap().session;
    assert_eq!(fork.user, ada.id);
    let mut import = import_of("elsewhere", 1);
    import.session.user = ada.id;
    assert_eq!(store.import(import).await.unwrap().session.user, ada.id);
    assert_eq!(store.load(hers.id).await.unwrap().unwrap().user, ada.id);
}

async fn g23_a_deleted_session_is_shared_with_nobody(store: S) {
    let ada = user("ada", 1);
    store.add_user(ada.clone()).await.unwrap();
    let mine = session_of(&store, OWNER, "a").await;
    store.share(mine.id, ada.id, Some(Share::Talk)).await.unwrap();
    delete(&store, mine.id).await;
    assert!(store.shares(mine.id).await.unwrap().is_empty());
    assert_eq!(store.shared_with(mine.id, ada.id).await.unwrap(), None);
    // Its row number may be used again.
    session_of(&store, OWNER, "b").await;
    let page = Page { user: ada.id, before: None, limit: 9, status: None };
    assert!(store.sessions(page).await.unwrap().is_empty());
}
