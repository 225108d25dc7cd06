//! Requests that are passed on to an upstream as they are, streamed both ways.
//!
//! Never retried: a body that was sent is gone.

use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Body, Method, Response};
use tokio::sync::oneshot;

use super::Upstream;

/// A request body on its way out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Body,
    length: Option<u64>,
    /// Ends when all of it was taken.
    is_sent: Option<oneshot::Receiver<()>>,
}

impl Outgoing {
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { body: body.into(), length: None, is_sent: None }
    }

    /// `is_sent` ends with the stream.
    pub(crate) fn streamed(
        body: Body,
        length: Option<u64>,
        is_sent: oneshot::Receiver<()>,
    ) -> Self {
        Self { body, length, is_sent: Some(is_sent) }
    }
}

/// What to send: a path below the base URL, a query, headers and a body.
#[derive(Debug)]
pub(crate) struct Forward<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Outgoing>,
}

impl Upstream {
    /// Sends it with the upstream's key. The time for the first byte counts from the end of the
    /// request body, because large ones take their time.
    pub(crate) async fn forward(&self, forward: Forward<'_>) -> Result<Response, Failure> {
        let Forward { method, path, query, headers, body } = forward;
        let mut request = self.patient_request(method, path, query).headers(headers);
        let mut is_sent = None;
        if let Some(outgoing) = body {
            if let Some(length) = outgoing.length {
                request = request.header(CONTENT_LENGTH, length);
            }
            request = request.body(outgoing.body);
            is_sent = outgoing.is_sent;
        }
        let patience = self.settings.first_byte_timeout;
        let too_late = async {
            if let Some(is_sent) = is_sent {
                let _ = is_sent.await;
            }
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            answer = request.send() => answer.map_err(|error| match error.is_connect() {
                true => self.unreachable(error),
                false => self.broken(error),
            }),
            () = too_late => Err(self.late("its first byte")),
        }
    }

    /// The pieces of an answer. One that takes too long is an error, and so ends the caller's
    /// response without its end.
    pub(crate) fn pieces(
        &self,
        answer: Response,
    ) -> impl Stream<Item = Result<Bytes, Failure>> + Send + 'static {
        let (idle, name) = (self.settings.idle_timeout, self.name().to_owned());
        let pieces = Some(answer.bytes_stream().boxed());
        futures_util::stream::unfold(pieces, move |pieces| {
            let name = name.clone();
            async move {
                let mut pieces = pieces?;
                match next_piece(&mut pieces, idle).await {
                    Ok(piece) => Some((Ok(piece?), Some(pieces))),
                    Err(what) => {
                        let message = format!("the upstream `{name}` {what}");
                        Some((Err(Failure::new(Code::Upstream, message)), None))
                    }
                }
            }
        })
    }
}

async fn next_piece(
    pieces: &mut (impl Stream<Item = reqwest::Result<Bytes>> + Unpin),
    idle: Duration,
) -> Result<Option<Bytes>, &'static str> {
    let piece = tokio::time::timeout(idle, pieces.next()).await;
    let piece = piece.map_err(|_| "stopped sending in the middle of its answer")?;
    piece.transpose().map_err(|_| "broke off in the middle")
}
