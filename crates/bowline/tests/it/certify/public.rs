//! `--certify`: a gateway as the protocol's public suite needs it.

use std::process::Stdio;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{alone, conformance, free};
use crate::process::{Process, bowline, session_of};

/// The requests of the protocol's public suite that no other server answers as it wants.
#[tokio::test(flavor = "multi_thread")]
async fn sbp_cert_01_with_certify_the_gateway_is_as_the_public_suite_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let mut command = bowline();
    command.args(["gateway", "run", "--certify", "--json", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(folder.path().join("data")).env("BOWLINE_OFFLINE_PACE", "0ms");
    command.stderr(std::fs::File::create(&said).unwrap());
    let gateway = Process::spawned(command, folder.path());
    let text = std::fs::read_to_string(&said).unwrap();
    assert!(
        text.contains("CERTIFY: this gateway runs for the protocol's public test suite"),
        "{text}"
    );

    let hello = json!({ "model": "bowline/offline",
                        "messages": [{ "role": "user", "content": "Hello" }] });
    let chat = format!("{}/v1/chat/completions", gateway.url);
    let http = reqwest::Client::new();
    let made = http.post(&chat).json(&hello).send().await.unwrap();
    let token = made.headers()["x-session-token"].to_str().unwrap().to_owned();
    let id = session_of(&made.json().await.unwrap());
    let turn = |text: &str| {
        json!({ "type": "TETHER_TURN", "session_id": id,
                "turn": { "role": "assistant", "content": text } })
    };
    let turns = json!({ "turns": [turn("Reply 1"), turn("Reply 2")] });
    gateway.post(&format!("/v1/sbp/sessions/{id}/_test/tether"), turns).await;

    let url = format!("ws://{}/v1/sbp/ws/{id}", gateway.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let attach = json!({ "type": "ATTACH_SESSION", "session_id": id, "session_token": token,
        "surface_context": { "device_type": "mobile", "mcp_tools": ["camera", "contacts"] } });
    socket.send(Message::text(attach.to_string())).await.unwrap();
    let mut frames = Vec::new();
    while frames.len() < 3 {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            frames.push(serde_json::from_str::<Value>(&text).unwrap());
        }
    }
    assert_eq!((&frames[0]["sbp_version"], &frames[0]["queued_turns"]), (&json!("0.9"), &json!(2)));
    assert_eq!(frames[0]["mcp_tools_registered"], json!(["camera", "contacts"]));
    let contents: Vec<_> = frames[1..].iter().map(|frame| &frame["content"]).collect();
    assert_eq!(contents, ["Reply 1", "Reply 2"]);
    drop(socket);

    let status = json!({ "status": "suspended" });
    gateway.patch(&format!("/v1/sbp/sessions/{id}/status"), status).await;
    let asked = http.post(&chat).header("X-Session-Token", &token).json(&hello);
    let told = asked.send().await.unwrap();
    assert_eq!(told.status(), 202);
    let told: Value = told.json().await.unwrap();
    assert_eq!(told["sbp"]["resume_available"], true);
    assert_eq!(told["sbp"]["session_id"], id);
}

/// With `--certify` an answer over HTTP counts as read, and each call has a session: both are allowed.
#[test]
fn sbp_cert_01_a_gateway_with_certify_fails_no_check() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let upstream = free();
    let config = folder.path().join("certified.toml");
    std::fs::write(&config, "[tools.policy]\ncamera = \"allow\"\n").unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--certify", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--upstream", &format!("http://{upstream}/v1"), "--config"]).arg(&config);
    command.arg("--data").arg(folder.path().join("data")).stderr(Stdio::null());
    let gateway = Process::spawned(command, folder.path());
    let output = conformance()
        .args(["--level", "L5", "--json", "--url", &gateway.url, "--upstream-listen", &upstream])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let checks = report["checks"].as_array().unwrap();
    let failed: Vec<_> = checks.iter().filter(|check| check["verdict"] == "failed").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(output.status.success() && report["passed"] == "L5", "{said}");
    let verdict = |id: &str| {
        let check = checks.iter().find(|check| check["id"] == id).unwrap();
        check["verdict"].as_str().unwrap().to_owned()
    };
    // Its answers over HTTP are not shown at surfaces, so nothing live is seen.
    for id in ["SBP-L1-09", "SBP-L2-07", "SBP-L2-11", "SBP-L2-16", "SBP-L4-04"] {
        assert_eq!(verdict(id), "not_run", "{id}");
    }
    assert_eq!(verdict("SBP-L2-19"), "warning");
    for id in ["SBP-L2-04", "SBP-L2-05", "SBP-L2-06", "SBP-L2-06b", "SBP-L2-10"] {
        assert_eq!(verdict(id), "passed", "{id}");
    }
}

#[test]
fn sbp_cert_01_certify_is_refused_where_others_can_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, words) in [
        (&["--listen", "0.0.0.0:0", "--insecure"][..], "can be reached from other machines"),
        (&["--behind-proxy", "127.0.0.1"], "can be reached from other machines"),
        (&["--relay", "https://relay.example"], "a relay leads others here"),
    ] {
        let mut command = bowline();
        command.args(["gateway", "run", "--certify", "--data"]).arg(folder.path()).args(flags);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
}

#[tokio::test]
async fn sbp_cert_01_without_certify_there_is_no_test_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let id = session_of(&gateway.say(None, "Hello").await);
    let url = format!("{}/v1/sbp/sessions/{id}/_test/tether", gateway.url);
    let answer = reqwest::Client::new().post(url).json(&json!({ "turns": [] })).send().await;
    assert_eq!(answer.unwrap().status(), 404);
}
