//! Contract of every backend: loading a session for its next owner.

use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::ApprovalState;
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{Command, Head, TurnRequest};
use bowline_store::{CommitError, SnapshotKind, Tokens, ToolPin};
use serde_json::json;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    a_new_session_is_loaded_as_it_was_made
    g19_the_row_is_loaded_as_it_was_committed
    sbp_l2_18_turns_are_loaded_by_their_place
    sbp_l5_01_questions_of_open_turns_are_loaded
    sbp_l5_01_an_approval_is_asked_once_and_the_first_verdict_counts
    g21_who_decided_and_what_is_allowed_for_good_are_loaded
    g21_pins_and_notices_are_kept
    g6_attachments_and_devices_are_loaded
    g8_a_session_that_was_handed_over_says_to_whom
}

async fn a_new_session_is_loaded_as_it_was_made(store: S) {
    let id = made(&store).await.id;
    let loaded = store.load(id).await.unwrap().unwrap();
    assert_eq!((loaded.id, loaded.fence, loaded.version), (id, 0, 0));
    assert_eq!(loaded.head, Head::new(Status::Idle, at()));
    assert!(loaded.turns.is_empty() && loaded.asked.is_empty());
    assert!(loaded.attachments.is_empty() && loaded.devices.is_empty());
}

async fn g19_the_row_is_loaded_as_it_was_committed(store: S) {
    let mut live = Live::new(&store).await;
    live.at = later(5);
    live.turn("a").await;
    live.at = later(9);
    live.turn("b").await;
    let epoch = live.attach(None).await.epoch;
    live.confirm(epoch, 2).await;
    let mut commit = live.prepare(whole_turn("c"));
    Arc::make_mut(&mut commit).head.snapshot.as_mut().unwrap().kind = SnapshotKind::PostAction;
    store.commit(commit.clone()).await.unwrap();
    let loaded = store.load(live.id()).await.unwrap().unwrap();
    assert_eq!(loaded.head, commit.head);
    assert_eq!((loaded.fence, loaded.version), (1, commit.version + 1));
    let head = loaded.head;
    assert_eq!((head.step_count, head.last_seq, head.delivered_seq), (3, 6, 2));
    assert_eq!((head.tethered_turns, head.turns_accepted, head.attach_epoch), (3, 3, 1));
    assert_eq!((head.cost_usd, head.spent_usd), (1.5, 1.5));
    assert_eq!(head.tokens, Tokens { prompt: 21, completion: 9 });
    assert_eq!(head.updated_at, later(9));
}

async fn sbp_l2_18_turns_are_loaded_by_their_place(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("before").await;
    let mut ids = vec![live.submit("one").await];
    ids.push(live.submit_as(request("two"), Some(key("s", "k", 1))).await);
    ids.push(live.submit("three").await);
    let turns = store.load(live.id()).await.unwrap().unwrap().turns;
    let seen: Vec<_> = turns.iter().map(|t| (t.place, t.id, t.started, t.keyed)).collect();
    let expected = [(2, ids[0], true, false), (3, ids[1], false, true), (4, ids[2], false, false)];
    assert_eq!(seen, expected);
    assert!(turns.iter().all(|t| (t.found, t.attempt) == (Some(Status::Running), 1)));
    assert!(turns.iter().all(|turn| !turn.advanced));
    let asked: Vec<_> =
        turns.iter().filter_map(|turn| TurnRequest::from_json(&turn.request)?.question()).collect();
    assert_eq!(asked, ["one", "two", "three"]);
    live.answer("1").await;
    let turns = store.load(live.id()).await.unwrap().unwrap().turns;
    let seen: Vec<_> = turns.iter().map(|t| (t.place, t.started)).collect();
    assert_eq!(seen, [(3, true), (4, false)], "the next one began with the end of the first");
}

async fn sbp_l5_01_questions_of_open_turns_are_loaded(store: S) {
    let mut live = Live::new(&store).await;
    let turn = live.submit("hi").await;
    let asked = live.call_tools(&["camera", "gps", "clipboard"]).await;
    let loaded = async || store.load(live.id()).await.unwrap().unwrap().asked;
    let rows = loaded().await;
    let seen: Vec<_> =
        rows.iter().map(|row| (row.approval.approval_id, row.place, row.approval.state)).collect();
    let pending = |n: u32| (asked[n as usize], (2, n), ApprovalState::Pending);
    assert_eq!(seen, [pending(0), pending(1), pending(2)], "where the calls are on record");
    let first = &rows[0].approval;
    assert_eq!((first.turn_id, &*first.tool_name), (turn, "camera"));
    assert_eq!(first.tool_input, json!({ "mode": "photo" }));
    assert_eq!((first.created_at, first.expires_at), (at(), later(60)));
    assert_eq!(first.session_id, live.id());

    let made = live.decide(asked[0], true).await;
    live.decide(asked[1], false).await;
    let states = |rows: &[bowline_sbp::session::AskedRow]| -> Vec<ApprovalState> {
        rows.iter().map(|row| row.approval.state).collect()
    };
    let open = store.load(live.id()).await.unwrap().unwrap().asked;
    assert_eq!(states(&open), [ApprovalState::Used, ApprovalState::Denied, ApprovalState::Pending]);
    live.call_ended(made[0]).await;
    live.decide(asked[2], false).await;
    live.answer("done").await;
    let open = store.load(live.id()).await.unwrap().unwrap().asked;
    assert!(open.is_empty(), "the turn has ended, and no question is open");
    let listed: Vec<_> = store
        .approvals(live.id())
        .await
        .unwrap()
        .iter()
        .map(|a| (a.approval_id, a.state))
        .collect();
    let newest_first = [
        (asked[2], ApprovalState::Denied),
        (asked[1], ApprovalState::Denied),
        (asked[0], ApprovalState::Used),
    ];
    assert_eq!(listed, newest_first);
}

