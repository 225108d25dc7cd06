//! `bowline mcp`: shows the MCP servers that agents use, their prompts and resources, or acts as an
//! MCP server.

mod bridge;
mod library;

use std::process::ExitCode;

use reqwest::Method;
use serde_json::Value;

use self::bridge::Bridge;
use crate::api::{Api, encoded};
use crate::cli::GatewayArgs;
use crate::cli::mcp::{McpArgs, McpCommand};
use crate::failure::Failure;
use crate::secrets::SESSION_TOKEN;
use crate::terminal::{note, one_line, printable, say};

pub(crate) async fn run(args: McpArgs) -> Result<ExitCode, Failure> {
    match args.command {
        McpCommand::List { gateway, json } => list(&gateway, json).await,
        McpCommand::Accept { gateway, server, json } => accept(&gateway, &server, json).await,
        McpCommand::Prompts(args) => library::prompts(args).await,
        McpCommand::Resources(args) => library::resources(args).await,
        McpCommand::Serve { gateway, token_file, token } => {
            let token = SESSION_TOKEN.secret(token.as_deref(), token_file.as_deref())?;
            serve(&gateway, token).await
        }
    }
}

/// Pins the definitions of a server's tools anew.
async fn accept(gateway: &GatewayArgs, server: &str, json: bool) -> Result<ExitCode, Failure> {
    let path = format!("/v1/mcp/servers/{}/accept", encoded(server));
    let accepted = Api::new(gateway).await?.call(Method::POST, &path, None).await?;
    match json {
        true => say!("{accepted}"),
        false => {
            let tools = accepted["tools"].as_array().map_or(0, Vec::len);
            note!("{tools} tools of {} are accepted as they are now", printable(server));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(gateway: &GatewayArgs, json: bool) -> Result<ExitCode, Failure> {
    let answer = Api::new(gateway).await?.get("/v1/mcp/servers").await?;
    if json {
        say!("{}", answer["servers"]);
        return Ok(ExitCode::SUCCESS);
    }
    let servers = answer["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        note!("no MCP servers are configured; docs/mcp.md shows how to add one");
    }
    for server in servers {
        let tools = server["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |name: &str| server[name].as_str().unwrap_or("-");
        let how = match (text("status"), server["why"].as_str()) {
            ("up", _) => format!("{} tools", tools.len()),
            (_, Some(why)) => printable(why),
            ("off", _) => "not enabled".into(),
            _ => "not started yet".into(),
        };
        say!("{:24}  {:8}  {:5}  {how}", text("name"), text("status"), text("transport"));
        for tool in tools {
            say!("  {}", tool_line(tool));
        }
        for tool in server["not_offered"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |name: &str| one_line(tool[name].as_str().unwrap_or("-"));
            say!("  not offered: {}: {}", text("tool"), text("why"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A tool's name and the beginning of its description.
fn tool_line(tool: &Value) -> String {
    const WIDTH: usize = 60;
    let text = |name: &str| tool[name].as_str().unwrap_or_default();
    let about = one_line(text("description"));
    let short: String = about.chars().take(WIDTH).collect();
    let dots = if about.chars().count() > WIDTH { " …" } else { "" };
    format!("{:40}  {short}{dots}", text("name")).trim_end().to_owned()
}

async fn serve(gateway: &GatewayArgs, token: Option<String>) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    // Report an unreachable gateway at the start, on stderr, not at the first tool call.
    api.get("/healthz").await?;
    let bearer = token.or_else(|| api.key().map(str::to_owned));
    let bridge = Bridge::open(&api, bearer).await.map_err(Failure::new)?;
    bridge.run().await.map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
