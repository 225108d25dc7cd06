//! Contract of every backend: reservations of peers, journals of migrations, and what is known of other gateways.

use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::cid::Cid;
use bowline_sbp::delivery::Logged;
use bowline_sbp::federation::migration::{Dropped, Stage};
use bowline_sbp::federation::reservation::{LONGEST_RENEWED, Refusal, ReservationState};
use bowline_sbp::federation::{GatewayId, MovedTether, Pin, ReservationId};
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_sbp::id::{ExportId, MemoryId, SessionId, TurnId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{Command, IdempotencyKey};
use bowline_store::{
    AnnouncedExport, AskReservation, CommitError, Error, Forward, KeptPeer, KeptReservation,
    MemoryKind, MemoryOwner, NewExport, NewImport, NewMemory, NewMigration, Reserving,
};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l6_02_the_id_of_a_token_is_used_up_once
    sbp_l6_02_bundles_are_found_by_their_content_id
    sbp_l6_03_what_is_announced_is_open_until_it_is_used_gone_or_expired
    sbp_l6_05_a_session_is_reserved_for_one_peer_and_released
    g11_a_reservation_cannot_be_renewed_for_ever
    sbp_l6_05_a_confirmed_session_is_fenced_off_and_forwarded
    sbp_l6_05_what_went_on_is_not_confirmed
    sbp_l6_05_a_reserved_session_is_held_by_its_next_owner
    sbp_l6_05_what_nobody_has_got_goes_along
    sbp_l6_05_what_became_a_turn_is_known_where_a_session_was
    sbp_l6_05_a_migration_is_found_by_its_token
    sbp_l6_05_a_journal_goes_from_stage_to_stage
    g7_of_many_peers_one_gets_the_session
    g7_a_token_is_used_here_or_by_a_peer
    g7_what_could_not_be_imported_is_not_staged
    g7_of_many_processes_one_makes_the_session
    an_erased_session_leaves_no_bundle_and_no_forward
    what_is_known_of_peers_is_replaced_and_forgotten
}

fn peer(id: &str) -> GatewayId {
    id.parse().unwrap()
}

fn reservation() -> ReservationId {
    ReservationId(Uuid::now_v7())
}

fn ask(id: ReservationId, by: &str, export: ExportId, seconds: i64) -> AskReservation {
    let (at, until) = (later(seconds), later(seconds + 60));
    AskReservation { id, peer: peer(by), export, until, at }
}

/// A bundle of the session as it is.
async fn packed(store: &S, session: SessionId) -> (NewExport, u64) {
    let seq = store.session(session).await.unwrap().unwrap().last_seq;
    (NewExport { cid: [seq as u8; 32], bundle: b"{\"a\":1}".to_vec(), ..export_of(session) }, seq)
}

/// Reserves, with a bundle if one is asked for.
async fn reserve(store: &S, ask: AskReservation) -> Result<KeptReservation, Refusal> {
    let mut fresh = None;
    loop {
        match store.reserve(ask.clone(), fresh.take()).await.unwrap() {
            Reserving::Reserved(kept) => return Ok(kept),
            Reserving::Refused(why) => return Err(why),
            Reserving::NeedsBundle(session) => fresh = Some(packed(store, session).await),
        }
    }
}

fn forward(by: &str) -> Forward {
    let url = format!("https://{by}.example").parse().unwrap();
    Forward { peer: peer(by), url, session: new_session().id }
}

async fn confirm(store: &S, id: ReservationId, by: &str) -> Result<KeptReservation, Refusal> {
    store.confirm_reservation(id, peer(by), forward(by), later(30)).await.unwrap()
}

/// A session with one turn, and an export of it.
async fn exported(store: &S) -> (Live, ExportId) {
    let mut live = Live::new(store).await;
    live.submit("hello").await;
    live.answer("hi").await;
    let export = store.keep_export(export_of(live.id())).await.unwrap();
    (live, export.id)
}

