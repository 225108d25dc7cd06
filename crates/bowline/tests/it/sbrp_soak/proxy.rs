//! A TCP proxy in front of the relay that can cut connections.
//!
//! It reads from the token, which is signed and not encrypted, who is connecting, so that a test
//! can choose whom to cut off.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::seed::Dice;

/// How a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// Both sides at once.
    Both,
    /// The end's socket closes at once, the relay's after this time.
    EndFirst(Duration),
    /// The relay's socket closes at once, the end's after this time.
    RelayFirst(Duration),
    /// No bytes pass any more; both sockets close after this time.
    Silence(Duration),
}

impl Break {
    pub(crate) fn random(dice: &mut Dice) -> Self {
        let time = Duration::from_millis(dice.below(800) as u64);
        match dice.below(4) {
            0 => Self::Both,
            1 => Self::EndFirst(time),
            2 => Self::RelayFirst(time),
            _ => Self::Silence(time),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Daemon,
    Client,
    /// Another HTTP request, such as for presence or metrics.
    Other,
}

struct Carried {
    who: Who,
    daemon: String,
    breaks: mpsc::Sender<Break>,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    relay: SocketAddr,
    carried: Mutex<BTreeMap<u64, Carried>>,
    next: AtomicU64,
    questions: AtomicU64,
}

impl Proxy {
    pub(crate) async fn start(relay: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            relay,
            carried: Mutex::default(),
            next: AtomicU64::new(0),
            questions: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).carry(stream));
            }
        });
        proxy
    }

    /// Breaks one connection of this kind; false if there is none.
    pub(crate) fn cut(&self, who: Who, how: Break, dice: &mut Dice) -> bool {
        let mut carried = self.carried.lock().unwrap();
        let ids: Vec<_> =
            carried.iter().filter(|(_, one)| one.who == who).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return false;
        }
        let chosen = carried.remove(&ids[dice.below(ids.len())]).unwrap();
        chosen.breaks.try_send(how).is_ok()
    }

    /// Breaks all connections of one daemon, but not those of its clients.
    pub(crate) fn cut_daemon(&self, daemon: &str, how: Break) {
        let carried = self.carried.lock().unwrap();
        for one in carried.values().filter(|one| one.who == Who::Daemon && one.daemon == daemon) {
            let _ = one.breaks.try_send(how);
        }
    }

    /// How often anybody asked whether a daemon is there.
    pub(crate) fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    async fn carry(self: Arc<Self>, mut end: TcpStream) {
        let _ = end.set_nodelay(true);
        let Some((head, who, daemon)) = head(&mut end).await else { return };
        let Ok(mut relay) = TcpStream::connect(self.relay).await else {
            let _ = end.set_zero_linger();
            return;
        };
        let _ = relay.set_nodelay(true);
        if relay.write_all(&head).await.is_err() {
            return;
        }
        if who == Who::Other {
            let _ = self.carry_questions(end, relay).await;
            return;
        }
        let (breaks, mut told) = mpsc::channel(1);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.carried.lock().unwrap().insert(id, Carried { who, daemon, breaks });
        let how = tokio::select! {
            _ = copy_bidirectional(&mut end, &mut relay) => None,
            how = told.recv() => how,
        };
        self.carried.lock().unwrap().remove(&id);
        let Some(how) = how else { return };
        let _ = end.set_zero_linger();
        let _ = relay.set_zero_linger();
        match how {
            Break::Both => {}
            Break::EndFirst(time) => {
                drop(end);
                tokio::time::sleep(time).await;
            }
            Break::RelayFirst(time) => {
                drop(relay);
                tokio::time::sleep(time).await;
            }
            Break::Silence(time) => tokio::time::sleep(time).await,
        }
    }

    /// One question after the other: each begins when the one before it is answered.
    async fn carry_questions(&self, mut end: TcpStream, mut relay: TcpStream) -> io::Result<()> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let (mut from_end, mut to_end) = end.split();
        let (mut from_relay, mut to_relay) = relay.split();
        let asking = async {
            let mut piece = [0; 4096];
            loop {
                let length = from_end.read(&mut piece).await?;
                if length == 0 {
                    return io::Result::Ok(());
                }
                let begins = piece[..length].starts_with(b"GET ");
                self.questions.fetch_add(begins.into(), Ordering::Relaxed);
                to_relay.write_all(&piece[..length]).await?;
            }
        };
        tokio::select! {
            asked = asking => asked,
            answered = tokio::io::copy(&mut from_relay, &mut to_end) => answered.map(drop),
        }
    }
}

/// Reads the request's head, with all bytes received so far, and finds out who is connecting.
async fn head(end: &mut TcpStream) -> Option<(Vec<u8>, Who, String)> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > 16 << 10 || end.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    if !text.starts_with("GET /relay ") {
        return Some((head, Who::Other, String::new()));
    }
    let token = text.split("Bearer ").nth(1)?.lines().next()?;
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let who = if claims["role"] == "daemon" { Who::Daemon } else { Who::Client };
    Some((head, who, claims["did"].as_str()?.to_owned()))
}
