//! The gateway as an MCP server, used by a host made with the official Python SDK (SBP-L5-06).

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, DEADLINE, LOCAL_KEY, Phone, Session, answer, list};
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
    assert_eq!(bench.call(Method::POST, "/mcp", &[accept, right], &deep).await.status, 400);
    assert_eq!(bench.call(Method::GET, "/mcp", &[accept, right], &Value::Null).await.status, 405);
}

#[tokio::test]
async fn what_is_not_json_rpc_gets_a_json_rpc_error() {
    let bench = Bench::start().await;
    let ask = async |body: &'static str| {
        let request = bench.http.post(bench.url("/mcp")).body(body);
        let request = request.header("content-type", "application/json");
        answer(request.header("accept", "application/json, text/event-stream")).await
    };
    for (body, code, id) in [
        ("{\"jsonrpc\":", -32700, json!(null)),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600, json!(null)),
        ("{\"id\":7,\"method\":\"ping\"}", -32600, json!(7)),
    ] {
        let refused = ask(body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text);
        assert_eq!(refused.header("content-type"), "application/json");
        assert_eq!(refused.body["jsonrpc"], "2.0");
        let said = (&refused.body["error"]["code"], &refused.body["id"]);
        assert_eq!(said, (&json!(code), &id), "{body}: {}", refused.text);
    }
    // Readable, but wrong: the answer is one of the protocol.
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/read"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"cursor":"x"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601),
    ] {
        let refused = ask(body).await;
        let (_, event) = refused.text.split_once("data: {").unwrap_or_else(|| panic!("{body}"));
        assert!(event.contains(&format!("\"code\":{code},")), "{body}: {}", refused.text);
    }
    // Whoever may not use the gateway learns nothing of what was wrong with the body.
    let bench = Bench::with(|config| config.auth.api_keys = vec![KEY.into()]).await;
    let refused = answer(bench.http.post(bench.url("/mcp")).body("{")).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
}

/// The text of a resource that was read.
fn contents(read: &Value) -> (&str, &str) {
    let contents = &read["contents"][0];
    let field = |name: &str| contents[name].as_str().unwrap_or_else(|| panic!("{name}: {read}"));
    (field("mimeType"), field("text"))
}

#[tokio::test]
async fn sessions_are_resources_for_those_who_may_read_them() {
    let _place = place().await;
    let bench = Bench::start().await;
    let (mine, other) = (bench.session().await, bench.session().await);
    bench.say_to(&mine, "bowline/offline", "echo **hello**").await;
    let uri = |session: &Session| format!("bowline://sessions/{}", session.id);
    for mode in MODES {
        let steps = json!([
            ["resources"],
            ["templates"],
            ["read", uri(&mine)],
            ["read", uri(&mine) + "/json"],
            ["read", "bowline://sessions/0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f"],
            ["read", "bowline://elsewhere"],
            ["read", uri(&mine) + "/xml"],
        ]);
        let got = host(&bench, "", mode, steps).await;
        let uris: Vec<_> = list(&got[0]).iter().map(|found| found["uri"].clone()).collect();
        assert_eq!(uris, [json!(uri(&other)), json!(uri(&mine))], "{mode}: newest first");
        assert_eq!(got[0][1]["title"], "echo **hello**");
        let templates: Vec<_> =
            list(&got[1]).iter().map(|found| found["uriTemplate"].clone()).collect();
        let expected = ["bowline://sessions/{session_id}", "bowline://sessions/{session_id}/json"];
        assert_eq!(templates, expected);
        let (kind, text) = contents(&got[2]);
        assert_eq!(kind, "text/markdown");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# echo **hello**", "{text}");
        assert!(lines[2].starts_with("## user, ") && lines[4] == "echo **hello**", "{text}");
        assert!(lines[6].starts_with("## assistant, ") && lines[8] == "**hello**", "{text}");
        let (kind, text) = contents(&got[3]);
        let log: Value = serde_json::from_str(text).unwrap();
        assert_eq!(kind, "application/json");
        assert_eq!(log["messages"][1]["message"]["content"], "**hello**", "{log}");
        for n in [4, 5, 6] {
            let refused = got[n]["refused"].as_str().unwrap();
            assert!(refused.contains("no such session"), "{n}: {refused}");
        }
    }
    let steps = json!([["resources"], ["read", uri(&mine)], ["read", uri(&other)]]);
    let got = host(&bench, &other.token, "auto", steps).await;
    let uris: Vec<_> = list(&got[0]).iter().map(|found| found["uri"].clone()).collect();
    assert_eq!(uris, [json!(uri(&other))], "a token lists its session and no other");
    assert!(got[1]["refused"].as_str().unwrap().contains("no such session"), "{}", got[1]);
    assert_eq!(contents(&got[2]).0, "text/markdown");
}

#[tokio::test]
async fn the_list_of_session_resources_has_pages() {
    let _place = place().await;
    let bench = Bench::start().await;
    let mut made = Vec::new();
    for _ in 0..103 {
        made.push(format!("bowline://sessions/{}", bench.session().await.id));
    }
    made.reverse();
    let got = host(&bench, "", "auto", json!([["resources"]])).await;
    let uris: Vec<_> =
        list(&got[0]).iter().map(|found| found["uri"].as_str().unwrap().to_owned()).collect();
    assert_eq!(uris, made);
}
