//! Released clients, unchanged, against the built binary. The programs are in `tests/clients`; each does
//! with its client what people do with it, once in a session and once in pass-through, and says how it went.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Reached only by a failure.
const DEADLINE: Duration = Duration::from_secs(300);

/// Python with the packages of `tests/clients/requirements.txt`.
pub(crate) fn python() -> PathBuf {
    let python = std::env::var_os("BOWLINE_TEST_PYTHON").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python"))
    });
    assert!(python.exists(), "{} is missing; `make tools` makes it", python.display());
    python
}

/// Runs the program; fails with all it said if one habit of its client does not work.
async fn run(program: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut command = tokio::process::Command::new(python());
    command
        .arg(folder.join("run.py"))
        .args([env!("CARGO_BIN_EXE_bowline"), program])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output());
    let output = output.await.unwrap_or_else(|_| panic!("{program} does not end")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}\n{said}\n{complaint}");
    assert!(said.contains("\n0 failed"), "{program} did not finish\n{said}\n{complaint}");
}

#[tokio::test]
async fn sbp_l1_02_the_openai_sdk_for_python_works() {
    run("openai_python.py").await;
}

#[tokio::test]
async fn sbp_l1_02_the_openai_sdk_for_node_works() {
    run("openai_node.mjs").await;
}

#[tokio::test]
async fn sbp_l1_02_langchain_works() {
    run("langchain_chat.py").await;
}

#[tokio::test]
async fn sbp_l1_02_litellm_works() {
    run("litellm_chat.py").await;
}

#[tokio::test]
async fn sbp_l1_02_pydantic_ai_works() {
    run("pydantic_ai_chat.py").await;
}

#[tokio::test]
async fn sbp_l1_02_the_openai_agents_sdk_works() {
    run("openai_agents.py").await;
}

#[tokio::test]
async fn sbp_l1_02_the_vercel_ai_sdk_works() {
    run("vercel_ai.mjs").await;
}

#[tokio::test]
async fn sbp_l5_06_hosts_made_with_the_mcp_sdk_for_python_work() {
    run("mcp_python.py").await;
}

#[tokio::test]
async fn sbp_l5_06_hosts_made_with_the_mcp_sdks_for_typescript_work() {
    run("mcp_node.mjs").await;
}

#[tokio::test]
async fn servers_made_with_the_mcp_sdks_and_public_ones_work_behind_the_gateway() {
    run("mcp_servers.py").await;
}
