//! Measures the round trip of a small message to the daemon through the relay.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::client::{OpenStreamError, TunnelOpener};
use super::services::PING;
use super::stream::TunnelStream;

/// Measures round trips, one after the other.
#[derive(Debug)]
pub struct Pings(TunnelStream, u64);

/// Why a round trip was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PingError {
    /// No stream was opened.
    #[error(transparent)]
    Open(#[from] OpenStreamError),
    /// The stream was cut off.
    #[error("the daemon does not answer: {0}")]
    Stream(#[from] io::Error),
}

impl Pings {
    /// Opens the stream that they go through.
    pub async fn open(opener: &TunnelOpener) -> Result<Self, OpenStreamError> {
        Ok(Self(opener.open(PING, PATIENCE).await?, 0))
    }

    /// The time of one round trip.
    pub async fn once(&mut self) -> Result<Duration, PingError> {
        let Self(stream, count) = self;
        let message = count.to_be_bytes();
        *count += 1;
        let start = Instant::now();
        let round_trip = async {
            stream.write_all(&message).await?;
            let mut echo = [0; 8];
            stream.read_exact(&mut echo).await?;
            if echo == message { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        };
        match timeout(PATIENCE, round_trip).await {
            Ok(done) => done.map(|()| start.elapsed()).map_err(PingError::Stream),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