async fn sbp_l6_02_the_id_of_a_token_is_used_up_once(store: S) {
    let jti = Uuid::new_v4();
    let uses = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.use_peer_token(peer("a"), jti, later(60)).await.unwrap() })
    });
    let mut first = 0;
    for used in uses.collect::<Vec<_>>() {
        first += usize::from(used.await.unwrap());
    }
    assert_eq!(first, 1);
    assert!(store.use_peer_token(peer("b"), jti, later(60)).await.unwrap(), "of another issuer");
    assert_eq!(store.forget_peer_tokens(later(60)).await.unwrap(), 0, "still valid");
    assert!(!store.use_peer_token(peer("a"), jti, later(60)).await.unwrap());
    assert_eq!(store.forget_peer_tokens(later(61)).await.unwrap(), 2);
}

async fn sbp_l6_02_bundles_are_found_by_their_content_id(store: S) {
    let session = made(&store).await.id;
    let cid = Cid::of_bytes(b"x");
    let named = NewExport { cid: *cid.as_bytes(), peer: Some(peer("a")), ..export_of(session) };
    let other = NewExport { cid: *cid.as_bytes(), ..export_of(session) };
    store.keep_export(named.clone()).await.unwrap();
    store.keep_export(other.clone()).await.unwrap();
    store.keep_export(export_of(session)).await.unwrap();
    let found = store.exports_with_cid(cid, later(3599)).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|export| export.peer).collect();
    assert_eq!(found, [None, Some(peer("a"))]);
    assert!(store.exports_with_cid(cid, later(3600)).await.unwrap().is_empty(), "expired");
}

async fn sbp_l6_03_what_is_announced_is_open_until_it_is_used_gone_or_expired(store: S) {
    let (live, silent) = exported(&store).await;
    let session = live.id();
    let announced =
        |cid: u8, session| NewExport { cid: [cid; 32], announce: true, ..export_of(session) };
    let used = store.keep_export(announced(1, session)).await.unwrap();
    store.keep_export(announced(2, session)).await.unwrap();
    let seen = async |seconds, most| {
        let seen = store.announced_exports(later(seconds), most).await.unwrap();
        let cid = |export: &AnnouncedExport| export.cid.as_bytes()[0];
        seen.iter().map(|export| (cid(export), export.is_open)).collect::<Vec<_>>()
    };
    assert_eq!(seen(0, 10).await, [(2, true), (1, true)], "only what is marked, newest first");
    assert_eq!(seen(0, 1).await, [(2, true)]);
    assert_eq!(seen(3600, 10).await, [], "expired");
    let import =
        NewImport { export_id: Some(used.id), consume: true, ..import_of(&session.to_string(), 1) };
    store.import(import).await.unwrap();
    assert_eq!(seen(0, 10).await, [(2, true), (1, false)]);
    // Another gateway took the session, by another token.
    let id = reservation();
    reserve(&store, ask(id, "a", silent, 0)).await.unwrap();
    confirm(&store, id, "a").await.unwrap();
    assert_eq!(seen(0, 10).await, [(2, false), (1, false)]);

    let mut erased = Live::new(&store).await;
    store.keep_export(announced(3, erased.id())).await.unwrap();
    assert_eq!(seen(0, 1).await, [(3, true)]);
    erased.delete().await;
    assert_eq!(seen(0, 1).await, [(3, false)]);
}

