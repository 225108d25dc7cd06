//! Prompts and resources of MCP servers, over the gateway's HTTP interface and for models.

use bowline_gateway::config::mcp::McpServerConfig;
use serde_json::{Value, json};

use crate::bench::{Bench, list};
use crate::mcp_southbound::{OverHttp, called, health, program, until, with_server};
use crate::python::place;
use crate::upstream::MockUpstream;

fn all(items: &Value, field: &str) -> Vec<Value> {
    list(&items["items"]).into_iter().map(|item| item[field].clone()).collect()
}

/// Everything that `/v1/mcp/servers/test/…` offers.
async fn is_whole(bench: &Bench) {
    let get = async |path: &str| bench.get(&format!("/v1/mcp/servers/test/{path}")).await;
    let prompts = get("prompts").await.body;
    assert_eq!(all(&prompts, "name"), ["greet"], "{prompts}");
    assert_eq!(prompts["items"][0]["arguments"][0]["name"], "name", "{prompts}");
    let path = "/v1/mcp/servers/test/prompts/greet";
    let greet = bench.post(path, json!({ "arguments": { "name": "Ada" } })).await.body;
    assert_eq!(greet["messages"][0]["content"]["text"], "Say hello to Ada.", "{greet}");
    assert_eq!(greet["messages"][0]["role"], "user");
    let resources = get("resources").await.body;
    assert_eq!(all(&resources, "uri"), ["note://today", "note://photo"], "{resources}");
    let templates = get("resources/templates").await.body;
    assert_eq!(all(&templates, "uriTemplate"), ["note://days/{day}"], "{templates}");
    let note = get("resources/read?uri=note%3A%2F%2Ftoday").await.body;
    assert_eq!(note["contents"][0]["text"], "Buy milk.", "{note}");
    let day = get("resources/read?uri=note://days/friday").await.body;
    assert_eq!(day["contents"][0]["text"], "Nothing on friday.", "{day}");
    let photo = get("resources/read?uri=note://photo").await.body;
    assert_eq!(photo["contents"][0]["blob"], "iVBORw0KGgo=", "{photo}");
}

#[tokio::test]
async fn prompts_and_resources_are_listed_and_used_over_stdio_and_http() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, _) = with_server(&upstream, program()).await;
    is_whole(&bench).await;
    let health = health(&bench).await;
    assert_eq!((&health["prompts"], &health["resources"]), (&json!(true), &json!(true)));
    let server = OverHttp::start().await;
    let bench = Bench::before_with(&upstream, |config| server.configure(config, |_| {})).await;
    until(&bench, "up").await;
    is_whole(&bench).await;
}

#[tokio::test]
async fn what_a_server_does_not_have_or_refuses_is_said() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.mcp.servers.insert("test".into(), program());
        let gone = McpServerConfig { command: Some("false".into()), ..McpServerConfig::default() };
        config.mcp.servers.insert("gone".into(), gone);
        let off = McpServerConfig {
            enabled: false,
            command: Some("x".into()),
            ..McpServerConfig::default()
        };
        config.mcp.servers.insert("off".into(), off);
    })
    .await;
    for (path, status, why) in [
        ("none/prompts", 404, "no MCP server of that name"),
        ("gone/prompts", 503, "is down"),
        ("off/resources", 503, "is not enabled"),
        ("test/resources/read", 422, "`uri` is missing"),
        ("test/resources/read?uri=note://nothing", 422, "refused"),
    ] {
        let answer = bench.get(&format!("/v1/mcp/servers/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(answer.text.contains(why), "{path}: {}", answer.text);
    }
    for (prompt, body, why) in [
        ("none", json!({}), "refused"),
        ("greet", json!({}), "refused"),
        ("greet", json!({ "name": "Ada" }), "unknown field"),
    ] {
        let path = format!("/v1/mcp/servers/test/prompts/{prompt}");
        let answer = bench.post(&path, body).await;
        assert!(answer.status == 422 && answer.text.contains(why), "{prompt}: {}", answer.text);
    }
}

#[tokio::test]
async fn models_list_and_read_resources_only_if_the_configuration_says_so() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let mut server = program();
    server.tools = vec!["echo".into()];
    let offered = async |server: McpServerConfig| {
        let (bench, session) = with_server(&upstream, server).await;
        bench.say(&session, "hi").await;
        let tools = list(&upstream.calls().last().unwrap().body["tools"]);
        let names = tools.iter().map(|tool| tool["function"]["name"].clone());
        (names.collect::<Vec<_>>(), bench, session)
    };
    assert_eq!(offered(server.clone()).await.0, ["mcp_test_echo"], "not by default");
    server.resources = true;
    let (names, bench, session) = offered(server).await;
    assert_eq!(names, ["mcp_test_echo", "mcp_test_list_resources", "mcp_test_read_resource"]);
    let calls = [
        ("mcp_test_list_resources", "{}"),
        ("mcp_test_read_resource", "{\"uri\":\"note://today\"}"),
        ("mcp_test_read_resource", "{\"uri\":\"note://photo\"}"),
        ("mcp_test_read_resource", "{}"),
        ("mcp_test_read_resource", "{\"uri\":\"note://nothing\"}"),
    ];
    let results = called(&bench, &session, &calls).await;
    let listed: Value = serde_json::from_str(&results[0]).unwrap();
    assert_eq!(listed["resources"][0]["uri"], "note://today", "{listed}");
    assert_eq!(listed["templates"][0]["uriTemplate"], "note://days/{day}", "{listed}");
    assert_eq!(results[1..3], ["Buy milk.", "[image: image/png, 8 bytes]"]);
    assert!(results[3].contains("`uri` is missing") && results[4].contains("refused"));
}
