//! Contract of every backend: an agent's memory.

use bowline_sbp::access::OWNER;
use bowline_sbp::id::MemoryId;
use bowline_store::{Error, MemoryKind, MemoryOwner, NewMemory};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;

backends! {
    sbp_l1_12_memories_are_found_by_their_words_and_by_their_agent_alone
    sbp_l1_12_the_same_words_are_remembered_once
    sbp_l1_12_memories_are_listed_replaced_and_forgotten
    sbp_l1_12_a_turn_gets_rules_what_matches_and_the_newest
    sbp_l1_12_each_of_many_turns_at_once_gets_what_its_agent_was_told_before
}

fn agent(name: &str) -> MemoryOwner {
    MemoryOwner { user: OWNER, agent: name.parse().unwrap() }
}

fn fact(text: &str) -> NewMemory {
    NewMemory {
        id: MemoryId(Uuid::now_v7()),
        kind: MemoryKind::Semantic,
        text: text.into(),
        session_id: None,
        at: at(),
    }
}

async fn recalled(store: &S, who: &str, words: &[&str]) -> Vec<String> {
    let words = words.iter().map(|word| word.to_string()).collect();
    let found = store.recall(agent(who), words, 9).await.unwrap();
    found.into_iter().map(|memory| memory.text).collect()
}

async fn sbp_l1_12_memories_are_found_by_their_words_and_by_their_agent_alone(store: S) {
    let texts = ["The cat is called Ada.", "Élodie lives in Lyon.", "The dog is called Bob."];
    store.remember(agent("a"), texts.map(fact).into(), false).await.unwrap();
    store.remember(agent("b"), vec![fact("The cat is called Zoe.")], false).await.unwrap();
    assert_eq!(recalled(&store, "a", &["cat"]).await, [texts[0]]);
    assert_eq!(recalled(&store, "a", &["elodie", "CAT"]).await.len(), 2);
    assert_eq!(recalled(&store, "b", &["cat"]).await, ["The cat is called Zoe."]);
    // Search operators of SQLite FTS5 in the query are treated as plain words.
    for odd in [&["\"", "OR", "NEAR(", "*"][..], &["cat\" OR \"dog"], &[], &[""]] {
        assert!(recalled(&store, "a", odd).await.is_empty(), "{odd:?}");
    }
    assert!(recalled(&store, "nobody", &["cat"]).await.is_empty());
}

async fn sbp_l1_12_the_same_words_are_remembered_once(store: S) {
    let first = store.remember(agent("a"), vec![fact("x")], false).await.unwrap();
    let again = store.remember(agent("a"), vec![fact("x"), fact("y")], false).await.unwrap();
    assert_eq!(again[0], first[0]);
    assert_eq!(store.memories(agent("a"), None, 9).await.unwrap().len(), 2);
}

async fn sbp_l1_12_memories_are_listed_replaced_and_forgotten(store: S) {
    store.remember(agent("a"), ["one", "two", "three"].map(fact).into(), false).await.unwrap();
    let list = async |before, limit| -> Vec<_> {
        let found = store.memories(agent("a"), before, limit).await.unwrap();
        found.into_iter().map(|memory| (memory.text, memory.id)).collect()
    };
    let newest = list(None, 2).await;
    assert_eq!((newest[0].0.as_str(), newest[1].0.as_str()), ("three", "two"));
    assert_eq!(list(Some(newest[1].1), 9).await[0].0, "one");
    assert_eq!(store.forget(agent("b"), Some(newest[0].1)).await.unwrap(), 0, "not its own");
    assert_eq!(store.forget(agent("a"), Some(newest[0].1)).await.unwrap(), 1);
    assert!(recalled(&store, "a", &["three"]).await.is_empty());
    store.remember(agent("a"), vec![fact("four")], true).await.unwrap();
    assert_eq!(list(None, 9).await.len(), 1);
    assert_eq!(store.forget(agent("a"), None).await.unwrap(), 1);
    let many = (0..10_001).map(|n| fact(&n.to_string())).collect();
    assert_eq!(
        store.remember(agent("a"), many, false).await.unwrap_err(),
        Error::MemoryFull(10_000)
    );
    assert!(list(None, 9).await.is_empty());
}

async fn sbp_l1_12_a_turn_gets_rules_what_matches_and_the_newest(store: S) {
    let of = |kind, text: &str| NewMemory { kind, ..fact(text) };
    let memories = vec![
        of(MemoryKind::Procedural, "Answer in French."),
        of(MemoryKind::Episodic, "We moved the cat in May."),
        of(MemoryKind::Procedural, "Run the tests."),
        fact("The dog is called Bob."),
    ];
    store.remember(agent("a"), memories, false).await.unwrap();
    let texts = |memories: Vec<bowline_store::Memory>| -> Vec<String> {
        memories.into_iter().map(|memory| memory.text).collect()
    };
    let found = store.memories_for_turn(agent("a"), vec!["cat".into()], 3).await.unwrap();
    assert_eq!(texts(found.rules), ["Answer in French.", "Run the tests."], "oldest first");
    assert_eq!(texts(found.matching), ["We moved the cat in May."]);
    let newest = ["The dog is called Bob.", "Run the tests.", "We moved the cat in May."];
    assert_eq!(texts(found.newest), newest);
    let found = store.memories_for_turn(agent("a"), Vec::new(), 1).await.unwrap();
    assert_eq!((found.rules.len(), found.matching.len(), found.newest.len()), (1, 0, 1));
    let none = store.memories_for_turn(agent("b"), vec!["cat".into()], 3).await.unwrap();
    assert_eq!(none, bowline_store::TurnMemories::default());
}

async fn sbp_l1_12_each_of_many_turns_at_once_gets_what_its_agent_was_told_before(store: S) {
    let turns = (0..60).map(async |n: usize| {
        let of = agent(&format!("agent-{}", n % 20));
        if n % 2 == 1 {
            let told = store.remember(of.clone(), vec![fact(&n.to_string())], false).await.unwrap();
            assert!(told.iter().any(|memory| memory.text == n.to_string()));
        }
        let found = store.memories_for_turn(of, Vec::new(), 9).await.unwrap();
        let knows = found.newest.iter().any(|memory| memory.text == n.to_string());
        assert_eq!(knows, n % 2 == 1, "turn {n}: {:?}", found.newest);
    });
    futures_util::future::join_all(turns).await;
}
