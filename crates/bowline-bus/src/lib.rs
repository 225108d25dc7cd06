//! Messages between the replicas of one installation.
//!
//! A bus carries bytes to the inbox of a replica and knows nothing of sessions. It may lose, repeat and
//! delay messages, and it loses what nobody reads for a minute; it never alters them, and keeps none that
//! was read. So a lost message costs time, never data: who waits sends again, or looks into the store.
//!
//! Invariant: messages of one [`Bus::send`] after another to one replica, in one lane, arrive in that
//! order, except where some are missing or repeated.

mod bus;
mod fallback;
mod health;
mod inbox;
mod memory;
mod numbering;
mod postgres;
mod redis;
mod send_queue;

pub use self::redis::{BadRedisUrl, Redis, RedisUrl};
pub use bus::{Bus, BusError, BusHealth, Inbox, Lane};
pub use fallback::{Fallback, NoFallback};
pub use memory::Memory;
pub use postgres::Postgres;
