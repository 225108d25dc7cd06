//! Pairing of devices: one-time codes, over HTTP and for the program around the gateway (G7, G11).

use std::sync::Arc;

use bowline_gateway::devices::{OfferRefused, PairRefused};
use bowline_sbp::access::{Scope, Scopes};
use bowline_store::Error;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::bench::{Bench, LOCAL_KEY, list};
use crate::disk::on_a_bad_disk_with;
use crate::paired::{Paired, new_key, pair};
use crate::people::{call, get, key, person};
use crate::replicas::Replicas;
use crate::upstream::MockUpstream;

/// As the program around the gateway sets it where there is a relay.
fn tell_codes(bench: &Bench) {
    let text = |code: &[u8; 16]| format!("pair:{}", uuid::Uuid::from_bytes(*code).simple());
    bench.gateway.devices().set_pairing_text(Some(Arc::new(text)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_one_code_pairs_one_of_many_racing_devices() {
    let bench = Bench::start().await;
    let devices = bench.gateway.devices();
    let offer = devices.offer(None, None).await.unwrap();
    let (racers, start) = (8, Arc::new(Barrier::new(8)));
    let racing = (0..racers).map(|n| {
        let (devices, start, code) = (devices.clone(), Arc::clone(&start), offer.code);
        tokio::spawn(async move {
            let mut key = new_key();
            key[31] = n;
            start.wait().await;
            devices.pair(key, "phone", |known| *known == code).await
        })
    });
    let mut paired = Vec::new();
    for racer in racing.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Ok(device) => paired.push(device),
            Err(refused) => assert_eq!(refused, PairRefused::BadCode),
        }
    }
    assert_eq!(paired.len(), 1);
    assert_eq!(devices.all().await.unwrap(), paired);
    assert!(devices.pending().await.unwrap().is_empty());
}

#[tokio::test]
async fn g7_a_wrong_code_pairs_nobody_and_uses_nothing_up() {
    let bench = Bench::start().await;
    let devices = bench.gateway.devices();
    let mut changed = devices.changed();
    let (one, two) = (devices.offer(None, None).await, devices.offer(None, None).await);
    let (one, two) = (one.unwrap(), two.unwrap());
    changed.changed().await.unwrap();
    let pending = [(one.code, one.expires_at), (two.code, two.expires_at)];
    assert_eq!(devices.pending().await.unwrap(), pending);
    let refused = devices.pair(new_key(), "phone", |code| *code == [0; 16]).await;
    assert_eq!(refused, Err(PairRefused::BadCode));
    assert_eq!(devices.pending().await.unwrap(), pending);
    changed.mark_unchanged();
    devices.pair(new_key(), "phone", |code| *code == two.code).await.unwrap();
    changed.changed().await.unwrap();
    assert_eq!(devices.pending().await.unwrap(), pending[..1], "the one that it knows");
}

#[tokio::test]
async fn g11_attempts_to_pair_are_limited_but_not_while_no_code_waits() {
    let bench = Bench::start().await;
    let devices = bench.gateway.devices();
    let guess = async || devices.pair(new_key(), "phone", |_| false).await.unwrap_err();
    for _ in 0..50 {
        assert_eq!(guess().await, PairRefused::BadCode);
    }
    let offer = devices.offer(None, None).await.unwrap();
    for _ in 0..10 {
        assert_eq!(guess().await, PairRefused::BadCode);
    }
    assert_eq!(guess().await, PairRefused::TooMany);
    let right = devices.pair(new_key(), "phone", |code| *code == offer.code).await;
    assert_eq!(right, Err(PairRefused::TooMany));
    assert_eq!(devices.pending().await.unwrap().len(), 1);
}

#[tokio::test]
async fn g11_only_so_many_codes_wait() {
    let bench = Bench::start().await;
    tell_codes(&bench);
    for _ in 0..16 {
        let made = bench.post_as_owner("/v1/devices/pairing", json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    let refused = bench.post_as_owner("/v1/devices/pairing", json!({})).await;
    assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
    let refused = bench.gateway.devices().offer(None, None).await;
    assert_eq!(refused, Err(OfferRefused::TooMany));
}

#[tokio::test]
async fn g7_a_code_waits_on_if_nothing_was_stored() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let devices = bench.gateway.devices();
    let offer = devices.offer(None, None).await.unwrap();
    let full = Error::Unavailable("the disk is full".into());
    disk.fail("use_offer", full.clone());
    let key = new_key();
    let refused = devices.pair(key, "phone", |code| *code == offer.code).await;
    assert_eq!(refused, Err(PairRefused::Store(full)));
    assert_eq!(devices.find(&key).await.unwrap(), None);
    let paired = devices.pair(key, "phone", |code| *code == offer.code).await.unwrap();
    assert_eq!(devices.find(&key).await.unwrap(), Some(paired));
    assert!(devices.pending().await.unwrap().is_empty());
}

#[tokio::test]
async fn g7_a_code_of_a_user_who_was_disabled_pairs_nobody() {
    let bench = Bench::start().await;
    person(&bench, "ada").await;
    let devices = bench.gateway.devices();
    let offer = devices.offer(Some("Ada"), None).await.unwrap();
    let disabled = json!({ "disabled": true });
    call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/ada", disabled).await;
    let refused = devices.pair(new_key(), "phone", |code| *code == offer.code).await;
    assert_eq!(refused, Err(PairRefused::BadCode));
    let refused = devices.offer(Some("ada"), None).await;
    assert_eq!(refused, Err(OfferRefused::Disabled("ada".into())));
}

#[tokio::test]
async fn codes_are_made_over_http_only_where_there_is_a_relay_and_only_by_who_manages() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let path = "/v1/devices/pairing";
    let refused = bench.post_as_owner(path, json!({})).await;
    assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"));
    assert!(refused.text.contains("not reachable through a relay"), "{}", refused.text);
    assert!(refused.text.contains("bowline up --relay URL"), "{}", refused.text);
    tell_codes(&bench);
    let made = bench.post_as_owner(path, json!({ "user": "ada" })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (code, expires_at) = bench.gateway.devices().pending().await.unwrap()[0];
    let text = format!("pair:{}", uuid::Uuid::from_bytes(code).simple());
    assert_eq!(made.body, json!({ "text": text, "expires_at": expires_at }));
    for (asked, status) in [
        (json!({ "user": "nobody" }), 404),
        (json!({ "user": "ada", "scopes": ["admin"] }), 422),
        (json!({ "user": "ada", "scopes": [] }), 422),
        (json!({ "scopes": ["root"] }), 422),
        (json!({ "scopes": ["admin", "read"] }), 201),
    ] {
        let said = bench.post_as_owner(path, asked.clone()).await;
        assert_eq!(said.status, status, "{asked}: {}", said.text);
    }
    assert_eq!(call(&bench, &ada.key, Method::POST, path, json!({})).await.status, 403);
    assert_eq!(bench.post(path, json!({})).await.status, 401);
    assert_eq!(bench.gateway.devices().pending().await.unwrap().len(), 2);
}

#[tokio::test]
async fn devices_are_listed_with_their_fingerprints_and_keys_say_which_are_devices() {
    let bench = Bench::start().await;
    person(&bench, "ada").await;
    let mut known = [0; 32];
    known[31] = 1;
    let owners = pair(&bench, known, None, Some(Scopes::of(&[Scope::Read]))).await;
    let phone = Paired::of(&bench, "ada").await;
    assert_eq!(phone.own.get("/v1/sessions").await.status, 200);
    let listed = get(&bench, LOCAL_KEY, "/v1/devices").await;
    let devices = list(&listed.body["devices"]);
    assert_eq!(devices.len(), 2);
    let by_id = |id: &str| {
        let found = devices.iter().find(|device| device["id"] == id);
        found.unwrap_or_else(|| panic!("{}", listed.text)).clone()
    };
    let read = by_id(owners.id.as_str());
    // printf '%064x' 1 | xxd -r -p | sha256sum
    let fingerprint = "SHA256:EC:49:16:DD:28:FC:4C:10:D7:8E:28:7C:A5:D9:CC:51:EE:1A:E7:3C:BF:DE:\
                       08:C6:B3:73:24:CB:FA:AC:8B:C5";
    assert_eq!(
        (&read["fingerprint"], &read["user"], &read["name"], &read["scopes"]),
        (&json!(fingerprint), &json!("owner"), &json!("phone"), &json!(["read"]))
    );
    assert!(read["last_used_at"].is_null() && !read["paired_at"].is_null(), "{read}");
    let hers = by_id(phone.device.id.as_str());
    assert!(!hers["last_used_at"].is_null(), "{hers}");
    assert_eq!(list(&hers["scopes"]).len(), 5, "all but admin: {hers}");
    // A key is no device.
    let plain = key(&bench, "ada", json!({})).await;
    let path = format!("/v1/devices/{}", plain.id);
    let refused = call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
    assert_eq!(refused.refusal(), (404, "SBP_NOT_FOUND"));
    let keys = get(&bench, LOCAL_KEY, "/v1/keys?user=ada").await;
    for key in list(&keys.body["keys"]) {
        let is_phone = key["id"] == phone.device.id.as_str();
        assert_eq!(key.get("device").is_some(), is_phone, "{key}");
    }
    let one = format!("/v1/devices/{}", owners.id);
    call(&bench, LOCAL_KEY, Method::DELETE, &one, Value::Null).await;
    let listed = get(&bench, LOCAL_KEY, "/v1/devices").await;
    assert_eq!(list(&listed.body["devices"]).len(), 1, "{}", listed.text);
    let keys = get(&bench, LOCAL_KEY, "/v1/keys?user=owner").await;
    let revoked = &list(&keys.body["keys"])[0];
    assert_eq!(revoked["device"], fingerprint);
    assert!(!revoked["revoked_at"].is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_a_code_of_one_replica_pairs_at_another_and_once() {
    let replicas = Replicas::start(3).await;
    let [a, b, c] = [0, 1, 2].map(|at| replicas.all[at].gateway.devices());
    let offer = a.offer(None, None).await.unwrap();
    let waiting = [(offer.code, offer.expires_at)];
    for devices in [&a, &b, &c] {
        assert_eq!(devices.pending().await.unwrap(), waiting);
    }
    let knows = |code: &[u8; 16]| *code == offer.code;
    let paired = b.pair(new_key(), "phone", knows).await.unwrap();
    assert_eq!(c.pair(new_key(), "another", knows).await, Err(PairRefused::BadCode));
    for devices in [&a, &b, &c] {
        assert!(devices.pending().await.unwrap().is_empty());
        assert_eq!(devices.find(&paired.key).await.unwrap(), Some(paired.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_guesses_are_counted_across_replicas() {
    let replicas = Replicas::start(2).await;
    let [a, b] = [0, 1].map(|at| replicas.all[at].gateway.devices());
    let offer = a.offer(None, None).await.unwrap();
    for guess in 0..10 {
        let devices = if guess % 2 == 0 { &a } else { &b };
        let refused = devices.pair(new_key(), "phone", |_| false).await;
        assert_eq!(refused, Err(PairRefused::BadCode));
    }
    for devices in [&a, &b] {
        let right = devices.pair(new_key(), "phone", |code| *code == offer.code).await;
        assert_eq!(right, Err(PairRefused::TooMany));
    }
}

#[tokio::test]
async fn a_code_outlives_a_restart_of_its_gateway_and_is_not_in_the_database() {
    let bench = Bench::start().await;
    let offer = bench.gateway.devices().offer(None, None).await.unwrap();
    let waiting = bench.gateway.devices().pending().await.unwrap();
    bench.gateway.stop().await;
    for file in std::fs::read_dir(bench.folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(16).any(|some| some == offer.code));
    }
    let again = Bench::on(bench.store, bench.folder, |_| {}).await;
    assert_eq!(again.gateway.devices().pending().await.unwrap(), waiting);
    let key = new_key();
    again.gateway.devices().pair(key, "phone", |code| *code == offer.code).await.unwrap();
}
