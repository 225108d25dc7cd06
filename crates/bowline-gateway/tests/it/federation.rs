//! SBP L6: what other gateways ask of this one, over HTTP: manifest, bundles, reservations.

use std::sync::Arc;
use std::time::Duration;

use bowline_bus::Memory;
use bowline_gateway::config::{Config, PeerConfig};
use bowline_gateway::identity_file;
use bowline_sbp::federation::{
    Allow, Asked, BaseUrl, FederationAction, FederationClaims, GatewayId, Manifest, Pin, Role,
    Trust,
};
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_sbp::id::ExportId;
use bowline_store::{Federation, KeptPeer, NewExport, Roaming};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::bench::{Answer, Bench, Session, eventually, open};
use crate::disk::on_a_bad_disk_with;
use crate::roaming::text;
use crate::upstream::MockUpstream;

/// Two gateways: the peer asks, and home is asked.
struct Pair {
    home: Bench,
    peer: Peer,
}

/// A gateway that asks. Its own endpoint is there for its manifest.
struct Peer {
    id: GatewayId,
    bench: Bench,
    identity: GatewayIdentity,
}

fn federated(config: &mut Config, id: &str) {
    config.federation.enabled = true;
    config.federation.gateway_id = Some(id.parse().unwrap());
}

fn knows(config: &mut Config, peer: &Peer, allow: Option<Allow>) {
    let url = Some(peer.url());
    let known = PeerConfig { url, allow, ..PeerConfig::default() };
    config.federation.peers.insert(peer.id.to_string(), known);
}

impl Peer {
    async fn start() -> Self {
        Self::of("work").await
    }

    async fn of(id: &str) -> Self {
        let bench = Bench::with(|config| federated(config, id)).await;
        let identity = identity_file::load(bench.folder.path()).unwrap().unwrap();
        Self { id: id.parse().unwrap(), bench, identity }
    }

    fn url(&self) -> BaseUrl {
        self.bench.url("").parse().unwrap()
    }

    fn claims(&self, action: FederationAction, subject: &str) -> FederationClaims {
        let home: GatewayId = "home".parse().unwrap();
        let asked = Asked { gateway: &home, action, subject };
        FederationClaims::new(self.id.clone(), self.url(), asked, Uuid::new_v4(), Timestamp::now())
    }

    fn token(&self, action: FederationAction, subject: &str) -> String {
        self.claims(action, subject).sign(&self.identity)
    }
}

impl Pair {
    async fn start() -> Self {
        Self::with(None, |_| {}).await
    }

    async fn with(allow: Option<Allow>, change: impl FnOnce(&mut Config)) -> Self {
        let peer = Peer::start().await;
        let home = Bench::with(|config| {
            federated(config, "home");
            knows(config, &peer, allow);
            change(config);
        });
        Self { home: home.await, peer }
    }

    async fn fetch_as(&self, token: &str, cid: &str, shown: &[(&str, &str)]) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend_from_slice(shown);
        let path = format!("/v1/sbp/bundles/{cid}");
        self.home.call(Method::GET, &path, &headers, &Value::Null).await
    }

    /// Asks for a bundle as the peer does.
    async fn fetch(&self, cid: &str, shown: &[(&str, &str)]) -> Answer {
        self.fetch_as(&self.peer.token(FederationAction::Bundle, cid), cid, shown).await
    }

    async fn ask(
        &self,
        method: Method,
        action: FederationAction,
        id: Uuid,
        rest: &str,
        body: Value,
    ) -> Answer {
        let bearer = format!("Bearer {}", self.peer.token(action, &id.to_string()));
        let path = format!("/v1/sbp/federation/reservations{rest}");
        self.home.call(method, &path, &[("authorization", &bearer)], &body).await
    }

    async fn reserve(&self, id: Uuid, token: &str) -> Answer {
        let body = json!({ "reservation_id": id, "roaming_token": token });
        self.ask(Method::POST, FederationAction::Reserve, id, "", body).await
    }

    async fn confirm(&self, id: Uuid, there: Uuid) -> Answer {
        let (rest, body) = (format!("/{id}/confirm"), json!({ "session_id": there }));
        self.ask(Method::POST, FederationAction::Confirm, id, &rest, body).await
    }

    async fn release(&self, id: Uuid) -> Answer {
        let rest = format!("/{id}");
        self.ask(Method::DELETE, FederationAction::Release, id, &rest, Value::Null).await
    }

    /// A session with one turn, the content id of an export of it, and its token.
    async fn exported(&self, asked: Value) -> (Session, String, String) {
        let session = self.home.session_with(1).await;
        let made = self.home.export(&session, asked).await;
        assert_eq!(made.status, 201, "{}", made.text);
        (session, text(&made.body["bundle_cid"]), text(&made.body["roaming_token"]))
    }
}

