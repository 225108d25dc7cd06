//! Contract of every backend: images, sounds and files are stored once, as long as a message refers
//! to them, and only the sessions of those messages read them.

use std::collections::HashSet;

use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::id::SessionId;
use bowline_sbp::message::Message;
use bowline_sbp::session::Command;
use bowline_store::{EntryKind, NewEntry};
use serde_json::value::to_raw_value;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g4_a_blob_is_there_from_the_acceptance_of_its_turn_on
    a_blob_of_a_turn_that_leaves_no_trace_is_deleted
    a_blob_of_a_turn_that_leaves_no_trace_is_deleted_with_the_turn_behind_it
    g11_a_reference_is_known_by_its_hash_and_its_size
    a_reference_opens_nothing_in_a_session_that_was_not_sent_the_blob
    g8_a_fork_reads_the_blobs_of_the_log_that_it_shares
    g23_a_blob_is_erased_with_the_last_session_that_refers_to_it
    an_imported_message_brings_its_blobs
    a_tool_result_brings_its_blobs
}

fn image(seed: u8) -> Blob {
    Blob::new(vec![seed; 1000])
}

/// A message that refers to a blob.
pub(crate) fn showing(role: &str, blob: &Blob) -> Message {
    let url = format!("data:image/png;base64,{}", blob.reference());
    let part = serde_json::json!({"type": "image_url", "image_url": {"url": url}});
    let message = serde_json::json!({"role": role, "content": [part]});
    Message::read(to_raw_value(&message).unwrap()).unwrap()
}

/// Submits a turn with an image.
pub(crate) async fn submit_image(live: &mut Live, blob: &Blob, with_bytes: bool) {
    let mut request = request("");
    request.messages = vec![showing("user", blob)];
    let mut submit = submit(new_turn(), request, None);
    submit.blobs.extend(with_bytes.then(|| blob.clone()));
    live.ask(Command::Submit(submit)).await.unwrap();
}

/// The same as a turn that leaves no trace if the model refuses it.
async fn submit_watched_image(live: &mut Live, blob: &Blob) {
    let mut watched = watched("");
    watched.messages = vec![showing("user", blob)];
    let mut submit = submit(new_turn(), watched, None);
    submit.blobs.push(blob.clone());
    live.ask(Command::Submit(submit)).await.unwrap();
}

async fn reads(store: &S, id: SessionId, blob: &Blob) -> bool {
    let found = store.blobs(id, vec![blob.cid, image(99).cid]).await.unwrap();
    assert!(found.is_empty() || found == [blob.clone()]);
    !found.is_empty()
}

async fn g4_a_blob_is_there_from_the_acceptance_of_its_turn_on(store: S) {
    let mut live = Live::new(&store).await;
    let (id, blob) = (live.id(), image(1));
    assert!(!reads(&store, id, &blob).await);
    submit_image(&mut live, &blob, true).await;
    assert!(reads(&store, id, &blob).await, "before the turn has ended");
    // Another turn waits behind it: what it brought stays, too.
    submit_image(&mut live, &image(2), true).await;
    live.answer("nice").await;
    assert!(reads(&store, id, &blob).await && reads(&store, id, &image(2)).await);
    live.answer("also nice").await;
    assert!(reads(&store, id, &blob).await && reads(&store, id, &image(2)).await);
    // Sent back as a reference, in a later turn.
    submit_image(&mut live, &blob, false).await;
    live.answer("again").await;
    assert!(reads(&store, id, &blob).await);
}

async fn a_blob_of_a_turn_that_leaves_no_trace_is_deleted(store: S) {
    let mut live = Live::new(&store).await;
    let blob = image(1);
    submit_watched_image(&mut live, &blob).await;
    live.refuse().await;
    assert_eq!(live.stored().await.last_seq, 0);
    assert!(!reads(&store, live.id(), &blob).await);
    // The bytes are needed again.
    submit_image(&mut live, &blob, false).await;
    live.answer("which image?").await;
    assert!(!reads(&store, live.id(), &blob).await);
}

async fn a_blob_of_a_turn_that_leaves_no_trace_is_deleted_with_the_turn_behind_it(store: S) {
    let mut live = Live::new(&store).await;
    let blob = image(1);
    submit_watched_image(&mut live, &blob).await;
    // Without an image.
    live.submit("behind it").await;
    live.refuse().await;
    live.answer("fine").await;
    assert!(!reads(&store, live.id(), &blob).await);
}

