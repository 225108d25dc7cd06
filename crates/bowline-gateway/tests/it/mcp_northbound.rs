//! The gateway as an MCP server, used by a host made with the official Python SDK (SBP-L5-06).

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, DEADLINE, LOCAL_KEY, Phone, Session, list};
use crate::python::{beside, place, python};

const KEY: &str = "a-key-of-twenty-characters";

/// The results of a host that performs these steps in order.
async fn host(bench: &Bench, bearer: &str, mode: &str, steps: Value) -> Value {
    let run = tokio::process::Command::new(python())
        .args([&beside("mcp_client.py"), "http", &bench.url("/mcp"), bearer, mode])
        .arg(steps.to_string())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE * 3, run).await.expect("the host hangs").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said).unwrap_or_else(|_| {
        panic!("{said} {}", String::from_utf8_lossy(&output.stderr));
    })
}

fn names(tools: &Value) -> Vec<String> {
    list(tools).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// Answers every call with the tool's name and its input.
async fn serve(mut phone: Phone) {
    loop {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        let result = match call["tool_name"].as_str().unwrap() {
            "bad" => {
                json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "error": "no film" })
            }
            "photo" => json!({ "type": "TOOL_RESULT", "call_id": call["call_id"],
                "result": { "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }] } }),
            tool => json!({ "type": "TOOL_RESULT", "call_id": call["call_id"],
                            "result": format!("{tool} {}", call["tool_input"]) }),
        };
        phone.send(result).await;
    }
}

/// Both protocol revisions: with the `initialize` handshake, and without a handshake.
const MODES: [&str; 2] = ["legacy", "auto"];

#[tokio::test]
async fn sbp_l5_06_a_host_lists_sends_and_reads() {
    let _place = place().await;
    let bench = Bench::start().await;
    for mode in MODES {
        let session = bench.session().await;
        let send = |text: &str| json!(["session_send", { "session_id": session.id, "text": text }]);
        let steps = json!([
            ["list"],
            send("echo hello"),
            ["session_read", { "session_id": session.id }],
            ["session_read", { "session_id": session.id, "after": 1, "limit": 1 }],
            ["sessions_list", { "limit": 1 }],
            ["session_send", { "text": "echo anew" }],
            send(" "),
            ["session_read", { "session_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f" }],
            ["session_send", { "session_id": 7 }],
            ["no_such_tool", {}],
        ]);
        let got = host(&bench, "", mode, steps).await;
        assert!(got.is_array(), "{mode}: {got}");
        assert_eq!(names(&got[0]), ["session_read", "session_send", "sessions_list"], "{mode}");
        assert_eq!(text(&got[1]), "hello", "{mode}");
        let sent = &got[1]["structuredContent"];
        assert_eq!(
            (&sent["session_id"], &sent["status"]),
            (&json!(session.id), &json!("complete"))
        );
        let read = &got[2]["structuredContent"];
        let said: Vec<_> =
            list(&read["messages"]).iter().map(|m| m["message"]["content"].clone()).collect();
        assert_eq!(
            (said, &read["more"]),
            (vec![json!("echo hello"), json!("hello")], &json!(false))
        );
        assert_eq!(got[3]["structuredContent"]["messages"][0]["seq"], 2);
        let newest = &got[4]["structuredContent"];
        assert_eq!(newest["sessions"][0]["session_id"], json!(session.id));
        assert_eq!(text(&got[5]), "anew");
        assert_ne!(got[5]["structuredContent"]["session_id"], json!(session.id), "a new session");
        for (n, why) in [(6, "empty"), (7, "no such session"), (8, "cannot be read")] {
            assert!(got[n]["isError"] == true && text(&got[n]).contains(why), "{n}: {}", got[n]);
        }
        assert!(got[9]["refused"].as_str().unwrap().contains("no such tool"), "{}", got[9]);
        assert_eq!(bench.log(&session).await.len(), 2, "what was refused is not in the log");
    }
}

#[tokio::test]
async fn sbp_l5_06_an_answer_that_takes_long_comes_all_the_same() {
    let _place = place().await;
    let bench =
        Bench::with(|config| config.offline.pace = std::time::Duration::from_millis(20)).await;
    let session = bench.session().await;
    let send = json!({ "session_id": session.id, "text": "count to 50", "wait_seconds": 0 });
    let got = host(&bench, "", "auto", json!([["session_send", send]])).await;
    assert!(text(&got[0]).contains("goes on"), "{got}");
    assert_eq!(got[0]["structuredContent"]["status"], "running");
    bench.until_pending(&session, 1).await;
    let log = bench.log(&session).await;
    assert!(log[1].1.ends_with("49\n50\n"), "{log:?}");
}

#[tokio::test]
async fn sbp_l5_06_a_host_uses_the_tools_of_attached_devices() {
    let _place = place().await;
    let bench = Bench::start().await;
    let schema = json!({ "type": "object", "properties": { "zoom": { "type": "number" } } });
    let tools = json!(["bad", "photo", { "name": "camera", "description": "Takes a photo",
                                "input_schema": schema }]);
    let (one, two) = (bench.session().await, bench.session().await);
    let surface =
        |id: &str| json!({ "device_type": "mobile", "surface_id": id, "mcp_tools": tools });
    let (first, _) = bench.attach_as(&one, surface("pixel")).await;
    let (second, _) = bench.attach_as(&two, surface("watch")).await;
    let devices = tokio::spawn(async { tokio::join!(serve(first), serve(second)) });
    for mode in MODES {
        let end = |session: &Session| session.id[session.id.len() - 7..].to_owned();
        let camera = format!("{}_camera", end(&one));
        let steps = json!([["list"], [camera, { "zoom": 2 }], [format!("{}_bad", end(&two)), {}],
            [format!("{}_photo", end(&one)), {}]]);
        let got = host(&bench, "", mode, steps).await;
        let mut expected =
            vec!["session_read".into(), "session_send".into(), "sessions_list".into()];
        for session in [&one, &two] {
            let tools = ["bad", "camera", "photo"];
            expected.extend(tools.map(|tool| format!("{}_{tool}", end(session))));
        }
        expected.sort();
        assert_eq!(names(&got[0]), expected, "{mode}");
        let listed = list(&got[0]).into_iter().find(|tool| tool["name"] == json!(camera)).unwrap();
        assert_eq!(listed["inputSchema"], schema);
        let about = listed["description"].as_str().unwrap();
        assert!(about.contains("Takes a photo") && about.contains("mobile `pixel`"), "{about}");
        assert_eq!(text(&got[1]), "camera {\"zoom\":2}");
        assert!(got[2]["isError"] == true && text(&got[2]) == "no film", "{}", got[2]);
        assert_eq!(got[3]["content"][0]["mimeType"], "image/png", "{}", got[3]);
    }
    let steps = json!([["list"], ["surface_camera", {}]]);
    let got = host(&bench, &two.token, "auto", steps).await;
    let names = names(&got[0]);
    assert_eq!(names[3..], ["surface_bad", "surface_camera", "surface_photo"], "as its model does");
    assert_eq!(text(&got[1]), "camera {}");
    devices.abort();
}

#[tokio::test]
async fn sbp_l5_06_a_session_token_reaches_its_session_and_no_other() {
    let _place = place().await;
    let bench = Bench::start().await;
    let (mine, other) = (bench.session().await, bench.session().await);
    let (_phone, _) = bench.attach_as(&other, json!({ "mcp_tools": ["camera"] })).await;
    let steps = json!([
        ["list"],
        ["sessions_list", {}],
        ["session_send", { "text": "echo mine" }],
        ["session_read", { "session_id": other.id }],
        ["session_send", { "session_id": other.id, "text": "echo theirs" }],
        [format!("{}_camera", &other.id[29..]), {}],
    ]);
    let got = host(&bench, &mine.token, "legacy", steps).await;
    assert_eq!(names(&got[0]), ["session_read", "session_send", "sessions_list"]);
    let sessions = list(&got[1]["structuredContent"]["sessions"]);
    assert_eq!((sessions.len(), &sessions[0]["session_id"]), (1, &json!(mine.id)));
    assert_eq!(got[2]["structuredContent"]["session_id"], json!(mine.id));
    for n in [3, 4] {
        assert!(text(&got[n]).contains("does not open"), "{}", got[n]);
    }
    assert!(got[5]["refused"].as_str().unwrap().contains("no such tool"), "{}", got[5]);
    assert!(bench.log(&other).await.is_empty());
}

#[tokio::test]
async fn sbp_l5_06_with_keys_on_a_host_needs_one_and_pages_from_elsewhere_stay_out() {
    let _place = place().await;
    let bench = Bench::with(|config| config.auth.api_keys = vec![KEY.into()]).await;
    let got = host(&bench, "", "legacy", json!([["list"]])).await;
    assert!(got["failed"].is_array(), "{got}");
    for key in [KEY, LOCAL_KEY] {
        let got = host(&bench, key, "auto", json!([["list"]])).await;
        assert_eq!(names(&got[0]).len(), 3, "{got}");
    }
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let bearer = format!("Bearer {KEY}");
    let right = ("authorization", bearer.as_str());
    let accept = ("accept", "application/json, text/event-stream");
    for (headers, status) in [
        (vec![accept], 401),
        (vec![accept, ("authorization", "Bearer wrong")], 403),
        (vec![accept, ("authorization", "Bearer sbt_wrong")], 403),
        (vec![accept, ("x-session-token", "wrong"), right], 403),
        (vec![accept, right, ("origin", "https://evil.example")], 403),
        (vec![accept, right, ("host", "evil.example")], 403),
        (vec![accept, right], 200),
    ] {
        let answer = bench.call(Method::POST, "/mcp", &headers, &ask).await;
        assert_eq!(answer.status, status, "{headers:?} {}", answer.text);
    }
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let deep: Value = serde_json::from_str(&deep).unwrap();
    assert_eq!(bench.call(Method::POST, "/mcp", &[accept, right], &deep).await.status, 422);
    assert_eq!(bench.call(Method::GET, "/mcp", &[accept, right], &Value::Null).await.status, 405);
}
