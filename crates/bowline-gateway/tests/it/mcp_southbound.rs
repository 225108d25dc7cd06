//! The gateway as a client of MCP servers made with the official Python SDK (SBP-L5-06).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bowline_gateway::config::Config;
use bowline_gateway::config::mcp::McpServerConfig;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, eventually, list, turn};
use crate::python::{beside, place, python};
use crate::upstream::MockUpstream;

/// The test server as a program.
pub(crate) fn program() -> McpServerConfig {
    McpServerConfig {
        command: Some(python().display().to_string()),
        args: vec![beside("mcp_server.py"), "stdio".into()],
        ..McpServerConfig::default()
    }
}

/// A bench whose models can call the server `test`, once it is up.
pub(crate) async fn with_server(
    upstream: &MockUpstream,
    server: McpServerConfig,
) -> (Bench, Session) {
    let bench = Bench::before_with(upstream, |config| {
        config.mcp.servers.insert("test".into(), server);
    })
    .await;
    until(&bench, "up").await;
    let session = bench.session().await;
    (bench, session)
}

pub(crate) async fn health(bench: &Bench) -> Value {
    bench.get("/v1/mcp/servers").await.body["servers"][0].clone()
}

pub(crate) async fn until(bench: &Bench, status: &str) {
    eventually(&format!("the server is {status}"), async || {
        health(bench).await["status"] == status
    })
    .await;
}

/// The results of these calls by a model.
pub(crate) async fn called(
    bench: &Bench,
    session: &Session,
    calls: &[(&str, &str)],
) -> Vec<String> {
    let answer = bench.chat(turn(session, "calls", &json!(calls).to_string())).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.content().split(" | ").map(str::to_owned).collect()
}

fn file(folder: &Path) -> (String, String) {
    let path = folder.join("notes").display().to_string();
    (path.clone(), json!({ "file": path }).to_string())
}

pub(crate) fn notes(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie has ended; whoever it was left to will reap it.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test]
async fn sbp_l5_06_a_servers_tools_are_the_models_and_answer_it() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    server.tools = vec!["add".into(), "echo".into(), "odd*".into(), "fail".into()];
    let (bench, session) = with_server(&upstream, server).await;
    bench.say(&session, "hi").await;
    let offered = list(&upstream.calls()[0].body["tools"]);
    let names: Vec<_> = offered.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["mcp_test_add", "mcp_test_echo", "mcp_test_odd_name__", "mcp_test_fail"]);
    let add = &offered[0]["function"];
    assert_eq!(add["parameters"]["properties"]["a"]["type"], "integer");
    assert!(add["description"].as_str().unwrap().starts_with("Adds "), "{add}");
    let calls = [
        ("mcp_test_add", "{\"a\":1,\"b\":2}"),
        ("mcp_test_echo", "{\"text\":\"hello\"}"),
        ("mcp_test_odd_name__", ""),
        ("mcp_test_fail", "{}"),
        ("mcp_test_add", "{\"a\":\"x\"}"),
        ("mcp_test_add", "{\"a\":1"),
        ("mcp_test_add", "[1,2]"),
        ("mcp_test_huge", "{\"size\":1}"),
    ];
    let results = called(&bench, &session, &calls).await;
    assert_eq!(results[..2], ["{\"result\":3}", "hello"]);
    assert!(results[2].contains("odd"), "{results:?}");
    assert!(
        results[3].contains("error") && results[3].contains("it cannot be done"),
        "{results:?}"
    );
    assert!(results[4].contains("error"), "{results:?}");
    assert!(results[5].contains("not JSON"), "{results:?}");
    assert!(results[6].contains("not a JSON object"), "{results:?}");
    assert!(results[7].contains("no such tool here"), "not allowed: {results:?}");
    let kinds: Vec<_> = bench.entries(&session).await;
    let actions = kinds.iter().filter(|entry| entry["kind"] == "action").count();
    assert_eq!(actions, 1 + calls.len(), "the calls, and a result for each");
}

