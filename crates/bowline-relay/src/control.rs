//! The control plane: who owns which daemon, and the tokens that prove it.
//!
//! Users have API keys and own daemons. Only the owner of a daemon gets tokens for it: with a
//! presence token a daemon connects to a relay, with a session token a client reaches the daemon.
//! Devices whose keys the owner registered for a daemon get session tokens, too, by a signature. A
//! relay only verifies these tokens, with the published key set (JWKS), so control plane and relay
//! share no secret.
//!
//! The path of a request: [`serve`] accepts it within limits, [`http`] parses it, [`issuer`]
//! decides and signs, [`registry`] stores what has to be durable. The operator's commands write to
//! the same registry; nothing is cached, so their changes apply from the next request on.
//!
//! Invariants
//! - A token is signed only after the commit of a transaction that found its API key or device, its
//!   daemon and owner not revoked; that transaction also records until when the signing key is
//!   needed.
//! - A daemon of another user does not exist for the caller: the answer is the same as for an
//!   unknown daemon. A device that is refused does not learn why.

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
pub use config::{BadConfig, ControlConfig, ControlLimits};
pub use request_error::RequestError;
pub use serve::{ControlStartError, open_door};
pub use status::LocalPresence;

use axum::Router;
use bowline_net::Door;
use tokio_util::sync::CancellationToken;

use self::issuer::TokenIssuer;

/// An open control plane. Clones share its state.
#[derive(Debug, Clone)]
pub struct Control {
    issuer: Arc<TokenIssuer>,
}

impl Control {
    /// Opens the registry, and creates it on the first start.
    pub fn open(config: ControlConfig) -> Result<Self, ControlStartError> {
        Ok(Self { issuer: Arc::new(TokenIssuer::open(config, None)?) })
    }

    /// Opens it beside a relay in this process, which is asked directly which daemons are
    /// connected.
    pub fn open_with_relay(
        config: ControlConfig,
        relay: LocalPresence,
    ) -> Result<Self, ControlStartError> {
        Ok(Self { issuer: Arc::new(TokenIssuer::open(config, Some(relay))?) })
    }

    /// The API and the key set, to be served here or beside a relay. The server has to put the
    /// caller's address into each request's extensions, as a [`bowline_net::Peer`]; without it, all
    /// callers share one rate limit.
    pub fn router(&self) -> Router {
        http::router(Arc::clone(&self.issuer))
    }

    /// Serves until `stop` is cancelled, then waits for open requests to finish.
    pub async fn serve(self, door: Door, stop: CancellationToken) {
        serve::serve(door, http::served(Arc::clone(&self.issuer)), stop).await;
        self.issuer.note_refusals().await;
    }

    /// Whether tokens can be issued: checks that the registry can be written.
    pub async fn check(&self) -> Result<(), registry::Error> {
        self.issuer.check().await
    }
}
