//! A tool call whose device, whose caller and whose owner are at three replicas, one of which is lost or restarts.

use serde_json::{Value, json};

use crate::client::{Client, Session, eventually, mcp};
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

/// Nothing says that a device may take time to come back: it did not leave.
const RESTARTS: &str = r#"
[tools]
timeout = "1m"
[tools.policy]
camera = "allow"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_a_planned_restart_of_owner_or_edge_loses_no_call_that_a_device_has() {
    let world = Installation::start(RESTARTS);
    // What is stopped is owner and edge, the owner alone, the edge alone.
    for (owner, edge, stopped) in [(0, 0, 0), (0, 1, 0), (1, 0, 0)] {
        let [_, _, c] = world.clients();
        let (session, mut phone) = session(&world, owner, edge).await;
        let asked = asks(c, &session, "camera");
        let call = phone.until("TOOL_CALL").await;
        let closed = tokio::spawn(phone.closed());
        tokio::task::block_in_place(|| world.replica(stopped).stop());
        assert_eq!(closed.await.unwrap(), 1012, "owner {owner}, edge {edge}");
        let mut phone = c.attach(&session, device()).await;
        let again = phone.until("TOOL_CALL").await;
        assert_eq!(again["call_id"], call["call_id"], "owner {owner}, edge {edge}");
        phone.answer(&again, "a cat").await;
        assert_eq!(asked.await.unwrap(), "The tool answered: a cat");
        tokio::task::block_in_place(|| world.replica(stopped).start());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_05_a_device_whose_replica_was_killed_did_not_leave() {
    let world = Installation::start(RESTARTS);
    let [_, b, c] = world.clients();
    let (session, mut phone) = session(&world, 1, 0).await;
    let asked = asks(b, &session, "camera");
    let call = phone.until("TOOL_CALL").await;
    world.replica(0).kill();
    // The owner has noticed it.
    eventually("nobody is attached", async || {
        b.get(&session.path("")).await.body["attached"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    let mut phone = c.attach(&session, device()).await;
    let again = phone.until("TOOL_CALL").await;
    assert_eq!(again["call_id"], call["call_id"]);
    phone.answer(&again, "a cat").await;
    assert_eq!(asked.await.unwrap(), "The tool answered: a cat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_a_photo_that_is_taken_while_its_owner_restarts_counts() {
    let world = Installation::without_redis(RESTARTS, "0ms");
    let [_, b, c] = world.clients();
    let (session, mut phone) = session(&world, 0, 0).await;
    let asked = asks(b, &session, "camera");
    let call = phone.until("TOOL_CALL").await;
    let closed = tokio::spawn(phone.closed());
    tokio::task::block_in_place(|| world.replica(0).stop());
    closed.await.unwrap();
    // It does not wait until the call comes again.
    let mut phone = c.attach(&session, device()).await;
    phone.answer(&call, "a cat").await;
    assert_eq!(asked.await.unwrap(), "The tool answered: a cat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_open_call_survives_restarts_of_all_replicas_one_by_one() {
    let world = Installation::start(RESTARTS);
    let clients = world.clients();
    let (session, mut phone) = session(&world, 0, 0).await;
    // Whoever asked over HTTP is at one of them; a turn of a surface is of nobody.
    let said = "call surface tool camera with {}";
    let turn = json!({ "type": "USER_MESSAGE", "client_turn_id": "a", "content": said });
    phone.send(turn).await;
    let call = phone.until("TOOL_CALL").await;
    for (number, other) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
        let closed = tokio::spawn(phone.closed());
        tokio::task::block_in_place(|| world.replica(number).stop());
        assert_eq!(closed.await.unwrap(), 1012, "restart of {number}");
        phone = clients[other].attach(&session, device()).await;
        let again = phone.until("TOOL_CALL").await;
        assert_eq!(again["call_id"], call["call_id"], "restart of {number}");
        tokio::task::block_in_place(|| world.replica(number).start());
    }
    phone.answer(&call, "a cat").await;
    assert_eq!(phone.until("TURN_COMPLETE").await["status"], "complete");
    let log = clients[2].log(&session).await;
    let last = &log.last().unwrap()["message"]["content"];
    assert_eq!(*last, "The tool answered: a cat");
    let results = log.iter().filter(|entry| entry["message"]["role"] == "tool").count();
    assert_eq!(results, 1, "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_a_hosts_call_goes_on_while_the_owner_of_its_device_restarts() {
    let world = Installation::without_redis(RESTARTS, "50ms");
    let [_, b, c] = world.clients();
    let (other, _) = session(&world, 0, 1).await;
    let (session, mut phone) = session(&world, 0, 0).await;
    let tools = mcp(c, "tools/list", json!({})).await;
    let names = tools["tools"].as_array().unwrap().iter();
    let mut names = names.map(|tool| tool["name"].as_str().unwrap().to_owned());
    let camera = names.find(|name| name.ends_with("_camera")).expect("the device's tool");
    let host = c.clone();
    let called = tokio::spawn(async move {
        mcp(&host, "tools/call", json!({ "name": camera, "arguments": {} })).await
    });
    let call = phone.until("TOOL_CALL").await;
    // It has more to do before it ends.
    let (asked, answered) = (b.clone(), other.clone());
    let counted = tokio::spawn(async move { asked.say(&answered, "count to 40").await.status });
    eventually("it counts", async || b.get(&other.path("")).await.body["turn_running"] == true)
        .await;
    let closed = tokio::spawn(phone.closed());
    tokio::task::block_in_place(|| world.replica(0).stop());
    assert_eq!(closed.await.unwrap(), 1012);
    assert_eq!(counted.await.unwrap(), 200);
    // Neither where the host waits nor where its session was.
    let mut phone = b.attach(&session, device()).await;
    let again = phone.until("TOOL_CALL").await;
    assert_eq!(again["call_id"], call["call_id"]);
    phone.answer(&again, "a cat").await;
    let called = called.await.unwrap();
    assert_eq!(called["content"][0]["text"], "a cat", "{called}");
}
