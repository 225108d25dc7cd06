//! The client's side: a port on this machine that leads to the daemon's target.
//!
//! The port stays open whatever becomes of the session. While there is none, a connection waits for
//! the next one, for a while; while there is one that is paused, it waits in it.

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

/// How connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// How long a connection waits for a session before it is reset; 20 s by default.
    pub patience: Duration,
    /// More connections at once wait to be accepted; 256 by default and at most.
    pub most: usize,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { patience: Duration::from_secs(20), most: MOST_STREAMS }
    }
}

/// Why nothing is forwarded any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardClosed {
    #[error(transparent)]
    Client(#[from] ClientClosed),
    #[error(transparent)]
    Hello(#[from] HelloError),
}

/// Takes connections until the client is over. `tell` hears of every event but the sessions', which
/// are told by their ids. When this is dropped, its connections are reset.
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
                // Out of file descriptors, say: those that are open may close.
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
                // A session that is merely lost is followed by another.
                if let Err(error) = refused && !error.may_pass() {
                    return error.into();
                }
            }
        }
    }
}

/// One session's mux, being set up or driven.
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

/// The end of the tunnel, if there is one.
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
            // That one was just over; the next one is told of.
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
