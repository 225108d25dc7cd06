//! Contract of every backend: what several replicas learn from each other through the store.

use std::time::Duration;

use bowline_sbp::access::{CredentialId, OWNER, Role, Scopes, Share};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::UserId;
use bowline_store::{
    Counted, LiveCount, ReplicaId, StoredSecret, TokenHash, ToolPin, User, UserKey,
};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g20_each_change_of_who_may_do_what_has_a_number_of_its_own
    what_is_not_kept_in_memory_changes_no_number
    g21_of_two_definitions_of_a_new_tool_the_first_one_counts
    counts_of_others_are_those_of_living_replicas
    a_task_is_done_by_one_replica_in_its_time
}

fn ada() -> User {
    User {
        id: UserId(Uuid::from_u128(1)),
        name: "ada".into(),
        role: Role::Member,
        created_at: at(),
        disabled_at: None,
        limits: OwnLimits::default(),
    }
}

fn key_of(user: UserId) -> UserKey {
    UserKey {
        id: CredentialId::from_bytes([1; 8]),
        user,
        name: "laptop".into(),
        secret: TokenHash([1; 32]),
        device: None,
        scopes: Scopes::all(),
        agents: Vec::new(),
        models: Vec::new(),
        limits: OwnLimits::default(),
        created_at: at(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

fn pin(tool: &str, definition: &str) -> ToolPin {
    ToolPin { tool: tool.into(), definition: definition.into() }
}

async fn g20_each_change_of_who_may_do_what_has_a_number_of_its_own(store: S) {
    let (session, key) = (made(&store).await.id, key_of(ada().id));
    let mut last = store.access_revision().await.unwrap();
    macro_rules! counts {
        ($($change:expr);* $(;)?) => {$(
            $change.await.unwrap();
            let now = store.access_revision().await.unwrap();
            assert!(now > last, "{}", stringify!($change));
            last = now;
        )*};
    }
    counts! {
        store.add_user(ada());
        store.limit_user(ada().id, OwnLimits::default());
        store.disable_user(ada().id, Some(at()));
        store.disable_user(ada().id, None);
        store.add_key(key.clone());
        store.revoke_key(key.id.clone(), at());
        store.share(session, ada().id, Some(Share::Read));
        store.share(session, ada().id, None);
        store.replace_token(session, 0, TokenHash([9; 32]), at());
        store.add_signing_key(vec![7; 32], at());
        store.pin_tools(vec![pin("a", "1")], at());
    }
    let all = store.all_secrets().await.unwrap();
    counts! { store.replace_secrets(all) }
    assert_eq!(store.access_revision().await.unwrap(), last, "a look changes nothing");
}

async fn what_is_not_kept_in_memory_changes_no_number(store: S) {
    store.add_user(ada()).await.unwrap();
    store.add_key(key_of(ada().id)).await.unwrap();
    let secret = |bytes| StoredSecret { name: "x".into(), is_signing_key: false, bytes };
    let before = store.access_revision().await.unwrap();
    let mut live = Live::new(&store).await;
    live.turn("yes").await;
    store.keys_used(vec![(key_of(ada().id).id, at())]).await.unwrap();
    assert!(!store.replace_token(live.id(), 7, TokenHash([9; 32]), at()).await.unwrap());
    assert!(!store.revoke_key(CredentialId::from_bytes([9; 8]), at()).await.unwrap());
    assert_eq!(store.access_revision().await.unwrap(), before);
    store.replace_secrets(vec![secret(vec![1; 32])]).await.unwrap();
    assert!(store.access_revision().await.unwrap() > before);
}

async fn g21_of_two_definitions_of_a_new_tool_the_first_one_counts(store: S) {
    let first = store.pin_new_tools(vec![pin("a", "1"), pin("b", "1")], at()).await.unwrap();
    assert_eq!(first, [pin("a", "1"), pin("b", "1")]);
    let second = store.pin_new_tools(vec![pin("c", "2"), pin("b", "2")], later(1)).await.unwrap();
    assert_eq!(second, [pin("c", "2"), pin("b", "1")], "another replica was faster");
    store.pin_tools(vec![pin("b", "2")], later(2)).await.unwrap();
    let third = store.pin_new_tools(vec![pin("b", "1")], later(3)).await.unwrap();
    assert_eq!(third, [pin("b", "2")], "what was accepted");
    assert_eq!(store.tool_pins().await.unwrap().len(), 3);
}

async fn counts_of_others_are_those_of_living_replicas(store: S) {
    let replicas = [1, 2, 3].map(|n| ReplicaId(Uuid::from_u128(n)));
    for replica in replicas {
        store.register(replica).await.unwrap();
    }
    let [one, two, three] = replicas;
    let (user, key) = (Counted::User(OWNER), Counted::Key(CredentialId::from_bytes([1; 8])));
    let count = |of: &Counted, minute, requests, turns| LiveCount {
        of: of.clone(),
        minute,
        requests,
        turns,
    };
    let seen = async |by: ReplicaId, minute: i64| {
        let mut seen = store.counts_of_others(by, minute).await.unwrap();
        seen.sort_by_key(|count| (count.minute, count.requests, count.turns));
        seen
    };
    store.report_counts(one, vec![count(&user, 10, 1, 0), count(&key, 10, 2, 1)]).await.unwrap();
    store.report_counts(two, vec![count(&user, 11, 3, 0)]).await.unwrap();
    assert_eq!(seen(one, 10).await, [count(&user, 11, 3, 0)]);
    let both = [count(&user, 10, 1, 0), count(&key, 10, 2, 1)];
    assert_eq!(seen(two, 10).await, both);
    // Of an older minute only turns count that run.
    assert_eq!(seen(three, 11).await, [count(&key, 10, 2, 1), count(&user, 11, 3, 0)]);
    // A report replaces the one before; who counts nothing is forgotten.
    store.report_counts(one, vec![count(&user, 11, 5, 0), count(&key, 11, 0, 0)]).await.unwrap();
    assert_eq!(seen(two, 11).await, [count(&user, 11, 5, 0)]);
    assert_eq!(seen(two, 10).await, [count(&user, 11, 5, 0)]);
    store.retire(one).await.unwrap();
    assert_eq!(seen(two, 10).await, []);
}

async fn a_task_is_done_by_one_replica_in_its_time(store: S) {
    const HOUR: Duration = Duration::from_secs(3600);
    assert!(store.take_upkeep("sweep", HOUR).await.unwrap());
    assert!(!store.take_upkeep("sweep", HOUR).await.unwrap());
    assert!(store.take_upkeep("index", HOUR).await.unwrap(), "another task");
    assert!(store.take_upkeep("sweep", Duration::ZERO).await.unwrap(), "its time is over");
    assert!(!store.take_upkeep("sweep", HOUR).await.unwrap());
}
