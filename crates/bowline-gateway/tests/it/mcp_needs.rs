//! MCP tools that take long, and tools that need what the gateway does not offer.

use std::time::Duration;

use bowline_gateway::config::mcp::McpServerConfig;
use serde_json::{Value, json};

use crate::bench::{Bench, eventually, list};
use crate::mcp_southbound::{OverHttp, called, health, program, until, with_server};
use crate::python::place;
use crate::upstream::MockUpstream;

#[tokio::test]
async fn g9_progress_extends_the_deadline_of_a_call() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    server.timeout = Duration::from_secs(10);
    let (bench, session) = with_server(&upstream, server).await;
    let calls = [("mcp_test_steps", "{\"count\":6,\"pause\":2}")];
    assert_eq!(called(&bench, &session, &calls).await, ["all done"]);
}

#[tokio::test]
async fn g9_progress_extends_the_deadline_over_http_and_no_further_than_max_timeout() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let server = OverHttp::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        server.configure(config, |server| {
            server.timeout = Duration::from_secs(10);
            server.max_timeout = Duration::from_secs(20);
        });
    })
    .await;
    until(&bench, "up").await;
    let session = bench.session().await;
    let calls = [("mcp_test_steps", "{\"count\":24,\"pause\":0.5}")];
    assert_eq!(called(&bench, &session, &calls).await, ["all done"]);
    let calls = [("mcp_test_steps", "{\"count\":1000,\"pause\":0.5}")];
    let results = called(&bench, &session, &calls).await;
    assert!(results[0].contains("within 20 s, the longest that a call may take"), "{results:?}");
}

fn not_offered(server: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = list(&server["not_offered"]);
    all.iter().map(|tool| (text(&tool["tool"]), text(&tool["why"]))).collect()
}

#[tokio::test]
async fn sbp_l5_06_a_tool_that_needs_what_is_not_offered_fails_clearly_and_is_offered_no_more() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    let asking = ["ask_person", "ask_model", "only_as_task"];
    server.tools =
        asking.iter().chain(&["ask_if_possible", "echo"]).map(|t| t.to_string()).collect();
    let (bench, session) = with_server(&upstream, server).await;
    // One that can do without is offered as before.
    let possible = called(&bench, &session, &[("mcp_test_ask_if_possible", "{}")]).await;
    assert_eq!(possible, ["refused with -32601"], "a JSON-RPC error: method not found");
    assert!(health(&bench).await.get("not_offered").is_none());
    for (tool, need) in asking.into_iter().zip(["elicitation", "sampling", "to run as an MCP task"])
    {
        let results = called(&bench, &session, &[(&format!("mcp_test_{tool}"), "{}")]).await;
        let clear =
            results[0].contains("cannot be used here: it needs") && results[0].contains(need);
        assert!(clear, "{results:?}");
        eventually("it is not offered", async || {
            let found = not_offered(&health(&bench).await);
            found.iter().any(|(name, why)| name == tool && why.contains(need))
        })
        .await;
    }
    bench.say(&session, "hi").await;
    let offered = list(&upstream.calls().last().unwrap().body["tools"]);
    let names: Vec<_> = offered.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["mcp_test_echo", "mcp_test_ask_if_possible"]);
    let called = called(&bench, &session, &[("mcp_test_ask_model", "{}")]).await;
    assert!(called[0].contains("no such tool here"), "{called:?}");
    assert_eq!(list(&json!(not_offered(&health(&bench).await))).len(), 3);
}

/// A server that is nothing but a tool list; `tool` must run as a task.
const TASKS: &str = r#"
import json, sys
tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tool", "other")]
tools[0]["execution"] = {"taskSupport": "required"}
answers = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "tasks", "version": "1"}},
    "tools/list": {"tools": tools},
}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] in answers:
        result = answers[asked["method"]]
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[tokio::test]
async fn sbp_l5_06_a_tool_that_declares_to_run_only_as_a_task_is_never_offered() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let server = McpServerConfig { args: vec!["-c".into(), TASKS.into()], ..program() };
    let (bench, session) = with_server(&upstream, server).await;
    bench.say(&session, "hi").await;
    let offered = list(&upstream.calls().last().unwrap().body["tools"]);
    let names: Vec<_> = offered.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["mcp_test_other"]);
    let found = not_offered(&health(&bench).await);
    assert!(found[0].0 == "tool" && found[0].1.contains("as an MCP task"), "{found:?}");
}