async fn sbp_l6_05_a_session_is_reserved_for_one_peer_and_released(store: S) {
    let (live, export) = exported(&store).await;
    let (one, two) = (reservation(), reservation());
    let kept = reserve(&store, ask(one, "a", export, 0)).await.unwrap();
    assert_eq!((kept.session, kept.export), (live.id(), export));
    assert_eq!(kept.reservation.last_seq, live.stored().await.last_seq);
    assert_eq!(store.reservation(one).await.unwrap(), Some(kept.clone()));
    let bundle = store.export(kept.bundle).await.unwrap().unwrap();
    assert_eq!((bundle.0.cid, bundle.1), (*kept.cid.as_bytes(), Some(b"{\"a\":1}".to_vec())));

    let again = reserve(&store, ask(one, "a", export, 5)).await.unwrap();
    assert_eq!((again.cid, again.bundle), (kept.cid, kept.bundle));
    assert_eq!(again.reservation.until, later(65), "it was renewed");
    assert_eq!(again.reservation.made, at());
    assert_eq!(reserve(&store, ask(two, "b", export, 64)).await, Err(Refusal::Reserved));
    assert_eq!(reserve(&store, ask(one, "b", export, 5)).await, Err(Refusal::Unknown));
    let by_other = store.release_reservation(one, peer("b"), later(6)).await.unwrap();
    assert_eq!(by_other, Err(Refusal::Unknown));

    assert_eq!(store.release_reservation(one, peer("a"), later(6)).await.unwrap(), Ok(()));
    assert_eq!(store.export(kept.bundle).await.unwrap().unwrap().1, None, "it goes with it");
    assert_eq!(reserve(&store, ask(one, "a", export, 7)).await, Err(Refusal::Ended));
    assert_eq!(confirm(&store, one, "a").await, Err(Refusal::Ended));
    let taken = reserve(&store, ask(two, "b", export, 7)).await.unwrap();
    assert_eq!(taken.reservation.peer, peer("b"));
    // After its time another one takes its place, and it never comes back.
    let three = reservation();
    reserve(&store, ask(three, "a", export, 67)).await.unwrap();
    assert_eq!(confirm(&store, two, "b").await, Err(Refusal::Ended));
    let gone = store.release_reservation(reservation(), peer("a"), later(6)).await.unwrap();
    assert_eq!(gone, Ok(()));
    assert_eq!(
        reserve(&store, ask(two, "b", ExportId(Uuid::now_v7()), 7)).await,
        Err(Refusal::Gone)
    );
}

async fn g11_a_reservation_cannot_be_renewed_for_ever(store: S) {
    let (_, export) = exported(&store).await;
    let id = reservation();
    let longest = LONGEST_RENEWED.as_secs();
    let mut until = at();
    for seconds in (0..2 * longest).step_by(30) {
        until = reserve(&store, ask(id, "a", export, seconds)).await.unwrap().reservation.until;
    }
    assert_eq!(until, later(longest));
    reserve(&store, ask(reservation(), "b", export, longest)).await.unwrap();
}

async fn sbp_l6_05_a_confirmed_session_is_fenced_off_and_forwarded(store: S) {
    let (mut live, export) = exported(&store).await;
    let id = reservation();
    let kept = reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    let to = forward("a");
    let confirmed = store.confirm_reservation(id, peer("a"), to.clone(), later(30)).await.unwrap();
    assert_eq!(confirmed.unwrap().reservation.state, ReservationState::Confirmed);
    let session = live.stored().await;
    assert_eq!((session.status, session.handed_to), (Status::Suspended, Some(to.session)));
    assert_eq!(store.forward(live.id()).await.unwrap(), Some(to.clone()));
    let used = store.export(export).await.unwrap().unwrap().0.imported;
    assert_eq!(used, Some((later(30), to.session)), "the token is used up");
    // The owner here writes nothing any more, and the next one takes no turn.
    let late = live.command(Command::Submit(submit(new_turn(), request("late"), None))).await;
    assert_eq!(live.feed(vec![late]).await.unwrap_err(), CommitError::Fenced);
    let loaded = store.load(live.id()).await.unwrap().unwrap();
    assert_eq!(loaded.head.handed_to.map(|(successor, _)| successor), Some(to.session));
    assert_eq!(loaded.owner, None);
    // A repeated confirmation and reservation are answered as the first ones.
    let other = store.confirm_reservation(id, peer("a"), forward("x"), later(40)).await.unwrap();
    assert!(other.is_ok());
    assert_eq!(store.forward(live.id()).await.unwrap(), Some(to));
    assert_eq!(reserve(&store, ask(id, "a", export, 99)).await.unwrap().cid, kept.cid);
    let released = store.release_reservation(id, peer("a"), later(41)).await.unwrap();
    assert_eq!(released, Err(Refusal::Confirmed));
    assert_eq!(reserve(&store, ask(reservation(), "b", export, 99)).await, Err(Refusal::Used));
}

