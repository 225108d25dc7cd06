//! What every backend must do with an agent's memory, and with turns that act on their way.

use std::sync::Arc;

use bowline_sbp::id::{AgentId, MemoryId, SnapshotId};
use bowline_sbp::message::Message;
use bowline_store::{
    Advance, EntryKind, Error, MemoryKind, NewEntry, NewMemory, SnapshotKind, Store,
};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;

backends! {
    sbp_l1_12_memories_are_found_by_their_words_and_by_their_agent_alone
    sbp_l1_12_the_same_words_are_remembered_once
    sbp_l1_12_memories_are_listed_replaced_and_forgotten
    sbp_l2_14_an_advanced_turn_goes_on_after_a_crash
    sbp_l2_14_an_action_and_its_effect_are_one_step
}

type S = Arc<dyn Store>;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
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

async fn recalled(store: &dyn Store, who: &str, words: &[&str]) -> Vec<String> {
    let words = words.iter().map(|word| word.to_string()).collect();
    let found = store.recall(agent(who), words, 9).await.unwrap();
    found.into_iter().map(|memory| memory.text).collect()
}

async fn sbp_l1_12_memories_are_found_by_their_words_and_by_their_agent_alone(store: S) {
    let texts = ["The cat is called Ada.", "Élodie lives in Lyon.", "The dog is called Bob."];
    store.remember(agent("a"), texts.map(fact).into(), false).await.unwrap();
    store.remember(agent("b"), vec![fact("The cat is called Zoe.")], false).await.unwrap();
    assert_eq!(recalled(&*store, "a", &["cat"]).await, [texts[0]]);
    assert_eq!(recalled(&*store, "a", &["elodie", "CAT"]).await.len(), 2);
    assert_eq!(recalled(&*store, "b", &["cat"]).await, ["The cat is called Zoe."]);
    // Whatever the words are, they are words.
    for odd in [&["\"", "OR", "NEAR(", "*"][..], &["cat\" OR \"dog"], &[], &[""]] {
        assert!(recalled(&*store, "a", odd).await.is_empty(), "{odd:?}");
    }
    assert!(recalled(&*store, "nobody", &["cat"]).await.is_empty());
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
    assert!(recalled(&*store, "a", &["three"]).await.is_empty());
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

fn called(json: &str) -> NewEntry {
    let raw = serde_json::value::RawValue::from_string(json.into()).unwrap();
    NewEntry::new(EntryKind::Action, Message::read(raw).unwrap())
}

async fn sbp_l2_14_an_advanced_turn_goes_on_after_a_crash(store: S) {
    let (me, id) = (instance(), made(&*store).await.id);
    let turn = turn_in(id, me);
    store.accept_turn(turn.clone()).await.unwrap();
    let call = called(r#"{"role":"assistant","tool_calls":[{"id":"c"}]}"#);
    let advance = Advance {
        turn_id: turn.id,
        owner: me,
        entries: vec![said("hi"), call],
        snapshot: (SnapshotKind::PreAction, SnapshotId(Uuid::now_v7())),
        memories: None,
        at: at(),
    };
    let session = store.advance_turn(advance).await.unwrap();
    assert_eq!((session.last_seq, session.step_count, session.pending_turns), (2, 0, 0));
    assert_eq!(session.snapshot.unwrap().kind, SnapshotKind::PreAction);
    let heir = instance();
    let left = store.take_over(heir, at()).await.unwrap();
    assert!(left[0].advanced && left[0].attempt == 2);
    let history = store.history(id).await.unwrap();
    assert_eq!(history.len(), 2, "the model sees what was done");
    let end = finish(turn.id, heir, vec![answered("done")]);
    assert_eq!(store.finish_turn(end).await, Ok(3));
    let session = store.session(id).await.unwrap().unwrap();
    assert_eq!((session.last_seq, session.step_count, session.pending_turns), (3, 1, 1));
    assert_eq!(session.snapshot.unwrap().kind, SnapshotKind::Checkpoint);
    let kinds: Vec<_> = store.entries_after(id, 0, 9).await.unwrap();
    let kinds: Vec<_> = kinds.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Message, EntryKind::Action, EntryKind::Turn]);
}

async fn sbp_l2_14_an_action_and_its_effect_are_one_step(store: S) {
    let (me, id) = (instance(), made(&*store).await.id);
    let turn = turn_in(id, me);
    store.accept_turn(turn.clone()).await.unwrap();
    let result = called(r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#);
    let advance = |owner| Advance {
        turn_id: turn.id,
        owner,
        entries: vec![result.clone()],
        snapshot: (SnapshotKind::PostAction, SnapshotId(Uuid::now_v7())),
        memories: Some((agent("a"), vec![fact("x")])),
        at: at(),
    };
    let stranger = store.advance_turn(advance(instance())).await;
    assert_eq!(stranger.unwrap_err(), Error::Superseded);
    assert!(recalled(&*store, "a", &["x"]).await.is_empty(), "nothing half-done");
    store.advance_turn(advance(me)).await.unwrap();
    assert_eq!(recalled(&*store, "a", &["x"]).await, ["x"]);
    let snapshot = store.session(id).await.unwrap().unwrap().snapshot.unwrap();
    assert_eq!((snapshot.kind, snapshot.seq), (SnapshotKind::PostAction, 1));
}
