//! SBP-L6-05: two real gateways, between which sessions move.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bowline_gateway::config::{Config, PeerConfig};
use bowline_gateway::identity_file;
use bowline_sbp::federation::migration::{Dropped, Stage};
use bowline_sbp::federation::reservation::{Refusal, ReservationState};
use bowline_sbp::federation::{
    Allow, Asked, FederationAction, FederationClaims, ForeignRoamingClaims, GatewayId, Pin,
    ReservationId,
};
use bowline_sbp::id::{AgentId, ExportId, SessionId, SnapshotId};
use bowline_sbp::session::{NewSession, TokenHash};
use bowline_store::{EdgeKind, Federation, KeptPeer, NewImport, NewMigration};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, Session, eventually};
use crate::roaming::text;
use crate::upstream::{MockUpstream, Piece};

/// An address that is free, and given to nobody else.
pub(crate) fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bowline_servers::quiet_port()))
}

pub(crate) fn knows(config: &mut Config, me: (&str, SocketAddr), other: (&str, SocketAddr)) {
    config.listen = me.1;
    config.federation.enabled = true;
    config.federation.gateway_id = Some(me.0.parse().unwrap());
    let url = Some(format!("http://{}", other.1).parse().unwrap());
    config.federation.peers.insert(other.0.into(), PeerConfig { url, ..PeerConfig::default() });
}

pub(crate) struct Two {
    pub(crate) home: Bench,
    pub(crate) away: Bench,
}

impl Two {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (home, away) = (("home", free()), ("away", free()));
        let at_home = Bench::with(|config| {
            knows(config, home, away);
            change(config);
        });
        let away = Bench::with(|config| knows(config, away, home)).await;
        Self { home: at_home.await, away }
    }
}

/// The imported session.
pub(crate) fn arrived(answer: &Value) -> Session {
    Session { id: text(&answer["session_id"]), token: text(&answer["session_token"]) }
}

#[tokio::test]
async fn sbp_l6_05_a_session_goes_on_at_another_gateway_and_stops_at_the_first() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(2).await;
    let token = home.token_of(&session).await;
    home.grow(&session, 3..=3).await;
    let imported = away.import_token(&token).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    assert_eq!(imported.body["signature"]["state"], "signed");
    let there = arrived(&imported.body);
    let log = away.log(&there).await;
    let said: Vec<_> = log.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(said[..6], ["echo 1", "1", "echo 2", "2", "echo 3", "3"], "what was said last, too");
    let turn = away.say(&there, "echo 4").await;
    assert_eq!(turn.status, 200, "{}", turn.text);

    assert_eq!(home.show(&session).await["handed_off_to"], json!(there.id));
    eventually("refused at home", async || {
        home.say(&session, "echo 4").await.refusal() == (409, "SBP_SESSION_CONFLICT")
    })
    .await;
    // The token is used up everywhere.
    assert_eq!(home.import_token(&token).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    assert_eq!(away.import_token(&token).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    // And the session may go back.
    let back = home.import_token(&away.token_of(&there).await).await;
    assert_eq!(back.status, 201, "{}", back.text);
    let log = home.log(&arrived(&back.body)).await;
    assert!(log.iter().any(|(_, text)| text == "echo 4"));
}

#[tokio::test]
async fn g3_a_repeated_import_from_another_gateway_makes_one_session() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let body = json!({ "roaming_token": home.token_of(&session).await });
    let key = [("idempotency-key", "once")];
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = away.call(Method::POST, crate::roaming::IMPORT, &key, &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        ids.push(arrived(&answer.body).id);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(away.sessions().await.len(), 1);
}

#[tokio::test]
async fn g7_of_many_imports_at_two_gateways_one_wins() {
    let Two { home, away } = Two::start().await;
    for _ in 0..5 {
        let session = home.session_with(1).await;
        let token = home.token_of(&session).await;
        let before = (home.sessions().await.len(), away.sessions().await.len());
        let (one, two, three) = tokio::join!(
            away.import_token(&token),
            home.import_token(&token),
            away.import_token(&token)
        );
        let made = [&one, &two, &three].into_iter().filter(|answer| answer.status == 201);
        // Two requests of one user for the same token, at once, are told of the same session.
        let made: BTreeSet<_> = made.map(|answer| arrived(&answer.body).id).collect();
        assert_eq!(made.len(), 1, "{} {} {}", one.text, two.text, three.text);
        let after = (home.sessions().await.len(), away.sessions().await.len());
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1);
    }
}

