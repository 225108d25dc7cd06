//! Contract of every backend: surfaces and their undelivered turns (the Tether).

use bowline_sbp::delivery::Logged;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::lifecycle::Status;
use bowline_sbp::message::Message;
use bowline_sbp::session::TurnRequest;
use bowline_store::NewEntry;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    g5_the_cursor_never_moves_back_or_past_the_log
    g6_an_older_attachment_cannot_act
    g6_joined_surfaces_stay_beside_each_other
    sbp_l2_12_turns_wait_until_confirmed
    sbp_l2_12_a_page_is_bounded_in_number_and_bytes
    sbp_l2_12_each_device_gets_what_it_missed_itself
    sbp_l2_19_an_untethered_turn_is_never_pending
    sbp_l2_20_questions_are_shown_to_those_who_want_them
    sbp_l2_20_what_is_not_for_readers_is_passed_over
    a_turn_is_shown_as_the_log_has_it
}

async fn g5_the_cursor_never_moves_back_or_past_the_log(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    for n in 0..3 {
        live.turn(&n.to_string()).await;
    }
    let epoch = live.attach(None).await.epoch;
    live.confirm(epoch, 4).await;
    assert_eq!(pending(&store, id).await, ["2"]);
    live.confirm(epoch, 2).await;
    assert_eq!(pending(&store, id).await, ["2"], "never back");
    live.confirm(epoch, 400).await;
    assert_eq!(pending(&store, id).await, ["2"], "never past the log");
    live.confirm(epoch, 6).await;
    assert!(pending(&store, id).await.is_empty());
    live.turn("3").await;
    assert_eq!(pending(&store, id).await, ["3"]);
}

async fn g6_an_older_attachment_cannot_act(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.turn("a").await;
    let older = live.attach(None).await.epoch;
    let newer = live.attach(None).await.epoch;
    assert!(newer > older);
    let attached = store.attached(id).await.unwrap();
    assert_eq!(attached.iter().map(|row| row.epoch).collect::<Vec<_>>(), [newer]);
    live.confirm(older, 2).await;
    assert_eq!(pending(&store, id).await, ["a"]);
    live.leave(older).await;
    let session = live.stored().await;
    assert!(session.surface.is_some() && session.status == Status::Running);
    live.leave(newer).await;
    let session = live.stored().await;
    assert!(session.surface.is_none() && session.status == Status::Suspended);
}

async fn g6_joined_surfaces_stay_beside_each_other(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.turn("a").await;
    let mut epochs = Vec::new();
    for name in ["phone", "watch", "desk"] {
        epochs.push(live.join(Some(name)).await.epoch);
    }
    let attached = async || -> Vec<u64> {
        store.attached(id).await.unwrap().iter().map(|row| row.epoch).collect()
    };
    assert_eq!(attached().await, epochs, "oldest first");
    let again = live.join(Some("watch")).await.epoch;
    assert_eq!(attached().await, [epochs[0], epochs[2], again], "of one name the newest");
    live.leave(again).await;
    live.leave(epochs[0]).await;
    assert_eq!(live.stored().await.status, Status::Running, "one is still there");
    live.leave(epochs[2]).await;
    assert_eq!(live.stored().await.status, Status::Suspended);
    assert!(attached().await.is_empty());
}

async fn sbp_l2_12_turns_wait_until_confirmed(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    let long = "and so on ".repeat(100);
    let all: Vec<_> = (0..700).map(|n| format!("{n} {long}")).collect();
    for text in &all {
        live.feed(whole_turn(text)).await.unwrap();
    }
    assert_eq!(pending(&store, id).await, all, "in order, over several pages");
    let attached = live.attach(None).await;
    assert_eq!((attached.cursor, attached.head), (0, 1400));
    assert_eq!(pending(&store, id).await, all, "attaching delivers nothing");
    live.confirm(attached.epoch, 1000).await;
    assert_eq!(pending(&store, id).await, all[500..]);
}

async fn sbp_l2_12_a_page_is_bounded_in_number_and_bytes(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    for n in 0..600 {
        live.feed(whole_turn(&n.to_string())).await.unwrap();
    }
    let page = store.shown_after(id, 0, false).await.unwrap();
    assert_eq!(page.len(), 512);
    let rest = store.shown_after(id, page.last().unwrap().seq(), false).await.unwrap();
    assert_eq!(rest.len(), 88);
    // Large entries are delivered one per page.
    let large = "x".repeat(300 << 10);
    for _ in 0..2 {
        live.feed(whole_turn(&large)).await.unwrap();
    }
    let one = store.shown_after(id, 1200, false).await.unwrap();
    assert_eq!(one.iter().map(Logged::seq).collect::<Vec<_>>(), [1202]);
    let other = store.shown_after(id, 1202, false).await.unwrap();
    assert_eq!(other.iter().map(Logged::seq).collect::<Vec<_>>(), [1204]);
    assert!(store.shown_after(id, 1204, false).await.unwrap().is_empty());
    assert!(store.shown_after(new_session().id, 0, false).await.unwrap().is_empty());
}