async fn sbp_l5_01_an_approval_is_asked_once_and_the_first_verdict_counts(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.submit("hi").await;
    let asked = live.call_tools(&["camera", "gps"]).await;
    // The next owner plans the same calls, and finds their open approvals.
    let mut heir = Live::of(&store, id).await;
    heir.take_up().await;
    heir.replan(2, &["camera", "gps"]).await;
    let states = async || -> Vec<_> {
        let listed = store.approvals(id).await.unwrap();
        listed.iter().rev().map(|a| (a.approval_id, a.state)).collect()
    };
    let pending = [(asked[0], ApprovalState::Pending), (asked[1], ApprovalState::Pending)];
    assert_eq!(states().await, pending, "the same questions");
    assert_eq!(heir.decide(asked[0], true).await.len(), 1);
    assert!(heir.decide(asked[0], false).await.is_empty());
    heir.at = later(61);
    assert!(heir.decide(asked[1], true).await.is_empty());
    let ended = [(asked[0], ApprovalState::Used), (asked[1], ApprovalState::Expired)];
    assert_eq!(states().await, ended, "the first counts, and too late is a no");
    // A decision by the previous owner is fenced.
    let late = live
        .command(Command::Decide { approval: asked[0], approved: false, always: false, by: by() })
        .await;
    assert_eq!(live.feed(vec![late]).await, Err(CommitError::Fenced));
    assert_eq!(states().await, ended);
}

async fn g21_who_decided_and_what_is_allowed_for_good_are_loaded(store: S) {
    let mut live = Live::new(&store).await;
    live.submit("hi").await;
    let asked = live.call_tools(&["camera", "gps"]).await;
    live.always = true;
    live.decide(asked[0], true).await;
    let loaded = store.load(live.id()).await.unwrap().unwrap();
    let grant = &loaded.grants[0];
    assert_eq!((&*grant.tool, &*grant.device, grant.at), ("camera", "", at()));
    let decision = loaded.asked[0].approval.decision.clone().unwrap();
    assert_eq!((decision.by, decision.always), (by(), true));
    assert_eq!(store.approvals(live.id()).await.unwrap()[1].decision.as_ref().unwrap().at, at());
    assert!(loaded.asked[1].approval.decision.is_none());
    assert!(loaded.asked.iter().all(|row| row.approval.asked_by == Some(OWNER)));
    // Another turn's call needs none.
    live.decide(asked[1], false).await;
    live.delete().await;
    assert!(store.load(live.id()).await.unwrap().is_none());
}

async fn g21_pins_and_notices_are_kept(store: S) {
    let pin = |tool: &str, text: &str| ToolPin { tool: tool.into(), definition: text.into() };
    store.pin_tools(vec![pin("a", "1"), pin("b", "1")], at()).await.unwrap();
    store.pin_tools(vec![pin("a", "2")], later(1)).await.unwrap();
    assert_eq!(store.tool_pins().await.unwrap(), [pin("a", "2"), pin("b", "1")]);
    assert!(!store.take_notice("tools-ask").await.unwrap(), "nothing was there before");
}

async fn g6_attachments_and_devices_are_loaded(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("a").await;
    let first = live.attach(None).await.epoch;
    let second = live.join(Some("phone")).await.epoch;
    live.confirm(second, 2).await;
    live.give_token("watch", 1, later(60)).await;
    let loaded = store.load(live.id()).await.unwrap().unwrap();
    let seen: Vec<_> = loaded
        .attachments
        .iter()
        .map(|row| (row.epoch, row.edge, row.joined, row.context.surface_id.as_deref()))
        .collect();
    assert_eq!(seen, [(first, ME, false, None), (second, ME, true, Some("phone"))]);
    assert_eq!(store.attached(live.id()).await.unwrap(), loaded.attachments);
    let devices: Vec<_> = loaded
        .devices
        .iter()
        .map(|row| (&*row.surface_id, row.last_seen, row.token.is_some(), row.delivered_seq))
        .collect();
    let expected = [("phone", Some(at()), false, Some(2)), ("watch", None, true, None)];
    assert_eq!(devices, expected);
    assert_eq!(store.devices(live.id()).await.unwrap(), loaded.devices);
    let surface = live.stored().await.surface.unwrap();
    assert_eq!(surface.surface_id.as_deref(), Some("phone"), "the one that came last");
}

async fn g8_a_session_that_was_handed_over_says_to_whom(store: S) {
    let id = store.import(import_of("elsewhere", 1)).await.unwrap().session.id;
    let new = hand_off(&store, id, handoff()).await;
    let loaded = store.load(id).await.unwrap().unwrap();
    assert_eq!(loaded.head.handed_to, Some((new.id, "successor".parse().unwrap())));
    // The successor may be deleted since.
    delete(&store, new.id).await;
    let (to, _) = store.load(id).await.unwrap().unwrap().head.handed_to.unwrap();
    assert_eq!(to, new.id);
}