#[tokio::test]
async fn sbp_l5_06_tools_of_servers_and_of_the_device_run_side_by_side() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["gps"] })).await;
    let folder = tempfile::tempdir().unwrap();
    let (path, arguments) = file(folder.path());
    let calls = [("surface_gps", "{}"), ("mcp_test_mark", arguments.as_str())];
    let device = async {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        // The server's tool does not wait for the device's.
        eventually("marked", async || notes(&path).contains("marked")).await;
        let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "here" });
        phone.send(result).await;
        phone
    };
    let (results, _phone) = tokio::join!(called(&bench, &session, &calls), device);
    assert_eq!(results, ["here", "marked"]);
}

#[tokio::test]
async fn g9_a_slow_tool_ends_by_its_deadline_and_its_server_is_told() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    server.timeout = Duration::from_secs(3);
    let (bench, session) = with_server(&upstream, server).await;
    let folder = tempfile::tempdir().unwrap();
    let (path, arguments) = file(folder.path());
    let results = called(&bench, &session, &[("mcp_test_slow", &arguments)]).await;
    assert!(results[0].contains("did not answer within 3 s"), "{results:?}");
    // One that was called off before it began has nothing to say.
    let told = |notes: &str| notes.contains("cancelled") || !notes.contains("begun");
    eventually("the server hears of it", async || told(&notes(&path))).await;
}

#[tokio::test]
async fn g9_a_huge_answer_is_an_error_and_many_calls_at_once_are_all_answered() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    let huge = json!({ "size": (1 << 20) + 1 }).to_string();
    let mut calls = vec![("mcp_test_huge", huge.as_str())];
    calls.extend([("mcp_test_echo", "{\"text\":\"on\"}"); 40]);
    let results = called(&bench, &session, &calls).await;
    assert!(results[0].contains("over 1048576 bytes"), "{}", results[0].len());
    assert!(results[1..].iter().all(|result| result == "on") && results.len() == 41);
}

#[tokio::test]
async fn g9_cancelling_a_turn_cancels_the_call() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    let folder = tempfile::tempdir().unwrap();
    let (path, arguments) = file(folder.path());
    let asked = json!([("mcp_test_slow", &arguments)]).to_string();
    let cancel = async {
        eventually("begun", async || notes(&path).contains("begun")).await;
        bench.post(&format!("/v1/sessions/{}/cancel", session.id), json!({})).await
    };
    let (answer, _) = tokio::join!(bench.chat(turn(&session, "calls", &asked)), cancel);
    assert_eq!(answer.body["sbp"]["turn_status"], "cancelled", "{}", answer.text);
    eventually("the server hears of it", async || notes(&path).contains("cancelled")).await;
}

#[tokio::test]
async fn sbp_l5_06_a_server_that_crashes_is_missed_and_comes_back() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    let folder = tempfile::tempdir().unwrap();
    let (path, arguments) = file(folder.path());
    let results = called(&bench, &session, &[("mcp_test_crash", &arguments)]).await;
    assert!(results[0].contains("disconnected"), "{results:?}");
    let crashed = notes(&path);
    eventually("it is back", async || {
        let health = health(&bench).await;
        health["status"] == "up" && health["restarts"].as_u64() >= Some(1)
    })
    .await;
    let pid = called(&bench, &session, &[("mcp_test_pid", "{}")]).await;
    assert!(!crashed.contains(&pid[0]), "another process: {crashed} {pid:?}");
}

