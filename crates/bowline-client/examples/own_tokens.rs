//! A tunnel between two programs, with tokens and pins of their own: no control plane, no files.
//!
//! ```text
//! cargo run --package bowline-client --example own_tokens
//! ```
//!
//! One process plays all the parts here: an issuer that signs tokens, the relay, a daemon that offers
//! the service `shout`, and a client that opens a stream to it.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bowline_client::relay::tunnel::{
    DeviceIdentity, Services, TunnelClient, TunnelPeer, TunnelServer, TunnelServerConfig,
    TunnelStream,
};
use bowline_client::relay::{
    BookError, ClientConfig, ControlError, DaemonConfig, DaemonEvent, DeviceBook, KnownError,
    MemoryPins, PairError, PairedDevice, PinStore, PresenceTokens, RelayDaemon, SessionTokens,
    WaitingCode,
};
use bowline_relay::relay::{Relay, RelayConfig};
use bowline_sbrp::api::{DaemonProcess, Registered, RenewPresence, SessionOpened};
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::identity::{IdentityKey, IdentitySecret};
use bowline_sbrp::peer::PairingClaim;
use bowline_sbrp::token::{PresenceGrant, SessionGrant, TokenSigner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Signs tokens for the one daemon that there is. Both ends ask it in this process; a real program
/// would ask its own server.
#[derive(Debug)]
struct Issuer {
    signer: TokenSigner,
    relay_url: String,
}

const DAEMON: &str = "workshop";

#[async_trait]
impl PresenceTokens for Issuer {
    async fn register(
        &self,
        _: &IdentityKey,
        _: Option<&str>,
        resumable: bool,
        _: DaemonProcess,
    ) -> Result<Registered, ControlError> {
        let (issued_at, expires_at) = (now(), now() + 3600);
        let mut grant = PresenceGrant::new(DaemonId::new(DAEMON), issued_at, expires_at);
        grant.resumable = resumable;
        let presence_token = self.signer.presence(&grant);
        let (daemon_id, relay_url) = (DAEMON.to_owned(), self.relay_url.clone());
        Ok(Registered { daemon_id, presence_token, relay_url, issued_at, expires_at, epoch: 0 })
    }

    async fn renew(&self, _: &DaemonId, _: &RenewPresence) -> Result<Registered, ControlError> {
        Err(ControlError::other("this example is over within an hour", false))
    }
}

#[async_trait]
impl SessionTokens for Issuer {
    async fn open_session(&self, daemon: &DaemonId) -> Result<SessionOpened, ControlError> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|_| ControlError::other("no randomness", true))?;
        let session = SessionId::from_wire(u64::from_be_bytes(id) | 1).expect("not zero");
        let expires_at = now() + 120;
        let grant = SessionGrant::new(daemon.clone(), "example", session, now(), expires_at);
        let (session_id, relay_url) = (session.to_string(), self.relay_url.clone());
        let token = self.signer.session(&grant);
        Ok(SessionOpened { relay_url, token, session_id, expires_at })
    }
}

/// Pins that also say what they do. A real program would write them to its keychain.
#[derive(Debug, Default)]
struct TalkingPins(MemoryPins);

impl PinStore for TalkingPins {
    fn trust(&self, name: &str, daemon: &DaemonId) -> Result<Trust, KnownError> {
        self.0.trust(name, daemon)
    }

    fn keep(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        is_vouched_for: bool,
    ) -> Result<(), KnownError> {
        println!("{name} has the key {}", identity.key().fingerprint());
        self.0.keep(name, daemon, identity, is_vouched_for)
    }
}

/// The one device that is paired.
#[derive(Debug)]
struct OneDevice(PairedDevice, watch::Sender<u64>);

#[async_trait]
impl DeviceBook for OneDevice {
    async fn find(&self, key: &IdentityKey) -> Result<Option<PairedDevice>, BookError> {
        Ok((self.0.key == *key).then(|| self.0.clone()))
    }

    async fn pair(&self, _: &PairingClaim) -> Result<PairedDevice, PairError> {
        Err(PairError::BadCode)
    }

    async fn all(&self) -> Result<Vec<PairedDevice>, BookError> {
        Ok(vec![self.0.clone()])
    }

    async fn codes(&self) -> Result<Vec<WaitingCode>, BookError> {
        Ok(vec![])
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

/// Sends back what it was sent, louder.
#[derive(Debug)]
struct Shout;

#[async_trait]
impl Services for Shout {
    fn names(&self) -> Vec<String> {
        vec!["shout".into()]
    }

    async fn run(&self, peer: TunnelPeer, _: String, mut stream: TunnelStream) {
        let TunnelPeer::Device(device) = peer else { return };
        println!("{} has opened a stream", device.name);
        while let Ok(Some(bytes)) = stream.next_bytes().await {
            if stream.write_all(&bytes.to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
        let _ = stream.shutdown().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let answer = run("hello from behind the relay").await?;
    println!("{answer}");
    assert_eq!(answer, "HELLO FROM BEHIND THE RELAY");
    Ok(())
}

/// Sends a text through a tunnel, and returns what came back.
pub(crate) async fn run(text: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    let issuer = start_relay().await?;

    // The daemon. It would be another program, behind NAT.
    let device = Arc::new(IdentitySecret::from_seed(&random()?));
    let paired = PairedDevice {
        id: "1".into(),
        key: device.public(),
        name: "phone".into(),
        services: vec!["shout".into()],
    };
    let book = Arc::new(OneDevice(paired, watch::Sender::new(0)));
    let identity = IdentitySecret::from_seed(&random()?);
    let mut daemon = RelayDaemon::start(DaemonConfig::new(Arc::clone(&issuer), identity));
    let server = TunnelServer::new(TunnelServerConfig::new(book, Arc::new(Shout)));
    let serving = tokio::spawn(async move {
        while let Some(event) = daemon.next().await {
            if let DaemonEvent::SessionOpened(session) = event {
                let server = server.clone();
                tokio::spawn(async move { server.serve(session).await });
            }
        }
    });

    // The client.
    let config =
        ClientConfig::new(issuer, DaemonId::new(DAEMON), "the workshop", TalkingPins::default());
    let mut tunnel = TunnelClient::connect(config, DeviceIdentity::Device(device));
    let connected = tunnel.connected().await?;
    println!("connected; the daemon offers {:?}", connected.services);
    let mut stream = tunnel.opener().open("shout", Duration::from_secs(10)).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    tunnel.close().await;
    serving.abort();
    Ok(answer)
}

/// A relay on this machine that accepts the tokens of this issuer.
async fn start_relay() -> Result<Arc<Issuer>, Box<dyn Error + Send + Sync>> {
    // The relay fetches the issuer's public keys over HTTP.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let issuer_url = format!("http://{}", listener.local_addr()?);
    let signer = TokenSigner::from_seed(&issuer_url, "example", &random()?);
    let keys = format!(r#"{{"keys": [{}]}}"#, signer.jwk());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
            let answer = format!("{head}: {}\r\n\r\n{keys}", keys.len());
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let relay =
        Relay::bind(RelayConfig { listen, issuer: issuer_url, ..RelayConfig::default() }).await?;
    let relay_url = format!("ws://{}/relay", relay.local_addr());
    tokio::spawn(relay.run(std::future::pending::<()>()));
    Ok(Arc::new(Issuer { signer, relay_url }))
}

fn random() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
