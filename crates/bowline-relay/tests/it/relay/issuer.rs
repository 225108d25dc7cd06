//! A control plane as far as a relay sees it: it publishes keys, and signs.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::revocation;
use bowline_sbrp::token::{PresenceGrant, SessionGrant, TokenSigner};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::server::until;

pub(crate) struct Issuer {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    keys: Vec<Value>,
    revoked: Option<Vec<u8>>,
    mood: Mood,
    /// Changes, or closes, when keys may be handed out again.
    held: Option<watch::Receiver<()>>,
    fetches: usize,
    /// How often the list of the revoked was asked for.
    looks: usize,
}

/// How the issuer answers.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    Well,
    Down,
    Failing,
    Elsewhere(String),
    Endless,
    Nonsense,
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn sid(id: u64) -> SessionId {
    SessionId::from_wire(id).unwrap()
}

impl Issuer {
    /// Publishes the keys `a` and `b`.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = vec![signer(&url, "a").jwk(), signer(&url, "b").jwk()];
        let state = Arc::new(Mutex::new(State {
            keys,
            revoked: None,
            mood: Mood::Well,
            held: None,
            fetches: 0,
            looks: 0,
        }));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(socket.read_u8().await?);
                    }
                    let asked_for = |path| head.starts_with(format!("GET {path} ").as_bytes());
                    let answer = match asked_for(revocation::PATH) {
                        true => state.lock().unwrap().answer_revoked(),
                        false => {
                            assert!(asked_for("/.well-known/jwks.json"));
                            let (answer, held) = state.lock().unwrap().answer();
                            if let Some(mut held) = held {
                                let _ = held.changed().await;
                            }
                            answer
                        }
                    };
                    socket.write_all(&answer).await
                });
            }
        });
        Self { url, state }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Counts who asks for keys, and answers when what is returned is dropped.
    pub(crate) fn hold(&self) -> watch::Sender<()> {
        let (gate, held) = watch::channel(());
        self.state.lock().unwrap().held = Some(held);
        gate
    }

    pub(crate) fn publish(&self, keys: Vec<Value>) {
        self.state.lock().unwrap().keys = keys;
    }

    /// Publishes a list of revoked daemons; before, there is none.
    pub(crate) fn revoke(&self, daemons: &[&str]) {
        let ids: Vec<_> = daemons.iter().map(|id| DaemonId::new(*id)).collect();
        self.publish_revoked(serde_json::to_vec(&revocation::RevocationList::of(&ids)).unwrap());
    }

    /// Publishes which relays are drained.
    pub(crate) fn drain(&self, relays: &[&str]) {
        let list = revocation::RevocationList::default().with_draining(relays.iter().copied());
        self.publish_revoked(serde_json::to_vec(&list).unwrap());
    }

    /// A daemon's token of this epoch.
    pub(crate) fn daemon_of(&self, daemon: &str, epoch: u64) -> String {
        self.signer("a").presence(&PresenceGrant { epoch, ..self.presence(daemon) })
    }

    /// A client's token for a presence of this epoch.
    pub(crate) fn client_of(&self, daemon: &str, session: u64, epoch: u64) -> String {
        self.signer("a").session(&SessionGrant { epoch, ..self.session(daemon, session) })
    }

    /// Publishes that the tokens of this user issued up to then are no longer good.
    pub(crate) fn end_tokens(&self, user: &str, until: u64) {
        let list = revocation::RevocationList::default().with_users([(user, until)]);
        self.publish_revoked(serde_json::to_vec(&list).unwrap());
    }

    pub(crate) fn publish_revoked(&self, list: Vec<u8>) {
        self.state.lock().unwrap().revoked = Some(list);
    }

    /// Resolves when whatever is published now was fetched and dealt with.
    pub(crate) async fn looked_at(&self) {
        let looks = || self.state.lock().unwrap().looks;
        let begun = looks();
        // The answer to one may have been on its way already; the next is dealt with when another
        // follows.
        until("looked at", || async { looks() >= begun + 2 }).await;
    }

    pub(crate) fn fetches(&self) -> usize {
        self.state.lock().unwrap().fetches
    }

    pub(crate) fn signer(&self, kid: &str) -> TokenSigner {
        signer(&self.url, kid)
    }

    pub(crate) fn presence(&self, daemon: &str) -> PresenceGrant {
        PresenceGrant {
            daemon: DaemonId::new(daemon),
            owner: None,
            epoch: 0,
            resumable: true,
            region: None,
            concurrent_sessions: None,
            issued_at: now(),
            expires_at: now() + 3600,
        }
    }

    pub(crate) fn session(&self, daemon: &str, session: u64) -> SessionGrant {
        SessionGrant {
            daemon: DaemonId::new(daemon),
            user: format!("user-{session}"),
            session: sid(session),
            epoch: 0,
            region: None,
            issued_at: now(),
            expires_at: now() + 120,
        }
    }

    pub(crate) fn daemon(&self, daemon: &str) -> String {
        self.signer("a").presence(&self.presence(daemon))
    }

    pub(crate) fn limited(&self, daemon: &str, sessions: u64) -> String {
        let concurrent_sessions = NonZeroU64::new(sessions);
        self.signer("a").presence(&PresenceGrant { concurrent_sessions, ..self.presence(daemon) })
    }

    pub(crate) fn forgetful(&self, daemon: &str) -> String {
        self.signer("a").presence(&PresenceGrant { resumable: false, ..self.presence(daemon) })
    }

    pub(crate) fn client(&self, daemon: &str, session: u64) -> String {
        self.signer("a").session(&self.session(daemon, session))
    }

    /// A client's claims, all good.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": "sideband-relay", "sub": "u_1", "role": "client",
               "did": "d_1", "sid": "AAALOnPOL_I", "iat": now(), "exp": now() + 120, "ver": 1,
               "scp": ["session:create"]})
    }

    pub(crate) fn header(&self) -> Header {
        Header {
            typ: Some("sbrp-relay+jwt".into()),
            kid: Some("a".into()),
            ..Header::new(Algorithm::EdDSA)
        }
    }

    /// Any claims, signed with the key `a`.
    pub(crate) fn signed(&self, header: &Header, claims: &Value) -> String {
        let der =
            [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", &seed("a")[..]];
        jsonwebtoken::encode(header, claims, &EncodingKey::from_ed_der(&der.concat())).unwrap()
    }

    pub(crate) fn public(&self, kid: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(self.signer(kid).jwk()["x"].as_str().unwrap()).unwrap()
    }
}

