//! Turns that wait for a surface, while every replica is killed.

use serde_json::json;

use crate::installation::{Installation, REPLICAS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l2_12_what_waits_for_a_surface_survives_kill_9_of_every_replica_and_drains_in_order() {
    let world = Installation::start("");
    let clients = world.clients();
    let session = clients[0].session().await;
    let mut said = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        // Whoever owned the session is dead from the second time on.
        for nth in 0..3 {
            let answer = client.say(&session, &format!("echo {number} {nth}")).await;
            said.push(answer.content().to_owned());
        }
        world.replica(number).kill();
        world.replica(number).start();
    }
    (0..REPLICAS).for_each(|number| world.replica(number).kill());
    (0..REPLICAS).for_each(|number| world.replica(number).start());
    let screen = json!({ "surface_id": "screen", "ui_capabilities": ["markdown"] });
    let mut phone = clients[1].attach(&session, screen).await;
    let mut drained = Vec::new();
    while drained.len() < said.len() {
        let turn = phone.until("TETHER_TURN").await;
        drained.push(turn["content"].as_str().unwrap().to_owned());
    }
    assert_eq!(drained, said);
}
