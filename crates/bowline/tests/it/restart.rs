//! Recovery after kill -9, and graceful shutdown.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::process::{Process, bowline, session_of, turn};

#[tokio::test]
async fn sbp_l1_04_what_was_answered_is_there_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Process::start(folder.path());
    let first = gateway.say(None, "echo turn 0").await;
    let session = session_of(&first);
    let mut told = vec!["echo turn 0".to_owned(), "turn 0".to_owned()];
    for n in 1..20 {
        gateway.say(Some(&session), &format!("echo turn {n}")).await;
        told.extend([format!("echo turn {n}"), format!("turn {n}")]);
        if n % 5 == 0 {
            gateway = gateway.crash_and_restart();
        }
    }
    gateway = gateway.crash_and_restart();
    assert_eq!(gateway.log(&session).await, told);
    let seen = gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!((&seen["step_count"], &seen["tether_turns_pending"]), (&json!(20), &json!(20)));
}

#[tokio::test]
async fn sbp_l2_12_the_tether_survives_kill_9_and_drains_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let first = gateway.say(None, "echo 0").await;
    let (session, token) = (session_of(&first), first["sbp"]["session_token"].clone());
    for n in 1..8 {
        gateway.say(Some(&session), &format!("echo {n}")).await;
    }
    let gateway = gateway.crash_and_restart();
    let mut socket = attach(&gateway, &session, &token).await;
    assert_eq!(next(&mut socket).await["queued_turns"], 8);
    for n in 0..8 {
        assert_eq!(next(&mut socket).await["content"], n.to_string());
    }
}

#[tokio::test]
async fn sbp_l2_13_a_turn_interrupted_by_kill_9_is_run_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Process::paced(folder.path(), "50ms");
    let made = gateway.post("/v1/sessions", json!({})).await;
    let session = made["session_id"].as_str().unwrap().to_owned();
    let mut socket = attach(&gateway, &session, &made["session_token"]).await;
    let asked = tokio::spawn({
        let url = format!("{}/v1/chat/completions", gateway.url);
        let body = turn(Some(&session), "count to 500");
        async move { reqwest::Client::new().post(url).json(&body).send().await }
    });
    // Wait until the surface has received the first chunk of the answer.
    while next(&mut socket).await["type"] != "TURN_CHUNK" {}
    gateway.kill();
    assert!(asked.await.unwrap().is_err(), "the caller was never told that it worked");

    let gateway = Process::start(folder.path());
    assert_eq!(gateway.recovered, 1);
    gateway.until(&session, |seen| seen["step_count"] == 1).await;
    let log = gateway.log(&session).await;
    let counted: String = (1..=500).map(|n| format!("{n}\n")).collect();
    assert_eq!(log, ["count to 500".to_owned(), counted]);
    let seen = gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!((&seen["status"], &seen["tether_turns_pending"]), (&json!("suspended"), &json!(1)));
    let gateway = gateway.crash_and_restart();
    assert_eq!(gateway.recovered, 0, "it is done, and not done again");
}

#[tokio::test]
async fn g3_an_sdks_own_retry_after_kill_9_joins_the_turn_that_made_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Process::paced(folder.path(), "50ms");
    // With an image, which must survive with its turn.
    let mut body = turn(None, "count to 500");
    let url = format!("data:image/png;base64,{}", "abcd".repeat(50_000));
    let image = json!({ "type": "image_url", "image_url": { "url": url } });
    let text = json!({ "type": "text", "text": "count to 500" });
    body["messages"][0]["content"] = json!([text, image]);
    let ask = |url: &str, tries: &str| {
        let request = reqwest::Client::new().post(format!("{url}/v1/chat/completions"));
        request.header("X-Stainless-Retry-Count", tries).json(&body).send()
    };
    let asked = tokio::spawn(ask(&gateway.url, "0"));
    let session = loop {
        let sessions = gateway.get("/v1/sessions").await;
        if let Some(made) = sessions["sessions"].as_array().unwrap().first() {
            break made["session_id"].as_str().unwrap().to_owned();
        }
    };
    gateway.kill();
    assert!(asked.await.unwrap().is_err());

    let gateway = Process::start(folder.path());
    assert_eq!(gateway.recovered, 1);
    let again: Value = ask(&gateway.url, "1").await.unwrap().json().await.unwrap();
    assert_eq!(session_of(&again), session, "{again}");
    assert!(again["sbp"]["session_token"].is_string(), "its caller was never told the token");
    let sessions = gateway.get("/v1/sessions").await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    let log = gateway.get(&format!("/v1/sessions/{session}/messages")).await;
    assert_eq!(log["messages"].as_array().unwrap().len(), 2);
    let url = log["messages"][0]["message"]["content"][1]["image_url"]["url"].as_str().unwrap();
    let hash = url.split(':').nth(3).unwrap();
    let read = reqwest::get(format!("{}/v1/sessions/{session}/blobs/{hash}", gateway.url)).await;
    assert_eq!(read.unwrap().bytes().await.unwrap().len(), 150_000);
}