async fn sbp_l2_12_each_device_gets_what_it_missed_itself(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    for n in 0..4 {
        live.turn(&n.to_string()).await;
    }
    let phone = live.join(Some("phone")).await;
    let watch = live.join(Some("watch")).await;
    assert_eq!((phone.cursor, watch.cursor), (0, 0));
    live.confirm(phone.epoch, 6).await;
    live.confirm(watch.epoch, 2).await;
    assert_eq!(pending_for(&store, id, Some("phone")).await, ["3"]);
    assert_eq!(pending_for(&store, id, Some("watch")).await, ["1", "2", "3"]);
    assert_eq!(pending(&store, id).await, ["3"], "the session's cursor is the furthest");
    // A device that is new, or has a token but never attached, begins at the session's Tether.
    live.give_token("tablet", 1, later(60)).await;
    for name in ["tablet", "unheard of"] {
        assert_eq!(pending_for(&store, id, Some(name)).await, ["3"]);
    }
    live.confirm(phone.epoch, 8).await;
    assert!(pending_for(&store, id, Some("phone")).await.is_empty());
    assert!(pending(&store, id).await.is_empty());
    assert_eq!(pending_for(&store, id, Some("watch")).await, ["1", "2", "3"], "its own");
    // A device's position is kept when the session's owner restarts.
    let again = Live::of(&store, id).await.join(Some("watch")).await;
    assert_eq!(again.cursor, 2);
    assert!(store.arrival(new_session().id, None).await.unwrap().is_none());
}

async fn sbp_l2_19_an_untethered_turn_is_never_pending(store: S) {
    let mut live = Live::new(&store).await;
    live.turn("for the phone").await;
    live.submit_as(TurnRequest { tether: false, ..request("q") }, None).await;
    live.answer_with(NewEntry { tethered: false, ..answered("for the script") }).await;
    assert_eq!(pending(&store, live.id()).await, ["for the phone"]);
    assert_eq!(live.stored().await.step_count, 2);
}

async fn sbp_l2_20_questions_are_shown_to_those_who_want_them(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.turn("1").await;
    let turn_id = live.submit("hi").await;
    let asked = live.call_tools(&["camera"]).await;
    let calls = live.decide(asked[0], true).await;
    live.call_ended(calls[0]).await;
    live.answer("2").await;
    live.submit("and?").await;
    live.refuse().await;
    // Tool calls, their results and notes are not shown as questions.
    let note = "This was not answered.";
    let all = ["? ask 1", "1", "? hi", "2", note];
    assert_eq!(shown(&store, id, 0, true).await, all);
    assert_eq!(shown(&store, id, 0, false).await, ["1", "2", note]);
    assert_eq!(shown(&store, id, 3, true).await, ["2", note]);
    let page = store.shown_after(id, 2, true).await.unwrap();
    let Logged::Question(question) = &page[0] else { panic!("{page:?}") };
    assert_eq!((question.seq, question.turn_id, question.created_at), (3, turn_id, at()));
}

async fn sbp_l2_20_what_is_not_for_readers_is_passed_over(store: S) {
    let mut live = Live::new(&store).await;
    // More system messages than fit on a page.
    let rules = |n| Message::text("system", &format!("rule {n}"));
    let messages = (0..1100).map(rules).chain([Message::text("user", "hi")]).collect();
    live.submit_as(TurnRequest { messages, ..request("") }, None).await;
    live.answer("hello").await;
    assert_eq!(shown(&store, live.id(), 0, true).await, ["? hi", "hello"]);
}

async fn a_turn_is_shown_as_the_log_has_it(store: S) {
    let mut live = Live::new(&store).await;
    live.at = later(3);
    let turn_id = live.submit("q").await;
    live.answer_with(NewEntry { status: TurnStatus::Cancelled, ..answered("half") }).await;
    let page = store.shown_after(live.id(), 0, false).await.unwrap();
    let [Logged::Turn(turn)] = page.as_slice() else { panic!("{page:?}") };
    assert_eq!((turn.seq, turn.turn_id, turn.step_count), (2, turn_id, 1));
    assert_eq!((&*turn.role, &*turn.content), ("assistant", "half"));
    assert_eq!((turn.model.as_deref(), turn.status), (Some("m"), TurnStatus::Cancelled));
    assert_eq!(turn.created_at, later(3));
}
