//! A model's server that is reached over plain HTTP: on this machine, or in the same network.
//!
//! A general client gives each connection a task of its own, and every request and answer crosses
//! two channels and a layer for each thing that it could do besides. Here whoever asks drives the
//! connection itself, and puts it back when the answer is through. That is a third of what such a
//! call costs. Everything else (TLS, proxies, passwords in URLs) is left to the general client.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tower::ServiceExt as _;

use super::wire::Fault;

/// Connections kept for the next call.
const MOST_IDLE: usize = 256;
/// For how long.
const KEPT: Duration = Duration::from_secs(60);

/// One such server.
#[derive(Debug)]
pub(super) struct Near {
    server: Uri,
    connector: HttpConnector,
    /// How long an answer may pause.
    patience: Duration,
    idle: Arc<Idle>,
}

impl Near {
    pub(super) fn new(server: Uri, connect_timeout: Duration, patience: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        Self { server, connector, patience, idle: Arc::default() }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answer>, Fault> {
        loop {
            let (mut line, used) = match self.idle.take() {
                Some(line) => (line, true),
                None => (Box::pin(self.connect()).await?, false),
            };
            match line.ask(request).await {
                Ok(response) => {
                    let idle = Arc::downgrade(&self.idle);
                    let patience = self.patience;
                    return Ok(response.map(|body| Answer {
                        body,
                        line: Some(line),
                        idle,
                        patience,
                        timer: None,
                    }));
                }
                // The server had hung up, and not a byte of this was sent: that is nobody's fault.
                Err(mut refused) if used => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Fault::Broken(Box::new(refused.into_error()))),
                },
                Err(refused) => return Err(Fault::Broken(Box::new(refused.into_error()))),
            }
        }
    }

    async fn connect(&self) -> Result<Box<Line>, Fault> {
        let connected = self.connector.clone().oneshot(self.server.clone()).await;
        let stream = connected.map_err(|error| Fault::Connect(Box::new(error)))?;
        let shaken = http1::handshake(stream).await;
        let (sender, driver) = shaken.map_err(|error| Fault::Connect(Box::new(error)))?;
        Ok(Box::new(Line { sender, driver: Some(driver) }))
    }
}

/// A connection, and what moves it.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection is over: what it still holds is only given up with it.
    driver: Option<Connection<TokioIo<TcpStream>, Full<Bytes>>>,
}

impl Line {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// Sends a request; one that was not sent at all comes back with the error.
    async fn ask(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        let mut sent = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            self.drive(cx);
            sent.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it can take a request, as far as anyone knows.
    fn is_free(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.drive(&mut nobody);
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Connections between two calls; the one used last is taken first.
#[derive(Debug, Default)]
struct Idle {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    free: Vec<(Box<Line>, Instant)>,
    /// Somebody looks after them.
    tended: bool,
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Box<Line>> {
        loop {
            let (mut line, _) = self.lock().free.pop()?;
            if line.is_free() {
                return Some(line);
            }
        }
    }

    /// Whether it can be used again is looked at when it is.
    fn put(self: &Arc<Self>, line: Box<Line>) {
        if line.driver.is_none() {
            return;
        }
        let mut lines = self.lock();
        if lines.free.len() < MOST_IDLE {
            lines.free.push((line, Instant::now()));
        }
        if !lines.tended {
            lines.tended = true;
            tokio::spawn(tend(Arc::downgrade(self)));
        }
    }

    /// Lets go of what nobody used for long. Gives whether anything is left.
    fn tidy(&self, now: Instant) -> bool {
        let mut lines = self.lock();
        let old = lines.free.iter().take_while(|(_, since)| now >= *since + KEPT).count();
        let gone: Vec<_> = lines.free.drain(..old).collect();
        lines.tended = !lines.free.is_empty();
        let left = lines.tended;
        drop(lines);
        drop(gone);
        left
    }
}

async fn tend(idle: Weak<Idle>) {
    loop {
        tokio::time::sleep(KEPT / 2).await;
        match idle.upgrade() {
            Some(idle) if idle.tidy(Instant::now()) => {}
            _ => return,
        }
    }
}

/// An answer's body, and the connection that brings it.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Incoming,
    line: Option<Box<Line>>,
    idle: Weak<Idle>,
    patience: Duration,
    /// Set while nothing comes.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let broken = |error| Fault::Broken(Box::new(error));
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        // Moves what has come into the body; how the connection ends, the body says.
        if let Some(line) = &mut self.line {
            line.drive(cx);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(broken)))
    }

    /// The answer is through: the next one may have the connection.
    fn give_back(&mut self) {
        if let (Some(line), Some(idle)) = (self.line.take(), self.idle.upgrade()) {
            idle.put(line);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Poll::Ready(frame) = self.poll_data(cx) {
            self.timer = None;
            if frame.is_none() || self.body.is_end_stream() {
                self.give_back();
            }
            return Poll::Ready(frame);
        }
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(timer.as_mut().poll(cx));
        self.line = None;
        Poll::Ready(Some(Err(Fault::Silent)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
