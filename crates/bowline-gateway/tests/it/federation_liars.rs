//! SBP-L6-06: a whole gateway beside one that lies. Each lie is refused with its own status, nothing of it is kept, the
//! log names the peer, and the peer is left alone for a while.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_gateway::config::PeerConfig;
use bowline_sbp::bundle::Sealed;
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::wire::{
    BUNDLES_PATH, MANIFEST_PATH, RESERVATIONS_PATH, ReservationRequest,
};
use bowline_sbp::federation::{
    Asked as AskedFor, FederationAction, FederationClaims, ForeignRoamingClaims, ReservationId,
    Role,
};
use bowline_sbp::id::{ExportId, SessionId};
use bowline_store::Federation;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Answer, Bench, LOCAL_KEY, plain};
use crate::captured_log::CapturedLog;
use crate::documents::{bundle, id, identity, manifest, sealed};
use crate::federation_move::arrived;
use crate::people;
use crate::roaming::text;
use crate::scripted::{Asked, Peer, Reply};

/// The seed of the liar's key.
const LIAR: u8 = 1;
/// What is said in the session that the liar offers.
const WORDS: &str = "words-canary-zq";
/// The largest bundle that the gateway imports here.
const LARGEST: usize = 4 << 20;

/// A gateway `liar`, whose manifest and reservations are as they should be, and whose bundles are of the script.
struct Liar(Peer);

impl Liar {
    async fn start(cid: Cid, bundle: Reply) -> Self {
        Self::with(cid, bundle, json!({}), |_| None).await
    }

    /// `more`: further members of what it answers. `first`: asked before all else.
    async fn with(
        cid: Cid,
        bundle: Reply,
        more: Value,
        first: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let json = move |mut answer: Value| {
            answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Reply::Json(200, answer.to_string())
        };
        let script = move |asked: &Asked| {
            let said: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
            match asked.path.as_str() {
                MANIFEST_PATH => {
                    let manifest = manifest("liar", LIAR, Role::Gateway).sign(&identity(LIAR));
                    Reply::Json(200, manifest)
                }
                RESERVATIONS_PATH => json(json!({
                    "reservation_id": said["reservation_id"], "cid": cid,
                    "expires_at": "2100-01-01T00:00:00Z",
                })),
                path if path.starts_with(BUNDLES_PATH) => {
                    assert!(asked.headers.contains_key("sbp-reservation"));
                    bundle.clone()
                }
                path if path.ends_with("/confirm") => {
                    let id = path.split('/').rev().nth(1).unwrap();
                    json(json!({ "reservation_id": id, "session_id": said["session_id"] }))
                }
                _ => Reply::Json(200, "{}".into()),
            }
        };
        Self(Peer::start(move |asked| first(asked).unwrap_or_else(|| script(asked))).await)
    }

    /// A roaming token of its own, for that bundle.
    fn token(&self, cid: Cid) -> String {
        let now = Timestamp::now().as_second();
        let claims = ForeignRoamingClaims {
            sub: ExportId(Uuid::now_v7()),
            sid: SessionId(Uuid::now_v7()),
            iat: now,
            exp: now + 3600,
            iss: id("liar"),
            cid,
            url: self.0.url.parse().unwrap(),
        };
        claims.sign(&identity(LIAR))
    }

    /// How often it was asked for a bundle.
    fn bundles(&self) -> usize {
        self.0.paths().iter().filter(|path| path.starts_with(BUNDLES_PATH)).count()
    }

    /// The ids under which the gateway has reserved.
    fn reservations(&self) -> Vec<ReservationId> {
        let asked = self.0.asked.lock().unwrap();
        let reserving = asked.iter().filter(|asked| asked.path == RESERVATIONS_PATH);
        let request = |asked: &Asked| serde_json::from_slice::<ReservationRequest>(&asked.body);
        reserving.map(|asked| request(asked).unwrap().reservation_id).collect()
    }