#[tokio::test]
async fn sbp_l5_06_a_server_that_is_down_costs_its_tools_and_nothing_else() {
    let upstream = MockUpstream::start().await;
    let missing = McpServerConfig {
        command: Some("/nonexistent/server".into()),
        ..McpServerConfig::default()
    };
    let bench = Bench::before_with(&upstream, |config| {
        config.mcp.servers.insert("missing".into(), missing);
        let quits = McpServerConfig { command: Some("false".into()), ..McpServerConfig::default() };
        config.mcp.servers.insert("quits".into(), quits);
        let off = McpServerConfig {
            enabled: false,
            command: Some("x".into()),
            ..McpServerConfig::default()
        };
        config.mcp.servers.insert("off".into(), off);
    })
    .await;
    let session = bench.session().await;
    let answer = bench.say(&session, "hi").await;
    assert_eq!(answer.content(), "answer 1");
    assert!(upstream.calls()[0].body["tools"].is_null());
    let servers = list(&bench.get("/v1/mcp/servers").await.body["servers"]);
    let said: Vec<_> = servers.iter().map(|server| (&server["name"], &server["status"])).collect();
    let is = |name: &str, status: &str| (json!(name), json!(status));
    let said: Vec<_> =
        said.into_iter().map(|(name, status)| (name.clone(), status.clone())).collect();
    assert_eq!(said, [is("missing", "down"), is("off", "off"), is("quits", "down")]);
    assert!(servers[0]["why"].as_str().unwrap().contains("check `command`"), "{}", servers[0]);
    assert!(servers[2]["why"].as_str().unwrap().contains("exit status: 1"), "{}", servers[2]);
    // A model that remembers the tool is told; the caller could do nothing with the call.
    let results = called(&bench, &session, &[("mcp_missing_read", "{}")]).await;
    assert!(results[0].contains("no such tool here"), "{results:?}");
}

#[tokio::test]
async fn sbp_l5_06_a_server_that_learns_a_tool_is_asked_again() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    assert_eq!(called(&bench, &session, &[("mcp_test_grow", "{}")]).await, ["done"]);
    eventually("grown", async || {
        list(&health(&bench).await["tools"]).iter().any(|tool| tool["tool"] == "grown")
    })
    .await;
    assert_eq!(called(&bench, &session, &[("mcp_test_grown", "{}")]).await, ["grown"]);
}

/// A server that knows only the protocol revision without a handshake.
const WITHOUT_HANDSHAKE: &str = r#"
import json, sys

def answer(asked):
    done = {"resultType": "complete"}
    listed = done | {"ttlMs": 0, "cacheScope": "private"}
    match asked["method"]:
        case "server/discover":
            return listed | {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            return listed | {"tools": [{"name": "new", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return done | {"content": [{"type": "text", "text": "newer"}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked)
        said = {"result": result} if result else {"error": {"code": -32601, "message": "what?"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | said), flush=True)
"#;

#[tokio::test]
async fn sbp_l5_06_a_server_that_knows_no_handshake_is_greeted_without() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let args = vec!["-c".into(), WITHOUT_HANDSHAKE.into()];
    let (bench, session) = with_server(&upstream, McpServerConfig { args, ..program() }).await;
    assert_eq!(called(&bench, &session, &[("mcp_test_new", "{}")]).await, ["newer"]);
}

#[tokio::test]
async fn a_server_sees_no_variables_but_those_it_was_given() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    server.env.insert("GIVEN".into(), "1".into());
    server.env_from = vec!["CARGO_MANIFEST_DIR".into()];
    let (bench, session) = with_server(&upstream, server).await;
    let results = called(&bench, &session, &[("mcp_test_variables", "{}")]).await;
    let seen: Vec<_> = results[0].split(' ').collect();
    assert!(seen.contains(&"GIVEN") && seen.contains(&"CARGO_MANIFEST_DIR"), "{seen:?}");
    assert!(seen.contains(&"PATH"), "{seen:?}");
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && !seen.contains(&"CARGO_PKG_NAME"));
}

#[tokio::test]
async fn g16_servers_end_with_the_gateway_and_so_does_what_they_started() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = with_server(&upstream, program()).await;
    let pids = called(&bench, &session, &[("mcp_test_pid", "{}"), ("mcp_test_child", "{}")]).await;
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    bench.gateway.stop().await;
    eventually("all gone", async || !pids.iter().any(|pid| is_alive(pid))).await;
    assert!(!Path::new("/proc").join(&pids[0]).exists(), "not even a zombie");
}

#[tokio::test]
async fn sbp_l5_06_a_tool_that_the_caller_brings_stays_the_callers() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        let missing =
            McpServerConfig { command: Some("/nonexistent".into()), ..McpServerConfig::default() };
        config.mcp.servers.insert("files".into(), missing);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["gps"] })).await;
    let calls = json!([("surface_gps", "{\"n\":1}"), ("mcp_files_read", "{\"path\":\"a\"}")]);
    let mut asked = turn(&session, "calls", &calls.to_string());
    asked["tools"] = json!([{ "type": "function", "function": { "name": "mcp_files_read" } }]);
    let device = async {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        let result = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "here" });
        phone.send(result).await;
        phone
    };
    let (answer, _phone) = tokio::join!(bench.chat(asked), device);
    let choice = &answer.body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{}", answer.text);
    let left = list(&choice["message"]["tool_calls"]);
    assert_eq!(left.len(), 1, "the device's was run: {left:?}");
    assert_eq!(left[0]["function"]["name"], "mcp_files_read");
    assert_eq!(left[0]["function"]["arguments"], "{\"path\":\"a\"}");
}