#[tokio::test]
async fn sbp_l6_05_what_the_origin_refuses_leaves_nothing_here() {
    let two = Two::with(|config| {
        config.federation.peers.get_mut("away").unwrap().allow = Some(Allow::None);
    });
    let Two { home, away } = two.await;
    let session = home.session_with(1).await;
    let token = home.token_of(&session).await;
    let refused = away.import_token(&token).await;
    assert_eq!(refused.status, 502, "{}", refused.text);
    assert!(refused.text.contains("gives nothing"), "{}", refused.text);
    assert!(away.sessions().await.is_empty());
    assert!(away.store.open_migrations().await.unwrap().is_empty());
    assert_eq!(home.say(&session, "echo 2").await.status, 200);
    assert_eq!(home.import_token(&token).await.status, 201, "still importable");
    // A token that names a gateway which does not have that key.
    let mut changed = token.clone();
    let last = changed.pop().unwrap();
    changed.push(if last == 'A' { 'B' } else { 'A' });
    let refused = away.import_token(&changed).await;
    assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INVALID"), "{}", refused.text);
    // One that another gateway issued long ago.
    let expired = away.import_token(&token).await;
    assert_ne!(expired.status, 201);
}

/// What `away` shows at `home` to ask for that.
pub(crate) fn signed(away: &Bench, action: FederationAction, subject: &str) -> String {
    let identity = identity_file::load(away.folder.path()).unwrap().unwrap();
    let home: GatewayId = "home".parse().unwrap();
    let asked = Asked { gateway: &home, action, subject };
    let (me, url) = ("away".parse().unwrap(), away.url("").parse().unwrap());
    let claims = FederationClaims::new(me, url, asked, Uuid::new_v4(), Timestamp::now());
    format!("Bearer {}", claims.sign(&identity))
}

/// A reservation of that session at home, with the bundle stored here and not confirmed, as a process leaves it
/// that ends just then. Returns the id of the reservation, and of the session that is to be.
pub(crate) async fn staged(
    home: &Bench,
    away: &Bench,
    session: &Session,
) -> (ReservationId, SessionId) {
    staged_at(home, away, session, Timestamp::now()).await
}

/// A reservation of the session of that token at home, and its journal here, begun at that time.
pub(crate) async fn reserving(
    home: &Bench,
    away: &Bench,
    token: &str,
    at: Timestamp,
) -> ReservationId {
    let (id, there) = (ReservationId(Uuid::now_v7()), SessionId(Uuid::now_v7()));
    let claims = ForeignRoamingClaims::peek(token).unwrap();
    let claims = claims.verify(&home.gateway.identity(), Timestamp::now()).unwrap();
    let bearer = signed(away, FederationAction::Reserve, &id.to_string());
    let body = json!({ "reservation_id": id, "roaming_token": token });
    let path = "/v1/sbp/federation/reservations";
    let headers = [("authorization", bearer.as_str())];
    let reserved = home.call(Method::POST, path, &headers, &body).await;
    assert_eq!(reserved.status, 200, "{}", reserved.text);
    let request = json!({
        "session": there, "agent": null, "with_memory": false, "url": home.url(""), "key": null,
    });
    let new = NewMigration {
        id,
        origin: "home".parse().unwrap(),
        export: claims.sub,
        user: bowline_sbp::access::OWNER,
        request: request.to_string(),
        at,
    };
    away.store.begin_migration(new).await.unwrap();
    id
}

/// The same, begun at that time.
async fn staged_at(
    home: &Bench,
    away: &Bench,
    session: &Session,
    at: Timestamp,
) -> (ReservationId, SessionId) {
    let id = reserving(home, away, &home.token_of(session).await, at).await;
    let cid = home.store.reservation(id).await.unwrap().unwrap().cid.to_string();
    let request = away.store.migration(id).await.unwrap().unwrap().request;
    let request: Value = serde_json::from_str(&request).unwrap();
    let there: SessionId = serde_json::from_value(request["session"].clone()).unwrap();
    let bearer = signed(away, FederationAction::Bundle, &cid);
    let path = format!("/v1/sbp/bundles/{cid}");
    let headers = [("authorization", bearer.as_str())];
    let bundle = home.call(Method::GET, &path, &headers, &Value::Null).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text);
    let stage = away.store.stage_migration(id, bundle.text.into_bytes(), nothing(there)).await;
    let stage = stage.unwrap();
    assert_eq!(stage, Stage::Staged);
    (id, there)
}

