//! The control plane over HTTP: registers daemons and their devices, lists daemons, requests session
//! tokens.
//!
//! The owner of daemons shows an API key and may do all of it. A paired device signs its requests
//! and may open sessions, nothing else.
//!
//! Invariants
//! - The API key, signatures and tokens are sent over TLS or within this machine, never after a
//!   redirect.
//! - Every response has a size limit and a deadline.
//! - No `Debug` output or error contains a key or a token.

mod device_signer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::loopback::is_loopback_url;
use bowline_net::outbound;
use bowline_sbrp::api::{
    DaemonProcess, DaemonView, DeviceEntry, DeviceKey, OpenSession, Refusal, RefusalDetail,
    Register, Registered, Rename, RenewPresence, SessionOpened, SetDevices,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::{IdentityKey, IdentitySecret};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use self::device_signer::DeviceSigner;
use super::address;

/// A client of the control plane, authenticated as one user or one paired device.
#[derive(Clone)]
pub struct ControlPlane {
    base: Url,
    http: reqwest::Client,
    credential: Credential,
}

#[derive(Clone)]
enum Credential {
    /// In the headers of every request.
    ApiKey,
    Device(Arc<DeviceSigner>),
}

/// Why a request to the control plane failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The control plane's address must begin with https://, or be on this machine.
    #[error("the control plane's address must begin with https://, or be on this machine")]
    Insecure,
    /// The key holds characters that an HTTP header cannot carry.
    #[error("the key holds characters that an HTTP header cannot carry")]
    Key,
    /// It cannot be reached, or does not answer.
    #[error("the control plane at {host} {why}")]
    Unreachable {
        /// Its host and port.
        host: String,
        /// What happened.
        why: &'static str,
    },
    /// Its certificate is not trusted.
    #[error("the certificate of the control plane at {host} is not trusted: {why}")]
    Untrusted {
        /// Its host and port.
        host: String,
        /// What is wrong with the certificate.
        why: String,
    },
    /// It refused the request.
    #[error("the control plane refused: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The code of the refusal; empty if there was none.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// The clocks differ, and the control plane refuses its own time.
    #[error(
        "the clocks of the control plane and of this machine differ, and it refuses its own time"
    )]
    ClockSkew {
        /// The control plane's time, in seconds since 1970.
        now: u64,
    },
    /// A paired device can only open sessions; this needs the owner's API key.
    #[error("a paired device can only open sessions; this needs the owner's API key")]
    NeedsKey,
    /// The control plane's answer is not one of a control plane.
    #[error("the control plane's answer is not one of a control plane")]
    Unreadable,
    /// The control plane names a relay at `ws://` that is not on this machine.
    #[error(
        "the control plane names a relay at ws://; that is allowed only if both are on this machine"
    )]
    InsecureRelay,
    /// A source of tokens of the program's own failed: see [`ControlError::other`].
    #[error("{message}")]
    Other {
        /// What happened.
        message: String,
        /// Whether the same request may succeed later.
        may_pass: bool,
    },
}

impl ControlError {
    /// For [`SessionTokens`](super::SessionTokens) and [`PresenceTokens`](super::PresenceTokens) of a
    /// program's own. `may_pass`: whether the same request may succeed later.
    pub fn other(message: impl Into<String>, may_pass: bool) -> Self {
        Self::Other { message: message.into(), may_pass }
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            // A certificate can be renewed.
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Unreadable => true,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            Self::ClockSkew { .. } => true,
            Self::Other { may_pass, .. } => *may_pass,
            Self::Insecure | Self::Key | Self::NeedsKey | Self::InsecureRelay => false,
        }
    }

    /// Whether another process of the daemon has registered since.
    pub fn is_replaced(&self) -> bool {
        matches!(self, Self::Refused { status: 409, code, .. } if code == RefusalDetail::REPLACED)
    }

    /// Whether a device was refused because the control plane does not know it for that daemon: it
    /// was revoked, has expired, or was paired only now and is not registered yet.
    pub fn is_unknown_device(&self) -> bool {
        matches!(self, Self::Refused { status: 401, code, .. } if code == RefusalDetail::UNKNOWN_DEVICE)
    }
}