#[tokio::test]
async fn sbp_l6_01_the_manifest_is_signed_and_says_who_and_where() {
    let pair = Pair::start().await;
    let shown = pair.home.get("/.well-known/sbp").await;
    assert_eq!((shown.status, shown.header("content-type")), (200, "application/json"));
    let manifest = Manifest::read(shown.text.as_bytes()).unwrap();
    assert_eq!(manifest.gateway_id.as_str(), "home");
    assert_eq!(manifest.role, Role::Gateway);
    assert_eq!(manifest.key, pair.home.gateway.identity());
    assert_eq!(manifest.url.as_str(), pair.home.url(""));
    for (name, endpoint) in [
        ("ws", "/v1/sbp/ws/{session_id}"),
        ("export", "/v1/sbp/sessions/{session_id}/export"),
        ("import", "/v1/sbp/sessions/import"),
        ("bundle", "/v1/sbp/bundles/{bundle_cid}"),
    ] {
        let url = text(&shown.body["endpoints"][name]);
        assert!(url.ends_with(endpoint), "{url}");
    }
    assert_eq!(shown.body["federation"], true);
    let plain = Bench::start().await;
    for path in ["/.well-known/sbp", "/v1/sbp/bundles/00"] {
        assert_eq!(plain.get(path).await.status, 404, "without federation there is no {path}");
    }
}

#[tokio::test]
async fn sbp_l6_01_a_rotated_key_is_followed_and_signs_from_then_on() {
    let pair = Pair::start().await;
    let before = Manifest::read(pair.home.get("/.well-known/sbp").await.text.as_bytes()).unwrap();
    let token = pair.home.token_of(&pair.home.session_with(1).await).await;
    let Pair { home, .. } = pair;
    let now = Timestamp::now();
    let until = now + SignedDuration::from_hours(1);
    let id = "home".parse().unwrap();
    let (old, new) = identity_file::rotate(home.folder.path(), &id, until, now).unwrap();
    assert_eq!(old, before.key);
    let home = home.reopened_with(|config| federated(config, "home")).await;
    let after = Manifest::read(home.get("/.well-known/sbp").await.text.as_bytes()).unwrap();
    assert_eq!(after.key, new);
    assert_eq!(after.trust(Some(&id), Some(&before.pin()), now), Ok(Trust::Rotated));
    // What the old key signed counts, as long as that key leads to the new one.
    let imported = home.import_token(&token).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
}

