//! A surface that goes from replica to replica in the middle of an answer.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::Session;
use crate::installation::Installation;
use crate::phone::{LiveText, Phone};

/// It shows everything, so that what it gets is what is stored.
fn screen() -> Value {
    let capabilities = json!(["markdown", "tables", "images", "streaming"]);
    json!({ "surface_id": "screen", "ui_capabilities": capabilities })
}

/// An answer that takes longer than the scene, in characters of one to four bytes.
fn text() -> String {
    (0..1500).map(|n| format!("wörd-{n}-日本-🦀 ")).collect()
}

async fn asked(phone: &mut Phone, text: &str) {
    let said = format!("echo {text}");
    phone.send(json!({ "type": "USER_MESSAGE", "client_turn_id": "a", "content": said })).await;
}

/// SIGTERM, and the end of that replica.
fn stopping(world: &Arc<Installation>, number: usize) -> tokio::task::JoinHandle<()> {
    let world = Arc::clone(world);
    tokio::task::spawn_blocking(move || world.replica(number).stop())
}

/// What all replicas have as the session's answer.
async fn stored(world: &Installation, session: &Session) -> String {
    let mut all = Vec::new();
    for client in world.clients() {
        let log = client.log(session).await;
        assert_eq!(log.len(), 2, "{log:?}");
        assert_eq!(log[1]["status"], "complete");
        all.push(log[1]["message"]["content"].as_str().unwrap().to_owned());
    }
    assert!(all.iter().all(|one| *one == all[0]), "replicas differ");
    all.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l2_08_a_surface_goes_through_three_replicas_within_a_sentence() {
    through_three_replicas(Installation::paced("10ms")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l2_08_a_surface_goes_through_three_replicas_without_redis() {
    through_three_replicas(Installation::without_redis("", "10ms")).await;
}

async fn through_three_replicas(world: Installation) {
    let [a, b, c] = world.clients();
    let (session, text) = (a.session().await, text());
    let mut phone = a.attach(&session, screen()).await;
    asked(&mut phone, &text).await;
    let mut live = LiveText::default();
    // Nobody says goodbye.
    for next in [b, c, a, b] {
        live.read_on(&mut phone, 500).await;
        drop(phone);
        phone = next.attach(&session, screen()).await;
    }
    live.read_to_end(&mut phone).await;
    let stored = stored(&world, &session).await;
    assert_eq!(stored.trim_end(), text.trim_end());
    assert_eq!(live.bytes, stored.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_a_sentence_goes_on_while_its_owner_and_its_surfaces_replica_are_restarted() {
    let world = Arc::new(Installation::paced("10ms"));
    let [a, b, c] = world.clients();
    let (session, text) = (a.session().await, text());
    let mut phone = a.attach(&session, screen()).await;
    asked(&mut phone, &text).await;
    let mut live = LiveText::default();
    live.read_on(&mut phone, 300).await;
    assert!(world.owns(0, &session).await);
    // The owner is stopped. It speaks on until it has finished, and its surfaces go elsewhere.
    let stopping_a = stopping(&world, 0);
    assert_eq!(phone.closed().await, 1012);
    let mut phone = b.attach(&session, screen()).await;
    live.read_on(&mut phone, 500).await;
    // So is the replica that the surface is at now.
    let stopping_b = stopping(&world, 1);
    assert_eq!(phone.closed().await, 1012);
    let mut phone = c.attach(&session, screen()).await;
    live.read_to_end(&mut phone).await;
    stopping_a.await.unwrap();
    stopping_b.await.unwrap();
    world.replica(0).start();
    world.replica(1).start();
    let stored = stored(&world, &session).await;
    assert_eq!(stored.trim_end(), text.trim_end());
    assert_eq!(live.bytes, stored.as_bytes());
}