fn whole(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

impl State {
    fn answer_revoked(&mut self) -> Vec<u8> {
        self.looks += 1;
        match (&self.mood, &self.revoked) {
            (Mood::Down, _) => Vec::new(),
            (_, None) => whole("404 Not Found", ""),
            (_, Some(list)) => whole("200 OK", std::str::from_utf8(list).unwrap()),
        }
    }

    fn answer(&mut self) -> (Vec<u8>, Option<watch::Receiver<()>>) {
        self.fetches += 1;
        let keys = json!({ "keys": self.keys }).to_string();
        let answer = match &self.mood {
            Mood::Well => whole("200 OK", &keys),
            Mood::Down => Vec::new(),
            Mood::Failing => whole("503 Service Unavailable", &keys),
            Mood::Elsewhere(url) => format!(
                "HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n"
            )
            .into_bytes(),
            Mood::Endless => whole("200 OK", &format!("{keys}{}", " ".repeat(1 << 20))),
            Mood::Nonsense => whole("200 OK", "{\"keys\":7}"),
        };
        (answer, self.held.clone())
    }
}

fn seed(kid: &str) -> [u8; 32] {
    let mut seed = [7; 32];
    seed[..kid.len()].copy_from_slice(kid.as_bytes());
    seed
}

fn signer(issuer: &str, kid: &str) -> TokenSigner {
    TokenSigner::from_seed(issuer, kid, &seed(kid))
}