#[tokio::test]
async fn sbp_l3_02_with_federation_a_token_names_its_gateway_and_bundle_and_older_ones_stay_valid()
{
    let home = Bench::start().await;
    let session = home.session_with(1).await;
    let older = home.token_of(&session).await;
    let home = home.reopened_with(|config| federated(config, "home")).await;
    let exported = home.export(&session, json!({})).await;
    let token = text(&exported.body["roaming_token"]);
    let read = bowline_sbp::federation::ForeignRoamingClaims::peek(&token).unwrap();
    let claims = read.verify(&home.gateway.identity(), Timestamp::now()).unwrap();
    assert_eq!(claims.iss.as_str(), "home");
    assert_eq!(claims.cid.to_string(), text(&exported.body["bundle_cid"]));
    assert_eq!(claims.url.as_str(), home.url(""));
    assert_eq!(home.inspect(&token).await.body["valid"], true);
    for token in [&older, &token] {
        assert_eq!(home.import_token(token).await.status, 201);
        assert_eq!(home.import_token(token).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    }
    // Of another gateway, whatever its name says.
    let stranger = GatewayIdentity::from_seed(&[9; 32]);
    let forged = claims.sign(&stranger);
    assert_eq!(home.import_token(&forged).await.refusal(), (422, "SBP_TOKEN_INVALID"));
    // Without federation again, the signature is still its own.
    let last = home.token_of(&session).await;
    let home = home.reopened().await;
    assert_eq!(home.import_token(&last).await.status, 201);
}

#[tokio::test]
async fn sbp_l6_02_a_bundle_is_given_to_whom_it_was_exported_for() {
    let pair = Pair::start().await;
    let (_, cid, _) = pair.exported(json!({ "for_gateway": "work" })).await;
    let given = pair.fetch(&cid, &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);
    let opened = bowline_sbp::bundle::Opened::read(&given.text).unwrap();
    assert_eq!(opened.cid.to_string(), cid);
    let signer = opened.signature.key();
    assert_eq!(signer, Some(pair.home.gateway.identity()), "it is signed");
    let (_, other, _) = pair.exported(json!({ "for_gateway": "elsewhere" })).await;
    assert_eq!(pair.fetch(&other, &[]).await.refusal(), (404, "SBP_NOT_FOUND"));
    let absent = "0".repeat(64);
    assert_eq!(pair.fetch(&absent, &[]).await.refusal(), (404, "SBP_NOT_FOUND"));
    assert_eq!(pair.fetch("x", &[]).await.refusal(), (404, "SBP_NOT_FOUND"));
}

#[tokio::test]
async fn sbp_l6_02_without_the_right_federation_token_nothing_is_given() {
    let pair = Pair::start().await;
    let (_, cid, _) = pair.exported(json!({ "for_gateway": "work" })).await;
    let none = pair.home.get(&format!("/v1/sbp/bundles/{cid}")).await;
    assert_eq!(none.refusal(), (401, "SBP_UNAUTHORIZED"));
    let claims = || pair.peer.claims(FederationAction::Bundle, &cid);
    let signed = |claims: FederationClaims| claims.sign(&pair.peer.identity);
    let (now, any) = (Timestamp::now().as_second(), GatewayIdentity::from_seed(&[9; 32]));
    let url: BaseUrl = "http://127.0.0.1:9".parse().unwrap();
    for (what, token, status) in [
        ("no token", "x".to_owned(), 401),
        ("the owner's key", crate::bench::LOCAL_KEY.to_owned(), 401),
        ("another's key", claims().sign(&any), 401),
        (
            "another audience",
            signed(FederationClaims { aud: "x".parse().unwrap(), ..claims() }),
            401,
        ),
        ("expired", signed(FederationClaims { iat: now - 60, exp: now, ..claims() }), 401),
        ("too long", signed(FederationClaims { exp: now + 301, iat: now, ..claims() }), 401),
        (
            "from the future",
            signed(FederationClaims { iat: now + 90, exp: now + 120, ..claims() }),
            401,
        ),
        ("for another act", pair.peer.token(FederationAction::Reserve, &cid), 403),
        ("for another bundle", pair.peer.token(FederationAction::Bundle, &"0".repeat(64)), 403),
        // A stranger on this machine is not asked for its key.
        (
            "a stranger",
            FederationClaims { iss: "x".parse().unwrap(), url, ..claims() }.sign(&any),
            401,
        ),
    ] {
        let refused = pair.fetch_as(&token, &cid, &[]).await;
        assert_eq!(refused.status, status, "{what}: {}", refused.text);
    }
    assert_eq!(pair.fetch(&cid, &[]).await.status, 200);
}

#[tokio::test]
async fn sbp_l6_02_a_federation_token_is_used_up_by_all_replicas_together() {
    let peer = Peer::start().await;
    let ((store, folder), bus) = (open(), Arc::new(Memory::new()));
    let mut all = Vec::new();
    for _ in 0..2 {
        let replica = Bench::replica(&store, &bus, |config| {
            federated(config, "home");
            knows(config, &peer, None);
        });
        all.push(replica.await);
    }
    let session = all[0].session_with(1).await;
    let made = all[0].export(&session, json!({ "for_gateway": "work" })).await;
    let cid = text(&made.body["bundle_cid"]);
    let token = peer.token(FederationAction::Bundle, &cid);
    let path = format!("/v1/sbp/bundles/{cid}");
    let asks = (0..6).map(|n| {
        let url = all[n % 2].url(&path);
        let request = all[0].http.get(url).bearer_auth(&token);
        tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
    });
    let mut answers = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        answers.push(ask.await.unwrap());
    }
    answers.sort_unstable();
    assert_eq!(answers, [200, 401, 401, 401, 401, 401]);
    drop(folder);
}

