//! `bowline mcp prompts` and `bowline mcp resources`: what the MCP servers of the gateway have
//! besides tools.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::api::{Api, encoded};
use crate::cli::mcp::{PromptsArgs, ResourcesArgs};
use crate::failure::{Failure, FailureKind};
use crate::terminal::{columns, note, one_line, printable, say, show};

/// The most pages of a list that are asked for.
const MOST_PAGES: usize = 100;

pub(super) async fn prompts(args: PromptsArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let base = format!("/v1/mcp/servers/{}/prompts", encoded(&args.server));
    let Some(prompt) = &args.prompt else {
        let prompts = listed(&api, &base).await?;
        if args.json {
            say!("{}", Value::from(prompts));
            return Ok(ExitCode::SUCCESS);
        }
        if prompts.is_empty() {
            note!("the server has no prompts");
        }
        let rows: Vec<_> = prompts.iter().map(prompt_row).collect();
        show!("{}", columns(&rows));
        return Ok(ExitCode::SUCCESS);
    };
    let arguments = args.arguments.iter().map(|argument| named(argument));
    let arguments: Map<String, Value> = arguments.collect::<Result<_, _>>()?;
    let body = json!({ "arguments": arguments });
    // A query's form of a space, `+`, means itself in a path.
    let path = format!("{base}/{}", encoded(prompt).replace('+', "%20"));
    let found = api.call(Method::POST, &path, Some(body)).await.map_err(of_server)?;
    if args.json {
        say!("{found}");
        return Ok(ExitCode::SUCCESS);
    }
    let messages = found["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<_> = messages.iter().map(|message| text_of(&message["content"])).collect();
    say!("{}", safe(texts.join("\n\n").trim_end()));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn resources(args: ResourcesArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let base = format!("/v1/mcp/servers/{}/resources", encoded(&args.server));
    let Some(uri) = &args.uri else {
        let resources = listed(&api, &base).await?;
        // Not every server has templates.
        let templates = listed(&api, &format!("{base}/templates")).await.unwrap_or_default();
        if args.json {
            say!("{}", json!({ "resources": resources, "templates": templates }));
            return Ok(ExitCode::SUCCESS);
        }
        if resources.is_empty() && templates.is_empty() {
            note!("the server has no resources");
        }
        let rows: Vec<_> = resources.iter().chain(&templates).map(resource_row).collect();
        show!("{}", columns(&rows));
        return Ok(ExitCode::SUCCESS);
    };
    let found = api.get(&format!("{base}/read?uri={}", encoded(uri))).await.map_err(of_server)?;
    if args.json {
        say!("{found}");
        return Ok(ExitCode::SUCCESS);
    }
    for part in found["contents"].as_array().map(Vec::as_slice).unwrap_or_default() {
        match (part["text"].as_str(), part["blob"].as_str()) {
            (Some(text), _) => show!("{}", safe(text)),
            (None, Some(blob)) => write(blob)?,
            (None, None) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All pages of a list.
async fn listed(api: &Api, path: &str) -> Result<Vec<Value>, Failure> {
    let (mut items, mut query) = (Vec::new(), String::new());
    for _ in 0..MOST_PAGES {
        let page = api.get(&format!("{path}{query}")).await.map_err(of_server)?;
        items.extend(page["items"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else { return Ok(items) };
        query = format!("?cursor={}", encoded(next));
    }
    note!("the list is longer; only its first {MOST_PAGES} pages are shown");
    Ok(items)
}

/// What is not found here is a server, or a list that it does not have.
fn of_server(failure: Failure) -> Failure {
    match failure.exit_code() == FailureKind::NotFound.exit_code() {
        true => failure.hint("`bowline mcp list` lists the servers"),
        false => failure,
    }
}

/// `NAME=VALUE` as an argument of a prompt.
fn named(argument: &str) -> Result<(String, Value), Failure> {
    let (name, value) = argument.split_once('=').ok_or_else(|| {
        Failure::new(format!("`{}` is not an argument of a prompt", one_line(argument)))
            .hint("write NAME=VALUE")
            .kind(FailureKind::Usage)
    })?;
    Ok((name.to_owned(), value.into()))
}

/// Name, arguments and description.
fn prompt_row(prompt: &Value) -> [String; 3] {
    let arguments = prompt["arguments"].as_array().map(Vec::as_slice).unwrap_or_default();
    let argument = |argument: &Value| match argument["required"].as_bool() {
        Some(true) => format!("{}=…", one_line(text(argument, "name"))),
        _ => format!("[{}=…]", one_line(text(argument, "name"))),
    };
    let arguments: Vec<_> = arguments.iter().map(argument).collect();
    [one_line(text(prompt, "name")), arguments.join(" "), one_line(text(prompt, "description"))]
}

/// URI or template, type and description.
fn resource_row(resource: &Value) -> [String; 3] {
    let uri = resource["uri"].as_str().or_else(|| resource["uriTemplate"].as_str());
    let about = match text(resource, "description") {
        "" => text(resource, "name"),
        about => about,
    };
    [uri.map_or("-".into(), one_line), one_line(text(resource, "mimeType")), one_line(about)]
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The text of a message of a prompt; other content is named.
fn text_of(content: &Value) -> String {
    match content["type"].as_str() {
        Some("text") => text(content, "text").to_owned(),
        Some("resource") => match content["resource"]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("[{}]", text(&content["resource"], "uri")),
        },
        kind => format!("[{}]", kind.unwrap_or("nothing")),
    }
}

/// Foreign text for stdout: as it is for a program, without control characters for a terminal.
fn safe(text: &str) -> String {
    if std::io::stdout().is_terminal() { printable(text) } else { text.to_owned() }
}

fn write(blob: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        let what = "the resource is not text, and is not printed to a terminal";
        return Err(Failure::new(what).hint("redirect it into a file: > FILE"));
    }
    let bytes = STANDARD.decode(blob);
    let bytes = bytes.map_err(|_| Failure::new("the server's answer is not valid base64"))?;
    std::io::stdout().write_all(&bytes).map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_has_a_name_and_any_value() {
        assert_eq!(named("name=a=b").unwrap(), ("name".into(), "a=b".into()));
        assert_eq!(named("name").unwrap_err().exit_code(), 2);
    }
}
