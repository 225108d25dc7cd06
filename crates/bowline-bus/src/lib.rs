//! Messages between the replicas of one installation.
//!
//! A bus carries bytes to the inbox of a replica and knows nothing of sessions. It may lose, repeat and
//! delay messages, and it loses what is older than a minute; it never alters them. So a lost message
//! costs time, never data: who waits sends again, or looks into the store.
//!
//! Invariant: messages of one [`Bus::send`] after another to one replica, in one lane, arrive in that
//! order, except where some are missing or repeated.

mod bus;
mod fallback;
mod health;
mod inbox;
mod memory;
mod numbering;
mod outbox;
mod postgres;
mod redis;

pub use self::redis::{BadRedisUrl, Redis, RedisUrl};
pub use bus::{Bus, BusError, Health, Inbox, Lane};
pub use fallback::{Fallback, NoFallback};
pub use memory::Memory;
pub use postgres::Postgres;