    /// A gateway `away` that knows it.
    async fn neighbour(&self) -> Bench {
        Bench::with(|config| {
            config.federation.enabled = true;
            config.federation.gateway_id = Some(id("away"));
            config.limits.import_body = LARGEST;
            let url = Some(self.0.url.parse().unwrap());
            let known = PeerConfig { url, ..PeerConfig::default() };
            config.federation.peers.insert("liar".into(), known);
        })
        .await
    }

    /// There is no session, no bundle, no migration that goes on, and not a word in any file.
    async fn changed_nothing(&self, away: &Bench) {
        assert!(away.sessions().await.is_empty());
        assert!(away.store.open_migrations().await.unwrap().is_empty());
        let reservations = self.reservations();
        assert!(!reservations.is_empty());
        for id in reservations {
            assert_eq!(away.store.staged_bundle(id).await.unwrap(), None);
        }
        assert!(!is_in_a_file(away.folder.path()), "it is stored");
    }
}

/// Whether the words are in a file of the folder.
fn is_in_a_file(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let has = |bytes: Vec<u8>| bytes.windows(WORDS.len()).any(|part| part == WORDS.as_bytes());
    files.into_iter().any(|path| match path.is_dir() {
        true => is_in_a_file(&path),
        false => std::fs::read(path).is_ok_and(has),
    })
}

/// How much longer the gateway leaves the liar alone, as `GET /v1/peers` says.
async fn backed_off(away: &Bench) -> Option<u64> {
    let seen = people::get(away, LOCAL_KEY, "/v1/peers").await;
    assert_eq!((seen.status, &seen.body["peers"][0]["id"]), (200, &json!("liar")));
    seen.body["peers"][0]["backed_off_seconds"].as_u64()
}

/// A gateway imports the session of a liar that answers so for its bundle.
async fn lied(cid: Cid, reply: Reply, refusal: (u16, &str)) {
    let away = seen(Liar::start(cid, reply).await, cid, refusal, "a peer lied and is backed off");
    let wait = backed_off(&away.await).await;
    assert!(wait.is_some_and(|wait| wait > 30), "{wait:?}");
}

/// The same with one that is to blame for a failure, as any server may be: it is left alone for a second, which
/// may be over when it is looked at.
async fn failed(cid: Cid, reply: Reply, refusal: (u16, &str)) {
    seen(Liar::start(cid, reply).await, cid, refusal, "a peer failed and is backed off").await;
}

async fn seen(liar: Liar, cid: Cid, refusal: (u16, &str), blame: &str) -> Bench {
    let (log, _guard) = CapturedLog::start();
    let away = liar.neighbour().await;
    let refused = away.import_token(&liar.token(cid)).await;
    assert_eq!(refused.refusal(), refusal, "{}", refused.text);
    assert!(refused.text.contains("the gateway liar: "), "{}", refused.text);
    liar.changed_nothing(&away).await;
    assert_eq!(liar.bundles(), 1, "it is asked once");
    let line = log.line(blame);
    assert!(line.contains("WARN") && line.contains("peer=\"liar\""), "{line}");
    for secret in [WORDS, "eyJ", "Bearer"] {
        assert!(!log.text().contains(secret), "{secret} was logged");
    }
    // And nobody else pays for it.
    assert_eq!(away.chat(plain("m", "echo 1")).await.status, 200);
    away
}

