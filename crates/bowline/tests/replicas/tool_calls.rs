//! A tool call whose device, whose caller and whose owner are at three replicas, one of which is lost.

use serde_json::{Value, json};

use crate::client::{Client, Session};
use crate::installation::Installation;
use crate::phone::Phone;

/// Devices may take time to come back; a position can be asked for twice, a photo is taken once.
const TOOLS: &str = r#"
[tools]
wait_for_surface = "1m"
timeout = "1m"
idempotent = ["gps"]
[tools.policy]
gps = "allow"
camera = "allow"
"#;

fn device() -> Value {
    json!({ "surface_id": "phone", "mcp_tools": ["gps", "camera"] })
}

/// Has the agent call that tool, as somebody who asks over HTTP.
fn asks(client: &Client, session: &Session, tool: &str) -> tokio::task::JoinHandle<String> {
    let (client, session) = (client.clone(), session.clone());
    let words = format!("call surface tool {tool} with {{}}");
    tokio::spawn(async move { client.say(&session, &words).await.content().to_owned() })
}

/// A session that the first of these replicas owns, with the phone attached at the second.
async fn session(world: &Installation, owner: usize, phone: usize) -> (Session, Phone) {
    let clients = world.clients();
    let session = clients[owner].session().await;
    clients[owner].say(&session, "echo mine").await;
    let phone = clients[phone].attach(&session, device()).await;
    assert!(world.owns(owner, &session).await);
    (session, phone)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_05_a_device_takes_its_call_from_one_replica_to_another() {
    from_one_replica_to_another(Installation::start(TOOLS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_05_a_device_takes_its_call_to_another_replica_without_redis() {
    from_one_replica_to_another(Installation::without_redis(TOOLS, "0ms")).await;
}

async fn from_one_replica_to_another(world: Installation) {
    let [a, b, c] = world.clients();
    for owner in [0, 1, 2] {
        let (session, mut at_a) = session(&world, owner, 0).await;
        let asked = asks(b, &session, "camera");
        let call = at_a.until("TOOL_CALL").await;
        drop(at_a);
        let mut at_c = c.attach(&session, device()).await;
        let again = at_c.until("TOOL_CALL").await;
        assert_eq!(again["call_id"], call["call_id"], "the device knows the call");
        at_c.answer(&again, "a cat").await;
        assert_eq!(asked.await.unwrap(), "The tool answered: a cat");
        assert_eq!(a.log(&session).await, c.log(&session).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_05_a_result_at_a_third_replica_ends_the_call_of_one_that_was_killed() {
    after_a_kill(Installation::start(TOOLS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_05_a_result_at_a_third_replica_ends_the_call_of_one_that_was_killed_without_redis()
{
    after_a_kill(Installation::without_redis(TOOLS, "0ms")).await;
}

async fn after_a_kill(world: Installation) {
    let [_, b, c] = world.clients();
    // The replica that is killed has the device of the first, and is the owner of the others, too.
    let (held, mut held_phone) = session(&world, 1, 0).await;
    let (owned, mut owned_phone) = session(&world, 0, 0).await;
    let (once, mut once_phone) = session(&world, 0, 0).await;
    let held_asked = asks(b, &held, "camera");
    let owned_asked = asks(b, &owned, "gps");
    let once_asked = asks(b, &once, "camera");
    let call = held_phone.until("TOOL_CALL").await;
    owned_phone.until("TOOL_CALL").await;
    once_phone.until("TOOL_CALL").await;
    let begun = std::time::Instant::now();
    world.replica(0).kill();

    // Its owner is alive: it is the same call.
    let mut phone = c.attach(&held, device()).await;
    let again = phone.until("TOOL_CALL").await;
    assert_eq!(again["call_id"], call["call_id"]);
    phone.answer(&again, "a cat").await;
    assert_eq!(held_asked.await.unwrap(), "The tool answered: a cat");
    println!("the owner lives: answered after {:?}", begun.elapsed());

    // A new owner asks again for what may be asked twice.
    let mut phone = c.attach(&owned, device()).await;
    let again = phone.until("TOOL_CALL").await;
    phone.answer(&again, "here").await;
    assert_eq!(owned_asked.await.unwrap(), "The tool answered: here");
    println!("the owner died: answered after {:?}", begun.elapsed());

    // Nobody knows whether the photo was taken: the agent is told, and no second one is.
    let told = once_asked.await.unwrap();
    assert!(told.contains("interrupted"), "{told}");
    let mut phone = c.attach(&once, device()).await;
    b.say(&once, "echo over").await;
    loop {
        let frame = phone.next().await.unwrap();
        assert_ne!(frame["type"], "TOOL_CALL", "{frame}");
        if frame["type"] == "TURN_COMPLETE" {
            break;
        }
    }
}
