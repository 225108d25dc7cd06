//! A control plane for tests: HTTP by hand, one request a connection.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bowline_client::relay::{ControlError, ControlPlane};
use bowline_sbrp::api::{
    DaemonStatus, DaemonView, DeviceKey, OpenDeviceSession, OpenSession, Refusal, RefusalDetail,
    Register, Registered, RenewPresence, SessionOpened, SetDevices,
};
use bowline_sbrp::device_auth::{DeviceRequest, Unproven};
use bowline_sbrp::id::{DaemonId, SessionId};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::wire::Relay;
use super::world::World;

pub(crate) const KEY: &str = "user-key-0123456789";

pub(crate) struct Control {
    pub(crate) port: u16,
    relay: Arc<Relay>,
    /// By identity key.
    daemons: Mutex<BTreeMap<String, (String, Option<String>)>>,
    sessions: AtomicU64,
    /// By daemon.
    pub(crate) devices: Mutex<BTreeMap<String, Vec<DeviceKey>>>,
    /// Seconds by which its clock is ahead of this machine's.
    pub(crate) ahead: AtomicI64,
    /// Requests of devices.
    pub(crate) signed: AtomicUsize,
    /// What was registered last.
    pub(crate) resumable: AtomicBool,
    pub(crate) token_life: AtomicU64,
    pub(crate) renewals: AtomicUsize,
    pub(crate) lists: AtomicUsize,
    /// Does not know who is online.
    pub(crate) blind: AtomicBool,
    /// Answers with this status, if it is not 0.
    pub(crate) broken: AtomicU16,
    /// Says this instead of the relay's address.
    pub(crate) relay_url: Mutex<Option<String>>,
    /// A second relay, to which a daemon is sent that cannot reach the first.
    pub(crate) second: Mutex<Option<Arc<Relay>>>,
    /// Whether the daemons are at the second.
    pub(crate) at_second: AtomicBool,
    /// Requests for another relay are carried out, and their answers are lost.
    pub(crate) loses_moves: AtomicBool,
    /// The epoch of presences; 0: it counts none.
    pub(crate) epoch: AtomicU64,
    /// The process that registered last.
    process: Mutex<Option<String>>,
    /// Everything given out that must not be seen elsewhere.
    pub(crate) tokens: Mutex<Vec<String>>,
}

