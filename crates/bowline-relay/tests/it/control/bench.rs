//! A control plane on a workbench: started on a free port, with hands to poke it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::DoorConfig;
use bowline_relay::control::registry::Registry;
use bowline_relay::control::{Control, ControlConfig, open_door};
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::token::{Admission, KeySet, Relay, TokenError};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing in these tests takes that long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const ISSUER: &str = "https://control.example";
pub(crate) const RELAY: &str = "wss://relay.example/relay";

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn text_of(&self, name: &str) -> String {
        self.body[name].as_str().unwrap_or_else(|| panic!("no {name} in {}", self.text)).to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of a refusal, which has the shape of one.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        let error = &self.body["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", self.text);
        (self.status, error["code"].as_str().unwrap())
    }
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ControlConfig)) -> Self {
        Self::on(tempfile::tempdir().unwrap(), change).await
    }

    pub(crate) async fn on(
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        let listen = DoorConfig::plain("127.0.0.1:0".parse().unwrap());
        Self::at(folder, listen, change).await
    }

    /// The same behind that door.
    pub(crate) async fn at(
        folder: tempfile::TempDir,
        listen: DoorConfig,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        let mut config = ControlConfig::new(folder.path(), ISSUER, RELAY.parse().unwrap());
        change(&mut config);
        let door = open_door(listen, &config.limits).await.unwrap();
        let control = Control::open(config).unwrap();
        let url = format!("http://{}", door.address());
        let stop = CancellationToken::new();
        let serving = tokio::spawn(control.serve(door, stop.clone()));
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { folder, url, http, stop, serving }
    }

    /// Stops in good order; the data stays.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        drop(self.http);
        self.stop.cancel();
        self.serving.await.unwrap();
        self.folder
    }

    /// The registry, as a command beside the server opens it.
    pub(crate) fn registry(&self) -> Registry {
        registry(self.folder.path())
    }

    /// A new user's key.
    pub(crate) fn user(&self, name: &str) -> String {
        self.registry().add_user(name, now()).unwrap().reveal().to_owned()
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, text, body }
    }

    pub(crate) async fn get(&self, path: &str, key: Option<&str>) -> Answer {
        self.call(Method::GET, path, key, None).await
    }

    pub(crate) async fn register(&self, key: &str, identity: &str) -> Answer {
        self.register_as(json!({ "apiKey": key, "identityPublicKey": identity })).await
    }

    pub(crate) async fn register_as(&self, body: Value) -> Answer {
        self.call(Method::POST, "/api/daemons/register", None, Some(body)).await
    }

    /// A new daemon's id.
    pub(crate) async fn daemon(&self, key: &str, seed: u8) -> String {
        let made = self.register(key, &identity(seed)).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.text_of("daemonId")
    }

    pub(crate) async fn renew(&self, key: &str, daemon: &str) -> Answer {
        let path = format!("/api/daemons/{daemon}/presence");
        self.call(Method::POST, &path, Some(key), None).await
    }

    pub(crate) async fn open(&self, key: &str, daemon: &str) -> Answer {
        let body = json!({ "daemonId": daemon });
        self.call(Method::POST, "/api/sessions", Some(key), Some(body)).await
    }

    pub(crate) async fn revoke(&self, key: &str, daemon: &str) -> Answer {
        self.call(Method::DELETE, &format!("/api/daemons/{daemon}"), Some(key), None).await
    }

    pub(crate) async fn rename(&self, key: &str, daemon: &str, body: Value) -> Answer {
        self.call(Method::PATCH, &format!("/api/daemons/{daemon}"), Some(key), Some(body)).await
    }

    pub(crate) async fn set_devices(&self, key: &str, daemon: &str, devices: Value) -> Answer {
        let path = format!("/api/daemons/{daemon}/devices");
        self.call(Method::PUT, &path, Some(key), Some(json!({ "devices": devices }))).await
    }

    pub(crate) async fn keys(&self) -> KeySet {
        let published = self.get("/.well-known/jwks.json", None).await;
        assert_eq!(published.status, 200, "{}", published.text);
        KeySet::from_jwks(published.text.as_bytes()).unwrap()
    }

    /// What a relay makes of a token, with the keys as they are published now.
    pub(crate) async fn admit(&self, token: &str) -> Result<Admission, TokenError> {
        let relay = Relay { issuer: ISSUER.into(), region: None };
        relay.admit(token, &self.keys().await, now())
    }
}

pub(crate) fn registry(folder: &Path) -> Registry {
    Registry::open_existing(folder).unwrap()
}

/// A public key that grows from this seed, as it is sent.
pub(crate) fn identity(seed: u8) -> String {
    URL_SAFE_NO_PAD.encode(IdentitySecret::from_seed(&[seed; 32]).public().as_bytes())
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The id of the key that signed a token.
pub(crate) fn kid(token: &str) -> String {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    header["kid"].as_str().unwrap().to_owned()
}

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < DEADLINE, "never {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