#[tokio::test]
async fn g20_what_a_peer_may_have_is_said_by_the_configuration() {
    for (allow, plain, with_token, named) in [
        (Some(Allow::All), 200, 200, 200),
        (Some(Allow::ExportedToMe), 404, 200, 200),
        (None, 404, 200, 200),
        (Some(Allow::None), 403, 403, 403),
    ] {
        let pair = Pair::with(allow, |_| {}).await;
        let (_, cid, token) = pair.exported(json!({ "with_memory": false })).await;
        assert_eq!(pair.fetch(&cid, &[]).await.status, plain, "{allow:?}");
        let shown = [("sbp-roaming-token", token.as_str())];
        assert_eq!(pair.fetch(&cid, &shown).await.status, with_token, "{allow:?}");
        let (_, other, _) = pair.exported(json!({ "for_gateway": "work" })).await;
        assert_eq!(pair.fetch(&other, &[]).await.status, named, "{allow:?}");
        // A token of another bundle opens nothing.
        let (_, third, _) = pair.exported(json!({ "with_memory": false })).await;
        assert_eq!(pair.fetch(&third, &shown).await.status, plain, "{allow:?}");
        let reserved = pair.reserve(Uuid::now_v7(), &token).await;
        assert_eq!(reserved.status == 403, allow == Some(Allow::None), "{}", reserved.text);
    }
    // Others than the configured ones.
    let pair = Pair::with(None, |config| config.federation.allow = Allow::None).await;
    let (_, cid, _) = pair.exported(json!({ "for_gateway": "work" })).await;
    assert_eq!(pair.fetch(&cid, &[]).await.status, 403);
}

#[tokio::test]
async fn g20_memory_goes_only_to_the_gateway_that_an_export_names() {
    let pair = Pair::start().await;
    let memory = json!({ "memories": [{ "text": "the user likes tea" }] });
    pair.home.post("/v1/agents/default/memory", memory).await;
    let (_, cid, token) = pair.exported(json!({})).await;
    let shown = [("sbp-roaming-token", token.as_str())];
    assert_eq!(pair.fetch(&cid, &shown).await.status, 404);
    let id = Uuid::now_v7();
    let reserved = pair.reserve(id, &token).await;
    let bundle = pair.fetch(&text(&reserved.body["cid"]), &[]).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text);
    assert!(!bundle.text.contains("tea"), "it was reserved without memory");
    let (_, cid, token) = pair.exported(json!({ "for_gateway": "work" })).await;
    assert!(pair.fetch(&cid, &[]).await.text.contains("tea"));
    let reserved = pair.reserve(Uuid::now_v7(), &token).await;
    assert!(pair.fetch(&text(&reserved.body["cid"]), &[]).await.text.contains("tea"));
}