async fn sbp_l6_05_a_reserved_session_is_held_by_its_next_owner(store: S) {
    let (live, export) = exported(&store).await;
    let held = async || store.load(live.id()).await.unwrap().unwrap().held;
    assert_eq!(held().await, None);
    let id = reservation();
    reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    assert_eq!(held().await, Some((id.0, later(60))));
    store.release_reservation(id, peer("a"), later(1)).await.unwrap().unwrap();
    assert_eq!(held().await, None);
}

/// The turns that are delivered after that position.
async fn turns_after(store: &S, session: SessionId, seq: u64) -> Vec<(u64, TurnId)> {
    let shown = store.shown_after(session, seq, false).await.unwrap();
    let turn = |logged: Logged| match logged {
        Logged::Turn(turn) => (turn.seq, turn.turn_id),
        Logged::Question(_) => unreachable!("no questions were asked for"),
    };
    shown.into_iter().map(turn).collect()
}

async fn sbp_l6_05_what_nobody_has_got_goes_along(store: S) {
    let mut live = Live::new(&store).await;
    for n in 1..=3 {
        live.turn(&n.to_string()).await;
    }
    for (name, seq) in [("phone", 2), ("laptop", 4)] {
        let epoch = live.join(Some(name)).await.epoch;
        live.confirm(epoch, seq).await;
    }
    let tether = store.moved_tether(live.id()).await.unwrap();
    let turns = turns_after(&store, live.id(), 2).await;
    assert_eq!(turns.len(), 2);
    let devices = vec![("phone".to_owned(), 2)];
    assert_eq!(tether, MovedTether { delivered: 4, turns: turns.clone(), devices });

    let import = NewImport { tether: Some(tether), ..import_of("elsewhere", 3) };
    let made = store.import(import).await.unwrap().session;
    assert_eq!(pending(&store, made.id).await, ["3"]);
    assert_eq!(pending_for(&store, made.id, Some("phone")).await, ["2", "3"]);
    assert_eq!(pending_for(&store, made.id, Some("new")).await, ["3"]);
    assert_eq!(turns_after(&store, made.id, 0).await, turns, "under the ids that surfaces know");
    let mut there = Live::of(&store, made.id).await;
    there.turn("4").await;
    assert_eq!(pending_for(&store, made.id, Some("phone")).await, ["2", "3", "4"]);
    let phone = there.join(Some("phone")).await;
    there.confirm(phone.epoch, 7).await;
    assert_eq!(pending(&store, made.id).await, ["4"]);
    // A position that is not there, and a message that nobody delivers.
    let id = new_turn();
    let tether =
        MovedTether { delivered: u64::MAX, turns: vec![(1, id), (99, id)], devices: vec![] };
    let import = NewImport { tether: Some(tether), ..import_of("elsewhere", 1) };
    let made = store.import(import).await.unwrap().session;
    assert!(pending(&store, made.id).await.is_empty());
    assert_eq!(made.delivered_seq, made.last_seq);
}

async fn sbp_l6_05_what_became_a_turn_is_known_where_a_session_was(store: S) {
    let (mut live, export) = exported(&store).await;
    let scope = live.id().to_string();
    let mine = IdempotencyKey { scope, key: "mine".into(), body_hash: [1; 32] };
    let turn = live.submit_as(request("again"), Some(mine)).await;
    live.answer("yes").await;
    assert_eq!(store.moved(live.id(), 8).await.unwrap(), None);
    let id = reservation();
    reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    confirm(&store, id, "a").await.unwrap();
    let moved = store.moved(live.id(), 8).await.unwrap().unwrap();
    assert_eq!(Some(&moved.forward), store.forward(live.id()).await.unwrap().as_ref());
    assert_eq!((moved.reservation, moved.accepted), (id, vec![("mine".to_owned(), turn)]));
}

