//! One connection of the small relay: the upgrade, a reader and a writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State as Shared;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bowline_sbrp::control::ControlCode::{MalformedFrame, RateLimited};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::messages::encoded;
use super::sessions::{Out, Way};
use super::token::{Pass, wall};
use super::{Fault, State};

/// Messages in a second: few enough that a busy machine sends more.
const MOST_MESSAGES: usize = 1000;
/// After this long without a word a connection is dead. Long, for a machine that does much else meanwhile.
const DEAD: Duration = Duration::from_secs(20);

pub(super) async fn open(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    uri: Uri,
    upgrade: WebSocketUpgrade,
) -> Response {
    let of_query = |name: &str| {
        let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        pairs.into_owned().find(|(key, _)| key == name).map(|(_, value)| value)
    };
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let token = bearer.or_else(|| of_query("token")).unwrap_or_default();
    let mut pass = match state.admit(&token).await {
        Ok(pass) => pass,
        Err(status) => return StatusCode::from_u16(status).unwrap().into_response(),
    };
    if let Some(did) = of_query("did").filter(|_| state.has(Fault::QueryDid)) {
        pass.daemon = did;
    }
    let (out, outgoing) = mpsc::unbounded_channel();
    let number = state.connections.fetch_add(1, Ordering::Relaxed);
    let way = Way { number, out, queued: Arc::new(AtomicUsize::new(0)) };
    state.join(&way, &pass);
    upgrade.on_upgrade(move |socket| async move {
        serve(socket, &state, &way, &pass, outgoing).await;
    })
}

async fn serve(
    socket: WebSocket,
    state: &Arc<State>,
    way: &Way,
    pass: &Pass,
    outgoing: mpsc::UnboundedReceiver<Out>,
) {
    let (sink, mut stream) = socket.split();
    let mut writing = tokio::spawn(write(sink, outgoing, Arc::clone(&way.queued)));
    let heard = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let reading = async {
        let (mut second, mut messages, mut count) = (Instant::now(), 0, 0);
        while let Some(Ok(message)) = stream.next().await {
            heard.store(begun.elapsed().as_secs(), Ordering::Relaxed);
            let bytes = match message {
                Message::Binary(bytes) => bytes.to_vec(),
                Message::Text(_) if state.has(Fault::TextIgnored) => continue,
                Message::Text(_) => return Some((MalformedFrame, 0)),
                Message::Close(_) => return None,
                _ => continue,
            };
            (messages, count) = (messages + 1, count + 1);
            if second.elapsed() > Duration::from_secs(1) {
                (second, messages) = (Instant::now(), 1);
            }
            if messages > MOST_MESSAGES && bytes.len() < 1000 {
                state.tell(way, &pass.daemon, RateLimited, 0);
                if state.has(Fault::LimitedDropped) {
                    continue;
                }
                sleep_until(second + Duration::from_secs(1)).await;
            }
            if let Err(refused) = state.take(way, pass, bytes, count).await {
                return Some(refused);
            }
        }
        None
    };
    let refused = tokio::select! {
        refused = reading => refused,
        () = cut(state, pass) => None,
        () = keep_alive(state, way, &heard, begun) => None,
        // The writer has closed it.
        _ = &mut writing => None,
    };
    state.leave(way, pass);
    if let Some((code, session)) = refused {
        state.tell(way, &pass.daemon, code, session);
    }
    way.close();
    let farewell = async {
        if !writing.is_finished() {
            let _ = (&mut writing).await;
        }
        // A socket that is closed with something unread would be reset, and what was written lost.
        while let Some(Ok(_)) = stream.next().await {}
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), farewell).await;
}

/// Ends when the token does.
async fn cut(state: &State, pass: &Pass) {
    match state.has(Fault::CutAtExpiry) {
        true => sleep(Duration::from_secs(pass.expires.saturating_sub(wall()))).await,
        false => std::future::pending().await,
    }
}

/// Pings, and ends when the peer says nothing.
async fn keep_alive(state: &State, way: &Way, heard: &AtomicU64, begun: Instant) {
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        if !state.has(Fault::NoPings) {
            way.send(encoded(0x10, 0, b"alive?"));
        }
        let silent = begun.elapsed().as_secs() - heard.load(Ordering::Relaxed);
        let answers = !state.has(Fault::DeadStay) && !state.has(Fault::NoPings);
        if answers && silent > DEAD.as_secs() {
            return;
        }
    }
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut outgoing: mpsc::UnboundedReceiver<Out>,
    queued: Arc<AtomicUsize>,
) {
    while let Some(Out::Message(message)) = outgoing.recv().await {
        let length = message.len();
        let sent = sink.send(Message::Binary(message.into())).await;
        queued.fetch_sub(length, Ordering::Relaxed);
        if sent.is_err() {
            return;
        }
    }
    let _ = sink.send(Message::Close(None)).await;
    let _ = sink.flush().await;
}
