//! What is changed about users and keys at one replica holds at the others, without a restart.

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{eventually, soon};
use crate::installation::Installation;
use crate::phone::Phone;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_keys_made_limited_and_revoked_at_one_replica_count_at_the_others_within_2_s() {
    let world = Installation::start("");
    let [a, b, c] = world.clients();
    assert_eq!(a.post("/v1/users", json!({ "name": "ada" })).await.status, 201);
    let made = a.post("/v1/keys", json!({ "user": "ada", "name": "laptop" })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let key = made.body["key"].as_str().unwrap();
    let others = [b.with(key), c.with(key)];
    // Until every other replica answers a request with this key so.
    let becomes = async |what: &str, status: u16| {
        let took = eventually(what, async || {
            for client in &others {
                if client.get("/v1/sessions").await.status != status {
                    return false;
                }
            }
            true
        });
        let took = took.await;
        println!("{what}: counts at all replicas after {took:?}");
        assert!(took < soon(), "{what}: {took:?}");
    };
    becomes("a new key", 200).await;

    let user = async |change: Value| {
        let changed = a.call(Method::PATCH, "/v1/users/ada", change).await;
        assert_eq!(changed.status, 200, "{}", changed.text);
    };
    user(json!({ "disabled": true })).await;
    becomes("a disabled user", 403).await;
    user(json!({ "disabled": false })).await;
    becomes("an enabled user", 200).await;
    user(json!({ "limits": { "requests_per_minute": 0 } })).await;
    becomes("a limited user", 429).await;
    user(json!({ "limits": { "requests_per_minute": "none" } })).await;
    becomes("a user without limits", 200).await;

    let session = others[0].session().await;
    let shown = crate::client::Session { token: key.to_owned(), ..session.clone() };
    let at_b = Phone::attach(&b.address, &shown, json!({ "surface_id": "one" })).await;
    let at_c = Phone::attach(&c.address, &shown, json!({ "surface_id": "two" })).await;
    let id = made.body["id"].as_str().unwrap();
    let revoked = a.call(Method::DELETE, &format!("/v1/keys/{id}"), Value::Null).await;
    assert_eq!(revoked.status, 204, "{}", revoked.text);
    let cut_off = std::time::Instant::now();
    assert_eq!((at_b.closed().await, at_c.closed().await), (4003, 4003));
    println!("its surfaces are cut off after {:?}", cut_off.elapsed());
    assert!(cut_off.elapsed() < soon(), "{:?}", cut_off.elapsed());
    becomes("a revoked key", 403).await;
}