#[tokio::test]
async fn g20_memory_is_exported_only_for_a_gateway_that_can_be_told_from_others() {
    let pair = Pair::start().await;
    let session = pair.home.session_with(1).await;
    let export = async |asked| pair.home.export(&session, asked).await;
    let without = export(json!({ "for_gateway": "elsewhere" })).await;
    assert_eq!(without.status, 201, "there is no memory yet: {}", without.text);
    let memory = json!({ "memories": [{ "text": "the user likes tea" }] });
    pair.home.post("/v1/agents/default/memory", memory).await;
    let refused = export(json!({ "for_gateway": "elsewhere" })).await;
    assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{}", refused.text);
    assert!(refused.text.contains("bowline peers add elsewhere=URL"), "{}", refused.text);
    let without = export(json!({ "for_gateway": "elsewhere", "with_memory": false })).await;
    assert_eq!(without.status, 201, "{}", without.text);
    assert_eq!(export(json!({ "for_gateway": "work" })).await.status, 201, "it is named");
    // Once its key is known, nobody else can be meant.
    let key = GatewayIdentity::from_seed(&[9; 32]).public();
    let (id, url) = ("elsewhere".parse().unwrap(), "https://elsewhere.example".parse().unwrap());
    let met = KeptPeer { id, url, pin: Pin { key, issued_at: 1 }, shown: None };
    pair.home.store.keep_peer(met).await.unwrap();
    assert_eq!(export(json!({ "for_gateway": "elsewhere" })).await.status, 201);
}

#[tokio::test]
async fn g20_a_gateway_is_remembered_for_what_it_may_ask_and_not_for_asking() {
    let pair = Pair::start().await;
    let (_, cid, token) = pair.exported(json!({})).await;
    let known = async || pair.home.store.peer("work".parse().unwrap()).await.unwrap().is_some();
    assert_eq!(pair.fetch(&cid, &[]).await.status, 404);
    assert_eq!(pair.reserve(Uuid::now_v7(), "no token").await.status, 422);
    assert_eq!(pair.confirm(Uuid::now_v7(), Uuid::now_v7()).await.status, 404);
    assert_eq!(pair.release(Uuid::now_v7()).await.status, 204);
    assert!(!known().await, "it may have none of that");
    assert_eq!(pair.fetch(&cid, &[("sbp-roaming-token", &token)]).await.status, 200);
    assert!(known().await);
    let pair = Pair::start().await;
    let (_, _, token) = pair.exported(json!({})).await;
    assert_eq!(pair.reserve(Uuid::now_v7(), &token).await.status, 200);
    assert!(pair.home.store.peer("work".parse().unwrap()).await.unwrap().is_some());
}

#[tokio::test]
async fn sbp_l6_02_nobody_asks_in_the_name_of_the_gateway_that_is_asked() {
    let pair = Pair::start().await;
    let (_, cid, _) = pair.exported(json!({ "for_gateway": "work" })).await;
    let claims = FederationClaims {
        iss: "home".parse().unwrap(),
        ..pair.peer.claims(FederationAction::Bundle, &cid)
    };
    for identity in [
        GatewayIdentity::from_seed(&[9; 32]),
        identity_file::load(pair.home.folder.path()).unwrap().unwrap(),
    ] {
        let refused = pair.fetch_as(&claims.sign(&identity), &cid, &[]).await;
        assert_eq!(refused.refusal(), (401, "SBP_UNAUTHORIZED"));
        assert!(refused.text.contains("the id of this one"), "{}", refused.text);
    }
}

#[tokio::test]
async fn sbp_l6_02_a_damaged_bundle_is_not_given_away() {
    let pair = Pair::start().await;
    let (session, ..) = pair.exported(json!({})).await;
    let bundle = pair.home.bundle_of(&session).await;
    let changed = bundle.replace("echo 1", "echo 2");
    assert_ne!(changed, bundle);
    let cid = Sha256::digest(b"as it was exported");
    let now = Timestamp::now();
    let export = NewExport {
        id: ExportId(Uuid::now_v7()),
        session_id: session.id.parse().unwrap(),
        cid: cid.into(),
        label: None,
        message_count: 2,
        with_memory: false,
        bundle: bundle.into_bytes(),
        at: now,
        expires_at: now + SignedDuration::from_hours(1),
        spender: None,
        peer: Some("work".parse().unwrap()),
        announce: false,
    };
    pair.home.store.keep_export(export.clone()).await.unwrap();
    let cid: String = cid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(pair.fetch(&cid, &[]).await.refusal(), (404, "SBP_NOT_FOUND"));
    let other = NewExport {
        id: ExportId(Uuid::now_v7()),
        cid: [3; 32],
        bundle: changed.into_bytes(),
        ..export
    };
    pair.home.store.keep_export(other).await.unwrap();
    assert_eq!(pair.fetch(&"03".repeat(32), &[]).await.refusal(), (404, "SBP_NOT_FOUND"));
}