async fn sbp_l6_05_a_migration_is_found_by_its_token(store: S) {
    let export = ExportId(Uuid::now_v7());
    assert_eq!(store.migration_of(peer("a"), export).await.unwrap(), None);
    let begun = store.begin_migration(migration(export)).await.unwrap();
    assert_eq!(store.migration_of(peer("b"), export).await.unwrap(), None);
    assert_eq!(store.migration_of(peer("a"), export).await.unwrap().as_ref(), Some(&begun));
    store.drop_migration(begun.id, Stage::Reserving, Dropped::GaveUp).await.unwrap();
    assert_eq!(store.migration_of(peer("a"), export).await.unwrap(), None);
}

async fn sbp_l6_05_what_went_on_is_not_confirmed(store: S) {
    let (mut live, export) = exported(&store).await;
    let id = reservation();
    reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    live.submit("one more").await;
    let running = reservation();
    assert_eq!(reserve(&store, ask(running, "a", export, 99)).await, Err(Refusal::Working));
    assert_eq!(confirm(&store, id, "a").await, Err(Refusal::Changed), "a turn runs");
    live.answer("done").await;
    assert_eq!(confirm(&store, id, "a").await, Err(Refusal::Ended));
    // A bundle of earlier is not reserved either.
    let (bundle, seq) = packed(&store, live.id()).await;
    let stale = Some((bundle, seq - 1));
    let ask = ask(reservation(), "a", export, 0);
    let answer = store.reserve(ask.clone(), stale).await.unwrap();
    assert_eq!(answer, Reserving::Refused(Refusal::Working));
    reserve(&store, ask.clone()).await.unwrap();
    live.submit("and").await;
    live.answer("so on").await;
    assert_eq!(confirm(&store, ask.id, "a").await, Err(Refusal::Changed), "a turn has ended");
    let session = live.stored().await;
    assert_eq!((session.handed_to, session.status), (None, Status::Running));
}

async fn g7_of_many_peers_one_gets_the_session(store: S) {
    let (live, export) = exported(&store).await;
    let all: Vec<_> = (0..6).map(|n| (reservation(), format!("gw{n}"))).collect();
    let tries = all.into_iter().map(|(id, by)| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let reserved = reserve(&store, ask(id, &by, export, 0)).await;
            let confirmed = confirm(&store, id, &by).await;
            (by, reserved.is_ok(), confirmed.is_ok())
        })
    });
    let mut winners = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        let (by, reserved, confirmed) = tried.await.unwrap();
        assert_eq!(reserved, confirmed);
        if confirmed {
            winners.push(by);
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let forward = store.forward(live.id()).await.unwrap().unwrap();
    assert_eq!(forward.peer, peer(&winners[0]));
}

async fn g7_a_token_is_used_here_or_by_a_peer(store: S) {
    let (_, export) = exported(&store).await;
    let using = |seconds| {
        let mut import =
            NewImport { export_id: Some(export), consume: true, ..import_of("elsewhere", 1) };
        import.session.at = later(seconds);
        import
    };
    let id = reservation();
    reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    assert_eq!(store.import(using(59)).await.unwrap_err(), Error::Reserved);
    store.import(using(60)).await.unwrap();
    assert_eq!(confirm(&store, id, "a").await, Err(Refusal::Used));
    assert_eq!(reserve(&store, ask(reservation(), "a", export, 99)).await, Err(Refusal::Used));
}

fn migration(export: ExportId) -> NewMigration {
    NewMigration {
        id: reservation(),
        origin: peer("a"),
        export,
        user: OWNER,
        request: "{}".into(),
        at: at(),
    }
}

async fn stage(store: &S, id: ReservationId) -> Result<Stage, Error> {
    store.stage_migration(id, b"bundle".to_vec(), import_of("elsewhere", 1)).await
}