#[tokio::test]
async fn g3_a_retry_after_a_crash_gives_the_same_turn() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let ask = |url: String| async move {
        let request = reqwest::Client::new().post(format!("{url}/v1/chat/completions"));
        let request = request.header("Idempotency-Key", "the-same").json(&turn(None, "echo once"));
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let first = ask(gateway.url.clone()).await;
    let gateway = gateway.crash_and_restart();
    assert_eq!(ask(gateway.url.clone()).await, first, "session, token, turn and words");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn g16_sigterm_tells_surfaces_finishes_turns_and_exits() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Process::paced(folder.path(), "10ms");
    let made = gateway.post("/v1/sessions", json!({})).await;
    let session = made["session_id"].as_str().unwrap().to_owned();
    let mut socket = attach(&gateway, &session, &made["session_token"]).await;
    let asked = tokio::spawn({
        let url = format!("{}/v1/chat/completions", gateway.url);
        let body = turn(Some(&session), "count to 100");
        async move { reqwest::Client::new().post(url).json(&body).send().await.unwrap().status() }
    });
    while next(&mut socket).await["type"] != "TURN_CHUNK" {}
    gateway.terminate();
    let code = loop {
        match socket.next().await {
            Some(Ok(Packet::Close(Some(frame)))) => break u16::from(frame.code),
            Some(Ok(_)) => {}
            other => panic!("no goodbye: {other:?}"),
        }
    };
    assert_eq!(code, 1012);
    assert_eq!(asked.await.unwrap(), 200, "the running turn is brought to its end");
    assert!(gateway.ended().success());
    let log = folder.path().join(format!("{}-wal", bowline_store::sqlite::FILE));
    let unfolded = std::fs::metadata(log).map_or(0, |log| log.len());
    assert_eq!(unfolded, 0, "the write-ahead log is folded into the file");
    let gateway = Process::start(folder.path());
    assert_eq!((gateway.recovered, gateway.log(&session).await.len()), (0, 2));
}

#[tokio::test]
async fn g16_a_device_answers_its_call_after_a_stop_and_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = folder.path().join("allowed.toml");
    std::fs::write(&allowed, "[tools.policy]\ncamera = \"allow\"").unwrap();
    let config = [("BOWLINE_CONFIG", allowed.to_str().unwrap())];
    let data = folder.path().join("data");
    let mut gateway = Process::start_at(&data, "127.0.0.1:0", &config);
    let made = gateway.post("/v1/sessions", json!({})).await;
    let session = made["session_id"].as_str().unwrap().to_owned();
    let phone = json!({ "surface_id": "phone", "mcp_tools": ["camera"] });
    let mut socket = attached(&gateway, &session, &made["session_token"], &phone).await;
    let said = json!({
        "type": "USER_MESSAGE", "client_turn_id": "a", "content": "call surface tool camera with {}",
    });
    socket.send(Packet::text(said.to_string())).await.unwrap();
    let call = until(&mut socket, "TOOL_CALL").await;
    gateway.terminate();
    while let Some(Ok(_)) = socket.next().await {}
    assert!(gateway.ended().success());
    let gateway = Process::start_at(&data, "127.0.0.1:0", &config);
    let mut socket = attached(&gateway, &session, &made["session_token"], &phone).await;
    let again = until(&mut socket, "TOOL_CALL").await;
    assert_eq!(again["call_id"], call["call_id"]);
    let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "a cat" });
    socket.send(Packet::text(result.to_string())).await.unwrap();
    assert_eq!(until(&mut socket, "TURN_COMPLETE").await["status"], "complete");
    let log = gateway.get(&format!("/v1/sessions/{session}/messages")).await;
    let last = &log["messages"].as_array().unwrap().last().unwrap()["message"]["content"];
    assert_eq!(*last, "The tool answered: a cat");
}

#[tokio::test]
async fn g13_a_database_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Process::start(folder.path()));
    let file = folder.path().join(bowline_store::sqlite::FILE);
    // The user version is at bytes 60..64 of the file's first page.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[60..64].copy_from_slice(&999u32.to_be_bytes());
    std::fs::write(&file, bytes).unwrap();
    let _ = std::fs::remove_file(file.with_extension("db-wal"));
    let output = bowline().args(["gateway", "run", "--data"]).arg(folder.path()).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("schema version 999") && said.contains("hint:"), "{said}");
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn attach(gateway: &Process, session: &str, token: &Value) -> Socket {
    attached(gateway, session, token, &json!({})).await
}

async fn attached(gateway: &Process, session: &str, token: &Value, surface: &Value) -> Socket {
    let url = format!("ws://{}/v1/sbp/ws/{session}", gateway.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let hello = json!({
        "type": "ATTACH_SESSION", "session_id": session, "session_token": token,
        "surface_context": surface,
    });
    socket.send(Packet::text(hello.to_string())).await.unwrap();
    socket
}

/// The first frame of that type; others before it are passed over.
async fn until(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let frame = next(socket).await;
        if frame["type"] == kind {
            return frame;
        }
    }
}

async fn next(socket: &mut Socket) -> Value {
    loop {
        let packet = tokio::time::timeout(crate::process::DEADLINE, socket.next()).await;
        if let Packet::Text(text) = packet.unwrap().unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}
