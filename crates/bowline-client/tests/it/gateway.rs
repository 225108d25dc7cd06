//! A scripted gateway for tests of surfaces, one socket at a time.

use std::future::Future;
use std::time::Duration;

use bowline_client::surface::{Event, Surface, SurfaceConfig};
use bowline_net::backoff::Backoff;
use bowline_sbp::error::Close;
use bowline_sbp::frame::{Attach, ClientFrame, ServerFrame, SessionAttached};
use bowline_sbp::frame::{TetherTurn, TurnComplete, TurnStatus};
use bowline_sbp::id::{Seq, SessionId, TurnId};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};
use uuid::Uuid;

pub(crate) const SESSION: SessionId = SessionId(Uuid::from_u128(7));
pub(crate) const TOKEN: &str = "session-token";

/// The timeout of every wait in the tests; reached only by a failure.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| panic!("{what} never came"))
}

pub(crate) async fn next(surface: &mut Surface) -> Event {
    within("an event", surface.next()).await.expect("the surface is not closed")
}

pub(crate) struct Gateway {
    listener: TcpListener,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn config(&self) -> SurfaceConfig {
        let gateway = format!("http://{}", self.listener.local_addr().unwrap());
        let mut config = SurfaceConfig::new(gateway.parse().unwrap(), SESSION, TOKEN);
        config.bearer = Some("gateway-key".into());
        config.approves = true;
        config.backoff = Backoff { start: Duration::from_millis(1), cap: Duration::from_millis(1) };
        config
    }

    pub(crate) fn surface(&self) -> Surface {
        Surface::connect(self.config()).unwrap()
    }

    pub(crate) async fn accept_raw(&self) -> TcpStream {
        within("a connection", self.listener.accept()).await.unwrap().0
    }

    /// Whether a connection is waiting to be accepted.
    pub(crate) fn has_caller(&self) -> bool {
        self.listener.accept().now_or_never().is_some()
    }

    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    pub(crate) async fn accept(&self) -> Peer {
        let look = |request: &Request, response: Response| {
            assert_eq!(request.uri().path(), format!("/v1/sbp/ws/{SESSION}"));
            assert_eq!(request.headers()["authorization"], "Bearer gateway-key");
            Ok(response)
        };
        let stream = self.accept_raw().await;
        Peer(within("an upgrade", accept_hdr_async(stream, look)).await.unwrap())
    }

    /// Accepts a surface of that session, and the key that it shows.
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    pub(crate) async fn accept_any(&self, session: SessionId) -> (Peer, Option<String>) {
        let mut shown = None;
        let look = |request: &Request, response: Response| {
            assert_eq!(request.uri().path(), format!("/v1/sbp/ws/{session}"));
            let key = request.headers().get("authorization");
            shown = key.map(|key| key.to_str().unwrap().to_owned());
            Ok(response)
        };
        let stream = self.accept_raw().await;
        let peer = Peer(within("an upgrade", accept_hdr_async(stream, look)).await.unwrap());
        (peer, shown)
    }

    /// Accepts a surface and attaches it.
    pub(crate) async fn attach(&self) -> Peer {
        let mut peer = self.accept_unanswered().await;
        peer.say_attached().await;
        peer
    }

    /// Accepts a surface, whose first frame must be the attach; does not answer it.
    pub(crate) async fn accept_unanswered(&self) -> Peer {
        let mut peer = self.accept().await;
        let first = peer.hear().await;
        let ClientFrame::Attach(Attach { session_id, session_token, .. }) = &first else {
            panic!("{first:?} came before the attach")
        };
        assert_eq!((session_id.as_str(), session_token.as_str()), (&*SESSION.to_string(), TOKEN));
        peer
    }
}

/// The gateway's end of one socket.
pub(crate) struct Peer(pub(crate) WebSocketStream<TcpStream>);

impl Peer {
    pub(crate) async fn say(&mut self, frame: ServerFrame) {
        self.0.send(Message::text(frame.to_json())).await.unwrap();
    }

    pub(crate) async fn say_attached(&mut self) {
        self.say_attached_as(SESSION, None).await;
    }

    pub(crate) async fn say_attached_as(&mut self, session_id: SessionId, token: Option<&str>) {
        self.say(ServerFrame::SessionAttached(SessionAttached {
            session_id,
            surface_id: None,
            device_type: "unknown".into(),
            queued_turns: 1,
            tether_turns_pending: 1,
            mcp_tools_registered: vec![],
            sbp_version: "1.2".into(),
            sbp_level: "L2".into(),
            session_token: token.map(str::to_owned),
        }))
        .await;
    }

    pub(crate) async fn hear(&mut self) -> ClientFrame {
        let message = within("a frame", self.0.next()).await.unwrap().unwrap();
        ClientFrame::read(message.to_text().unwrap()).unwrap()
    }

    /// Reads a message and accepts it as turn `seq`.
    pub(crate) async fn accept_message(&mut self, seq: Seq) -> String {
        let frame = self.hear().await;
        let ClientFrame::UserMessage(message) = frame else { panic!("{frame:?}") };
        let client_turn_id = message.client_turn_id.clone();
        let turn_id = turn_id(seq);
        self.say(ServerFrame::TurnAccepted { client_turn_id, turn_id, session_id: SESSION }).await;
        message.client_turn_id
    }

    pub(crate) async fn close(mut self, close: Close) {
        let (code, reason) = close.parts();
        self.0.close(Some(CloseFrame { code: code.into(), reason: reason.into() })).await.unwrap();
        // The close handshake: a surface answers with a close frame.
        while let Some(Ok(_)) = within("the end", self.0.next()).await {}
    }
}

pub(crate) fn turn_id(seq: Seq) -> TurnId {
    TurnId(Uuid::from_u128(seq.into()))
}

pub(crate) fn turn(seq: Seq, content: &str) -> TetherTurn {
    TetherTurn {
        turn_index: 0,
        turn_id: turn_id(seq),
        seq,
        role: "assistant".into(),
        content: content.into(),
        model_used: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        session_id: SESSION,
        status: TurnStatus::Complete,
    }
}

pub(crate) fn chunk(seq: Seq, offset: u64, delta: &str) -> ServerFrame {
    let delta = delta.into();
    ServerFrame::TurnChunk {
        chunk_id: turn_id(seq),
        delta,
        session_id: SESSION,
        seq,
        offset,
        v0_9: None,
    }
}

pub(crate) fn complete(seq: Seq) -> TurnComplete {
    TurnComplete {
        chunk_id: turn_id(seq),
        session_id: SESSION,
        seq,
        turn_id: turn_id(seq),
        step_count: 1,
        model: None,
        status: TurnStatus::Complete,
        v0_9: None,
    }
}

pub(crate) fn attached(reconnected: bool) -> Event {
    Event::Attached { pending: 1, sbp_level: "L2".into(), reconnected }
}

pub(crate) fn shown(seq: Seq, text: &str) -> Event {
    Event::Chunk { turn_id: turn_id(seq), text: text.into(), restarted: false }
}

pub(crate) fn accepted(client_turn_id: &str, seq: Seq) -> Event {
    Event::Accepted { client_turn_id: client_turn_id.into(), turn_id: turn_id(seq) }
}
