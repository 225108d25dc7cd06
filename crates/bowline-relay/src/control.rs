//! Who owns which daemon, and the tokens that say so.
//!
//! Users have API keys and own daemons; an owner, and nobody else, gets tokens with which a relay
//! lets a daemon show itself and a client reach it. The relay only reads what is signed here, from
//! the published key set, so the two need not know each other.
//!
//! The path of a request: [`serve`] accepts it within bounds, [`http`] parses it, [`issuer`] decides
//! and signs, [`registry`] keeps what has to last. Whoever runs the control plane writes to the same
//! registry from the command line; nothing is cached, so what they change counts from the next
//! request on.
//!
//! Invariants
//! - A token is signed only after the transaction that found its key, its daemon and its owner in
//!   force was committed; that transaction also notes until when the signing key is needed.
//! - What is not the caller's does not exist: another's daemon and none get the same answer.

mod api_key;
mod clock;
mod config;
mod http;
mod issuer;
mod meters;
pub mod registry;
mod registry_thread;
mod request_error;
mod serve;
mod status;
mod throttles;

use std::sync::Arc;

pub use api_key::ApiKey;
pub use config::{BadConfig, ControlConfig, ControlLimits, Listen};
pub use request_error::RequestError;
pub use serve::{ControlStartError, open_door};
pub use status::LocalPresence;

use axum::Router;
use bowline_net::Door;
use tokio_util::sync::CancellationToken;

use self::issuer::TokenIssuer;

/// A control plane, open for business. Clones share it.
#[derive(Debug, Clone)]
pub struct Control {
    issuer: Arc<TokenIssuer>,
}

impl Control {
    /// Opens the registry, making it on the first start.
    pub fn open(config: ControlConfig) -> Result<Self, ControlStartError> {
        Ok(Self { issuer: Arc::new(TokenIssuer::open(config, None)?) })
    }

    /// The same beside a relay in this process, which is asked directly who is connected.
    pub fn open_with_relay(
        config: ControlConfig,
        relay: LocalPresence,
    ) -> Result<Self, ControlStartError> {
        Ok(Self { issuer: Arc::new(TokenIssuer::open(config, Some(relay))?) })
    }

    /// The API and the key set, to be served here or beside a relay. Whoever serves it says where
    /// a request comes from with a [`bowline_net::Peer`] in its extensions, as a door does; without
    /// it, all callers share one budget.
    pub fn router(&self) -> Router {
        http::router(Arc::clone(&self.issuer))
    }

    /// Serves until told to stop, then lets what is under way end.
    pub async fn serve(self, door: Door, stop: CancellationToken) {
        serve::serve(door, http::served(Arc::clone(&self.issuer)), stop).await;
        self.issuer.note_refusals().await;
    }

    /// Whether tokens can be issued: the registry takes writes.
    pub async fn check(&self) -> Result<(), registry::Error> {
        self.issuer.check().await
    }
}