impl ControlPlane {
    /// `base` may have a path, which is kept; `key` is the user's API key.
    pub fn new(base: Url, key: &str) -> Result<Self, ControlError> {
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| ControlError::Key)?;
        authorization.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, authorization)]);
        Self::with(base, headers, Credential::ApiKey)
    }

    /// For a paired device, which can only open sessions.
    pub fn for_device(base: Url, device: Arc<IdentitySecret>) -> Result<Self, ControlError> {
        let credential = Credential::Device(Arc::new(DeviceSigner::new(device)));
        Self::with(base, HeaderMap::new(), credential)
    }

    fn with(base: Url, headers: HeaderMap, credential: Credential) -> Result<Self, ControlError> {
        if !matches!(base.scheme(), "http" | "https") || !outbound::is_private(&base) {
            return Err(ControlError::Insecure);
        }
        let http = outbound::client(&base)
            .default_headers(headers)
            .connect_timeout(CONNECT_PATIENCE)
            .timeout(PATIENCE)
            .build()
            .map_err(|_| ControlError::Unreachable {
                host: address::host(&base),
                why: "cannot be asked: this machine gives no TLS",
            })?;
        Ok(Self { base, http, credential })
    }

    /// The control plane's address.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Host and port, for messages to the user.
    pub fn host(&self) -> String {
        address::host(&self.base)
    }

    /// Registers a daemon, or finds the existing one with this identity key.
    pub async fn register(
        &self,
        key: &IdentityKey,
        name: Option<&str>,
        resumable: bool,
    ) -> Result<Registered, ControlError> {
        self.register_process(key, name, resumable, DaemonProcess::default()).await
    }

    /// Registers a daemon's process: from now on this one is the daemon, and no other.
    pub async fn register_process(
        &self,
        key: &IdentityKey,
        name: Option<&str>,
        resumable: bool,
        process: DaemonProcess,
    ) -> Result<Registered, ControlError> {
        let register = Register {
            api_key: None,
            identity_public_key: URL_SAFE_NO_PAD.encode(key.as_bytes()),
            name: name.map(str::to_owned),
            resumable: Some(resumable),
            process,
        };
        let request =
            self.owner_request(Method::POST, &["api", "daemons", "register"])?.json(&register);
        self.relayed(self.ask(request).await?, |done: &Registered| &done.relay_url)
    }

    /// Requests a new presence token for a daemon.
    pub async fn renew(&self, daemon: &DaemonId) -> Result<Registered, ControlError> {
        self.renew_process(daemon, &RenewPresence::default()).await
    }

    /// Requests a new presence token for a daemon's process: it may have been replaced by another one
    /// ([`ControlError::is_replaced`]), and may get another relay if it cannot reach its own.
    pub async fn renew_process(
        &self,
        daemon: &DaemonId,
        asked: &RenewPresence,
    ) -> Result<Registered, ControlError> {
        let path = ["api", "daemons", daemon.as_str(), "presence"];
        let answer = self.ask(self.owner_request(Method::POST, &path)?.json(asked)).await?;
        self.relayed(answer, |done: &Registered| &done.relay_url)
    }

    /// Lists the user's daemons.
    pub async fn daemons(&self) -> Result<Vec<DaemonView>, ControlError> {
        self.ask(self.owner_request(Method::GET, &["api", "daemons"])?).await
    }

    /// Gives a daemon another name.
    pub async fn rename(&self, daemon: &DaemonId, name: &str) -> Result<(), ControlError> {
        let path = ["api", "daemons", daemon.as_str()];
        let request =
            self.owner_request(Method::PATCH, &path)?.json(&Rename { name: name.to_owned() });
        self.answer(request).await.map(drop)
    }

    /// Revokes a daemon permanently. Idempotent.
    pub async fn revoke(&self, daemon: &DaemonId) -> Result<(), ControlError> {
        let path = ["api", "daemons", daemon.as_str()];
        self.answer(self.owner_request(Method::DELETE, &path)?).await.map(drop)
    }

    /// Replaces the devices that may open sessions with a daemon by themselves. Idempotent.
    pub async fn set_devices(
        &self,
        daemon: &DaemonId,
        devices: &[DeviceKey],
    ) -> Result<(), ControlError> {
        let set = SetDevices { devices: devices.iter().map(DeviceEntry::from).collect() };
        let path = ["api", "daemons", daemon.as_str(), "devices"];
        self.answer(self.owner_request(Method::PUT, &path)?.json(&set)).await.map(drop)
    }

    /// Requests a token for one session with a daemon.
    pub async fn open_session(&self, daemon: &DaemonId) -> Result<SessionOpened, ControlError> {
        let opened = match &self.credential {
            Credential::ApiKey => {
                let open = OpenSession { daemon_id: daemon.as_str().to_owned() };
                self.ask(self.owner_request(Method::POST, &SESSIONS)?.json(&open)).await?
            }
            Credential::Device(device) => match self.open_signed(device, daemon).await {
                Err(ControlError::ClockSkew { now }) => {
                    device.adjust(now);
                    self.open_signed(device, daemon).await?
                }
                other => other?,
            },
        };
        self.relayed(opened, |done: &SessionOpened| &done.relay_url)
    }

    async fn open_signed(
        &self,
        device: &DeviceSigner,
        daemon: &DaemonId,
    ) -> Result<SessionOpened, ControlError> {
        self.ask(self.request(Method::POST, &SESSIONS)?.json(&device.sign(daemon))).await
    }

    /// Refuses a relay URL to which the token would be sent unencrypted, and a control plane elsewhere that
    /// names a port of this machine: it could be that of any other program.
    fn relayed<T>(&self, answer: T, url: impl Fn(&T) -> &String) -> Result<T, ControlError> {
        let relay: Url = url(&answer).parse().map_err(|_| ControlError::Unreadable)?;
        let may_connect = match relay.scheme() {
            "wss" => outbound::is_private(&relay),
            "ws" => outbound::is_private(&relay) && self.is_here(),
            _ => false,
        };
        if may_connect { Ok(answer) } else { Err(ControlError::InsecureRelay) }
    }

    /// Whether the control plane is on this machine. Without TLS it can be nowhere else.
    fn is_here(&self) -> bool {
        self.base.scheme() == "http" || is_loopback_url(&self.base)
    }

    /// A request that needs the API key.
    fn owner_request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, ControlError> {
        match self.credential {
            Credential::ApiKey => self.request(method, path),
            Credential::Device(_) => Err(ControlError::NeedsKey),
        }
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, ControlError> {
        let mut url = self.base.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.path_segments_mut().map_err(|()| ControlError::Insecure)?.pop_if_empty().extend(path);
        Ok(self.http.request(method, url))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ControlError> {
        let body = self.answer(request).await?;
        serde_json::from_slice(&body).map_err(|_| ControlError::Unreadable)
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Vec<u8>, ControlError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = self.body(response).await?;
        if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, ControlError> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + part.len() > MOST {
                return Err(ControlError::Unreadable);
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    /// reqwest's own error text may contain the whole URL.
    fn unreachable(&self, error: &reqwest::Error) -> ControlError {
        if let Some(why) = outbound::untrusted(error) {
            return ControlError::Untrusted { host: self.host(), why };
        }
        if outbound::is_proxy_credential(error) {
            let why = "cannot be reached: the proxy refused (407) and wants a user and a password, as in \
                       HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT";
            return ControlError::Unreachable { host: self.host(), why };
        }
        let why = match (error.is_timeout(), error.is_connect()) {
            (true, _) => "does not answer in time",
            (false, true) => "cannot be reached",
            (false, false) => "broke off without an answer",
        };
        ControlError::Unreachable { host: self.host(), why }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> ControlError {
    let status_code = status.as_u16();
    let (code, message) = match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { error: RefusalDetail { code, now: Some(now), .. } })
            if code == RefusalDetail::CLOCK_SKEW =>
        {
            return ControlError::ClockSkew { now };
        }
        Ok(refusal) => (refusal.error.code, refusal.error.message),
        Err(_) => (String::new(), format!("it answered {status}")),
    };
    ControlError::Refused { status: status_code, code, message }
}

const SESSIONS: [&str; 2] = ["api", "sessions"];

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("host", &self.host()).finish_non_exhaustive()
    }
}

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The deadline of a request, including its whole response.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest response: a list of some thousand daemons.
const MOST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_sent_where_others_could_read_it() {
        let made = |url: &str| ControlPlane::new(url.parse().unwrap(), "key").map(|_| ());
        assert_eq!(made("http://example.org"), Err(ControlError::Insecure));
        assert_eq!(made("ws://127.0.0.1"), Err(ControlError::Insecure));
        assert_eq!(made("https://example.org/control"), Ok(()));
        assert_eq!(made("http://127.0.0.1:1"), Ok(()));
        let device = Arc::new(IdentitySecret::from_seed(&[1; 32]));
        let made = ControlPlane::for_device("http://example.org".parse().unwrap(), device);
        assert_eq!(made.map(|_| ()), Err(ControlError::Insecure));
        let broken = ControlPlane::new("https://example.org".parse().unwrap(), "a\nb");
        assert_eq!(broken.map(|_| ()), Err(ControlError::Key));
    }

    #[test]
    fn only_a_control_plane_on_this_machine_may_name_a_relay_in_the_clear() {
        let named = |control: &str, relay: &str| {
            let control = ControlPlane::new(control.parse().unwrap(), "key").unwrap();
            control.relayed(relay.to_owned(), |url| url).map(|_| ())
        };
        let refused = Err(ControlError::InsecureRelay);
        for relay in
            ["ws://127.0.0.1:6379", "ws://localhost/relay", "ws://[::1]:1", "ws://10.0.0.1"]
        {
            assert_eq!(named("https://example.org", relay), refused, "{relay}");
        }
        for local in ["http://127.0.0.1:1", "https://localhost", "http://[::1]:1"] {
            assert_eq!(named(local, "ws://127.0.0.1:2/relay"), Ok(()), "{local}");
            assert_eq!(named(local, "ws://relay.example.org"), refused, "{local}");
        }
        assert_eq!(named("https://example.org", "wss://relay.example.org"), Ok(()));
        assert_eq!(named("https://example.org", "https://example.org"), refused);
    }

    #[test]
    fn names_in_paths_cannot_leave_their_place() {
        let control =
            ControlPlane::new("https://example.org/base/?q#f".parse().unwrap(), "k").unwrap();
        let path = ["api", "daemons", "a/../b?c", "presence"];
        let request = control.request(Method::POST, &path).unwrap().build().unwrap();
        let url = "https://example.org/base/api/daemons/a%2F..%2Fb%3Fc/presence";
        assert_eq!(request.url().as_str(), url);
    }

    #[test]
    fn some_refusals_pass_and_some_do_not() {
        let refused = |status| refused(StatusCode::from_u16(status).unwrap(), b"<html>");
        for status in [408, 429, 500, 503] {
            assert!(refused(status).may_pass(), "{status}");
        }
        for status in [301, 400, 401, 403, 404] {
            assert!(!refused(status).may_pass(), "{status}");
        }
        assert_eq!(
            refused(404).to_string(),
            "the control plane refused: it answered 404 Not Found"
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let url = "https://user:secret1@example.org/secret2?k=secret3".parse().unwrap();
        let text = format!("{:?}", ControlPlane::new(url, "secret4").unwrap());
        assert_eq!(text, r#"ControlPlane { host: "example.org", .. }"#);
        let device = Arc::new(IdentitySecret::from_seed(&[1; 32]));
        let device = ControlPlane::for_device("https://example.org".parse().unwrap(), device);
        assert_eq!(format!("{:?}", device.unwrap()), text);
    }
}
