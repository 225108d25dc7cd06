//! Redis, with PostgreSQL behind it.
//!
//! While Redis cannot be reached, control messages go by PostgreSQL, and text is dropped: it is much,
//! and its reader asks the owner for what it misses. An inbox hears both servers all the time, since
//! each sender finds out for itself. Back to Redis as soon as its connection is back.
//!
//! Either end may be the one that is cut off. To a receiver that does not read from Redis, control messages go
//! both ways until it does: then no instant has to be found at which the one way ends and the other begins.
//!
//! Both number messages by the same count, so that what is late on one way is dropped.

use std::sync::Arc;

use bowline_sbp::session::ReplicaId;
use bowline_store::postgres::PostgresConfig;
use bytes::Bytes;
use tokio::sync::watch;

use crate::inbox::Opened;
use crate::numbering::Numbers;
use crate::send_queue::Receiver;
use crate::{BadRedisUrl, Bus, BusError, BusHealth, Inbox, Lane, Postgres, Redis, RedisUrl};

/// Replicas that share a Redis and a PostgreSQL.
#[derive(Debug)]
pub struct Fallback {
    redis: Redis,
    postgres: Postgres,
    opened: Opened,
}

/// Why there is no such bus.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoFallback {
    #[error("the URL of Redis cannot be used: {0}")]
    Redis(#[from] BadRedisUrl),
    #[error(transparent)]
    Postgres(#[from] BusError),
}

impl Fallback {
    /// PostgreSQL must be there; Redis may come later. Must follow the opening of the store, which
    /// takes a database with tables of others for a foreign one.
    pub async fn connect(
        redis: &RedisUrl,
        prefix: &str,
        postgres: &PostgresConfig,
    ) -> Result<Self, NoFallback> {
        let numbers = Arc::new(Numbers::new());
        let postgres = Postgres::numbered(postgres, Arc::clone(&numbers)).await?;
        let redis = Redis::numbered(redis, prefix, numbers)?;
        Ok(Self { redis, postgres, opened: Opened::default() })
    }
}

#[async_trait::async_trait]
impl Bus for Fallback {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        let mut opening = self.opened.begin(me);
        self.postgres.feed(&mut opening).await?;
        if self.redis.feed(&mut opening).await.is_err() {
            self.redis.feed_later(&mut opening);
        }
        Ok(opening.done())
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        // Bytes are shared, not copied.
        match (self.redis.deliver(to, lane, messages.clone()).await, lane) {
            (Ok(Receiver::Silent) | Err(_), Lane::Control) => {
                self.postgres.send(to, lane, messages).await
            }
            (Err(_), Lane::Text) | (Ok(_), _) => Ok(()),
        }
    }

    /// That of Redis: without PostgreSQL there is no store either, which says so itself.
    fn health(&self) -> watch::Receiver<BusHealth> {
        self.redis.health()
    }
}
