//! MCP tool calls that a crash of the gateway interrupted.

use bowline_sbp::completion::ToolCall;
use serde_json::json;

use crate::bench::Bench;
use crate::mcp_southbound::{notes, program};
use crate::memory::killed_while_acting;
use crate::python::place;

/// The logged result of an interrupted call of this tool, and what the tool wrote to its file.
async fn after_a_crash_in(tool: &str, idempotent: &[&str]) -> (String, String) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("notes").display().to_string();
    let call = ToolCall {
        id: "c".into(),
        name: format!("mcp_test_{tool}"),
        arguments: json!({ "file": file }).to_string(),
    };
    let (store, folder, session) = killed_while_acting(call).await;
    let mut server = program();
    server.idempotent = idempotent.iter().map(|tool| tool.to_string()).collect();
    let bench = Bench::on(store, folder, |config| {
        config.mcp.servers.insert("test".into(), server);
    })
    .await;
    bench.until_pending(&session, 1).await;
    let log = bench.log(&session).await;
    (log[2].1.clone(), notes(&file))
}

#[tokio::test]
async fn sbp_l2_14_an_interrupted_call_is_run_again_only_if_that_does_no_harm() {
    let _place = place().await;
    let (result, did) = after_a_crash_in("mark", &[]).await;
    assert_eq!((result.as_str(), did.as_str()), ("marked", "marked\n"), "the server says so");
    let (result, did) = after_a_crash_in("stamp", &[]).await;
    assert!(result.contains("the call was interrupted") && did.is_empty(), "{result} {did}");
    let (result, did) = after_a_crash_in("stamp", &["st*"]).await;
    assert_eq!((result.as_str(), did.as_str()), ("stamped", "stamped\n"), "the settings say so");
}
