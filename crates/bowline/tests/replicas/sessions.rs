//! A session that lives at one replica, and everything else that is done with it at others.

use serde_json::json;

use crate::client::{Client, Session, eventually, mcp};
use crate::installation::Installation;
use crate::phone::{LiveText, Phone};

/// A session that the first replica owns, with a surface there.
async fn at_the_first(world: &Installation) -> (Session, Phone) {
    let [a, ..] = world.clients();
    let session = a.session().await;
    let device = json!({ "surface_id": "phone", "mcp_tools": ["gps"] });
    let mut phone = a.attach(&session, device).await;
    assert_eq!(a.say(&session, "echo the first words").await.content(), "the first words");
    phone.until("TURN_COMPLETE").await;
    assert!(world.owns(0, &session).await);
    (session, phone)
}

/// The words of a session, as a replica has them.
async fn words(client: &Client, session: &Session) -> Vec<String> {
    let log = client.log(session).await;
    log.iter().map(|entry| entry["message"]["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l2_20_surfaces_join_one_session_at_three_processes() {
    let world = Installation::start("");
    let [a, b, c] = world.clients();
    let (session, at_a) = at_the_first(&world).await;
    let at_b = b.attach(&session, json!({ "surface_id": "laptop" })).await;
    let at_c = c.attach(&session, json!({ "surface_id": "watch" })).await;
    let attached = a.get(&session.path("")).await.body["attached"].clone();
    assert_eq!(attached.as_array().unwrap().len(), 3, "{attached}");
    let mut phones = [at_a, at_b, at_c];
    for speaker in 0..3 {
        let text = format!("said at {speaker}");
        let content = format!("echo {text}");
        let said = json!({ "type": "USER_MESSAGE", "client_turn_id": text, "content": content });
        phones[speaker].send(said).await;
        for (number, phone) in phones.iter_mut().enumerate() {
            if number != speaker {
                // Who came later is first shown what was asked before.
                while phone.until("USER_TURN").await["content"] != content {}
            }
            let mut live = LiveText::default();
            live.read_to_end(phone).await;
            assert_eq!(live.bytes, text.as_bytes());
        }
    }
    assert!(world.owns(0, &session).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_a_turn_is_cancelled_at_another_process() {
    let world = Installation::paced("20ms");
    let [a, b, c] = world.clients();
    let (session, mut phone) = at_the_first(&world).await;
    let asked = tokio::spawn({
        let (c, session) = (c.clone(), session.clone());
        async move { c.say(&session, "count to 10000").await }
    });
    let mut chunk = phone.until("TURN_CHUNK").await;
    while !chunk["delta"].as_str().unwrap().contains('3') {
        chunk = phone.until("TURN_CHUNK").await;
    }
    assert!(world.owns(0, &session).await);
    let cancelled = b.post(&session.path("cancel"), json!({})).await;
    assert_eq!(cancelled.body["cancelled"], true, "{}", cancelled.text);
    let said = asked.await.unwrap();
    assert_eq!(said.body["sbp"]["turn_status"], "cancelled", "{}", said.text);
    assert_eq!(phone.until("TURN_COMPLETE").await["status"], "cancelled");
    assert_eq!(a.log(&session).await.last().unwrap()["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g8_a_session_is_exported_forked_and_handed_off_at_another_process() {
    let world = Installation::start("");
    let [a, b, c] = world.clients();
    let (session, mut phone) = at_the_first(&world).await;
    // Each knows the other's last words at once.
    b.say(&session, "echo the second words").await;
    let exported = c.post(&session.path("export"), json!({})).await;
    assert_eq!(exported.status, 201, "{}", exported.text);
    assert_eq!(exported.body["message_count"], 4, "{}", exported.text);
    let token = json!({ "roaming_token": exported.body["roaming_token"] });
    let imported = Session::of(&b.post("/v1/sbp/sessions/import", token).await);
    assert_eq!(words(a, &imported).await[..4], words(b, &session).await);

    let forked = c.post(&session.path("fork"), json!({ "label": "another way" })).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    assert_eq!(forked.body["fork_point_msg"], 4, "{}", forked.text);

    let handed = c.post(&session.path("handoff"), json!({ "to_agent_id": "other" })).await;
    assert_eq!(handed.status, 201, "{}", handed.text);
    assert_eq!(phone.until("SESSION_HANDED_OFF").await["to_agent_id"], "other");
    assert_eq!(phone.closed().await, 4010);
    let successor = Session::of(&handed);
    assert_eq!(words(a, &successor).await[..4], words(b, &session).await);
    // One of them takes turns, everywhere.
    for client in [a, b, c] {
        assert_eq!(client.say(&session, "echo no").await.status, 409);
        assert_eq!(client.say(&successor, "echo yes").await.content(), "yes");
    }
    let lineage = a.get(&session.path("lineage")).await.body;
    for part in ["exports", "forks", "outgoing_handoffs"] {
        assert!(!lineage[part].as_array().unwrap().is_empty(), "{part}: {lineage}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l5_06_a_host_at_another_process_sees_the_session_and_calls_its_device() {
    let world = Installation::start("[tools.policy]\ngps = \"allow\"");
    let [a, b, c] = world.clients();
    let (session, mut phone) = at_the_first(&world).await;
    let listed = mcp(c, "tools/call", json!({ "name": "sessions_list", "arguments": {} })).await;
    let first = &listed["structuredContent"]["sessions"][0];
    assert_eq!((&first["session_id"], &first["turn_running"]), (&json!(session.id), &json!(false)));
    let tools = mcp(c, "tools/list", json!({})).await;
    let names =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    let gps = names.clone().find(|name| name.ends_with("_gps")).expect("the device's tool");
    let device = async {
        let call = phone.until("TOOL_CALL").await;
        phone.answer(&call, "here").await;
    };
    let call = json!({ "name": gps, "arguments": {} });
    let (called, ()) = tokio::join!(mcp(c, "tools/call", call), device);
    assert_eq!(called["content"][0]["text"], "here", "{called}");
    // What the host says is heard by the surface and read at the third replica.
    let said = json!({ "session_id": session.id, "text": "echo from a host" });
    let sent = mcp(c, "tools/call", json!({ "name": "session_send", "arguments": said })).await;
    assert_eq!(sent["content"][0]["text"], "from a host", "{sent}");
    phone.until("TURN_COMPLETE").await;
    assert_eq!(words(b, &session).await[3], "from a host");
    drop(phone);
    eventually("the device's tool is gone", async || {
        !mcp(b, "tools/list", json!({})).await.to_string().contains("_gps")
    })
    .await;
    assert_eq!(words(a, &session).await.len(), 4);
}
