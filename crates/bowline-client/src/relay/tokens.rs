//! Where the two ends get the relay's address and their tokens from.
//!
//! Traits, because a program may have a control plane of its own, or none: whatever can sign relay tokens
//! will do. [`ControlPlane`] is the implementation over HTTP.
//!
//! Both ends ask again whenever they connect, so that an answer need not hold for longer than its token.
//! An error that [may pass](ControlError::may_pass) is followed by another attempt after a back-off; any
//! other ends the client or the daemon with that error.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_sbrp::api::{
    DaemonProcess, DaemonStatus, DeviceKey, Registered, RenewPresence, SessionOpened,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;

use super::control_plane::{ControlError, ControlPlane};

/// What a client needs: a token for each new session with a daemon.
///
/// ```
/// use bowline_client::relay::{ControlError, SessionTokens};
/// use bowline_sbrp::api::SessionOpened;
/// use bowline_sbrp::id::DaemonId;
///
/// /// Tokens that a program got from elsewhere, each for one session.
/// #[derive(Debug)]
/// struct Given(std::sync::Mutex<Vec<SessionOpened>>);
///
/// #[async_trait::async_trait]
/// impl SessionTokens for Given {
///     async fn open_session(&self, _: &DaemonId) -> Result<SessionOpened, ControlError> {
///         let next = self.0.lock().expect("nobody panics with it").pop();
///         next.ok_or_else(|| ControlError::other("there are no tokens left", false))
///     }
/// }
/// ```
#[async_trait]
pub trait SessionTokens: Send + Sync + fmt::Debug {
    /// The relay of a daemon, and a token for one session with it (SBRP-CLIENT-04).
    async fn open_session(&self, daemon: &DaemonId) -> Result<SessionOpened, ControlError>;
}

/// What a daemon needs: its id, and tokens for its own connection.
#[async_trait]
pub trait PresenceTokens: Send + Sync + fmt::Debug {
    /// Registers a daemon, or finds the one that has this identity key: the same key has the same id.
    /// The token has the scope `session:resume` if `resumable` (SBRP-DAEMON-05). A source that does
    /// not tell processes apart ignores `process`, and answers with epoch 0.
    async fn register(
        &self,
        key: &IdentityKey,
        name: Option<&str>,
        resumable: bool,
        process: DaemonProcess,
    ) -> Result<Registered, ControlError>;

    /// A new token for a daemon that is registered (SBRP-DAEMON-07).
    async fn renew(
        &self,
        daemon: &DaemonId,
        asked: &RenewPresence,
    ) -> Result<Registered, ControlError>;

    /// Whether the relay has a connection of this daemon. [`DaemonStatus::Unknown`], the default, where
    /// nobody can tell: a daemon that was replaced then waits longer before it looks by connecting.
    async fn status(&self, daemon: &DaemonId) -> DaemonStatus {
        let _ = daemon;
        DaemonStatus::Unknown
    }

    /// The devices that may get tokens for this daemon by themselves. Ignored by default.
    async fn set_devices(
        &self,
        daemon: &DaemonId,
        devices: &[DeviceKey],
    ) -> Result<(), ControlError> {
        let _ = (daemon, devices);
        Ok(())
    }
}

#[async_trait]
impl SessionTokens for ControlPlane {
    async fn open_session(&self, daemon: &DaemonId) -> Result<SessionOpened, ControlError> {
        ControlPlane::open_session(self, daemon).await
    }
}

#[async_trait]
impl PresenceTokens for ControlPlane {
    async fn register(
        &self,
        key: &IdentityKey,
        name: Option<&str>,
        resumable: bool,
        process: DaemonProcess,
    ) -> Result<Registered, ControlError> {
        self.register_process(key, name, resumable, process).await
    }

    async fn renew(
        &self,
        daemon: &DaemonId,
        asked: &RenewPresence,
    ) -> Result<Registered, ControlError> {
        self.renew_process(daemon, asked).await
    }

    async fn status(&self, daemon: &DaemonId) -> DaemonStatus {
        let daemons = self.daemons().await.unwrap_or_default();
        let found = daemons.iter().find(|one| one.id == daemon.as_str());
        found.map_or(DaemonStatus::Unknown, |one| one.status)
    }

    async fn set_devices(
        &self,
        daemon: &DaemonId,
        devices: &[DeviceKey],
    ) -> Result<(), ControlError> {
        ControlPlane::set_devices(self, daemon, devices).await
    }
}

#[async_trait]
impl<T: SessionTokens + ?Sized> SessionTokens for Arc<T> {
    async fn open_session(&self, daemon: &DaemonId) -> Result<SessionOpened, ControlError> {
        (**self).open_session(daemon).await
    }
}

#[async_trait]
impl<T: PresenceTokens + ?Sized> PresenceTokens for Arc<T> {
    async fn register(
        &self,
        key: &IdentityKey,
        name: Option<&str>,
        resumable: bool,
        process: DaemonProcess,
    ) -> Result<Registered, ControlError> {
        (**self).register(key, name, resumable, process).await
    }

    async fn renew(
        &self,
        daemon: &DaemonId,
        asked: &RenewPresence,
    ) -> Result<Registered, ControlError> {
        (**self).renew(daemon, asked).await
    }

    async fn status(&self, daemon: &DaemonId) -> DaemonStatus {
        (**self).status(daemon).await
    }

    async fn set_devices(
        &self,
        daemon: &DaemonId,
        devices: &[DeviceKey],
    ) -> Result<(), ControlError> {
        (**self).set_devices(daemon, devices).await
    }
}