#[tokio::test]
async fn sbp_l6_05_a_session_is_reserved_as_it_is_now_confirmed_and_forwarded() {
    let pair = Pair::start().await;
    let (session, old, token) = pair.exported(json!({})).await;
    pair.home.grow(&session, 2..=2).await;
    let (id, there) = (Uuid::now_v7(), Uuid::now_v7());
    let reserved = pair.reserve(id, &token).await;
    assert_eq!(reserved.status, 200, "{}", reserved.text);
    let cid = text(&reserved.body["cid"]);
    assert_ne!(cid, old, "it went on after its token was issued");
    assert_eq!(pair.reserve(id, &token).await.body["cid"], cid.as_str(), "renewed");
    let shown = id.to_string();
    let bundle = pair.fetch(&cid, &[("sbp-reservation", &shown)]).await;
    assert!(bundle.text.contains("echo 2"), "{}", bundle.text);
    // Nobody else gets it meanwhile: no other reservation, and no import at home.
    let other = pair.reserve(Uuid::now_v7(), &token).await;
    assert_eq!((other.status, &other.body["refused"]), (409, &json!("reserved")));
    assert_eq!(other.header("retry-after"), "1");
    assert_eq!(pair.home.import_token(&token).await.refusal(), (409, "SBP_SESSION_CONFLICT"));

    let confirmed = pair.confirm(id, there).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.text);
    assert_eq!(confirmed.body["session_id"], json!(there));
    let seen = pair.home.show(&session).await;
    assert_eq!(seen["handed_off_to"], json!(there), "{seen}");
    assert_eq!(pair.home.import_token(&token).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    // Its actor learns of it, and takes no turn.
    eventually("refused", async || {
        let said = pair.home.say(&session, "echo 3").await;
        said.refusal() == (409, "SBP_SESSION_CONFLICT")
    })
    .await;
    assert_eq!(pair.home.log(&session).await.len(), 4, "nothing was added");
    // What comes again is answered as before; what comes too late is refused.
    assert_eq!(pair.confirm(id, Uuid::now_v7()).await.status, 200);
    assert_eq!(pair.home.show(&session).await["handed_off_to"], json!(there));
    let late = pair.release(id).await;
    assert_eq!((late.status, &late.body["refused"]), (409, &json!("confirmed")));
    let late = pair.reserve(Uuid::now_v7(), &token).await;
    assert_eq!((late.status, &late.body["refused"]), (410, &json!("used")));
    assert_eq!(pair.fetch(&cid, &[("sbp-reservation", &shown)]).await.status, 200);
}

#[tokio::test]
async fn sbp_l6_05_a_session_that_went_on_is_not_given_away() {
    // What is said meanwhile waits for the end of the reservation; and this one comes to confirm after it.
    let short = |config: &mut Config| config.federation.reservation = Duration::from_millis(50);
    let pair = Pair::with(None, short).await;
    let (session, _, token) = pair.exported(json!({})).await;
    let id = Uuid::now_v7();
    assert_eq!(pair.reserve(id, &token).await.status, 200);
    pair.home.grow(&session, 2..=2).await;
    for why in ["changed", "ended"] {
        let refused = pair.confirm(id, Uuid::now_v7()).await;
        assert_eq!((refused.status, &refused.body["refused"]), (409, &json!(why)));
    }
    assert_eq!(pair.home.show(&session).await["handed_off_to"], Value::Null);
    // Anew, and released: then it is free again, also at home.
    let id = Uuid::now_v7();
    assert_eq!(pair.reserve(id, &token).await.status, 200);
    assert_eq!(pair.release(id).await.status, 204);
    assert_eq!(pair.release(id).await.status, 204);
    let ended = pair.reserve(id, &token).await;
    assert_eq!((ended.status, &ended.body["refused"]), (409, &json!("ended")));
    assert_eq!(pair.home.import_token(&token).await.status, 201);
    let unknown = pair.confirm(Uuid::now_v7(), Uuid::now_v7()).await;
    assert_eq!((unknown.status, &unknown.body["refused"]), (404, &json!("unknown")));
}