async fn g11_a_reference_is_known_by_its_hash_and_its_size(store: S) {
    let mut live = Live::new(&store).await;
    let (blob, other) = (image(1), image(2));
    submit_image(&mut live, &blob, true).await;
    live.answer("nice").await;
    let lie = |size| BlobRef { size, ..blob.reference() };
    let all = vec![blob.reference(), lie(1), lie(u64::MAX), other.reference()];
    let known = store.known_blobs(live.id(), all.clone()).await.unwrap();
    assert_eq!(known, HashSet::from([blob.reference()]));
    let stranger = Live::new(&store).await;
    assert!(store.known_blobs(stranger.id(), all).await.unwrap().is_empty());
}

async fn a_reference_opens_nothing_in_a_session_that_was_not_sent_the_blob(store: S) {
    let (mut mine, mut theirs) = (Live::new(&store).await, Live::new(&store).await);
    let blob = image(1);
    submit_image(&mut mine, &blob, true).await;
    mine.answer("nice").await;
    submit_image(&mut theirs, &blob, false).await;
    assert!(!reads(&store, theirs.id(), &blob).await, "while the turn runs");
    theirs.answer("I see nothing").await;
    assert!(!reads(&store, theirs.id(), &blob).await, "once it is in the log");
    let mut import = import_of("elsewhere", 1);
    import.entries.push(imported(NewEntry::message(showing("user", &blob))));
    let elsewhere = store.import(import).await.unwrap().session;
    assert!(!reads(&store, elsewhere.id, &blob).await, "in an imported log");
    // Who has the bytes has them.
    submit_image(&mut theirs, &blob, true).await;
    assert!(reads(&store, theirs.id(), &blob).await);
}

async fn g8_a_fork_reads_the_blobs_of_the_log_that_it_shares(store: S) {
    let mut live = Live::new(&store).await;
    let (first, second) = (image(1), image(2));
    for blob in [&first, &second] {
        submit_image(&mut live, blob, true).await;
        live.answer("nice").await;
    }
    let fork = store.fork(fork_of(live.id(), Some(1))).await.unwrap().session.id;
    assert!(reads(&store, fork, &first).await);
    assert!(!reads(&store, fork, &second).await, "what came after the fork is not its own");
    // With its origin deleted, it still has what it shares.
    delete(&store, live.id()).await;
    assert!(reads(&store, fork, &first).await && !reads(&store, fork, &second).await);
    let mut fork = Live::of(&store, fork).await;
    submit_image(&mut fork, &second, false).await;
    fork.answer("which?").await;
    assert!(!reads(&store, fork.id(), &second).await, "it is gone with the rest of that log");
}

async fn g23_a_blob_is_erased_with_the_last_session_that_refers_to_it(store: S) {
    let (mut one, mut two) = (Live::new(&store).await, Live::new(&store).await);
    let blob = image(1);
    for live in [&mut one, &mut two] {
        submit_image(live, &blob, true).await;
        live.answer("nice").await;
    }
    delete(&store, one.id()).await;
    assert!(reads(&store, two.id(), &blob).await);
    delete(&store, two.id()).await;
    let mut three = Live::new(&store).await;
    submit_image(&mut three, &blob, false).await;
    assert!(!reads(&store, three.id(), &blob).await);
}

async fn an_imported_message_brings_its_blobs(store: S) {
    let blob = image(1);
    let mut import = import_of("elsewhere", 1);
    let entry = NewEntry::message(showing("user", &blob));
    import.entries.push(imported(NewEntry { blobs: vec![blob.clone()], ..entry }));
    let session = store.import(import).await.unwrap().session;
    assert!(reads(&store, session.id, &blob).await);
}

async fn a_tool_result_brings_its_blobs(store: S) {
    let mut live = Live::new(&store).await;
    let blob = image(1);
    live.submit("look").await;
    let entry = NewEntry::new(EntryKind::Action, showing("tool", &blob));
    live.answer_with(NewEntry { blobs: vec![blob.clone()], ..entry }).await;
    assert!(reads(&store, live.id(), &blob).await);
}