/// An import that the store has no reason to refuse.
fn nothing(session: SessionId) -> NewImport {
    let at = Timestamp::now();
    NewImport {
        session: NewSession {
            id: session,
            token_hash: TokenHash([0; 32]),
            listed: false,
            user: bowline_sbp::access::OWNER,
            agent_id: AgentId::fallback(),
            metadata: "{}".into(),
            at,
        },
        step_count: 0,
        entries: Vec::new(),
        carried: None,
        memories: Vec::new(),
        snapshot: SnapshotId(Uuid::now_v7()),
        origin: String::new(),
        export_id: None,
        consume: false,
        kind: EdgeKind::Import,
        detail: "{}".into(),
        title: None,
        key: None,
        tether: None,
    }
}

#[tokio::test]
async fn g7_what_was_staged_before_a_crash_is_confirmed_after_it() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let (id, there) = staged(&home, &away, &session).await;
    assert!(away.sessions().await.is_empty(), "it is nobody's yet");
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    eventually("active", async || {
        let kept = away.store.migration(id).await.unwrap().unwrap();
        (kept.stage, kept.session) == (Stage::Active, Some(there))
    })
    .await;
    assert_eq!(away.sessions().await.len(), 1);
    assert_eq!(away.store.staged_bundle(id).await.unwrap(), None);
    assert_eq!(home.show(&session).await["handed_off_to"], json!(there));
}

#[tokio::test]
async fn g7_what_another_replica_has_staged_and_left_is_confirmed_by_one_that_runs() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let long_ago = Timestamp::now() - SignedDuration::from_mins(5);
    // It had not even staged this one.
    let abandoned = NewMigration {
        id: ReservationId(Uuid::now_v7()),
        origin: "home".parse().unwrap(),
        export: ExportId(Uuid::now_v7()),
        user: bowline_sbp::access::OWNER,
        request: "{}".into(),
        at: long_ago,
    };
    let abandoned = away.store.begin_migration(abandoned).await.unwrap().id;
    let unheard = home.session_with(1).await;
    let reserved = reserving(&home, &away, &home.token_of(&unheard).await, long_ago).await;
    let (id, there) = staged_at(&home, &away, &session, long_ago).await;
    let young = home.session_with(1).await;
    let (young, _) = staged(&home, &away, &young).await;
    eventually("active", async || {
        let kept = away.store.migration(id).await.unwrap().unwrap();
        (kept.stage, kept.session) == (Stage::Active, Some(there))
    })
    .await;
    let stage = async |id| away.store.migration(id).await.unwrap().unwrap().stage;
    for dropped in [abandoned, reserved] {
        assert_eq!(stage(dropped).await, Stage::Dropped(Dropped::GaveUp));
    }
    eventually("released", async || {
        let kept = home.store.reservation(reserved).await.unwrap().unwrap();
        kept.reservation.state == ReservationState::Ended
    })
    .await;
    assert_eq!(stage(young).await, Stage::Staged, "its replica may be about to confirm it");
}

#[tokio::test]
async fn g7_a_session_that_was_deleted_where_it_came_from_is_confirmed_all_the_same() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let (id, there) = staged(&home, &away, &session).await;
    // Home confirms, and nobody hears it.
    let bearer = signed(&away, FederationAction::Confirm, &id.to_string());
    let path = format!("/v1/sbp/federation/reservations/{id}/confirm");
    let headers = [("authorization", bearer.as_str())];
    let body = json!({ "session_id": there });
    let confirmed = home.call(Method::POST, &path, &headers, &body).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.text);
    let gone = format!("/v1/sessions/{}", session.id);
    let deleted = home.call(Method::DELETE, &gone, &[], &Value::Null).await;
    assert!(deleted.status < 300, "{}", deleted.text);
    assert_eq!(home.get(&gone).await.status, 404);
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    eventually("active", async || {
        let kept = away.store.migration(id).await.unwrap().unwrap();
        (kept.stage, kept.session) == (Stage::Active, Some(there))
    })
    .await;
    assert_eq!(away.sessions().await.len(), 1);
}

