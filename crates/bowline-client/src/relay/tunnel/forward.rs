//! The client's side: a local port that forwards to the daemon's target.
//!
//! The port stays open when the session ends. Without a session, a TCP connection waits for the
//! next one, up to a deadline; while the session is paused, it waits within the session.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::hello::{self, HelloError, Service};
use super::mux::{MOST_STREAMS, Mux};
use super::pipe::Pipe;
use super::splice::{reset, splice};
use crate::relay::client::{ClientClosed, ClientEvent, RelayClient};
use crate::relay::session::Session;

/// Limits of the forwarded connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// How long a connection waits for a session before it is reset; 20 s by default.
    pub patience: Duration,
    /// The limit of simultaneous connections; further ones wait to be accepted. 256 by default and
    /// at most.
    pub most: usize,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { patience: Duration::from_secs(20), most: MOST_STREAMS }
    }
}

/// Why forwarding stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardClosed {
    #[error(transparent)]
    Client(#[from] ClientClosed),
    #[error(transparent)]
    Hello(#[from] HelloError),
}

/// Accepts connections until the client stops. `tell` is called with every client event. When this
/// future is dropped, its connections are reset.
pub async fn forward(
    listener: TcpListener,
    client: &mut RelayClient,
    forwarding: Forwarding,
    mut tell: impl FnMut(&ClientEvent),
) -> ForwardClosed {
    let (current, sessions) = watch::channel(None);
    let mut connections = JoinSet::new();
    let mut tunnel: Option<Tunnel> = None;
    let most = forwarding.most.clamp(1, MOST_STREAMS);
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((tcp, _)) => {
                    connections.spawn(carry(tcp, sessions.clone(), forwarding.patience));
                }
                // For example out of file descriptors: wait until open connections close.
                Err(error) => {
                    tracing::warn!(%error, "no connection accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            event = client.next() => {
                let Some(event) = event else { return ClientClosed::Stopped.into() };
                tell(&event);
                match event {
                    ClientEvent::Established { session, .. } => {
                        tunnel = Some(Tunnel::start(session, current.clone()));
                    }
                    ClientEvent::Lost { .. } => {
                        tunnel = None;
                        current.send_replace(None);
                    }
                    ClientEvent::Closed(closed) => return closed.into(),
                    ClientEvent::Paused
                    | ClientEvent::Pending
                    | ClientEvent::Resumed
                    | ClientEvent::NotPinned(_) => {}
                }
            }
            refused = over(&mut tunnel) => {
                tunnel = None;
                current.send_replace(None);
                // After a session that was merely lost, a new one follows.
                if let Err(error) = refused && !error.may_pass() {
                    return error.into();
                }
            }
        }
    }
}

/// The task that sets up and drives the mux of one session.
struct Tunnel(JoinSet<Result<(), HelloError>>);

impl Tunnel {
    fn start(mut session: Session, current: watch::Sender<Option<Mux>>) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            hello::ask(&mut session, Service::Tcp).await?;
            let (mux, driving) = Mux::client(Pipe::new(session));
            current.send_replace(Some(mux));
            driving.await;
            Ok(())
        });
        Self(task)
    }
}

/// Waits for the tunnel to end; never returns if there is none.
async fn over(tunnel: &mut Option<Tunnel>) -> Result<(), HelloError> {
    match tunnel {
        Some(Tunnel(task)) => match task.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(_)) | None => Ok(()),
        },
        None => std::future::pending().await,
    }
}

async fn carry(tcp: TcpStream, mut sessions: watch::Receiver<Option<Mux>>, patience: Duration) {
    let opening = async {
        loop {
            let mux = sessions.wait_for(Option::is_some).await.ok()?.clone();
            if let Some(stream) = mux?.open().await {
                return Some(stream);
            }
            // That session has just ended; wait for the next one.
            sessions.changed().await.ok()?;
        }
    };
    match timeout(patience, opening).await {
        Ok(Some(stream)) => {
            if let Err(error) = splice(tcp, stream).await {
                tracing::debug!(%error, "connection cut off");
            }
        }
        Ok(None) | Err(_) => reset(tcp),
    }
}
