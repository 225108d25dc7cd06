//! Contract of every backend: full-text search in what was said.

use bowline_sbp::id::SessionId;
use bowline_sbp::message::Message;
use bowline_store::{EntryKind, Hit, NewEntry};

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    what_was_said_is_found_with_its_place
    all_words_must_occur_and_nothing_is_an_operator
    only_users_and_agents_are_heard
    the_newest_session_comes_first_with_its_newest_messages
    a_long_log_is_indexed_in_steps
    indexing_lets_others_write_between_its_steps
    nothing_of_a_deleted_session_is_found
    a_session_that_was_deleted_before_it_was_indexed_is_not_found
    what_forks_share_is_found_once_and_in_a_session_that_exists
    a_fork_finds_what_it_said_itself
}

async fn hits(store: &S, words: &str) -> Vec<Hit> {
    assert!(store.index(1000).await.unwrap());
    found(store, words, 50).await
}

async fn found(store: &S, words: &str, limit: u32) -> Vec<Hit> {
    let words = words.split_whitespace().map(str::to_owned).collect();
    store.search(bowline_sbp::access::OWNER, words, limit).await.unwrap()
}

/// Sessions and positions of the hits.
async fn places(store: &S, words: &str) -> Vec<(SessionId, u64)> {
    hits(store, words).await.iter().map(|hit| (hit.session, hit.seq)).collect()
}

async fn what_was_said_is_found_with_its_place(store: S) {
    let mut live = Live::new(&store).await;
    live.submit("How do I tie a bowline?").await;
    let long =
        format!("{}\nthen the  RABBIT\u{7} goes round {}", "so ".repeat(99), "on ".repeat(99));
    live.answer(&long).await;
    let [hit] = &hits(&store, "rabbit").await[..] else { panic!() };
    assert_eq!((hit.session, hit.seq, &*hit.role), (live.id(), 2, "assistant"));
    assert_eq!(hit.title.as_deref(), Some("How do I tie a bowline?"));
    assert_eq!(hit.created_at, at());
    let snippet = &hit.snippet;
    assert!(snippet.starts_with('…') && snippet.ends_with('…'), "{snippet}");
    assert!(snippet.contains("so then the RABBIT goes round on"), "{snippet}");
    let [hit] = &hits(&store, "Bowline").await[..] else { panic!() };
    assert_eq!((hit.seq, &*hit.role), (1, "user"));
    assert_eq!(hit.snippet, "How do I tie a bowline?");
}

async fn all_words_must_occur_and_nothing_is_an_operator(store: S) {
    let mut live = Live::new(&store).await;
    live.submit("the quick brown fox").await;
    live.answer("jumps over the well-known café AND NOT the dog's \"bone\"").await;
    for (words, seqs) in [
        ("quick fox", vec![1]),
        ("fox quick", vec![1]),
        ("quick dog", vec![]),
        ("the", vec![2, 1]),
        ("Cafe", vec![2]),
        ("well-known", vec![2]),
        ("known-well", vec![]),
        ("qui", vec![]),
        ("qui*", vec![1]),
        ("AND", vec![2]),
        ("NOT dog", vec![2]),
        ("fox OR dog", vec![]),
        ("text:fox", vec![]),
        ("\"bone", vec![2]),
        ("(fox", vec![1]),
        ("fox)", vec![1]),
        ("^quick", vec![1]),
        ("fox *", vec![1]),
        ("fox — 🎉", vec![1]),
        ("*", vec![]),
        ("\"", vec![]),
        ("", vec![]),
        ("fox\0", vec![1]),
        ("\u{94d}", vec![]),
    ] {
        let got: Vec<_> = hits(&store, words).await.iter().map(|hit| hit.seq).collect();
        assert_eq!(got, seqs, "{words:?}");
    }
}

