//! Every bound of the gateway, in one place (G11, G12).

use std::time::Duration;

use bowline_net::{DoorLimits, duration};
use serde::{Deserialize, Serialize};

/// Sizes, counts and timeouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest request head, in bytes.
    pub request_head: usize,
    /// The largest request body, in bytes.
    pub request_body: usize,
    /// The images, sounds and files of one request with messages, as base64, besides
    /// `request_body`, in bytes.
    pub request_images: usize,
    /// The largest image, sound or file in a message of a session, in bytes.
    pub image: usize,
    /// The largest request body that is passed on without a session (images, sound), in bytes.
    pub passthrough_body: usize,
    /// The largest bundle to import or export, in bytes.
    pub import_body: usize,
    /// How long a request head may take to arrive.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests; 0: it is closed after each response.
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// How long a stream of a turn may be silent before a comment keeps its connection alive.
    #[serde(with = "duration")]
    pub stream_keep_alive: Duration,
    /// How long a response goes on for a client that has closed its sending side: it may wait for
    /// the answer, or be gone.
    #[serde(with = "duration")]
    pub half_closed: Duration,
    /// How long a request body may take to arrive.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// The largest message a surface may send, in bytes.
    pub surface_message: usize,
    /// How long a new socket may take to send `ATTACH_SESSION`.
    #[serde(with = "duration")]
    pub attach_timeout: Duration,
    /// How long a write to a surface or an HTTP client may make no progress; then it is
    /// disconnected.
    #[serde(with = "duration")]
    pub write_timeout: Duration,
    /// The pause between two `PING`s.
    #[serde(with = "duration")]
    pub ping_every: Duration,
    /// How long the answer to a `PING` may take.
    #[serde(with = "duration")]
    pub pong_timeout: Duration,
    /// The most turns of one session that wait behind the running one (SBP-L2-18).
    pub waiting_turns: usize,
    /// The most surfaces attached to one session at once (SBP-L2-20).
    pub surfaces: usize,
    /// The largest answer of a model, in bytes of text.
    pub answer: usize,
    /// How long an upstream's list of models is used before it is asked again.
    #[serde(with = "duration")]
    pub models_cache: Duration,
    /// How long an upstream's list of models may take to arrive.
    #[serde(with = "duration")]
    pub models_timeout: Duration,
    /// The largest list of models of one upstream, in bytes.
    pub models_list: usize,
    /// Memory for cached conversations, in bytes; others are read from disk.
    pub history_memory: usize,
    /// The most messages in one request.
    pub messages: usize,
    /// The images of one tool result that are kept, in bytes; of others only a line of text is.
    pub tool_images: usize,
    /// The images, sounds and files in one request to a model, in bytes; of older ones only a line
    /// of text is sent.
    pub prompt_images: usize,
    /// The connection limit; further connections wait for one to close.
    pub connections: usize,
    /// The connection limit per address or paired device; further connections are closed at once.
    /// 127.0.0.1, ::1 and trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// Requests that run at once on one connection of HTTP/2; further ones are refused. 0: HTTP/1.1 only.
    pub http2_streams: u32,
    /// How long a graceful stop waits for running turns.
    #[serde(with = "duration")]
    pub drain: Duration,
    /// How long after the end of a turn, or the loss of its caller, a client may repeat the request
    /// on its own, without an idempotency key, and join the turn of its first try.
    #[serde(with = "duration")]
    pub retry_window: Duration,
    /// How long idempotency keys and old approvals are kept.
    #[serde(with = "duration")]
    pub key_memory: Duration,
}

impl Limits {
    pub(crate) fn door(&self) -> DoorLimits {
        DoorLimits {
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            request_head: self.request_head,
            header_timeout: self.header_timeout,
            keep_alive: self.keep_alive,
            half_closed: self.half_closed,
            write_timeout: self.write_timeout,
            http2_streams: self.http2_streams,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_head: 16 << 10,
            request_body: 4 << 20,
            request_images: 64 << 20,
            image: 20 << 20,
            passthrough_body: 64 << 20,
            import_body: 64 << 20,
            header_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(75),
            stream_keep_alive: Duration::from_secs(15),
            half_closed: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            surface_message: 1 << 20,
            attach_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            ping_every: Duration::from_secs(30),
            pong_timeout: Duration::from_secs(10),
            waiting_turns: 64,
            surfaces: 64,
            answer: 1 << 20,
            models_cache: Duration::from_secs(5 * 60),
            models_timeout: Duration::from_secs(5),
            models_list: 4 << 20,
            history_memory: 64 << 20,
            messages: 10_000,
            tool_images: 5 << 20,
            prompt_images: 48 << 20,
            connections: 20_000,
            connections_per_address: 1024,
            http2_streams: 100,
            drain: Duration::from_secs(25),
            retry_window: Duration::from_secs(600),
            key_memory: Duration::from_secs(24 * 3600),
        }
    }
}
