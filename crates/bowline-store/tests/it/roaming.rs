//! Contract of every backend: exports, imports and lineage.

use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::id::{ExportId, MemoryId, SessionId};
use bowline_sbp::lifecycle::Status;
use bowline_store::{
    EdgeKind, Error, Family, Member, MemoryKind, MemoryOwner, NewExport, NewImport, NewMemory,
    SnapshotKind, Tokens,
};
use jiff::SignedDuration;
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l3_02_a_signing_key_is_made_once_and_old_ones_last_as_long_as_their_tokens
    sbp_l3_05_an_import_is_the_session_as_it_was
    sbp_l3_05_an_import_counts_steps_back_from_the_last
    sbp_l3_05_memories_come_along_whole_or_the_import_is_refused
    sbp_l3_06_an_export_is_used_once
    sbp_l3_06_of_many_imports_one_wins
    sbp_l3_07_reuse_uses_nothing_up
    sbp_l3_12_exports_are_listed_newest_first
    sbp_l3_12_a_family_is_found_from_every_member
    sbp_l3_12_a_family_is_cut_where_it_was_asked_to_be
    sbp_l3_12_a_family_says_what_each_member_spent_itself
    g3_an_import_under_a_key_is_made_once
    g7_an_export_ends_with_its_session
    g7_bundles_go_when_they_have_expired
}

/// An import that consumes this export.
pub(crate) fn using_up(export: ExportId) -> NewImport {
    NewImport { export_id: Some(export), consume: true, ..import_of("elsewhere", 2) }
}

pub(crate) async fn exported(store: &S) -> ExportId {
    let session = made(store).await;
    store.keep_export(export_of(session.id)).await.unwrap().id
}