async fn only_users_and_agents_are_heard(store: S) {
    let mut import = import_of("elsewhere", 0);
    import.step_count = 1;
    let messages = [
        (EntryKind::Message, r#"{"role":"system","content":"marker"}"#),
        (EntryKind::Message, r#"{"role":"tool","content":"marker","tool_call_id":"c"}"#),
        (EntryKind::Note, r#"{"role":"system","content":"marker"}"#),
        (EntryKind::Action, r#"{"role":"assistant","content":"marker"}"#),
        (EntryKind::Message, r#"{"role":"user","content":[{"type":"text","text":"marker"}]}"#),
        (EntryKind::Turn, r#"{"role":"assistant","content":"marker"}"#),
    ];
    import.entries = messages
        .map(|(kind, json)| serde_json::from_str::<Message>(json).map(|m| NewEntry::new(kind, m)))
        .map(|entry| imported(entry.unwrap()))
        .to_vec();
    let id = store.import(import).await.unwrap().session.id;
    assert_eq!(places(&store, "marker").await, [(id, 6), (id, 5)]);
}

async fn the_newest_session_comes_first_with_its_newest_messages(store: S) {
    let (old, new) = (made(&store).await.id, made(&store).await.id);
    for _ in 0..4 {
        take_turn(&store, new, "knot").await;
        take_turn(&store, old, "knot").await;
    }
    let all = [(new, 8), (new, 7), (new, 6), (old, 8), (old, 7), (old, 6)];
    assert_eq!(places(&store, "knot").await, all, "three of each");
    assert_eq!(found(&store, "knot", 4).await.len(), 4);
}

async fn a_long_log_is_indexed_in_steps(store: S) {
    let id = store.import(import_of("elsewhere", 200)).await.unwrap().session.id;
    let mut steps = 0;
    while !store.index(1).await.unwrap() {
        steps += 1;
        assert!(steps < 20);
    }
    assert!(steps > 3, "{steps}");
    assert_eq!(places(&store, "ask 200").await, [(id, 399)]);
    assert_eq!(places(&store, "ask 1").await, [(id, 1)]);
    // Large messages are steps of their own.
    let mut live = Live::new(&store).await;
    for _ in 0..3 {
        live.submit(&"large ".repeat(40_000)).await;
        live.answer("yes").await;
    }
    assert!(!store.index(2).await.unwrap());
    assert!(store.index(9).await.unwrap());
    assert_eq!(places(&store, "large").await.len(), 3);
}

async fn indexing_lets_others_write_between_its_steps(store: S) {
    store.import(import_of("elsewhere", 400)).await.unwrap();
    let indexing = store.index(1000);
    let writing = store.create_session(new_session(), None);
    tokio::pin!(indexing);
    tokio::select! {
        biased;
        indexed = &mut indexing => panic!("nobody could write meanwhile: {indexed:?}"),
        written = writing => drop(written.unwrap()),
    }
    assert!(indexing.await.unwrap());
}

async fn nothing_of_a_deleted_session_is_found(store: S) {
    let (mut gone, kept) = (Live::new(&store).await, made(&store).await.id);
    take_turn(&store, kept, "secret").await;
    gone.turn("secret").await;
    assert_eq!(hits(&store, "secret").await.len(), 4);
    gone.turn("secret").await;
    gone.delete().await;
    assert_eq!(places(&store, "secret").await, [(kept, 2), (kept, 1)]);
    // The next session may get the row number of the deleted one.
    let mut next = Live::new(&store).await;
    next.turn("public").await;
    assert_eq!(places(&store, "public").await, [(next.id(), 2), (next.id(), 1)]);
    assert_eq!(hits(&store, "secret").await.len(), 2);
}

async fn a_session_that_was_deleted_before_it_was_indexed_is_not_found(store: S) {
    let mut gone = Live::new(&store).await;
    gone.turn("secret").await;
    gone.delete().await;
    assert_eq!(places(&store, "secret").await, []);
    let mut next = Live::new(&store).await;
    next.turn("public").await;
    assert_eq!(places(&store, "secret").await, []);
    assert_eq!(places(&store, "public").await, [(next.id(), 2), (next.id(), 1)]);
}

async fn what_forks_share_is_found_once_and_in_a_session_that_exists(store: S) {
    for indexed_before in [true, false] {
        let mut origin = Live::new(&store).await;
        origin.turn("reef").await;
        let short = store.fork(fork_of(origin.id(), None)).await.unwrap().session.id;
        origin.turn("sheet").await;
        let long = store.fork(fork_of(origin.id(), None)).await.unwrap().session.id;
        let grandchild = store.fork(fork_of(long, None)).await.unwrap().session.id;
        origin.turn("anchor").await;
        let id = origin.id();
        if indexed_before {
            assert_eq!(places(&store, "reef").await, [(id, 2), (id, 1)]);
            assert_eq!(places(&store, "anchor").await, [(id, 6), (id, 5)]);
        }
        origin.delete().await;
        assert_eq!(places(&store, "reef").await, [(short, 2), (short, 1)]);
        assert_eq!(places(&store, "sheet").await, [(long, 4), (long, 3)]);
        assert_eq!(places(&store, "anchor").await, [], "no fork has it");
        Live::of(&store, short).await.delete().await;
        Live::of(&store, long).await.delete().await;
        assert_eq!(places(&store, "reef").await, [(grandchild, 2), (grandchild, 1)]);
        assert_eq!(places(&store, "sheet").await, [(grandchild, 4), (grandchild, 3)]);
        Live::of(&store, grandchild).await.delete().await;
        assert_eq!(places(&store, "reef").await, []);
        assert_eq!(places(&store, "sheet").await, []);
    }
}

async fn a_fork_finds_what_it_said_itself(store: S) {
    let mut origin = Live::new(&store).await;
    origin.turn("reef").await;
    let fork = store.fork(fork_of(origin.id(), None)).await.unwrap().session.id;
    take_turn(&store, fork, "sheet").await;
    assert_eq!(places(&store, "sheet").await, [(fork, 4), (fork, 3)]);
    let again = store.fork(fork_of(fork, None)).await.unwrap().session.id;
    take_turn(&store, again, "anchor").await;
    // The middle one leaves a trunk.
    Live::of(&store, fork).await.delete().await;
    assert_eq!(places(&store, "sheet").await, [(again, 4), (again, 3)]);
    assert_eq!(places(&store, "reef").await, [(origin.id(), 2), (origin.id(), 1)]);
    Live::of(&store, again).await.delete().await;
    origin.delete().await;
    for words in ["reef", "sheet", "anchor"] {
        assert_eq!(places(&store, words).await, []);
    }
}