async fn sbp_l6_05_a_journal_goes_from_stage_to_stage(store: S) {
    let export = ExportId(Uuid::now_v7());
    let new = migration(export);
    let begun = store.begin_migration(new.clone()).await.unwrap();
    assert_eq!((begun.id, begun.stage, begun.session), (new.id, Stage::Reserving, None));
    assert_eq!(store.begin_migration(migration(export)).await.unwrap(), begun, "there is one");
    assert_eq!(store.open_migrations().await.unwrap(), std::slice::from_ref(&begun));
    let bundle = || b"bundle".to_vec();
    assert_eq!(stage(&store, new.id).await.unwrap(), Stage::Staged);
    let other = store.stage_migration(new.id, b"other".to_vec(), import_of("elsewhere", 1)).await;
    assert_eq!(other.unwrap(), Stage::Staged);
    assert_eq!(store.staged_bundle(new.id).await.unwrap(), Some(bundle()));
    let gave_up = store.drop_migration(new.id, Stage::Reserving, Dropped::GaveUp).await.unwrap();
    assert_eq!(gave_up, Stage::Staged, "it is further than that");
    let import = import_of("elsewhere", 1);
    let active = store.activate_migration(new.id, import.clone()).await.unwrap();
    assert_eq!(active, Stage::Active);
    let kept = store.migration(new.id).await.unwrap().unwrap();
    assert_eq!((kept.stage, kept.session), (Stage::Active, Some(import.session.id)));
    assert_eq!(store.staged_bundle(new.id).await.unwrap(), None);
    assert!(store.open_migrations().await.unwrap().is_empty());
    assert_eq!(store.begin_migration(migration(export)).await.unwrap(), kept, "it came already");

    let export = ExportId(Uuid::now_v7());
    let dropped = store.begin_migration(migration(export)).await.unwrap();
    stage(&store, dropped.id).await.unwrap();
    let why = Dropped::Refused(Refusal::Changed);
    let stage = store.drop_migration(dropped.id, Stage::Staged, why).await.unwrap();
    assert_eq!(stage, Stage::Dropped(why));
    assert_eq!(store.staged_bundle(dropped.id).await.unwrap(), None);
    let import = import_of("elsewhere", 1);
    let late = store.activate_migration(dropped.id, import.clone()).await.unwrap();
    assert_eq!(late, Stage::Dropped(why));
    assert!(store.session(import.session.id).await.unwrap().is_none());
    let again = store.begin_migration(migration(export)).await.unwrap();
    assert_ne!(again.id, dropped.id, "it may be tried again");
}

async fn g7_what_could_not_be_imported_is_not_staged(store: S) {
    let fact = |n: u32| NewMemory {
        id: MemoryId(Uuid::now_v7()),
        kind: MemoryKind::Semantic,
        text: n.to_string(),
        session_id: None,
        at: at(),
    };
    let of = new_session();
    let owner = MemoryOwner { user: of.user, agent: of.agent_id };
    store.remember(owner.clone(), (0..10_000).map(fact).collect(), false).await.unwrap();
    let with = |memories| NewImport { memories, ..import_of("elsewhere", 1) };
    let key = IdempotencyKey { scope: "s".into(), key: "k".into(), body_hash: [1; 32] };
    let under = |body| {
        let key = Some(IdempotencyKey { body_hash: [body; 32], ..key.clone() });
        NewImport { key, ..import_of("elsewhere", 1) }
    };
    store.import(under(1)).await.unwrap();
    let before = all_sessions(&store).await;
    let full = Error::MemoryFull(10_000);
    for (import, why) in [
        (with(vec![fact(10_000)]), full.clone()),
        (under(2), Error::KeyReused),
        // Another session was made by the same request.
        (under(1), Error::KeyReused),
    ] {
        let id = store.begin_migration(migration(ExportId(Uuid::now_v7()))).await.unwrap().id;
        let staged = store.stage_migration(id, b"bundle".to_vec(), import.clone()).await;
        assert_eq!(staged.unwrap_err(), why);
        assert_eq!(store.migration(id).await.unwrap().unwrap().stage, Stage::Reserving);
        assert_eq!(store.staged_bundle(id).await.unwrap(), None);
        // The same after it was staged: that one is still there, and is made without what is refused.
        stage(&store, id).await.unwrap();
        assert_eq!(store.activate_migration(id, import).await.unwrap_err(), why);
        assert_eq!(store.migration(id).await.unwrap().unwrap().stage, Stage::Staged);
        assert_eq!(all_sessions(&store).await, before);
    }
    // Those that the agent has already take no room.
    let id = store.begin_migration(migration(ExportId(Uuid::now_v7()))).await.unwrap().id;
    let import = with(vec![fact(7)]);
    let staged = store.stage_migration(id, b"bundle".to_vec(), import.clone()).await;
    assert_eq!(staged.unwrap(), Stage::Staged);
    assert_eq!(store.activate_migration(id, import).await.unwrap(), Stage::Active);
}