async fn sbp_l3_05_an_import_is_the_session_as_it_was(store: S) {
    let mut import = import_of("elsewhere", 2);
    let then = at().checked_sub(SignedDuration::from_hours(1)).unwrap();
    import.entries[0].at = then;
    import.entries[0].entry.carried = Some(r#"{"x":1}"#.into());
    import.carried = Some(r#"{"y":2}"#.into());
    let made = store.import(import.clone()).await.unwrap();
    assert_eq!((made.point, made.export_id, made.replayed), ((4, 2), None, false));
    let session = made.session;
    assert_eq!((session.id, session.status), (import.session.id, Status::Running));
    assert_eq!((session.last_seq, session.delivered_seq, session.pending_turns), (4, 4, 0));
    assert_eq!((session.step_count, session.cost_usd), (2, 1.0), "its entries' cost is its cost");
    let snapshot = session.snapshot.unwrap();
    assert_eq!((snapshot.id, snapshot.seq), (import.snapshot, 4));
    assert_eq!(snapshot.kind, SnapshotKind::Checkpoint);
    let packed = store.pack(session.id).await.unwrap().unwrap();
    assert_eq!(packed.carried, import.carried);
    for (entry, imported) in packed.entries.iter().zip(&import.entries) {
        assert_eq!(entry.message.as_json(), imported.entry.message.as_json());
        assert_eq!((entry.turn_id, entry.created_at), (imported.turn_id, imported.at));
        assert_eq!((&entry.carried, entry.kind), (&imported.entry.carried, imported.entry.kind));
        assert!(!entry.tethered);
    }
    assert!(pending(&store, session.id).await.is_empty(), "it was all delivered elsewhere");
    take_turn(&store, session.id, "here").await;
    assert_eq!(pending(&store, session.id).await, ["here"]);

    let empty = store.import(import_of("elsewhere", 0)).await.unwrap().session;
    assert_eq!((empty.status, empty.last_seq), (Status::Idle, 0));
    assert!(store.pack(new_session().id).await.unwrap().is_none());
}

async fn sbp_l3_05_an_import_counts_steps_back_from_the_last(store: S) {
    for (turns, steps, expected) in [
        (2, 2, [0, 1, 1, 2].as_slice()),
        (2, 9, &[7, 8, 8, 9]),
        (3, 1, &[0, 0, 0, 0, 0, 1]),
        (0, 4, &[]),
    ] {
        let import = NewImport { step_count: steps, ..import_of("elsewhere", turns) };
        let session = store.import(import).await.unwrap().session;
        assert_eq!(session.step_count, steps);
        let entries = store.entries_after(session.id, 0, 99).await.unwrap();
        assert_eq!(entries.iter().map(|e| e.step).collect::<Vec<_>>(), expected);
        let next = take_turn(&store, session.id, "next").await;
        assert_eq!(next.step_count, steps + 1);
    }
}

async fn sbp_l3_05_memories_come_along_whole_or_the_import_is_refused(store: S) {
    let fact = |n: usize| NewMemory {
        id: MemoryId(Uuid::now_v7()),
        kind: MemoryKind::Semantic,
        text: format!("fact {n}"),
        session_id: None,
        at: at(),
    };
    let import = async |memories| {
        let export = exported(&store).await;
        let made = store.import(NewImport { memories, ..using_up(export) }).await;
        let imported = store.export(export).await.unwrap().unwrap().0.imported.is_some();
        assert_eq!(imported, made.is_ok(), "a refused import uses nothing up");
        made.map(|made| MemoryOwner { user: made.session.user, agent: made.session.agent_id })
    };
    let agent = import(vec![fact(1), fact(2)]).await.unwrap();
    let count = async || store.memories(agent.clone(), None, 20_000).await.unwrap().len();
    assert_eq!(count().await, 2);
    // Memories that the agent already has do not count towards the limit.
    let refused = import((0..10_001).map(fact).collect()).await.unwrap_err();
    assert!(matches!(refused, Error::MemoryFull(_)), "{refused}");
    assert_eq!(count().await, 2);
    import((0..10_000).map(fact).collect()).await.unwrap();
    assert_eq!(count().await, 10_000);
    import((0..10_000).map(fact).collect()).await.unwrap();
    assert_eq!(count().await, 10_000);
    assert!(store.remember(agent.clone(), vec![fact(5)], false).await.is_ok());
    let one_more = store.remember(agent.clone(), vec![fact(20_000)], false).await;
    assert!(matches!(one_more, Err(Error::MemoryFull(_))));
}

async fn sbp_l3_06_an_export_is_used_once(store: S) {
    let export = exported(&store).await;
    // A refused import does not consume the export.
    let mut taken = using_up(export);
    taken.session.token_hash =
        store.create_session(new_session(), None).await.unwrap().session.token_hash;
    assert_eq!(store.import(taken).await.unwrap_err(), Error::TokenTaken);
    let first = using_up(export);
    let made = store.import(first.clone()).await.unwrap();
    assert_eq!(made.export_id, Some(export));
    let imported = store.export(export).await.unwrap().unwrap().0.imported;
    assert_eq!(imported, Some((at(), first.session.id)));
    let second = using_up(export);
    assert_eq!(store.import(second.clone()).await.unwrap_err(), Error::Consumed);
    assert!(store.session(second.session.id).await.unwrap().is_none());
    let unknown = using_up(ExportId(Uuid::now_v7()));
    assert_eq!(store.import(unknown).await.unwrap_err(), Error::NoExport);
    let nameless = NewImport { export_id: None, ..using_up(export) };
    assert_eq!(store.import(nameless).await.unwrap_err(), Error::NoExport);
}

async fn sbp_l3_06_of_many_imports_one_wins(store: S) {
    let exports = [exported(&store).await, exported(&store).await, exported(&store).await];
    let tries: Vec<_> = (0..64 * exports.len())
        .map(|n| {
            let (store, export) = (Arc::clone(&store), exports[n % exports.len()]);
            tokio::spawn(async move { (export, store.import(using_up(export)).await) })
        })
        .collect();
    let mut won: Vec<(ExportId, SessionId)> = Vec::new();
    for attempt in tries {
        match attempt.await.unwrap() {
            (export, Ok(made)) => won.push((export, made.session.id)),
            (_, Err(refused)) => assert_eq!(refused, Error::Consumed),
        }
    }
    for export in exports {
        let winners: Vec<_> =
            won.iter().filter(|(of, _)| *of == export).map(|(_, id)| *id).collect();
        let imported = store.export(export).await.unwrap().unwrap().0.imported;
        assert_eq!(winners, [imported.unwrap().1]);
    }
    let all = bowline_store::Page { user: OWNER, before: None, limit: 1000, status: None };
    assert_eq!(store.sessions(all).await.unwrap().len(), 6, "the losers left nothing");
}

async fn sbp_l3_07_reuse_uses_nothing_up(store: S) {
    let export = exported(&store).await;
    for _ in 0..3 {
        let reuse = NewImport { consume: false, ..using_up(export) };
        store.import(reuse).await.unwrap();
    }
    assert_eq!(store.export(export).await.unwrap().unwrap().0.imported, None);
    store.import(using_up(export)).await.unwrap();
}

async fn sbp_l3_12_exports_are_listed_newest_first(store: S) {
    let session = made(&store).await.id;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let new = NewExport { with_memory: ids.len() == 1, ..export_of(session) };
        let kept = store.keep_export(new.clone()).await.unwrap();
        assert_eq!(kept.with_memory, new.with_memory);
        assert_eq!((kept.id, kept.session_id, kept.cid), (new.id, session, new.cid));
        assert_eq!((kept.label, kept.message_count), (new.label, 2));
        assert_eq!((kept.created_at, kept.expires_at), (new.at, new.expires_at));
        let (read, bundle) = store.export(new.id).await.unwrap().unwrap();
        assert_eq!((read.imported, bundle), (None, Some(new.bundle)));
        ids.insert(0, new.id);
    }
    exported(&store).await;
    let listed = store.exports(session).await.unwrap();
    let marks: Vec<_> = listed.iter().map(|export| export.with_memory).collect();
    assert_eq!(marks, [false, true, false]);
    let listed: Vec<_> = listed.iter().map(|export| export.id).collect();
    assert_eq!(listed, ids);
    let nobody = export_of(new_session().id);
    assert_eq!(store.keep_export(nobody.clone()).await.unwrap_err(), Error::NoSession);
    assert!(store.export(nobody.id).await.unwrap().is_none());
    assert!(store.exports(nobody.session_id).await.unwrap().is_empty());
}

async fn family(store: &S, of: &str, most: u32) -> Family {
    store.family(of.to_owned(), OWNER, most).await.unwrap()
}

async fn sbp_l3_12_a_family_is_found_from_every_member(store: S) {
    let root = store.import(import_of("a stranger", 2)).await.unwrap().session;
    let fork = store.fork(fork_of(root.id, None)).await.unwrap().session;
    let handoff = handoff();
    let export = Some(handoff.export_id);
    let next = hand_off(&store, fork.id, handoff).await;
    // Its own bundle is imported again, twice, and once with itself as the origin.
    let back = store.keep_export(export_of(root.id)).await.unwrap().id;
    let import = NewImport {
        origin: root.id.to_string(),
        detail: r#"{"label":"back"}"#.into(),
        ..using_up(back)
    };
    let back = store.import(import).await.unwrap();
    let mut ring = import_of("", 1);
    ring.origin = ring.session.id.to_string();
    let ring = store.import(ring).await.unwrap().session.id.to_string();
    store.import(import_of("someone else", 1)).await.unwrap();

    let [root, fork] = [root.id.to_string(), fork.id.to_string()];
    let [next, again] = [next.id.to_string(), back.session.id.to_string()];
    let expected = [
        (EdgeKind::Import, "a stranger", &*root, None),
        (EdgeKind::Fork, &*root, &*fork, None),
        (EdgeKind::Handoff, &*fork, &*next, export),
        (EdgeKind::Import, &*root, &*again, back.export_id),
    ];
    for member in ["a stranger", &root, &fork, &next, &again] {
        let found = family(&store, member, 5).await;
        let edges: Vec<_> = found
            .edges
            .iter()
            .map(|edge| (edge.kind, &*edge.origin, &*edge.session, edge.export_id))
            .collect();
        assert_eq!((edges.as_slice(), found.cut), (&expected[..], false), "{member}");
        assert_eq!(found.edges[3].detail, r#"{"label":"back"}"#);
        assert_eq!(found.edges[3].at, at());
    }
    let found = family(&store, &ring, 9).await;
    assert_eq!((found.edges.len(), found.cut), (1, false), "a ring ends");
    let nobody = family(&store, "nobody", 9).await;
    let unknown = vec![Member { session: "nobody".into(), spent: None }];
    assert_eq!(nobody, Family { edges: Vec::new(), cut: false, members: unknown });

    // The lineage stays after a session is deleted.
    delete(&store, root.parse().unwrap()).await;
    assert_eq!(family(&store, &again, 9).await.edges.len(), 4);
}

async fn sbp_l3_12_a_family_is_cut_where_it_was_asked_to_be(store: S) {
    let root = store.import(import_of("a stranger", 1)).await.unwrap().session.id;
    for _ in 0..5 {
        let child = store.fork(fork_of(root, None)).await.unwrap().session.id;
        store.fork(fork_of(child, None)).await.unwrap();
    }
    // Twelve sessions: the root, a stranger, five children, five grandchildren.
    for most in 0..=13 {
        let found = family(&store, &root.to_string(), most).await;
        assert_eq!(found.cut, most < 12, "{most}");
        let sessions = most.clamp(1, 12) as usize;
        assert_eq!(found.edges.len(), sessions - 1, "a tree has one edge less, at {most}");
    }
    // A limited result has the nearest relatives.
    let near = family(&store, &root.to_string(), 7).await;
    let root = root.to_string();
    assert!(near.edges.iter().all(|edge| edge.origin == root || edge.session == root));
}

async fn sbp_l3_12_a_family_says_what_each_member_spent_itself(store: S) {
    let root = store.import(import_of("a stranger", 2)).await.unwrap().session.id;
    take_turn(&store, root, "root").await;
    let fork = store.fork(fork_of(root, None)).await.unwrap().session.id;
    let deleted = store.fork(fork_of(root, None)).await.unwrap().session.id;
    take_turn(&store, deleted, "gone").await;
    delete(&store, deleted).await;
    for n in 0..2 {
        take_turn(&store, fork, &n.to_string()).await;
    }
    let next = hand_off(&store, fork, handoff()).await.id;
    let spent = |turns: u32| {
        let [prompt, completion] = [7, 3].map(|tokens| tokens * u64::from(turns));
        Some((0.5 * f64::from(turns), Tokens { prompt, completion }))
    };
    let mut members = family(&store, &next.to_string(), 9).await.members;
    assert_eq!(members[0].session, next.to_string(), "the one that was asked for first");
    let order = [root.to_string(), fork.to_string(), next.to_string(), "a stranger".into()];
    members.sort_by_key(|m| order.iter().position(|id| *id == m.session).unwrap_or(9));
    let seen: Vec<_> = members.iter().map(|member| member.spent).collect();
    // The cost of imported turns, and of turns shared with the origin, is not counted again.
    assert_eq!(seen, [spent(1), spent(2), spent(0), None, None]);
    assert_eq!(members[4].session, deleted.to_string());
    let cost = async |id| store.session(id).await.unwrap().unwrap().cost_usd;
    assert_eq!((cost(root).await, cost(fork).await), (1.5, 1.0));
}

async fn g3_an_import_under_a_key_is_made_once(store: S) {
    let export = exported(&store).await;
    let first = NewImport { key: Some(key("s", "k", 1)), ..using_up(export) };
    store.import(first.clone()).await.unwrap();
    take_turn(&store, first.session.id, "since").await;
    let mut again = NewImport { key: first.key.clone(), ..using_up(export) };
    let same = store.import(again.clone()).await.unwrap();
    assert_eq!((same.session.id, same.replayed), (first.session.id, true));
    assert_eq!((same.point, same.export_id), ((4, 2), Some(export)));
    again.key = Some(key("s", "k", 2));
    assert_eq!(store.import(again).await.unwrap_err(), Error::KeyReused);
}

async fn g7_an_export_ends_with_its_session(store: S) {
    let session = made(&store).await.id;
    let used = store.keep_export(export_of(session)).await.unwrap().id;
    let waiting = store.keep_export(export_of(session)).await.unwrap().id;
    store.import(using_up(used)).await.unwrap();
    delete(&store, session).await;
    let (export, bundle) = store.export(waiting).await.unwrap().unwrap();
    assert_eq!((export.session_id, bundle), (session, None), "lineage still tells of it");
    assert_eq!(store.exports(session).await.unwrap().len(), 2);
    assert_eq!(store.import(using_up(waiting)).await.unwrap_err(), Error::NoExport);
    assert_eq!(store.import(using_up(used)).await.unwrap_err(), Error::Consumed);
    let late = export_of(session);
    assert_eq!(store.keep_export(late).await.unwrap_err(), Error::NoSession);
}

async fn g7_bundles_go_when_they_have_expired(store: S) {
    let session = made(&store).await.id;
    let end = export_of(session).expires_at;
    let later = end.checked_add(SignedDuration::from_secs(1)).unwrap();
    for _ in 0..40 {
        store.keep_export(export_of(session)).await.unwrap();
    }
    let mut lasting = export_of(session);
    lasting.expires_at = later;
    let lasting = store.keep_export(lasting).await.unwrap().id;
    assert_eq!(store.forget_bundles(end).await.unwrap(), 0, "not yet");
    assert_eq!(store.forget_bundles(later).await.unwrap(), 40);
    assert_eq!(store.forget_bundles(later).await.unwrap(), 0, "once");
    assert!(store.export(lasting).await.unwrap().unwrap().1.is_some());
    assert_eq!(store.exports(session).await.unwrap().len(), 41);
}

async fn sbp_l3_02_a_signing_key_is_made_once_and_old_ones_last_as_long_as_their_tokens(store: S) {
    let day = |n: i64| at() + jiff::SignedDuration::from_hours(24 * n);
    let ids = |keys: Vec<bowline_store::StoredSecret>| -> Vec<u8> {
        keys.iter().map(|key| key.bytes[0]).collect()
    };
    assert_eq!(ids(store.signing_keys(vec![1; 32], day(0)).await.unwrap()), [1]);
    assert_eq!(ids(store.signing_keys(vec![9; 32], day(1)).await.unwrap()), [1]);
    assert_eq!(ids(store.add_signing_key(vec![2; 32], day(2)).await.unwrap()), [1, 2]);
    assert_eq!(ids(store.add_signing_key(vec![3; 32], day(8)).await.unwrap()), [1, 2, 3]);
    assert_eq!(ids(store.add_signing_key(vec![4; 32], day(10)).await.unwrap()), [2, 3, 4]);
    assert_eq!(ids(store.signing_keys(vec![9; 32], day(99)).await.unwrap()), [2, 3, 4]);
}
