//! What a surface needs to know before it connects.

use std::fmt;

use bowline_net::backoff::Backoff;
use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use url::Url;

/// Which session to attach to, where, and as whom.
#[derive(Clone)]
pub struct SurfaceConfig {
    /// The gateway's base address, such as `http://127.0.0.1:8080`. A path is kept as a prefix.
    pub gateway: Url,
    pub session_id: SessionId,
    /// The session's own secret. Empty where `bearer` opens the session, or nothing is asked.
    pub session_token: String,
    /// A key of the gateway, sent as `Authorization: Bearer …` with the upgrade.
    pub bearer: Option<String>,
    /// What the surface says about itself. A list of capabilities without `streaming` brings
    /// whole turns instead of chunks (SBP-L2-09).
    pub surface: SurfaceContext,
    /// Stay beside the surfaces that are attached, and see what they send. Without it the surface
    /// takes over from the one that did not join, either (SBP-L2-20).
    pub join: bool,
    /// Close all other surfaces.
    pub take_over: bool,
    /// The wait between attempts to connect; see [`Backoff`] for the defaults.
    pub backoff: Backoff,
}

/// Neither token, nor anything of the address that may hold one.
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

/// Why no attempt to connect is worth making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("the gateway's address must begin with http:// or https://")]
    Scheme,
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
            session_id: "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f".parse().unwrap(),
            session_token: "secret4".into(),
            bearer: Some("secret5".into()),
            surface: SurfaceContext::default(),
            join: false,
            take_over: false,
            backoff: Backoff::default(),
        };
        let text = format!("{config:?}");
        assert!(text.contains("https://example.org"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