impl Control {
    pub(crate) async fn start(relay: Arc<Relay>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            relay,
            daemons: Mutex::default(),
            sessions: AtomicU64::new(1),
            devices: Mutex::default(),
            ahead: AtomicI64::new(0),
            signed: AtomicUsize::new(0),
            resumable: AtomicBool::new(false),
            token_life: AtomicU64::new(3600),
            renewals: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            blind: AtomicBool::new(false),
            broken: AtomicU16::new(0),
            relay_url: Mutex::new(None),
            second: Mutex::default(),
            at_second: AtomicBool::new(false),
            loses_moves: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            process: Mutex::default(),
            tokens: Mutex::default(),
        });
        let accepting = Arc::clone(&control);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        control
    }

    /// Another key gets the daemon of this one.
    pub(crate) fn hand_over(&self, from: &str, to: &str) {
        let mut daemons = self.daemons.lock().unwrap();
        let daemon = daemons.remove(from).unwrap();
        daemons.insert(to.to_owned(), daemon);
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let Some((head, body)) = request(&mut stream).await else { return };
        let (status, json) = self.answer(&head, &body);
        let asks_to_move = || {
            let asked = RenewPresence::read(&body);
            head.contains("/presence ")
                && asked.is_ok_and(|asked| !asked.process.unreachable.is_empty())
        };
        if self.loses_moves.load(Ordering::SeqCst) && asks_to_move() {
            return;
        }
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{json}",
            json.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    fn answer(&self, head: &str, body: &[u8]) -> (u16, String) {
        let broken = self.broken.load(Ordering::SeqCst);
        if broken != 0 {
            return refuse(broken, "internal");
        }
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        if let ("POST", ["api", "sessions"], Ok(Some(asked))) =
            (method, parts.as_slice(), OpenDeviceSession::read(body))
        {
            assert!(!head.contains("authorization"), "a device has no key");
            return self.answer_device(asked);
        }
        if !head.contains(&format!("authorization: Bearer {KEY}\r\n")) {
            return refuse(401, "unauthorized");
        }
        match (method, parts.as_slice()) {
            ("POST", ["api", "daemons", "register"]) => {
                let register: Register = serde_json::from_slice(body).unwrap();
                let mut daemons = self.daemons.lock().unwrap();
                let id = format!("daemon-{}", daemons.len() + 1);
                let entry = daemons.entry(register.identity_public_key);
                let id = entry.or_insert((id, register.name)).0.clone();
                self.resumable.store(register.resumable == Some(true), Ordering::SeqCst);
                *self.process.lock().unwrap() = register.process.id;
                self.next_epoch();
                (200, json(&self.registered(id)))
            }
            ("POST", ["api", "daemons", id, "presence"]) => {
                let asked = RenewPresence::read(body).unwrap();
                let counts = self.epoch.load(Ordering::SeqCst) > 0;
                if counts && asked.process.id != *self.process.lock().unwrap() {
                    return refuse(409, RefusalDetail::REPLACED);
                }
                if let Some(resumable) = asked.resumable {
                    self.resumable.store(resumable, Ordering::SeqCst);
                }
                if asked.process.unreachable.contains(&self.relay_url())
                    && self.second.lock().unwrap().is_some()
                {
                    self.at_second.fetch_xor(true, Ordering::SeqCst);
                    self.next_epoch();
                }
                self.renewals.fetch_add(1, Ordering::SeqCst);
                (200, json(&self.registered((*id).to_owned())))
            }
            ("GET", ["api", "daemons"]) => {
                self.lists.fetch_add(1, Ordering::SeqCst);
                (200, json(&self.views()))
            }
            ("POST", ["api", "sessions"]) => {
                let open: OpenSession = serde_json::from_slice(body).unwrap();
                if !self.views().iter().any(|one| one.id == open.daemon_id) {
                    return refuse(404, "not_found");
                }
                self.opened(&open.daemon_id)
            }
            ("PUT", ["api", "daemons", id, "devices"]) => {
                let devices = SetDevices::read(body).unwrap();
                self.devices.lock().unwrap().insert((*id).to_owned(), devices);
                (204, String::new())
            }
            _ => refuse(404, "not_found"),
        }
    }

    fn answer_device(&self, asked: DeviceRequest) -> (u16, String) {
        self.signed.fetch_add(1, Ordering::SeqCst);
        let local = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let now = local.saturating_add_signed(self.ahead.load(Ordering::SeqCst));
        let asked = match asked.verify(now) {
            Ok(asked) => asked,
            Err(Unproven::ClockSkew) => {
                let (code, message) = (RefusalDetail::CLOCK_SKEW.into(), "too late".into());
                let error = RefusalDetail { code, message, now: Some(now) };
                return (401, json(&Refusal { error }));
            }
            Err(_) => return refuse(401, RefusalDetail::UNKNOWN_DEVICE),
        };
        let (devices, daemon) = (self.devices.lock().unwrap(), asked.daemon().as_str());
        let known = devices.get(daemon).is_some_and(|devices| {
            devices.iter().any(|one| {
                one.key == *asked.device() && one.expires_at.is_none_or(|until| until > now)
            })
        });
        if known { self.opened(daemon) } else { refuse(401, RefusalDetail::UNKNOWN_DEVICE) }
    }

    fn opened(&self, daemon: &str) -> (u16, String) {
        let session = self.sessions.fetch_add(1, Ordering::SeqCst);
        let session_id = SessionId::from_wire(session).unwrap().to_string();
        let token = format!("client:{daemon}:{session_id}");
        self.tokens.lock().unwrap().push(token.clone());
        let relay_url = self.relay_url();
        (200, json(&SessionOpened { relay_url, token, session_id, expires_at: 120 }))
    }

    fn registered(&self, daemon_id: String) -> Registered {
        let serial = self.renewals.load(Ordering::SeqCst);
        let resumable = self.resumable.load(Ordering::SeqCst);
        let presence_token = format!("daemon:{daemon_id}:presence-{serial}:{resumable}");
        self.tokens.lock().unwrap().push(presence_token.clone());
        let expires_at = 1000 + self.token_life.load(Ordering::SeqCst);
        let (relay_url, epoch) = (self.relay_url(), self.epoch.load(Ordering::SeqCst));
        Registered { daemon_id, presence_token, relay_url, issued_at: 1000, expires_at, epoch }
    }

    pub(crate) fn next_epoch(&self) {
        let next = |epoch| if epoch == 0 { None } else { Some(epoch + 1) };
        let _ = self.epoch.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// The relay where the daemons are.
    fn relay(&self) -> Arc<Relay> {
        match &*self.second.lock().unwrap() {
            Some(second) if self.at_second.load(Ordering::SeqCst) => Arc::clone(second),
            _ => Arc::clone(&self.relay),
        }
    }

    fn relay_url(&self) -> String {
        self.relay_url.lock().unwrap().clone().unwrap_or_else(|| self.relay().url())
    }

    fn views(&self) -> Vec<DaemonView> {
        let daemons = self.daemons.lock().unwrap();
        let view = |(key, (id, name)): (&String, &(String, Option<String>))| DaemonView {
            id: id.clone(),
            identity_public_key: key.clone(),
            status: match self.relay().is_online(id) {
                _ if self.blind.load(Ordering::SeqCst) => DaemonStatus::Unknown,
                true => DaemonStatus::Online,
                false => DaemonStatus::Offline,
            },
            name: name.clone(),
        };
        daemons.iter().map(view).collect()
    }
}

pub(crate) async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end + 4].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
        if bytes.len() >= end + 4 + length {
            return Some((head, bytes[end + 4..].to_vec()));
        }
    }
}

