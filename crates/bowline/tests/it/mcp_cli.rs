//! `bowline mcp list` and `bowline mcp serve`, the latter with an MCP host.

use std::path::Path;
use std::process::Output;
use std::time::Instant;

use serde_json::{Value, json};

use crate::clients::python;
use crate::process::{DEADLINE, Process, bowline, session_of};

/// The path of a helper program in the gateway's tests.
fn program(name: &str) -> String {
    format!("{}/../bowline-gateway/tests/it/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// An MCP host, made with the official SDK, that starts `bowline mcp serve` and runs these steps.
fn host(data: &Path, options: &[&str], steps: Value) -> tokio::process::Command {
    let data = data.display().to_string();
    let mut serve = vec![env!("CARGO_BIN_EXE_bowline"), "mcp", "serve", "--data", &data];
    serve.extend(options);
    let mut host = tokio::process::Command::new(python());
    host.args([&program("mcp_client.py"), "stdio", &json!(serve).to_string(), "auto"]);
    host.arg(steps.to_string()).kill_on_drop(true);
    host
}

async fn got(mut host: tokio::process::Command) -> Value {
    let output = tokio::time::timeout(DEADLINE, host.output()).await.expect("it hangs").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said} {complaint}"))
}

fn names(tools: &Value) -> Vec<&str> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

#[tokio::test]
async fn sbp_l5_06_a_host_that_starts_programs_reaches_the_gateway_by_mcp_serve() {
    let folder = tempfile::tempdir().unwrap();
    let keys = [("BOWLINE_AUTH_API_KEYS", "a-key-of-twenty-characters")];
    let _gateway = Process::start_at(folder.path(), "127.0.0.1:0", &keys);
    let steps = json!([
        ["list"],
        ["session_send", { "text": "echo through the pipe" }],
        ["sessions_list", {}],
        ["session_read", { "session_id": "no id" }],
        ["no_such_tool", {}],
        ["instructions"],
        ["resources"],
        ["templates"],
        ["read", "bowline://sessions/none"],
    ]);
    let got = got(host(folder.path(), &[], steps)).await;
    assert_eq!(names(&got[0]), ["session_read", "session_send", "sessions_list"], "{got}");
    assert_eq!(text(&got[1]), "through the pipe");
    let session = &got[1]["structuredContent"]["session_id"];
    assert_eq!(&got[2]["structuredContent"]["sessions"][0]["session_id"], session);
    assert!(got[3]["isError"] == true && text(&got[3]).contains("cannot be read"), "{}", got[3]);
    assert!(got[4]["refused"].as_str().unwrap().contains("no such tool"), "{}", got[4]);
    assert!(got[5].as_str().unwrap().contains("session_send"), "the gateway's: {}", got[5]);
    let uri = format!("bowline://sessions/{}", session.as_str().unwrap());
    assert_eq!(got[6][0]["uri"], json!(uri), "{}", got[6]);
    assert_eq!(got[7][0]["uriTemplate"], "bowline://sessions/{session_id}", "{}", got[7]);
    assert!(got[8]["refused"].as_str().unwrap().contains("no such session"), "{}", got[8]);
}

#[tokio::test]
async fn a_host_whose_gateway_has_gone_is_told_that_nothing_listens_there() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let steps = json!([["meet", here, there], ["sessions_list", {}], ["read", "bowline://x"]]);
    let host = tokio::spawn(got(host(folder.path(), &[], steps)));
    let begun = Instant::now();
    while !here.exists() {
        assert!(begun.elapsed() < DEADLINE && !host.is_finished(), "the host does not get there");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    drop(gateway);
    std::fs::write(there, "").unwrap();
    let got = host.await.unwrap();
    let told =
        |said: &str| said.contains("nothing listens at http://") && said.contains("bowline up");
    assert!(got[0]["isError"] == true && told(text(&got[0])), "{got}");
    assert!(told(got[1]["refused"].as_str().unwrap()), "{got}");
}

#[tokio::test]
async fn mcp_prompts_and_mcp_resources_list_and_print_what_a_server_has() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let settings = format!(
        "[mcp.servers.test]\ncommand = {:?}\nargs = [{:?}, 'stdio']\n",
        python(),
        program("mcp_server.py"),
    );
    std::fs::write(&config, settings).unwrap();
    let environment = [("BOWLINE_CONFIG", config.to_str().unwrap())];
    let _gateway = Process::start_at(folder.path(), "127.0.0.1:0", &environment);
    let run = |command: &str| {
        let data = folder.path();
        let output = bowline().arg("mcp").args(command.split(' ')).arg("--data").arg(data).output();
        said(&output.unwrap())
    };
    insta::assert_snapshot!(run("prompts test"), @"greet  name=…  Greets somebody.");
    insta::assert_snapshot!(run("prompts test greet name=Ada"), @"Say hello to Ada.");
    insta::assert_snapshot!(run("resources test"), @r"
    note://today       text/plain  Today's note.
    note://photo       image/png   photo
    note://days/{day}  text/plain  on
    ");
    insta::assert_snapshot!(run("resources test note://today"), @"Buy milk.");
    insta::assert_snapshot!(run("resources test note://nothing"), @"error: the MCP server `test` refused: Unknown resource: note://nothing");
    insta::assert_snapshot!(run("prompts other"), @r"
    error: no MCP server of that name is configured

    hint: `bowline mcp list` lists the servers
    ");
    insta::assert_snapshot!(run("prompts test greet Ada"), @r"
    error: `Ada` is not an argument of a prompt

    hint: write NAME=VALUE
    ");
    let listed: Value = serde_json::from_str(&run("resources test --json")).unwrap();
    assert_eq!(listed["resources"][0]["uri"], "note://today", "{listed}");
    let data = folder.path();
    let mut photo = bowline();
    photo.args(["mcp", "resources", "test", "note://photo", "--data"]).arg(data);
    assert_eq!(photo.output().unwrap().stdout, b"\x89PNG\r\n\x1a\n", "the bytes");
}

#[tokio::test]
async fn sbp_l5_06_mcp_serve_with_a_session_token_reaches_that_session() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mine = gateway.say(None, "echo mine").await;
    let other = gateway.say(None, "echo other").await;
    let token = mine["sbp"]["session_token"].as_str().unwrap();
    let steps =
        json!([["sessions_list", {}], ["session_read", { "session_id": session_of(&other) }]]);
    let got = got(host(folder.path(), &["--token", token], steps)).await;
    let sessions = got[0]["structuredContent"]["sessions"].as_array().unwrap();
    assert_eq!((sessions.len(), &sessions[0]["session_id"]), (1, &json!(session_of(&mine))));
    assert!(text(&got[1]).contains("does not open"), "{}", got[1]);
}

#[tokio::test]
async fn a_host_goes_on_after_a_restart_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let steps = json!([
        ["session_send", { "text": "echo before" }],
        ["meet", here, there],
        ["sessions_list", {}],
        ["session_send", { "text": "echo after" }],
    ]);
    let host = tokio::spawn(got(host(folder.path(), &[], steps)));
    let begun = Instant::now();
    while !here.exists() {
        assert!(begun.elapsed() < DEADLINE && !host.is_finished(), "the host does not get there");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let _gateway = gateway.crash_and_restart();
    std::fs::write(there, "").unwrap();
    let got = host.await.unwrap();
    assert_eq!((text(&got[0]), text(&got[2])), ("before", "after"), "{got}");
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn without_a_gateway_mcp_serve_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let output = bowline()
        .args(["mcp", "serve", "--url", "http://127.0.0.1:1", "--data"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    insta::assert_snapshot!(said(&output), @r"
    error: nothing listens at http://127.0.0.1:1/

    hint: start a gateway with `bowline up`, or name another with --url
    ");
}

/// A server whose only tool must run as a task.
const TASKS: &str = r#"
import json, sys
tool = {"name": "long", "inputSchema": {}, "execution": {"taskSupport": "required"}}
info = {"name": "tasks", "version": "1"}
hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
answers = {"initialize": hello, "tools/list": {"tools": [tool]}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] in answers:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}
        print(json.dumps(answer), flush=True)
"#;

#[tokio::test]
async fn mcp_list_shows_servers_how_they_are_and_what_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let settings = format!(
        "[mcp.servers.test]\ncommand = {:?}\nargs = [{:?}, 'stdio']\ntools = ['add', 'echo']\n\
         [mcp.servers.gone]\ncommand = '/nonexistent'\n\
         [mcp.servers.off]\ncommand = 'x'\nenabled = false\n\
         [mcp.servers.tasks]\ncommand = {:?}\nargs = ['-c', {TASKS:?}]\n",
        python(),
        program("mcp_server.py"),
        python(),
    );
    std::fs::write(&config, settings).unwrap();
    let environment = [("BOWLINE_CONFIG", config.to_str().unwrap())];
    let _gateway = Process::start_at(folder.path(), "127.0.0.1:0", &environment);
    let list = |more: &[&str]| {
        let mut command = bowline();
        command.args(["mcp", "list", "--data"]).arg(folder.path()).args(more).output().unwrap()
    };
    // An MCP server needs some time to start.
    let begun = std::time::Instant::now();
    let mut shown = said(&list(&[]));
    while shown.matches(" up ").count() < 2 && begun.elapsed() < crate::process::DEADLINE {
        shown = said(&list(&[]));
    }
    insta::assert_snapshot!(shown, @r"
    gone                      down      stdio  its program was not found; check `command`
    off                       off       stdio  not enabled
    tasks                     up        stdio  0 tools
      not offered: long: it needs to run as an MCP task, which this gateway does not offer
    test                      up        stdio  2 tools
      mcp_test_add                              Adds     two numbers.
      mcp_test_echo
    ");
    let listed: Value = serde_json::from_slice(&list(&["--json"]).stdout).unwrap();
    assert_eq!(listed[3]["tools"][0]["tool"], "add", "{listed}");
    assert_eq!(listed[2]["not_offered"][0]["tool"], "long", "{listed}");
}

#[test]
fn a_mistake_in_a_servers_settings_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[mcp.servers.my_server]\ncommand = 'x'\n").unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let output = command.arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output).replace(folder.path().to_str().unwrap(), "[FOLDER]");
    insta::assert_snapshot!(said, @r"
    error: [FOLDER]/config.toml, line 2: mcp.servers.my_server: a name is 1 to 24 letters, digits and `-`

    hint: docs/mcp.md shows how a server is added
    ");
}
