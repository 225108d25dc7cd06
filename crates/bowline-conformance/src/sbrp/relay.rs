//! The relay under test, as its checks use it: connections with tokens, daemons with their clients.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::dial::{DialedStream, dial};
use bowline_sbrp::control::ControlCode;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, http};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;
use uuid::Uuid;

use super::frame::Frame;
use super::peer::{PATIENCE, Peer, instead};
use crate::issuer::Issuer;
use crate::trial::Trial;
use crate::verdict::{Ended, Stop};
use crate::wire::Wire;

/// One run of one check at a relay.
#[derive(Debug)]
pub(super) struct Relay<'t> {
    pub(super) wire: &'t Wire,
    pub(super) issuer: &'t Issuer,
}

/// What the relay answered to a request for a connection.
#[derive(Debug)]
pub(super) enum Dialed {
    Open(Box<WebSocketStream<DialedStream>>),
    /// It refused, with this status.
    Refused(u16),
}

/// Where a token stands in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Query,
    Header,
}

impl<'t> Relay<'t> {
    pub(super) fn of(trial: &'t Trial) -> Result<Self, Stop> {
        let no_issuer = || Stop::unable("the suite's own control plane does not run");
        let issuer = trial.issuer.as_deref().ok_or_else(no_issuer)?;
        Ok(Self { wire: &trial.wire, issuer })
    }

    /// Asks for a connection, again and again while the relay says that there were too many.
    pub(super) async fn dial(
        &self,
        address: &str,
        place: Place,
        token: &str,
    ) -> Result<(Dialed, String), Stop> {
        self.wire.target.mask.learn(token);
        for _ in 0..TRIES {
            let (dialed, sent) = self.dial_once(address, place, token).await?;
            let (Dialed::Refused(429) | Dialed::Refused(503)) = dialed else {
                return Ok((dialed, sent));
            };
            sleep(BACK_OFF).await;
        }
        Err(Stop::unable("the relay says that there are too many connections"))
    }

