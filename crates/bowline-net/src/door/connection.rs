//! One connection: requests in, responses out, each with its deadlines.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use super::{DoorState, LONGEST_KEEP_ALIVE, SMALLEST_HEAD, http2};
use crate::forwarded;
use crate::head_wait::HeadTimer;
use crate::linger::{EarlyAnswer, Linger};
use crate::peer::{ConnectionPermit, DeviceEntry, NO_ADDRESS, Peer};
use crate::progress;
use crate::reads::{Exchange, Reads};
use crate::stall::StallGuard;
use crate::stream::Stream;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) enum Remote {
    Address(IpAddr),
    Device(DeviceEntry),
}

impl Remote {
    /// The client address of a request, and whether a proxy passed it on. What a device says of
    /// proxies is not believed.
    fn address(&self, headers: &HeaderMap, state: &DoorState) -> (IpAddr, bool) {
        match self {
            Self::Address(from) => {
                let address = forwarded::behind(*from, headers, &state.trusted);
                (address, forwarded::is_forwarded(headers))
            }
            Self::Device(_) => (NO_ADDRESS, false),
        }
    }

    fn device(&self) -> Option<DeviceEntry> {
        match self {
            Self::Address(_) => None,
            Self::Device(device) => Some(device.clone()),
        }
    }

    /// Who sent a request on a connection that holds that permit.
    pub(super) fn peer(
        &self,
        headers: &HeaderMap,
        state: &DoorState,
        place: &ConnectionPermit,
        half_closed: &CancellationToken,
    ) -> Peer {
        let (address, is_forwarded) = self.address(headers, state);
        let (place, half_closed) = (place.clone(), half_closed.clone());
        Peer { address, device: self.device(), is_forwarded, place, half_closed }
    }
}

/// A socket that was accepted, after its TLS handshake if there is one; `None` if that failed or took
/// too long, which is the client's fault and not logged.
pub(super) async fn secured(socket: TcpStream, state: &DoorState) -> Option<Stream> {
    let _ = socket.set_nodelay(true);
    progress::show(&socket);
    let Some(certificate) = &state.certificate else { return Some(Stream::Plain(socket)) };
    let accepting = certificate.acceptor().accept(socket);
    let accepted = tokio::time::timeout(state.limits.header_timeout, accepting).await;
    let mut stream = accepted.ok()?.ok()?;
    stream.get_mut().1.set_buffer_limit(Some(progress::TLS_BUFFER));
    Some(Stream::Tls(Box::new(stream)))
}

/// Serves a connection to its end, with the HTTP that its TLS handshake has chosen.
pub(super) async fn connection<S, B>(
    stream: Stream,
    from: Remote,
    state: Arc<DoorState>,
    service: S,
    place: ConnectionPermit,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if stream.is_http2() {
        return http2::connection(stream, from, state, service, place).await;
    }
    let limits = &state.limits;
    let (early, exchange) = (EarlyAnswer::default(), Exchange::default());
    let half_closed = CancellationToken::new();
    let answer = {
        let (state, early, exchange) = (Arc::clone(&state), early.clone(), exchange.clone());
        let half_closed = half_closed.clone();
        service_fn(move |mut request: Request<Incoming>| {
            exchange.respond();
            let peer = from.peer(request.headers(), &state, &place, &half_closed);
            request.extensions_mut().insert(peer);
            let has_body = !request.body().is_end_stream();
            let answering = service.clone().oneshot(request);
            let (early, exchange) = (early.clone(), exchange.clone());
            async move {
                let mut response = answering.await?;
                let status = response.status();
                early.set(has_body && (status.is_client_error() || status.is_server_error()));
                if status == StatusCode::SWITCHING_PROTOCOLS {
                    exchange.upgrade();
                }
                if status == StatusCode::PAYLOAD_TOO_LARGE {
                    // The rest of the body is not read, so no further request can follow.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let stream = StallGuard::new(stream, limits.write_timeout);
    let timer = HeadTimer::new(limits.header_timeout, exchange.clone());
    let stream = Linger::new(stream, early);
    let stream = Reads::new(stream, exchange, limits.half_closed, half_closed.clone());
    let connection = http1::Builder::new()
        .timer(timer)
        .header_read_timeout(limits.keep_alive.min(LONGEST_KEEP_ALIVE))
        .keep_alive(!limits.keep_alive.is_zero())
        .max_buf_size(limits.request_head.max(SMALLEST_HEAD))
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = state.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = half_closed.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The socket of an upgraded connection, and the bytes already read from it. Writes no longer have
/// a deadline: the caller has to set its own.
pub fn taken_over(upgraded: Upgraded) -> Option<(Stream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<Reads<Linger<StallGuard<Stream>>>>>().ok()?;
    let guarded = parts.io.into_inner().into_inner().into_inner();
    Some((guarded.into_inner(), parts.read_buf))
}