async fn g7_of_many_processes_one_makes_the_session(store: S) {
    let export = ExportId(Uuid::now_v7());
    let tries = (0..6).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let id = store.begin_migration(migration(export)).await.unwrap().id;
            stage(&store, id).await.unwrap();
            store.activate_migration(id, import_of("elsewhere", 1)).await.unwrap();
            store.migration(id).await.unwrap().unwrap()
        })
    });
    let mut all = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        all.push(tried.await.unwrap());
    }
    assert!(all.iter().all(|kept| *kept == all[0] && kept.stage == Stage::Active), "{all:?}");
    assert_eq!(all_sessions(&store).await, [all[0].session.unwrap()]);
}

async fn an_erased_session_leaves_no_bundle_and_no_forward(store: S) {
    let (mut live, export) = exported(&store).await;
    let id = reservation();
    let kept = reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    live.delete().await;
    assert_eq!(store.export(kept.bundle).await.unwrap().unwrap().1, None);
    assert_eq!(confirm(&store, id, "a").await, Err(Refusal::Gone));

    let (live, export) = exported(&store).await;
    let id = reservation();
    reserve(&store, ask(id, "a", export, 0)).await.unwrap();
    confirm(&store, id, "a").await.unwrap();
    let mut live = Live::of(&store, live.id()).await;
    live.delete().await;
    assert_eq!(store.forward(live.id()).await.unwrap(), None);
    assert!(confirm(&store, id, "a").await.is_ok(), "the peer may still ask");
}

async fn what_is_known_of_peers_is_replaced_and_forgotten(store: S) {
    let key = |n| GatewayIdentity::from_seed(&[n; 32]).public();
    let known = |id: &str, n, issued_at| KeptPeer {
        id: peer(id),
        url: format!("https://{id}.example").parse().unwrap(),
        pin: Pin { key: key(n), issued_at },
        shown: None,
    };
    assert_eq!(store.peer(peer("b")).await.unwrap(), None);
    for one in [known("b", 1, 0), known("a", 2, 7), known("b", 1, 5)] {
        store.keep_peer(one).await.unwrap();
    }
    let older = Some(known("b", 1, 0).pin);
    assert!(!store.pin_peer(known("b", 2, 9), older).await.unwrap(), "another one is pinned");
    assert!(!store.pin_peer(known("c", 2, 9), older).await.unwrap(), "none is pinned");
    assert!(!store.pin_peer(known("b", 2, 9), None).await.unwrap());
    assert!(store.pin_peer(known("c", 2, 9), None).await.unwrap());
    let pinned = Some(known("c", 2, 9).pin);
    assert!(store.pin_peer(known("c", 3, 10), pinned).await.unwrap());
    assert!(store.forget_peer(peer("c")).await.unwrap());
    let changed = KeptPeer { shown: Some(key(3)), ..known("b", 1, 5) };
    store.keep_peer(changed.clone()).await.unwrap();
    assert_eq!(store.peers().await.unwrap(), [known("a", 2, 7), changed.clone()]);
    assert_eq!(store.peer(peer("b")).await.unwrap(), Some(changed));
    assert!(store.forget_peer(peer("b")).await.unwrap());
    assert!(!store.forget_peer(peer("b")).await.unwrap());
}