    async fn dial_once(
        &self,
        address: &str,
        place: Place,
        token: &str,
    ) -> Result<(Dialed, String), Stop> {
        let with_token = match place {
            Place::Query => {
                let mut url = parsed(address)?;
                url.query_pairs_mut().append_pair("token", token);
                url.to_string()
            }
            Place::Header => address.to_owned(),
        };
        let how = if place == Place::Query { "?token=" } else { "Authorization: Bearer" };
        let sent = self.wire.sent(&format!("WebSocket {address}, a token by {how}"), None);
        let failed = |why: String| Stop::broken(&sent, "an answer to the upgrade", why);
        let mut request =
            with_token.into_client_request().map_err(|error| failed(error.to_string()))?;
        if place == Place::Header {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let value = value.map_err(|error| failed(error.to_string()))?;
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        let url = parsed(address)?;
        let connecting = async {
            let stream = dial(&url).await.map_err(|error| failed(error.to_string()))?;
            match client_async_with_config(request, stream, Some(limits())).await {
                Ok((stream, _)) => Ok(Dialed::Open(Box::new(stream))),
                Err(Error::Http(answer)) => Ok(Dialed::Refused(answer.status().as_u16())),
                Err(error) => Err(failed(error.to_string())),
            }
        };
        let dialed = timeout(PATIENCE, connecting).await;
        let dialed = dialed.map_err(|_| failed("no answer to the upgrade".into()))??;
        let answer = match &dialed {
            Dialed::Open(_) => "101".to_owned(),
            Dialed::Refused(status) => status.to_string(),
        };
        self.wire.came(&format!("status {answer}"), "");
        Ok((dialed, sent))
    }

    /// The relay's address, for WebSocket.
    pub(super) fn address(&self) -> String {
        self.wire.target.socket_at("")
    }

    /// Expects that the token is refused before the upgrade.
    pub(super) async fn refuses(&self, token: &str, what: &str) -> Ended {
        let expected = format!("401 or 403 before the upgrade, for {what}");
        let (dialed, sent) = self.dial(&self.address(), Place::Query, token).await?;
        match dialed {
            Dialed::Refused(401 | 403) => Ok(()),
            Dialed::Refused(status) => {
                Err(Stop::broken(sent, expected, format!("status {status}")))
            }
            Dialed::Open(_) => Err(Stop::broken(sent, expected, "101: it was let in")),
        }
    }

    /// Expects that the token is let in; `what` says what is special about it.
    pub(super) async fn admits(
        &self,
        token: &str,
        what: &str,
        name: &'static str,
        session: u64,
    ) -> Result<Peer, Stop> {
        let (dialed, sent) = self.dial(&self.address(), Place::Query, token).await?;
        match dialed {
            Dialed::Open(stream) => Ok(Peer::new(*stream, self.wire.clone(), name, session, sent)),
            Dialed::Refused(status) => {
                let expected = format!("101 for {what}");
                Err(Stop::broken(sent, expected, format!("status {status}")))
            }
        }
    }

    /// A daemon that can resume its sessions.
    pub(super) async fn daemon(&self, id: &str) -> Result<Peer, Stop> {
        let token = self.issuer.token(&self.issuer.daemon_claims(id));
        self.admits(&token, "a daemon's good token", "daemon", 0).await
    }

    /// A daemon whose token says more, or something else.
    pub(super) async fn daemon_with(&self, id: &str, claims: Value) -> Result<Peer, Stop> {
        let token = self.issuer.token(&merged(self.issuer.daemon_claims(id), &claims));
        self.admits(&token, "a daemon's good token", "daemon", 0).await
    }

    /// A client of this session, wherever its daemon is.
    pub(super) async fn client(&self, daemon: &str, session: u64) -> Result<Peer, Stop> {
        let token = self.issuer.token(&self.issuer.client_claims(daemon, &sid(session)));
        self.admits(&token, "a client's good token", "client", session).await
    }

    /// A client of a daemon that is there, of whom the daemon has heard. A relay may need a moment until a
    /// daemon counts as online.
    pub(super) async fn paired(&self, id: &str, daemon: &mut Peer) -> Result<Peer, Stop> {
        let mut attempts = 0;
        loop {
            let session = new_session();
            let mut client = self.client(id, session).await?;
            let hello = Frame::data(session, "hello");
            client.send(&hello).await?;
            let expected = format!("at the daemon: {hello}");
            let told = tokio::select! {
                biased;
                came = daemon.after_endings(PATIENCE) => match came? {
                    Some(Ok(frame)) if frame == hello => {
                        let answer = Frame::data(session, "hello, too");
                        daemon.send(&answer).await?;
                        client.gets(&answer).await?;
                        return Ok(client);
                    }
                    other => return Err(daemon.wrong(expected, instead(other))),
                },
                told = client.next_within(2 * PATIENCE) => told?,
            };
            attempts += 1;
            let is_early =
                matches!(&told, Some(Ok(code)) if code.is(ControlCode::DaemonOffline, session));
            if !is_early || attempts == TRIES {
                let came = format!("at its client: {}", instead(told));
                return Err(client.wrong(expected, came));
            }
            sleep(BACK_OFF).await;
        }
    }

    /// A new daemon, and a client of it.
    pub(super) async fn pair(&self) -> Result<Pair, Stop> {
        let id = new_daemon();
        let mut daemon = self.daemon(&id).await?;
        let client = self.paired(&id, &mut daemon).await?;
        Ok(Pair { id, daemon, client })
    }

    /// A pair whose daemon has gone, of which the client was told.
    pub(super) async fn paused(&self) -> Result<(String, Peer), Stop> {
        let Pair { id, daemon, mut client } = self.pair().await?;
        daemon.leave().await;
        client.is_told(ControlCode::SessionPaused, client.session).await?;
        Ok((id, client))
    }
}

/// A daemon with a client.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) id: String,
    pub(super) daemon: Peer,
    pub(super) client: Peer,
}

impl Pair {
    /// Expects that messages go through in both directions.
    pub(super) async fn works(&mut self) -> Ended {
        let there = Frame::data(self.client.session, "does it still work?");
        self.client.send(&there).await?;
        self.daemon.gets(&there).await?;
        let back = Frame::data(self.client.session, "it does");
        self.daemon.send(&back).await?;
        self.client.gets(&back).await
    }
}

/// A session id that nobody has.
pub(super) fn new_session() -> u64 {
    (Uuid::new_v4().as_u128() as u64).max(1)
}

/// A daemon id that nobody has.
pub(super) fn new_daemon() -> String {
    format!("conformance-{}", Uuid::new_v4().simple())
}

/// A session id as it stands in a token.
pub(super) fn sid(session: u64) -> String {
    URL_SAFE_NO_PAD.encode(session.to_be_bytes())
}

/// These claims, with others in place of some; `null` takes one away.
pub(super) fn merged(mut claims: Value, others: &Value) -> Value {
    let (Some(all), Some(others)) = (claims.as_object_mut(), others.as_object()) else {
        return json!({});
    };
    for (name, value) in others {
        match value {
            Value::Null => drop(all.remove(name)),
            value => drop(all.insert(name.clone(), value.clone())),
        }
    }
    claims
}

fn parsed(address: &str) -> Result<Url, Stop> {
    Url::parse(address).map_err(|error| Stop::unable(error.to_string()))
}

/// A relay's messages are small. Writing goes through at once: a check that floods has to feel it when the
/// relay stops reading.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(1 << 20)).max_frame_size(Some(1 << 20))
}

const TRIES: usize = 20;
const BACK_OFF: Duration = Duration::from_secs(1);