#[tokio::test]
async fn g7_what_was_staged_and_is_refused_after_a_crash_is_dropped() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| {
        knows(config, at_home, at_away);
        // What is said meanwhile waits for its end.
        config.federation.reservation = Duration::from_millis(50);
    })
    .await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let (id, _) = staged(&home, &away, &session).await;
    home.grow(&session, 2..=2).await;
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    let dropped = Stage::Dropped(Dropped::Refused(Refusal::Changed));
    eventually("dropped", async || {
        away.store.migration(id).await.unwrap().unwrap().stage == dropped
    })
    .await;
    assert!(away.sessions().await.is_empty());
    assert_eq!(away.store.staged_bundle(id).await.unwrap(), None);
    assert_eq!(home.say(&session, "echo 3").await.status, 200, "it is still at home");
}

#[tokio::test]
async fn sbp_l6_01_a_key_that_changed_without_a_word_is_refused_until_a_person_accepts_it() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let first = home.session_with(1).await;
    assert_eq!(away.import_token(&home.token_of(&first).await).await.status, 201);
    let pinned = home.store.peer("away".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((pinned.pin.key, pinned.shown), (away.gateway.identity(), None));

    std::fs::remove_file(away.folder.path().join(identity_file::IDENTITY_FILE)).unwrap();
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    let home = home.reopened_with(|config| knows(config, at_home, at_away)).await;
    let second = home.session_with(1).await;
    let token = home.token_of(&second).await;
    let refused = away.import_token(&token).await;
    assert_eq!(refused.status, 502, "{}", refused.text);
    let changed = home.store.peer("away".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(changed.pin, pinned.pin, "the key that was known still counts");
    let new = away.gateway.identity();
    assert_eq!(changed.shown, Some(new), "a person can see it");
    assert_eq!(home.say(&second, "echo 2").await.status, 200);

    let accepted = KeptPeer { pin: Pin { key: new, issued_at: 0 }, shown: None, ..changed };
    home.store.keep_peer(accepted).await.unwrap();
    // A gateway that is backed off is asked again after a restart.
    let home = home.reopened_with(|config| knows(config, at_home, at_away)).await;
    let imported = away.import_token(&token).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    drop(home);
}

#[tokio::test]
async fn sbp_l6_05_a_running_turn_ends_first_or_is_interrupted() {
    let upstream = MockUpstream::start().await;
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::before_with(&upstream, |config| {
        knows(config, at_home, at_away);
        config.federation.turn_wait = Duration::from_millis(300);
    })
    .await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let session = home.session().await;
    let token = home.token_of(&session).await;
    let pieces = upstream.gate();
    let turn = home.http.post(home.url("/v1/chat/completions"));
    let turn = turn.json(&crate::bench::turn(&session, "m", "a long story")).send();
    let turn = tokio::spawn(turn);
    upstream.until_calls(1).await;
    pieces.send(Piece::Text("once upon".into())).unwrap();
    let imported = away.import_token(&token).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let log = away.log(&arrived(&imported.body)).await;
    assert!(log.iter().any(|(_, text)| text.contains("a long story")), "{log:?}");
    assert!(turn.await.unwrap().is_ok(), "its caller was answered");
    assert_eq!(home.store.unfinished_turns().await.unwrap(), 0);
    drop(pieces);
}

#[tokio::test]
async fn sbp_l6_05_who_imports_is_told_how_long_the_other_gateway_is_left_alone_and_what_to_do() {
    let Two { home, away } = Two::start().await;
    let token = home.token_of(&home.session_with(1).await).await;
    home.gateway.stop().await;
    let down = away.import_token(&token).await;
    assert_eq!(down.status, 502, "{}", down.text);
    // It is left alone for longer each time: so one import comes before the end of it.
    eventually("backed off", async || {
        let refused = away.import_token(&token).await;
        let is_told = refused.text.contains("`bowline peers check home`");
        refused.status == 503 && is_told && refused.header("retry-after").parse::<u64>().is_ok()
    })
    .await;
}