/// The test server over HTTP; it ends when this is dropped.
pub(crate) struct OverHttp {
    child: std::process::Child,
    port: u16,
}

impl OverHttp {
    pub(crate) async fn start() -> Self {
        Self::at(bowline_servers::quiet_port()).await
    }

    async fn at(port: u16) -> Self {
        let child = std::process::Command::new(python())
            .args([&beside("mcp_server.py"), "http", &port.to_string()])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        Self { child, port }
    }

    pub(crate) fn configure(&self, config: &mut Config, change: impl FnOnce(&mut McpServerConfig)) {
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        let mut server = McpServerConfig { url: Some(url), ..McpServerConfig::default() };
        change(&mut server);
        config.mcp.servers.insert("test".into(), server);
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn sbp_l5_06_a_server_is_used_over_streamable_http_and_found_again_after_a_restart() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let server = OverHttp::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        server.configure(config, |server| {
            server.headers.insert("X-Key".into(), "a-secret-of-the-test".into());
        });
    })
    .await;
    until(&bench, "up").await;
    let session = bench.session().await;
    let calls = [
        ("mcp_test_add", "{\"a\":1,\"b\":2}"),
        ("mcp_test_header", "{\"name\":\"x-key\"}"),
        ("mcp_test_fail", "{}"),
    ];
    let results = called(&bench, &session, &calls).await;
    assert_eq!(results[..2], ["{\"result\":3}", "a-secret-of-the-test"]);
    assert!(results[2].contains("it cannot be done"), "{results:?}");
    let port = server.port;
    drop(server);
    let lost = called(&bench, &session, &calls[..1]).await;
    assert!(lost[0].contains("error"), "{lost:?}");
    until(&bench, "down").await;
    let _server = OverHttp::at(port).await;
    until(&bench, "up").await;
    assert_eq!(called(&bench, &session, &calls[..1]).await, ["{\"result\":3}"]);
}

#[tokio::test]
async fn how_the_servers_are_is_for_those_with_a_key() {
    const KEY: &str = "a-key-of-twenty-characters";
    let bench = Bench::with(|config| config.auth.api_keys = vec![KEY.into()]).await;
    assert_eq!(bench.get("/v1/mcp/servers").await.status, 401);
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let shown = bench.call(reqwest::Method::GET, "/v1/mcp/servers", &headers, &Value::Null).await;
    assert_eq!((shown.status, shown.body), (200, json!({ "servers": [] })));
}

#[tokio::test]
async fn a_closed_port_is_called_that() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        let url = Some("http://127.0.0.1:9/mcp".to_owned());
        let server = McpServerConfig { url, ..McpServerConfig::default() };
        config.mcp.servers.insert("test".into(), server);
    })
    .await;
    until(&bench, "down").await;
    let why = health(&bench).await["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("nothing listens at its address"), "{why}");
}
