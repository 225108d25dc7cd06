//! Measures the round trip of a sealed message to the daemon through the relay.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::hello::{self, HelloError, Service};
use crate::relay::reasons::SessionEnd;
use crate::relay::session::Session;

/// Measures round trips, one after the other.
#[derive(Debug)]
pub struct Pings(Session, u64);

/// Requests the ping service.
pub async fn ping(mut session: Session) -> Result<Pings, HelloError> {
    hello::ask(&mut session, Service::Ping).await?;
    Ok(Pings(session, 0))
}

impl Pings {
    pub async fn once(&mut self) -> Result<Duration, HelloError> {
        let Self(session, count) = self;
        let message = count.to_be_bytes().to_vec();
        *count += 1;
        let start = Instant::now();
        session.send(message.clone()).await?;
        match timeout(PATIENCE, session.recv()).await {
            Ok(Some(echo)) if echo == message => Ok(start.elapsed()),
            Ok(Some(_)) => Err(HelloError::Garbled),
            Ok(None) => Err(HelloError::Ended(session.end().unwrap_or(SessionEnd::Left))),
            Err(_) => Err(HelloError::Silent),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
