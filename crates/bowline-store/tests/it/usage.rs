//! Contract of every backend: what is stored is counted, in the same transaction and for whoever did it.

use bowline_sbp::access::{CredentialId, OWNER};
use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::budget::{Day, Spender, Spent};
use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::message::Message;
use bowline_sbp::session::TurnRequest;
use bowline_store::{AuditEntry, AuditQuery, NewEntry, NewExport};
use jiff::{SignedDuration, Timestamp};
use serde_json::value::to_raw_value;
use uuid::Uuid;

use crate::backends::backends;
use crate::blobs::{showing, submit_image};
use crate::fixture::*;
use crate::live::*;

backends! {
    a_turn_counts_itself_for_its_user_and_key
    exports_count_themselves_and_what_passes_through_is_counted_with_the_next_commit
    a_session_counts_its_bytes_until_it_is_deleted
    a_blob_counts_once_in_a_session_by_its_real_size
    g11_a_reference_to_a_blob_that_never_came_counts_as_text
    days_that_are_long_gone_are_forgotten
    the_audit_is_read_newest_first_and_tallies_are_one_entry_an_hour
}

fn laptop() -> CredentialId {
    CredentialId::from_bytes([7; 8])
}

fn with_key(n: u128) -> Spender {
    Spender { user: UserId(Uuid::from_u128(n)), key: Some(laptop()) }
}

fn today() -> Day {
    Day::of(at())
}

async fn a_turn_counts_itself_for_its_user_and_key(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("yes").await;
    let spent = store.spent_on(today(), Spender::user(OWNER)).await.unwrap();
    assert_eq!((spent.user.turns, spent.user.model_calls), (1, 1));
    assert_eq!(spent.user.tokens(), TOKENS.prompt + TOKENS.completion);
    live.submit_as(TurnRequest { spender: Some(with_key(5)), ..request("two") }, None).await;
    live.answer("yes").await;
    let spent = store.spent_on(today(), with_key(5)).await.unwrap();
    assert_eq!((spent.user.turns, spent.key.turns), (1, 1));
    assert_eq!(spent.user, spent.key);
    let all = store.days_of_use(today(), None).await.unwrap();
    let keys: Vec<_> = all.iter().map(|day| (day.user, day.key.clone())).collect();
    let other = with_key(5).user;
    assert_eq!(keys, [(OWNER, None), (other, None), (other, Some(laptop()))]);
    assert_eq!(store.days_of_use(today(), Some(OWNER)).await.unwrap().len(), 1);
    assert!(store.days_of_use(today().next(), None).await.unwrap().is_empty());
}

async fn exports_count_themselves_and_what_passes_through_is_counted_with_the_next_commit(
    store: S,
) {
    let mut live = Live::new(&store).await;
    live.turn("yes").await;
    let export = NewExport { spender: Some(with_key(5)), ..export_of(live.id()) };
    let day = Day::of(export.at);
    store.keep_export(export).await.unwrap();
    let spent = store.spent_on(day, with_key(5)).await.unwrap();
    assert_eq!((spent.user.exports, spent.key.exports), (1, 1));
    let passed = Spent { model_calls: 1, prompt_tokens: 3, ..Spent::default() };
    store.spend(with_key(6), passed, at());
    store.spend(with_key(6), passed, at());
    store.settle().await.unwrap();
    let spent = store.spent_on(today(), with_key(6)).await.unwrap();
    assert_eq!((spent.user.model_calls, spent.key.prompt_tokens), (2, 6));
}

async fn a_session_counts_its_bytes_until_it_is_deleted(store: S) {
    let mut live = Live::new(&store).await;
    assert_eq!(store.stored_bytes(OWNER).await.unwrap(), 0);
    live.turn("an answer").await;
    let entries = store.entries_after(live.id(), 0, 10).await.unwrap();
    let bytes: usize = entries.iter().map(|entry| entry.message.as_json().len()).sum();
    assert_eq!(store.stored_bytes(OWNER).await.unwrap(), bytes as u64);
    let imported = store.import(import_of("elsewhere", 2)).await.unwrap().session;
    let both = store.stored_bytes(OWNER).await.unwrap();
    assert!(both > bytes as u64, "an import counts, too");
    store.fork(fork_of(live.id(), None)).await.unwrap();
    assert_eq!(store.stored_bytes(OWNER).await.unwrap(), both, "a fork shares what it has");
    Live::of(&store, imported.id).await.delete().await;
    assert_eq!(store.stored_bytes(OWNER).await.unwrap(), bytes as u64);
}

/// The bytes of a session's messages, without blobs.
async fn text_of(store: &S, id: SessionId) -> u64 {
    let entries = store.entries_after(id, 0, 100).await.unwrap();
    entries.iter().map(|entry| entry.message.as_json().len() as u64).sum()
}

