//! Who owns which daemon, and the tokens that say so.
//!
//! Users have API keys and own daemons; an owner, and nobody else, gets tokens with which a relay
//! lets a daemon show itself and a client reach it. The relay only reads what is signed here, from
//! the published key set, so the two need not know each other.
//!
//! The path of a request: [`serve`] accepts it within bounds, [`http`] parses it, [`desk`] decides
//! and signs, [`registry`] keeps what has to last. Whoever runs the control plane writes to the same
//! registry from the command line; nothing is cached, so what they change counts from the next
//! request on.
//!
//! Invariants
//! - A token is signed only after the transaction that found its key, its daemon and its owner in
//!   force was committed; that transaction also notes until when the signing key is needed.
//! - What is not the caller's does not exist: another's daemon and none get the same answer.

mod api_key;
mod clerk;
mod clock;
mod config;
mod desk;
mod gate;
mod http;
mod meters;
mod refused;
pub mod registry;
mod serve;
mod status;

use std::sync::Arc;

pub use api_key::ApiKey;
pub use config::{BadConfig, Config, Limits, Listen};
pub use refused::Refused;
pub use serve::{StartError, open_door};
pub use status::Neighbour;

use axum::Router;
use bowline_net::Door;
use tokio_util::sync::CancellationToken;

use self::desk::Desk;

/// A control plane, open for business. Clones share it.
#[derive(Debug, Clone)]
pub struct Control {
    desk: Arc<Desk>,
}

impl Control {
    /// Opens the registry, making it on the first start.
    pub fn open(config: Config) -> Result<Self, StartError> {
        Ok(Self { desk: Arc::new(Desk::open(config, None)?) })
    }

    /// The same beside a relay in this process, which is asked directly who is connected.
    pub fn open_beside(config: Config, relay: Neighbour) -> Result<Self, StartError> {
        Ok(Self { desk: Arc::new(Desk::open(config, Some(relay))?) })
    }

    /// The API and the key set, to be served here or beside a relay. Whoever serves it says where
    /// a request comes from with a [`bowline_net::Peer`] in its extensions, as a door does; without
    /// it, all callers share one budget.
    pub fn router(&self) -> Router {
        http::router(Arc::clone(&self.desk))
    }

    /// Serves until told to stop, then lets what is under way end.
    pub async fn serve(self, door: Door, stop: CancellationToken) {
        serve::serve(door, http::served(Arc::clone(&self.desk)), stop).await;
        self.desk.note_refusals().await;
    }

    /// Whether tokens can be issued: the registry takes writes.
    pub async fn check(&self) -> Result<(), registry::Error> {
        self.desk.check().await
    }
}