fn ok(text: &str) -> Reply {
    Reply::Json(200, text.to_owned())
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_refuses_another_bundle_than_the_one_that_was_reserved() {
    let integrity = (422, "SBP_TOKEN_INTEGRITY");
    let honest = sealed(WORDS, LIAR);
    lied(honest.cid, ok(&sealed(&format!("{WORDS} or others"), LIAR).text), integrity).await;
    // It claims to be the one, and is not.
    let changed = honest.text.replace(WORDS, &format!("{WORDS}!"));
    lied(honest.cid, ok(&changed), integrity).await;
    lied(honest.cid, ok("{}"), integrity).await;
    lied(honest.cid, ok(&format!("<html>{WORDS}")), integrity).await;
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_refuses_a_bundle_with_the_right_id_and_a_wrong_signature() {
    let integrity = (422, "SBP_TOKEN_INTEGRITY");
    let stranger = sealed(WORDS, 2);
    let unsigned = bundle(WORDS).seal();
    let broken = with_the_signature_of(&sealed(WORDS, LIAR), &sealed("other", LIAR));
    for Sealed { cid, text, .. } in [stranger, unsigned, broken] {
        lied(cid, ok(&text), integrity).await;
    }
}

/// A bundle with the signature of another one, and the content id that it has then.
fn with_the_signature_of(bundle: &Sealed, other: &Sealed) -> Sealed {
    let signature = |text: &str| {
        let at = text.rfind("\"value\":").unwrap() + 10;
        text[at..at + 86].to_owned()
    };
    let text = bundle.text.replace(&signature(&bundle.text), &signature(&other.text));
    let cid = Cid::of_bundle(&bowline_pyjson::Value::parse(&text).unwrap());
    let text = text.replace(&bundle.cid.to_string(), &cid.to_string());
    Sealed { cid, text, ..*bundle }
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_stops_reading_a_body_without_end_or_of_ten_gigabytes() {
    let cid = sealed(WORDS, LIAR).cid;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut again = b"10000\r\n".to_vec();
    again.extend_from_slice(&WORDS.as_bytes().repeat(0x10000)[..0x10000]);
    again.extend_from_slice(b"\r\n");
    let endless = Reply::Endless { head, again, pause: Duration::ZERO };
    failed(cid, endless, (413, "SBP_INVALID_REQUEST")).await;
    let head = "HTTP/1.1 200 OK\ncontent-length: 10737418240";
    let large = Reply::raw(head, WORDS.as_bytes());
    failed(cid, large, (413, "SBP_INVALID_REQUEST")).await;
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_follows_no_redirect_of_a_peer() {
    let Sealed { cid, text, .. } = sealed(WORDS, LIAR);
    let elsewhere = Peer::start(move |_| ok(&text)).await;
    for to in
        [elsewhere.url.as_str(), "http://10.0.0.1", "http://169.254.169.254", "https://a.example"]
    {
        let head = format!("HTTP/1.1 302 Found\nlocation: {to}/x\ncontent-length: 0");
        lied(cid, Reply::raw(&head, b""), (502, "SBP_UPSTREAM")).await;
    }
    assert_eq!(elsewhere.paths(), [""; 0], "nothing was asked there");
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_inflates_no_gzip_bomb() {
    // 64 MiB, packed by gzip itself.
    let mut gzip = std::process::Command::new("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut into = gzip.stdin.take().unwrap();
    let writing = std::thread::spawn(move || {
        let piece = WORDS.as_bytes().repeat(4096);
        (0..(64 << 20) / piece.len()).try_for_each(|_| into.write_all(&piece)).unwrap();
    });
    let packed = gzip.wait_with_output().unwrap().stdout;
    writing.join().unwrap();
    assert!(packed.len() < 1 << 20);
    let head = format!("HTTP/1.1 200 OK\ncontent-encoding: gzip\ncontent-length: {}", packed.len());
    lied(sealed(WORDS, LIAR).cid, Reply::raw(&head, &packed), (502, "SBP_UPSTREAM")).await;
}

/// The bundle never ends, and when the gateway asks again, the session is gone there: so that the test does not wait
/// for as long as a gateway asks.
async fn slow(again: &[u8], pause: Duration) {
    let cid = sealed(WORDS, LIAR).cid;
    let (log, _guard) = CapturedLog::start();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{WORDS}").into_bytes();
    let reply = Reply::Endless { head, again: again.to_vec(), pause };
    let asked = AtomicUsize::new(0);
    let liar = Liar::with(cid, reply, json!({}), move |request| {
        let reserves = request.path == RESERVATIONS_PATH;
        let is_later = reserves && asked.fetch_add(1, Ordering::Relaxed) > 0;
        is_later.then(|| Reply::Json(404, json!({ "refused": "gone" }).to_string()))
    });
    let liar = liar.await;
    let away = liar.neighbour().await;
    let refused = away.import_token(&liar.token(cid)).await;
    // Which of them depends on what was tried last.
    assert!((502..=504).contains(&refused.status), "{}", refused.text);
    assert_eq!(refused.code(), "SBP_UPSTREAM");
    liar.changed_nothing(&away).await;
    assert_eq!(liar.bundles(), 1);
    let line = log.line("a peer failed and is backed off");
    assert!(line.contains("peer=\"liar\"") && line.contains("came too slowly"), "{line}");
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_gives_a_slow_body_up() {
    slow(b" ", Duration::from_millis(20)).await;
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_gives_a_silent_body_up() {
    slow(b" ", Duration::from_secs(3600)).await;
}

#[tokio::test]
async fn sbp_l6_06_members_that_a_gateway_does_not_know_decide_nothing() {
    let more = json!({
        "user": "root", "owner": "liar", "session_token": "mine", "trusted": true, "allow": "all",
        "approved": true, "redirect": "http://10.0.0.1", "api_keys": ["mine"],
    });
    let mut contents = bundle(WORDS);
    contents.carried =
        Some(json!({ "bundle": more, "session": more, "metadata": more }).to_string());
    let Sealed { cid, text, .. } = contents.seal_signed(&identity(LIAR));
    assert!(text.contains("\"owner\""), "{text}");
    let liar = Liar::with(cid, ok(&text), more, |_| None).await;
    let away = liar.neighbour().await;
    let imported = away.import_token(&liar.token(cid)).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    assert!(is_in_a_file(away.folder.path()), "what is imported is stored");
    let session = arrived(&imported.body);
    assert_ne!(session.token, "mine");
    let path = format!("/v1/sessions/{}", session.id);
    for (token, status) in [(session.token.as_str(), 200), ("mine", 403)] {
        let shown = [("x-session-token", token)];
        let seen = away.call(Method::GET, &path, &shown, &Value::Null).await;
        assert_eq!(seen.status, status, "{token}: {}", seen.text);
    }
    assert_eq!(backed_off(&away).await, None);
    let seen = people::get(&away, LOCAL_KEY, "/v1/peers").await;
    assert_eq!(seen.body["peers"][0]["allow"], "exported-to-me");
}

#[tokio::test]
async fn g7_only_what_the_origin_says_of_this_reservation_is_a_confirmation() {
    let Sealed { cid, text, .. } = sealed(WORDS, LIAR);
    let asked = AtomicUsize::new(0);
    // As proxies and captive portals answer, and then as the gateway does.
    let pages = move |request: &Asked| {
        let id = request.path.strip_suffix("/confirm")?.rsplit('/').next().unwrap().to_owned();
        let said: Value = serde_json::from_slice(&request.body).unwrap();
        let other = Uuid::now_v7();
        let answer = |status, body: Value| Some(Reply::Json(status, body.to_string()));
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Reply::Json(200, "<html>sign in".into())),
            1 => answer(200, json!({})),
            2 => answer(200, json!({ "reservation_id": other, "session_id": said["session_id"] })),
            3 => answer(200, json!({ "reservation_id": id, "session_id": other })),
            4 => Some(Reply::Json(404, "<html>not found".into())),
            5 => answer(409, json!({ "refused": "ended" })),
            6 => answer(410, json!({ "error": { "code": "GONE", "message": "", "type": "" } })),
            _ => None,
        }
    };
    let liar = Liar::with(cid, ok(&text), json!({}), pages).await;
    let away = liar.neighbour().await;
    let imported = away.import_token(&liar.token(cid)).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let confirmations = liar.0.paths().iter().filter(|path| path.ends_with("/confirm")).count();
    assert_eq!(confirmations, 8, "it was made before the last of them");
}

#[tokio::test]
async fn sbp_l6_05_a_gateway_that_has_too_much_to_do_is_asked_again_and_not_blamed() {
    let Sealed { cid, text, .. } = sealed(WORDS, LIAR);
    let asked = AtomicUsize::new(0);
    let busy = move |request: &Asked| {
        let gives = request.path.starts_with(BUNDLES_PATH) || request.path == RESERVATIONS_PATH;
        let is_first = |n: usize| n == 0 || n == 2;
        let head = "HTTP/1.1 429 X\nretry-after: 1\ncontent-length: 2";
        (gives && is_first(asked.fetch_add(1, Ordering::Relaxed))).then(|| Reply::raw(head, b"{}"))
    };
    let liar = Liar::with(cid, ok(&text), json!({}), busy).await;
    let away = liar.neighbour().await;
    let begun = std::time::Instant::now();
    let imported = away.import_token(&liar.token(cid)).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    assert!(begun.elapsed() > Duration::from_secs(2), "it was not waited for");
    assert_eq!((liar.reservations().len(), liar.bundles()), (3, 2));
    assert_eq!(backed_off(&away).await, None);
}

#[tokio::test]
async fn sbp_l6_06_an_expired_foreign_or_replayed_token_of_a_peer_gets_nothing() {
    let (log, _guard) = CapturedLog::start();
    let liar = Liar::start(sealed(WORDS, LIAR).cid, ok("{}")).await;
    let away = liar.neighbour().await;
    let session = away.session_with(1).await;
    let made = away.export(&session, json!({ "for_gateway": "liar" })).await;
    let (cid, roaming) = (text(&made.body["bundle_cid"]), text(&made.body["roaming_token"]));
    let claims = |action, subject: &str| {
        let asked = AskedFor { gateway: &id("away"), action, subject };
        let url = liar.0.url.parse().unwrap();
        FederationClaims::new(id("liar"), url, asked, Uuid::new_v4(), Timestamp::now())
    };
    let expired = |claims: FederationClaims| {
        let now = Timestamp::now().as_second();
        FederationClaims { iat: now - 120, exp: now - 60, ..claims }.sign(&identity(LIAR))
    };
    let foreign = |claims: FederationClaims| {
        FederationClaims { aud: id("elsewhere"), ..claims }.sign(&identity(LIAR))
    };
    let fetch = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let path = format!("{BUNDLES_PATH}/{cid}");
        away.call(Method::GET, &path, &[("authorization", &bearer)], &Value::Null).await
    };
    let reservation = Uuid::now_v7();
    let reserve = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let body = json!({ "reservation_id": reservation, "roaming_token": roaming });
        away.call(Method::POST, RESERVATIONS_PATH, &[("authorization", &bearer)], &body).await
    };
    let refused = |answer: &Answer, why: &str| {
        assert_eq!(answer.refusal(), (401, "SBP_UNAUTHORIZED"), "{}", answer.text);
        let line =
            log.text().lines().rfind(|line| line.contains("a federation token")).map(str::to_owned);
        let line = line.unwrap_or_else(|| panic!("{why} is not logged"));
        assert!(
            line.contains("WARN") && line.contains("peer=liar") && line.contains(why),
            "{line}"
        );
    };
    let of_bundle = || claims(FederationAction::Bundle, &cid);
    let of_reservation = || claims(FederationAction::Reserve, &reservation.to_string());
    refused(&fetch(&expired(of_bundle())).await, "has expired");
    refused(&fetch(&foreign(of_bundle())).await, "another gateway");
    refused(&reserve(&expired(of_reservation())).await, "has expired");
    refused(&reserve(&foreign(of_reservation())).await, "another gateway");
    // Used by the liar itself: whoever shows it again is refused.
    let once = of_bundle().sign(&identity(LIAR));
    assert_eq!(fetch(&once).await.status, 200);
    refused(&fetch(&once).await, "was shown again");
    // Nothing was reserved by all that. And nobody is left alone for it: whoever has seen an old token can show it.
    assert_eq!(backed_off(&away).await, None);
    assert_eq!(away.say(&session, "echo 2").await.status, 200);
    assert_eq!(away.import_token(&roaming).await.status, 201);
    assert_eq!(liar.reservations(), []);
}
