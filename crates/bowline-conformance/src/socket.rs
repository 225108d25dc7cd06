//! A surface's WebSocket, as a check uses it.
//!
//! Pongs are sent by the library when the check reads on after a Ping. A check that has read the
//! last turn and then drops the socket has therefore confirmed nothing (SBP-L2-06).

use std::time::Duration;

use bowline_net::dial::{DialedStream, dial};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use crate::came::Came;
use crate::retry::{LIMITED, TRIES, retry_after};
use crate::verdict::{Ended, Stop};
use crate::wire::Wire;

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: WebSocketStream<DialedStream>,
    wire: Wire,
    /// What was sent last, for findings.
    sent: String,
}

/// What came on a socket.
#[derive(Debug)]
pub(crate) enum Event {
    Frame(Came),
    /// A Ping of WebSocket itself.
    Ping,
    /// The end, with its code if it came with a close frame.
    Closed(Option<u16>),
}

impl Socket {
    pub(crate) async fn open(wire: &Wire, path: &str) -> Result<Self, Stop> {
        let sent = wire.sent(&format!("WebSocket {path}"), None);
        let refused = |why: String| Stop::broken(&sent, "a WebSocket", why);
        let address = wire.target.socket_at(path);
        let url = Url::parse(&address).map_err(|error| refused(error.to_string()))?;
        let patience = wire.target.patience(PATIENCE);
        // As requests: a limit on them is not what is checked.
        for _ in 0..TRIES {
            let request = address.as_str().into_client_request();
            let request = request.map_err(|error| refused(error.to_string()))?;
            let connecting = async {
                let stream = dial(&url).await.map_err(|error| refused(error.to_string()))?;
                Ok(client_async_with_config(request, stream, Some(limits())).await)
            };
            let opened = timeout(patience, connecting).await;
            match opened.map_err(|_| refused("no answer to the upgrade".into()))?? {
                Ok((stream, _)) => return Ok(Self { stream, wire: wire.clone(), sent }),
                Err(Error::Http(answer)) if answer.status() == 429 => {
                    sleep(retry_after(answer.headers())).await;
                }
                Err(error) => return Err(refused(error.to_string())),
            }
        }
        Err(Stop::unable(LIMITED))
    }

    /// How long a frame may take here.
    fn patience(&self) -> Duration {
        self.wire.target.patience(PATIENCE)
    }

    pub(crate) async fn send(&mut self, frame: Value) -> Ended {
        self.sent = self.wire.sent("frame", Some(&frame));
        self.write(frame.to_string()).await
    }

    /// Sends any text.
    pub(crate) async fn send_text(&mut self, text: &str) -> Ended {
        self.sent = self.wire.sent(&format!("frame {text}"), None);
        self.write(text.to_owned()).await
    }

    async fn write(&mut self, text: String) -> Ended {
        match timeout(self.patience(), self.stream.send(Message::text(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.wrong("an open socket", error.to_string())),
            Err(_) => Err(self.wrong("a server that reads", "it reads nothing")),
        }
    }

    /// What comes next; nothing, if nothing comes until the deadline.
    pub(crate) async fn event(&mut self, deadline: Instant) -> Option<Event> {
        loop {
            let message = timeout_at(deadline, self.stream.next()).await.ok()?;
            return Some(match message {
                Some(Ok(Message::Text(text))) => {
                    let (json, shown) = self.wire.came("frame", text.as_str());
                    Event::Frame(Came { sent: self.sent.clone(), json, shown })
                }
                Some(Ok(Message::Ping(_))) => Event::Ping,
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map(|frame| u16::from(frame.code));
                    self.wire.came(&format!("close {code:?}"), "");
                    Event::Closed(code)
                }
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => {
                    self.wire.came("the connection ended", "");
                    Event::Closed(None)
                }
            });
        }
    }

