//! Several relays: where daemons and clients are sent, and what their tokens say.

use bowline_sbrp::revocation::{self, Revoked};
use bowline_sbrp::token::{Admission, Relay};
use reqwest::Method;
use serde_json::{Value, json};

use crate::control::bench::{Answer, Bench, ISSUER, RELAY, identity, now};

const EU: &str = "wss://eu.example/relay";
const US: &str = "wss://us.example/relay";

async fn bench() -> (Bench, String) {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let mut registry = bench.registry();
    registry.add_relay("eu", &EU.parse().unwrap(), Some("eu"), now()).unwrap();
    registry.add_relay("us", &US.parse().unwrap(), Some("us"), now()).unwrap();
    (bench, key)
}

impl Bench {
    async fn begin(&self, key: &str, seed: u8, more: Value) -> Answer {
        let mut body = json!({ "apiKey": key, "identityPublicKey": identity(seed) });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.register_as(body).await
    }

    async fn go_on(&self, key: &str, daemon: &str, body: Value) -> Answer {
        let path = format!("/api/daemons/{daemon}/presence");
        self.call(Method::POST, &path, Some(key), Some(body)).await
    }

    /// The epoch that a token names, if the relay of that region takes it.
    async fn epoch(&self, token: &str, region: &str) -> u64 {
        let relay = Relay { issuer: ISSUER.into(), region: Some(region.into()) };
        match relay.admit(token, &self.keys().await, now()).unwrap() {
            Admission::Daemon(pass) => pass.epoch,
            Admission::Client(pass) => pass.epoch,
        }
    }
}

#[tokio::test]
async fn a_daemon_and_its_clients_are_told_the_same_relay_region_and_epoch() {
    let (bench, key) = bench().await;
    let made = bench.begin(&key, 1, json!({ "process": "p", "region": "us" })).await;
    assert_eq!((made.status, made.text_of("relayUrl").as_str()), (201, US), "{}", made.text);
    let (daemon, epoch) = (made.text_of("daemonId"), made.body["epoch"].as_u64().unwrap());
    assert!(epoch > 0);
    assert_eq!(bench.epoch(&made.text_of("presenceToken"), "us").await, epoch);
    let opened = bench.open(&key, &daemon).await;
    assert_eq!(opened.text_of("relayUrl"), US);
    assert_eq!(bench.epoch(&opened.text_of("token"), "us").await, epoch);

    let lost = json!({ "process": "p", "unreachable": [US] });
    let moved = bench.go_on(&key, &daemon, lost).await;
    assert_eq!(moved.text_of("relayUrl"), EU);
    let later = moved.body["epoch"].as_u64().unwrap();
    assert!(later > epoch);
    let opened = bench.open(&key, &daemon).await;
    assert_eq!(opened.text_of("relayUrl"), EU);
    assert_eq!(bench.epoch(&opened.text_of("token"), "eu").await, later);
    // One that says nothing of itself, as others' daemons do, is renewed as ever.
    let renewed = bench.renew(&key, &daemon).await;
    assert_eq!((renewed.status, renewed.text_of("relayUrl").as_str()), (200, EU));
}

#[tokio::test]
async fn sbrp_relay_18_the_process_that_registered_last_is_the_daemon() {
    let (bench, key) = bench().await;
    let daemon = bench.begin(&key, 1, json!({ "process": "old" })).await.text_of("daemonId");
    bench.begin(&key, 1, json!({ "process": "new" })).await;
    let refused = bench.go_on(&key, &daemon, json!({ "process": "old" })).await;
    assert_eq!(refused.refusal(), (409, "replaced"));
    assert_eq!(bench.go_on(&key, &daemon, json!({ "process": "new" })).await.status, 200);
    let bad = bench.go_on(&key, &daemon, json!({ "process": "" })).await;
    assert_eq!(bad.refusal(), (400, "invalid_request"));
}

#[tokio::test]
async fn relays_learn_that_they_are_drained_and_daemons_that_none_is_left() {
    let (bench, key) = bench().await;
    let draining = async |name: &str| {
        let published = bench.get(revocation::PATH, None).await;
        assert!(!published.text.contains("eu"), "names are nobody's business: {}", published.text);
        Revoked::from_json(published.text.as_bytes()).unwrap().is_draining(name)
    };
    assert!(!draining("eu").await);
    bench.registry().drain_relay("eu", false, now()).unwrap();
    assert!(draining("eu").await && !draining("us").await);
    let made = bench.begin(&key, 1, json!({ "process": "p", "region": "eu" })).await;
    assert_eq!(made.text_of("relayUrl"), US);
    bench.registry().drain_relay("us", true, now()).unwrap();
    let none = bench.begin(&key, 2, json!({ "process": "p" })).await;
    assert_eq!(none.refusal(), (503, "no_relay"));
    for name in ["eu", "us"] {
        bench.registry().remove_relay(name, false, now()).unwrap();
    }
    let configured = bench.begin(&key, 2, json!({ "process": "p" })).await;
    assert_eq!(configured.text_of("relayUrl"), RELAY, "without rows it is as it was");
}