async fn a_blob_counts_once_in_a_session_by_its_real_size(store: S) {
    let mut live = Live::new(&store).await;
    let blob = Blob::new(vec![1; 1000]);
    for with_bytes in [true, false, true] {
        submit_image(&mut live, &blob, with_bytes).await;
        live.answer("nice").await;
        let text = text_of(&store, live.id()).await;
        assert_eq!(store.stored_bytes(OWNER).await.unwrap(), text + 1000);
    }
    let before = store.stored_bytes(OWNER).await.unwrap();
    let mut import = import_of("elsewhere", 1);
    let entry = NewEntry::message(showing("user", &blob));
    import.entries.push(imported(NewEntry { blobs: vec![blob], ..entry }));
    let other = store.import(import).await.unwrap().session.id;
    let added = store.stored_bytes(OWNER).await.unwrap() - before;
    assert_eq!(added, text_of(&store, other).await + 1000, "it is stored for that session, too");
}

/// A message that refers to blobs of any size that nobody sent.
fn lying() -> Message {
    let never_sent = BlobRef { size: u64::MAX, ..Blob::new(vec![9; 10]).reference() };
    let url = format!("data:image/png;base64,{never_sent}");
    let part = serde_json::json!({"type": "image_url", "image_url": {"url": url}});
    let message = serde_json::json!({"role": "user", "content": [part, part]});
    Message::read(to_raw_value(&message).unwrap()).unwrap()
}

async fn g11_a_reference_to_a_blob_that_never_came_counts_as_text(store: S) {
    let mut live = Live::new(&store).await;
    for _ in 0..2 {
        let asked = TurnRequest { messages: vec![lying()], ..request("") };
        live.submit_as(asked, None).await;
        live.answer("I see nothing").await;
    }
    let mut import = import_of("elsewhere", 1);
    import.entries.extend([lying(), lying()].map(NewEntry::message).map(imported));
    let other = store.import(import).await.unwrap().session.id;
    let text = text_of(&store, live.id()).await + text_of(&store, other).await;
    assert_eq!(store.stored_bytes(OWNER).await.unwrap(), text);
}

async fn days_that_are_long_gone_are_forgotten(store: S) {
    let spent = Spent { turns: 1, ..Spent::default() };
    for days in [0, 1, 2] {
        let at = at() - SignedDuration::from_hours(24 * days);
        store.spend(Spender::user(OWNER), spent, at);
    }
    store.settle().await.unwrap();
    assert_eq!(store.forget_days(today().before(1)).await.unwrap(), 1);
    assert_eq!(store.days_of_use(Day(0), None).await.unwrap().len(), 2);
}

fn entry(action: &str, seconds: i64) -> AuditEntry {
    AuditEntry {
        at: Timestamp::from_second(3600 * 1000 + seconds).unwrap(),
        user: Some(OWNER),
        credential: "local".into(),
        action: action.into(),
        object: String::new(),
        result: "ok".into(),
        address: "127.0.0.1".into(),
        times: 1,
        is_tally: false,
    }
}

async fn the_audit_is_read_newest_first_and_tallies_are_one_entry_an_hour(store: S) {
    let all = AuditQuery { limit: 100, ..AuditQuery::default() };
    let read = async |query: AuditQuery| -> Vec<(String, u64)> {
        let entries = store.audit(query).await.unwrap();
        entries.into_iter().map(|entry| (entry.action, entry.times)).collect()
    };
    let one = |action: &str, times| (action.to_owned(), times);
    store.record(vec![entry("a", 0), entry("a", 1)]).await.unwrap();
    store.record_later(vec![entry("b", 2)]);
    store.settle().await.unwrap();
    assert_eq!(read(all.clone()).await, [one("b", 1), one("a", 1), one("a", 1)]);
    let tally =
        |seconds, times, user| AuditEntry { times, is_tally: true, user, ..entry("t", seconds) };
    store
        .record(vec![tally(10, 2, None), tally(20, 3, None), tally(20, 1, Some(OWNER))])
        .await
        .unwrap();
    store.record(vec![tally(3600, 1, None)]).await.unwrap();
    let tallies = AuditQuery { since: Some(entry("", 5).at), ..all.clone() };
    assert_eq!(read(tallies).await, [one("t", 1), one("t", 1), one("t", 5)], "by hour and user");
    let mine = AuditQuery { user: Some(OWNER), ..all.clone() };
    assert_eq!(read(mine).await.len(), 4);
    assert_eq!(read(AuditQuery { limit: 2, ..all.clone() }).await.len(), 2);
    assert_eq!(store.forget_audit(entry("", 2).at).await.unwrap(), 2);
    assert_eq!(read(all).await.len(), 4);
}