    /// The next frame; nothing, if none comes in that time. The server's `PING` is answered.
    pub(crate) async fn next_within(&mut self, patience: Duration) -> Result<Option<Came>, Stop> {
        let deadline = Instant::now() + patience;
        loop {
            match self.event(deadline).await {
                None => return Ok(None),
                Some(Event::Ping) => {}
                Some(Event::Frame(frame)) if frame.kind() == "PING" => {
                    self.write(json!({ "type": "PONG" }).to_string()).await?;
                }
                Some(Event::Frame(frame)) => return Ok(Some(frame)),
                Some(Event::Closed(code)) => {
                    return Err(self.wrong("an open socket", closed(code)));
                }
            }
        }
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Result<Came, Stop> {
        let came = self.next_within(self.patience()).await?;
        let nothing = || format!("nothing in {} s", self.patience().as_secs());
        came.ok_or_else(|| self.wrong("a frame", nothing()))
    }

    /// The next frame of that type, whatever comes before it.
    pub(crate) async fn until(&mut self, kind: &str) -> Result<Came, Stop> {
        let deadline = Instant::now() + self.patience();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next_within(left).await? {
                Some(frame) if frame.kind() == kind => return Ok(frame),
                Some(_) => {}
                None => {
                    let nothing = format!("none in {} s", self.patience().as_secs());
                    return Err(self.wrong(format!("a frame {kind}"), nothing));
                }
            }
        }
    }

    /// The close code, whatever frames come before it.
    pub(crate) async fn close_code(&mut self, patience: Duration) -> Result<Option<u16>, Stop> {
        let deadline = Instant::now() + patience;
        loop {
            match self.event(deadline).await {
                Some(Event::Closed(code)) => return Ok(code),
                Some(_) => {}
                None => {
                    let open = format!("it is open after {} s", patience.as_secs());
                    return Err(self.wrong("the end of the socket", open));
                }
            }
        }
    }

    /// Expects the close code.
    pub(crate) async fn is_closed(&mut self, expected: u16) -> Ended {
        match self.close_code(self.patience()).await? {
            Some(code) if code == expected => Ok(()),
            code => Err(self.wrong(format!("close {expected}"), closed(code))),
        }
    }

    /// Reads what is there, so that what came is confirmed, and leaves by `DETACH`.
    pub(crate) async fn confirm_and_detach(mut self) -> Ended {
        self.confirm().await?;
        self.detach().await
    }

    /// Reads up to the Ping that is the barrier after what came, and sends its Pong. Of a server without such
    /// Pings nothing comes; what it takes for a confirmation, it has by then.
    pub(crate) async fn confirm(&mut self) -> Ended {
        let mut deadline = Instant::now() + BARRIER;
        loop {
            match self.event(deadline).await {
                None | Some(Event::Ping) => break,
                // The barrier is behind the last frame.
                Some(Event::Frame(frame)) => {
                    if frame.kind() == "PING" {
                        self.write(json!({ "type": "PONG" }).to_string()).await?;
                    }
                    deadline = Instant::now() + BARRIER;
                }
                Some(Event::Closed(code)) => return Err(self.wrong("an open socket", closed(code))),
            }
        }
        // The library has the Pong ready, and would send it after the next frame.
        match timeout(self.patience(), self.stream.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.wrong("an open socket", error.to_string())),
            Err(_) => Err(self.wrong("a server that reads", "it reads nothing")),
        }
    }

    /// Leaves by `DETACH`, and waits for the end.
    pub(crate) async fn detach(self) -> Ended {
        self.detached().await.map(drop)
    }

    /// Leaves by `DETACH`, and gives the code of the end.
    pub(crate) async fn detached(mut self) -> Result<Option<u16>, Stop> {
        self.send(json!({ "type": "DETACH" })).await?;
        self.close_code(self.patience()).await
    }

    /// Ends the connection without a word.
    pub(crate) fn die(self) {}

    fn wrong(&self, expected: impl Into<String>, came: impl Into<String>) -> Stop {
        Stop::broken(&self.sent, expected, came)
    }
}

/// How a report says that a socket ended.
pub(crate) fn closed(code: Option<u16>) -> String {
    match code {
        Some(code) => format!("close {code}"),
        None => "the connection ended without a close code".into(),
    }
}

/// The server may send a turn twice in one frame.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(32 << 20)).max_frame_size(Some(32 << 20))
}

/// How long the Ping after the last frame may take.
const BARRIER: Duration = Duration::from_secs(5);
/// How long a frame may take.
const PATIENCE: Duration = Duration::from_secs(15);