fn json(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap()
}

fn refuse(status: u16, code: &str) -> (u16, String) {
    let message = format!("said to be {code}");
    (status, json(&Refusal { error: RefusalDetail { code: code.into(), message, now: None } }))
}

#[tokio::test]
async fn the_control_plane_is_asked_and_answers() {
    let world = World::start().await;
    let plane = world.plane();
    assert_eq!(plane.daemons().await, Ok(vec![]));
    let key = super::world::identity(1).public();
    let first = plane.register(&key, Some("home"), true).await.unwrap();
    let again = plane.register(&key, Some("home"), true).await.unwrap();
    assert_eq!(first.daemon_id, again.daemon_id);
    let renewed = plane.renew(&DaemonId::new(&first.daemon_id)).await.unwrap();
    assert_ne!(renewed.presence_token, first.presence_token);
    let listed = plane.daemons().await.unwrap();
    assert_eq!((listed.len(), listed[0].name.as_deref()), (1, Some("home")));
    assert_eq!(listed[0].status, DaemonStatus::Offline);
    let opened = plane.open_session(&DaemonId::new(&first.daemon_id)).await.unwrap();
    assert!(opened.session_id.parse::<SessionId>().is_ok());
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let world = World::start().await;
    let nobody = plane_at(world.control.port, "another-key");
    let error = nobody.daemons().await.unwrap_err();
    assert!(matches!(error, ControlError::Refused { status: 401, .. }), "{error:?}");
    assert!(!error.may_pass());
    let missing = world.plane().open_session(&DaemonId::new("none")).await.unwrap_err();
    assert_eq!(missing.to_string(), "the control plane refused: said to be not_found");
    world.control.broken.store(503, Ordering::SeqCst);
    assert!(world.plane().daemons().await.unwrap_err().may_pass());
    let away = plane_at(1, KEY).daemons().await.unwrap_err();
    assert_eq!(away.to_string(), "the control plane at 127.0.0.1:1 cannot be reached");
}

#[tokio::test]
async fn a_relay_in_the_clear_is_refused() {
    let world = World::start().await;
    *world.control.relay_url.lock().unwrap() = Some("ws://relay.example/relay".into());
    let key = super::world::identity(1).public();
    let refused = world.plane().register(&key, None, true).await.map(|_| ());
    assert_eq!(refused, Err(ControlError::InsecureRelay));
}

#[tokio::test]
async fn an_answer_without_end_is_not_heard_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[").await.unwrap();
        while stream.write_all(&[b' '; 8192]).await.is_ok() {}
    });
    assert_eq!(plane_at(port, KEY).daemons().await, Err(ControlError::Unreadable));
}

pub(crate) fn plane_at(port: u16, key: &str) -> ControlPlane {
    ControlPlane::new(format!("http://127.0.0.1:{port}").parse().unwrap(), key).unwrap()
}