#[tokio::test]
async fn g11_a_gateway_is_remembered_for_what_it_has_reserved_and_not_for_asking() {
    let other = Peer::of("other").await;
    let mut pair = Pair::with(None, |config| knows(config, &other, None)).await;
    let (_, _, token) = pair.exported(json!({})).await;
    assert_eq!(pair.reserve(Uuid::now_v7(), &token).await.status, 200);
    pair.peer = other;
    let refused = pair.reserve(Uuid::now_v7(), &token).await;
    assert_eq!((refused.status, &refused.body["refused"]), (409, &json!("reserved")));
    let known = pair.home.store.peers().await.unwrap();
    let known: Vec<_> = known.iter().map(|known| known.id.as_str()).collect();
    assert_eq!(known, ["work"]);
}

#[tokio::test]
async fn g20_who_confirms_the_reservation_of_another_gateway_ends_no_hold() {
    let other = Peer::of("other").await;
    let mut pair = Pair::with(None, |config| {
        knows(config, &other, None);
        // Longer than this test may take.
        config.federation.reservation = Duration::from_secs(3600);
    })
    .await;
    let (session, _, token) = pair.exported(json!({})).await;
    let (mut phone, _) = pair.home.attach(&session).await;
    let id = Uuid::now_v7();
    assert_eq!(pair.reserve(id, &token).await.status, 200);
    let work = std::mem::replace(&mut pair.peer, other);
    let refused = pair.confirm(id, Uuid::now_v7()).await;
    assert_eq!((refused.status, &refused.body["refused"]), (404, &json!("unknown")));
    phone.send(json!({ "type": "USER_MESSAGE", "content": "echo 2", "client_turn_id": "c" })).await;
    // The gateway has read the message when it answers the ping behind it.
    phone.send(json!({ "type": "PING" })).await;
    let seen = phone.until("PONG").await;
    assert!(seen.iter().all(|frame| frame["type"] != "TURN_ACCEPTED"), "{seen:?}");
    pair.peer = work;
    assert_eq!(pair.confirm(id, Uuid::now_v7()).await.status, 200, "it has not gone on");
}

#[tokio::test]
async fn g11_a_gateway_is_given_two_bundles_at_once_and_is_asked_to_wait_then() {
    let upstream = MockUpstream::start().await;
    let peer = Peer::start().await;
    let (home, disk) = on_a_bad_disk_with(&upstream, |config| {
        federated(config, "home");
        knows(config, &peer, None);
    })
    .await;
    let pair = Pair { home, peer };
    let (_, cid, token) = pair.exported(json!({ "for_gateway": "work" })).await;
    let first = disk.hold("export");
    let others = async {
        eventually("one is read", async || disk.waits()).await;
        let second = disk.hold("export");
        let refused = async {
            eventually("two are read", async || disk.waits()).await;
            for refused in [pair.fetch(&cid, &[]).await, pair.reserve(Uuid::now_v7(), &token).await]
            {
                assert_eq!(refused.refusal(), (429, "SBP_RATE_LIMITED"), "{}", refused.text);
                assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 0));
            }
            first.send(()).unwrap();
            second.send(()).unwrap();
        };
        tokio::join!(pair.fetch(&cid, &[]), refused).0
    };
    let (one, two) = tokio::join!(pair.fetch(&cid, &[]), others);
    assert_eq!((one.status, two.status), (200, 200), "{} {}", one.text, two.text);
    assert_eq!(one.text, two.text);
    assert_eq!(one.header("content-length"), one.text.len().to_string(), "its size is said first");
    eventually("given again", async || pair.fetch(&cid, &[]).await.status == 200).await;
}
