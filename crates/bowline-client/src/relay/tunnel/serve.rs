//! The daemon's side of a session: answers the hello, then runs the service.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use yamux::Stream;

use super::hello::{self, HelloError, Service};
use super::mux::{self, begin};
use super::pipe::Pipe;
use super::splice::splice;
use crate::relay::session::Session;

/// The services that a daemon offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// The target of TCP connections: `host:port`. A client cannot name another.
    pub tcp: Option<String>,
}

/// Serves one session until it ends. When this future is dropped, its TCP connections are reset.
pub async fn serve(mut session: Session, services: Services) -> Result<(), HelloError> {
    let offers = |service| match service {
        Service::Ping => true,
        Service::Tcp => services.tcp.is_some(),
    };
    match (hello::answer(&mut session, offers).await?, services.tcp) {
        (Service::Tcp, Some(target)) => {
            let mut connections = JoinSet::new();
            let join = |stream| {
                // Removes finished connections as new ones arrive.
                while connections.try_join_next().is_some() {}
                connections.spawn(connect(stream, target.clone()));
            };
            mux::accept(Pipe::new(session), join).await;
            Ok(())
        }
        (Service::Ping | Service::Tcp, _) => {
            while let Some(message) = session.recv().await {
                session.send(message).await?;
            }
            Ok(())
        }
    }
}

/// If the target cannot be reached, the stream is dropped, which resets the client's connection.
async fn connect(mut stream: Stream, target: String) {
    if let Err(error) = begin(&mut stream).await {
        tracing::debug!(%error, "stream without a beginning");
        return;
    }
    let connected = match timeout(CONNECT_PATIENCE, TcpStream::connect(&target)).await {
        Ok(connected) => connected,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match connected {
        Ok(tcp) => {
            if let Err(error) = splice(tcp, stream).await {
                tracing::debug!(%error, "connection cut off");
            }
        }
        Err(error) => tracing::warn!(%error, target, "the target cannot be reached"),
    }
}

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
