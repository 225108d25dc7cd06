//! The client's side: a local port, a socket file, or standard input and output that lead to a service
//! of the daemon.
//!
//! The port stays open while there is no session. A connection that is open then waits for as long as
//! its tunnel is kept; a new one waits for [`Forwarding::patience`]. When there are as many connections as
//! a tunnel may have, the next one is held until one of them ends, and that is said.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::tunnel::{MOST_STREAMS, ResetReason};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{OpenStreamError, TunnelOpener};
use super::splice::{copy_both, reset, splice};

/// Limits of the forwarded connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarding {
    /// How long a connection waits for a session before it is reset; 45 s by default, longer than the
    /// longest pause between two attempts to reconnect.
    pub patience: Duration,
    /// The limit of simultaneous connections; further ones are held until one of them ends. 256 by default
    /// and at most.
    pub most: usize,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { patience: Duration::from_secs(45), most: MOST_STREAMS }
    }
}

/// What happens to forwarded connections.
#[derive(Debug)]
pub enum ForwardNotice {
    /// There are so many connections, as many as there may be: the next one is held until one of them ends.
    /// Said once until there is room again.
    Held {
        /// How many are forwarded.
        open: usize,
    },
    /// A connection was not forwarded, or was cut off.
    Failed(ForwardError),
}

/// Accepts connections for ever, and tells what happens to them. When this future is dropped, its
/// connections are reset.
pub async fn forward(
    listener: &TcpListener,
    opener: TunnelOpener,
    service: &str,
    forwarding: Forwarding,
    mut tell: impl FnMut(ForwardNotice),
) {
    let most = forwarding.most.clamp(1, MOST_STREAMS);
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    let mut said = false;
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most + MOST_HELD => {
                match accepted {
                    Ok((tcp, _)) => {
                        if connections.len() >= most && !std::mem::replace(&mut said, true) {
                            tell(ForwardNotice::Held { open: most });
                        }
                        let (opener, service) = (opener.clone(), service.to_owned());
                        let (places, patience) = (Arc::clone(&places), forwarding.patience);
                        connections.spawn(async move {
                            let _place = places.acquire().await;
                            connection(tcp, opener, service, patience).await
                        });
                    }
                    // For example out of file descriptors: wait until open connections close.
                    Err(error) => {
                        tracing::warn!(%error, "no connection accepted");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
            Some(done) = connections.join_next() => {
                said &= connections.len() > most;
                if let Ok(Err(error)) = done {
                    tracing::debug!(%error, "a connection ended early");
                    tell(ForwardNotice::Failed(error));
                }
            }
        }
    }
}

async fn connection(
    tcp: TcpStream,
    opener: TunnelOpener,
    service: String,
    patience: Duration,
) -> Result<(), ForwardError> {
    match opener.open(&service, patience).await {
        Ok(stream) => Ok(splice(tcp, stream).await?),
        Err(error) => {
            reset(tcp);
            Err(error.into())
        }
    }
}

/// The same behind a socket file, which only its owner can connect to if its folder is private.
pub async fn forward_unix(listener: UnixListener, opener: TunnelOpener, service: &str) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut local, _)) = accepted else {
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let (opener, service) = (opener.clone(), service.to_owned());
                connections.spawn(async move {
                    let patience = Forwarding::default().patience;
                    let Ok(stream) = opener.open(&service, patience).await else { return };
                    let (from, to) = local.split();
                    if let Err(error) = copy_both(from, to, stream).await {
                        tracing::debug!(%error, "connection cut off");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Joins standard input and output with a service, until both have ended and the daemon has received all
/// of the input.
pub async fn forward_stdio(opener: &TunnelOpener, service: &str) -> Result<(), ForwardError> {
    let stream = opener.open(service, Forwarding::default().patience).await?;
    Ok(copy_both(tokio::io::stdin(), tokio::io::stdout(), stream).await?)
}

/// Why a connection was not forwarded to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// No stream was opened.
    #[error(transparent)]
    Open(#[from] OpenStreamError),
    /// The connection or the stream was cut off.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ForwardError {
    /// The daemon's reason, if it refused or reset the connection.
    pub fn reason(&self) -> Option<ResetReason> {
        match self {
            Self::Io(error) => error.get_ref()?.downcast_ref().copied(),
            Self::Open(_) => None,
        }
    }
}

/// How many connections are held; further ones are not accepted.
const MOST_HELD: usize = 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
