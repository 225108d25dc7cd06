//! Test fixture: a tracker on loopback, and gateways with manifests of their own.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use bowline_federation::{Credentials, MemoryPins, Peers, StaticPeer, SystemLookup, Target};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{
    Announced, Announcement, BaseUrl, Endpoints, GatewayId, Manifest, Role,
};
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_tracker::{Tracker, TrackerConfig};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

pub(crate) fn identity(n: u8) -> GatewayIdentity {
    GatewayIdentity::from_seed(&[n; 32])
}

pub(crate) fn id(name: &str) -> GatewayId {
    name.parse().unwrap()
}

pub(crate) fn cid(n: usize) -> Cid {
    Cid::of_bytes(&n.to_be_bytes())
}

pub(crate) fn now() -> i64 {
    Timestamp::now().as_second()
}

/// A gateway: its manifest on loopback, and its key.
pub(crate) struct Gateway {
    pub(crate) id: GatewayId,
    pub(crate) url: BaseUrl,
    n: Arc<Mutex<u8>>,
    pub(crate) fetched: Arc<Mutex<usize>>,
    _serving: AbortOnDropHandle<()>,
}

impl Gateway {
    pub(crate) async fn start(name: &str, n: u8) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: BaseUrl = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (key, fetched) = (Arc::new(Mutex::new(n)), Arc::new(Mutex::new(0)));
        let manifest = Manifest {
            gateway_id: id(name),
            gateway_name: String::new(),
            role: Role::Gateway,
            key: identity(n).public(),
            url: url.clone(),
            endpoints: Endpoints::of_gateway(&url),
            issued_at: now(),
            previous: Vec::new(),
        };
        let (shown, count) = (Arc::clone(&key), Arc::clone(&fetched));
        let router = Router::new().route(
            "/.well-known/sbp",
            get(async move || {
                *count.lock().unwrap() += 1;
                let n = *shown.lock().unwrap();
                let manifest = Manifest { key: identity(n).public(), ..manifest };
                manifest.sign(&identity(n))
            }),
        );
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let (id, _serving) = (id(name), AbortOnDropHandle::new(serving));
        Self { id, url, n: key, fetched, _serving }
    }

    /// It has another key from now on.
    pub(crate) fn rotate(&self, n: u8) {
        *self.n.lock().unwrap() = n;
    }

    pub(crate) fn announcement(&self, cids: &[usize], withdraw: &[usize]) -> Announcement {
        let announced = |n: &usize| Announced { cid: cid(*n), expires_at: now() + 3600 };
        Announcement {
            gateway_id: self.id.clone(),
            url: self.url.clone(),
            cids: cids.iter().map(announced).collect(),
            withdraw: withdraw.iter().map(|n| cid(*n)).collect(),
            issued_at: now(),
        }
    }

    pub(crate) fn sign(&self, announcement: &Announcement) -> String {
        announcement.sign(&identity(*self.n.lock().unwrap()))
    }

    /// What asks in its name.
    pub(crate) fn peers(&self) -> Peers {
        let keys = Arc::new(identity(*self.n.lock().unwrap()).into());
        let me = Credentials { id: self.id.clone(), url: self.url.clone(), keys };
        let pins = Arc::new(MemoryPins::default());
        Peers::new(me, Vec::new(), pins, Arc::new(SystemLookup)).unwrap()
    }
}

pub(crate) struct Running {
    pub(crate) url: BaseUrl,
    stop: Option<oneshot::Sender<()>>,
    running: AbortOnDropHandle<()>,
    http: reqwest::Client,
}

impl Running {
    /// A tracker `t` that knows these gateways as its peers.
    pub(crate) async fn start(
        data: &Path,
        peers: &[&Gateway],
        change: impl FnOnce(&mut TrackerConfig),
    ) -> Self {
        let mut config = TrackerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            id: id("t"),
            peers: peers.iter().map(|peer| (peer.id.clone(), peer.url.clone())).collect(),
            ..TrackerConfig::default()
        };
        change(&mut config);
        let bound = Tracker::bind(config, data, identity(200), Vec::new()).await.unwrap();
        let url = bound.url().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = AbortOnDropHandle::new(tokio::spawn(bound.run(stopped)));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url, stop: Some(stop), running, http }
    }

    pub(crate) fn target(&self) -> Target {
        let key = Some(identity(200).public());
        Target::named(&StaticPeer { id: id("t"), url: self.url.clone(), key })
    }

    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.http.post(self.url.join("/v1/sbp/registry")).body(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.http.get(self.url.join(path)).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// The ids of the gateways that it names for a bundle, verified.
    pub(crate) async fn holders(&self, asker: &Peers, n: usize) -> Vec<String> {
        let answer = asker.look_up(&self.target(), cid(n)).await.unwrap();
        answer.gateways.iter().map(|holder| holder.gateway_id.to_string()).collect()
    }

    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.running).await.unwrap();
    }
}
