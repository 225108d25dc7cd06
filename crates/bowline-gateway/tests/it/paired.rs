//! A paired device for tests: a port on this machine whose connections enter the gateway as the device's.

use std::net::SocketAddr;

use bowline_gateway::Device;
use bowline_net::{DeviceEntry, Entrance};
use bowline_sbp::access::Scopes;
use reqwest::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::bench::{Answer, Bench, Session, answer, hello};
use crate::phone::Phone;

/// Where a device's connections begin.
pub(crate) struct DevicePort {
    pub(crate) address: SocketAddr,
    http: reqwest::Client,
    _accepting: AbortOnDropHandle<()>,
}

impl DevicePort {
    pub(crate) async fn open(bench: &Bench, entry: DeviceEntry) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting =
            AbortOnDropHandle::new(tokio::spawn(accept(listener, bench.gateway.entrance(), entry)));
        Self { address, http: reqwest::Client::new(), _accepting: accepting }
    }

    /// Sends a request with these headers; `Null`: no body.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut request = self.http.request(method, format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        answer(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[], &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, &[], &body).await
    }

    /// The same with a key or token; empty: none.
    pub(crate) async fn get_with(&self, bearer: &str, path: &str) -> Answer {
        self.call_with(bearer, Method::GET, path, Value::Null).await
    }

    pub(crate) async fn call_with(
        &self,
        bearer: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> Answer {
        let text = format!("Bearer {bearer}");
        let shown = [("authorization", text.as_str())];
        let shown = if bearer.is_empty() { &[] } else { &shown[..] };
        self.call(method, path, shown, &body).await
    }

    pub(crate) async fn session(&self) -> Session {
        let made = self.post("/v1/sessions", serde_json::json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
        Session::of(&made.body)
    }

    pub(crate) async fn socket(&self, id: &str) -> Phone {
        self.socket_with(id, &[]).await.unwrap()
    }

    /// The status that refused the upgrade, or the socket.
    pub(crate) async fn socket_with(
        &self,
        id: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Phone, u16> {
        let url = format!("ws://{}/v1/sbp/ws/{id}", self.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => Ok(Phone { socket }),
            Err(tokio_tungstenite::tungstenite::Error::Http(refused)) => {
                Err(refused.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A surface that shows this token in its first frame, and what it was answered.
    pub(crate) async fn attach(&self, session: &Session, token: &str) -> (Phone, Value) {
        let mut phone = self.socket(&session.id).await;
        let shown = Session { token: token.to_owned(), ..session.clone() };
        phone.send(hello(&shown, serde_json::json!({ "device_type": "mobile" }))).await;
        let first = phone.next().await;
        (phone, first)
    }
}

async fn accept(listener: TcpListener, entrance: Entrance, entry: DeviceEntry) {
    while let Ok((stream, _)) = listener.accept().await {
        // One that is refused is dropped, and the test sees it closed.
        let _ = entrance.enter(stream, entry.clone());
    }
}

/// A paired device, its own client and the port that its programs can use.
pub(crate) struct Paired {
    pub(crate) device: Device,
    pub(crate) own: DevicePort,
    pub(crate) programs: DevicePort,
}

impl Paired {
    pub(crate) async fn with(bench: &Bench, user: Option<&str>, scopes: Option<Scopes>) -> Self {
        let device = pair(bench, new_key(), user, scopes).await;
        let own = DevicePort::open(bench, device.entry(false)).await;
        let programs = DevicePort::open(bench, device.entry(true)).await;
        Self { device, own, programs }
    }

    /// With what a device has if nobody says otherwise.
    pub(crate) async fn of(bench: &Bench, user: &str) -> Self {
        Self::with(bench, Some(user), None).await
    }
}

/// A device's public key.
pub(crate) fn new_key() -> [u8; 32] {
    let mut key = [7; 32];
    key[..16].copy_from_slice(Uuid::new_v4().as_bytes());
    key
}

/// Pairs a device by a new code.
pub(crate) async fn pair(
    bench: &Bench,
    key: [u8; 32],
    user: Option<&str>,
    scopes: Option<Scopes>,
) -> Device {
    let devices = bench.gateway.devices();
    let offer = devices.offer(user, scopes).await.unwrap();
    devices.pair(key, "phone", |code| *code == offer.code).await.unwrap()
}
