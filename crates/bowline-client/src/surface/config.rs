//! Configuration of a surface.

use std::fmt;
use std::path::PathBuf;

use bowline_net::backoff::Backoff;
use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use url::Url;

/// The gateway, the session, the credentials and the description of a surface.
#[derive(Clone)]
#[non_exhaustive]
pub struct SurfaceConfig {
    /// The gateway's base address, such as `http://127.0.0.1:8080`. A path is kept as a prefix.
    pub gateway: Url,
    /// A socket file that leads to the gateway; the address then says only what to ask for there.
    pub socket: Option<PathBuf>,
    /// The session to attach to.
    pub session_id: SessionId,
    /// The session token. Empty if `bearer` authorises the surface, or no token is required.
    pub session_token: String,
    /// A roaming token of another gateway, whose session comes to this one first (SBP-L6-05).
    /// [`session_id`](Self::session_id) is its id there. Takes a `bearer` that may import, unless this gateway trusts
    /// the other one.
    pub roaming_token: Option<String>,
    /// Whether the surface follows its session to another gateway. If not, it is closed with
    /// [`CloseReason::Moved`](super::CloseReason::Moved).
    pub follow: bool,
    /// A key of the gateway, sent as `Authorization: Bearer …` with the upgrade.
    pub bearer: Option<String>,
    /// What the surface declares about itself. A list of capabilities without `streaming` requests
    /// whole turns instead of chunks (SBP-L2-09).
    pub surface: SurfaceContext,
    /// Attach beside the other surfaces, and get what they send. Without it the surface replaces
    /// the attached one that did not join (SBP-L2-20).
    pub join: bool,
    /// Close all other surfaces.
    pub take_over: bool,
    /// Whether somebody is there who answers [`Event::ApprovalAsked`](super::Event::ApprovalAsked). If
    /// not, and nobody else is, a tool call that asks is refused at once.
    pub approves: bool,
    /// The back-off between attempts to connect; see [`Backoff`] for the defaults.
    pub backoff: Backoff,
}

impl SurfaceConfig {
    /// A surface that replaces the attached one, and that nobody watches who approves tool calls.
    pub fn new(gateway: Url, session_id: SessionId, session_token: impl Into<String>) -> Self {
        Self {
            gateway,
            socket: None,
            session_id,
            session_token: session_token.into(),
            roaming_token: None,
            follow: true,
            bearer: None,
            surface: SurfaceContext::default(),
            join: false,
            take_over: false,
            approves: false,
            backoff: Backoff::default(),
        }
    }
}

/// Without the tokens, and without the parts of the address that may hold one.
impl fmt::Debug for SurfaceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SurfaceConfig")
            .field("gateway", &self.gateway.origin().ascii_serialization())
            .field("session_id", &self.session_id)
            .field("surface", &self.surface)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The gateway's address must begin with http:// or https://.
    #[error("the gateway's address must begin with http:// or https://")]
    Scheme,
    /// The address is not `https`, and not on this machine.
    #[error(
        "the gateway is on another machine, and without TLS the session's token and the key would be \
         readable on the way"
    )]
    Insecure,
    /// The key holds characters that an HTTP header cannot carry.
    #[error("the key holds characters that an HTTP header cannot carry")]
    Bearer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let config = SurfaceConfig {
            gateway: "https://user:secret1@example.org/secret2?k=secret3".parse().unwrap(),
            socket: None,
            session_id: "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f".parse().unwrap(),
            session_token: "secret4".into(),
            roaming_token: Some("secret6".into()),
            follow: true,
            bearer: Some("secret5".into()),
            surface: SurfaceContext::default(),
            join: false,
            take_over: false,
            approves: true,
            backoff: Backoff::default(),
        };
        let text = format!("{config:?}");
        assert!(text.contains("https://example.org"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
