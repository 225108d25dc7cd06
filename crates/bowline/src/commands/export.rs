//! `bowline export`: a session as a roaming token or as a bundle in a file.

use std::path::Path;
use std::process::ExitCode;

use bowline_net::private_file;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::roaming::ExportArgs;
use crate::failure::Failure;
use crate::terminal::{note, say};

pub(crate) async fn run(args: ExportArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let id = api.session(&args.session).await?;
    let exported = export(
        &api,
        &id,
        json!({
            "ttl_seconds": args.ttl, "label": args.label,
            "with_memory": args.without_memory.then_some(false), "for_gateway": args.for_gateway,
            "announce": args.announce,
        }),
        args.out.as_deref(),
    )
    .await?;
    if args.json {
        say!("{exported}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = |name: &str| exported[name].as_str().unwrap_or("-").to_owned();
    note!("exported {} messages of session {id}", exported["message_count"]);
    note!("content id  {}", text("bundle_cid"));
    if exported["with_memory"] == true {
        note!("memory      included; --without-memory leaves it out");
    }
    match &args.out {
        Some(file) => {
            say!("{}", file.display());
            note!("\nImport it anywhere with `bowline import {}`.", file.display());
        }
        None => {
            note!("valid until  {}\n", text("expires_at"));
            say!("{}", text("roaming_token"));
            note!("\nAnyone who has this token can import the session, once. Save it in a file:");
            note!("  bowline import --token-file FILE");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Exports a session, and writes the bundle to a file if one is given. Returns the gateway's answer.
pub(super) async fn export(
    api: &Api,
    id: &str,
    asked: Value,
    out: Option<&Path>,
) -> Result<Value, Failure> {
    let path = format!("/v1/sbp/sessions/{id}/export");
    let mut exported = api.call(Method::POST, &path, Some(asked)).await?;
    if let Some(file) = out {
        let export = exported["export_id"].as_str().unwrap_or_default();
        let path = format!("/v1/sbp/sessions/{id}/exports/{export}/bundle");
        let bundle = api.send(Method::GET, &path, None).await?;
        write_bundle(file, &bundle)?;
        exported["file"] = json!(file);
    }
    Ok(exported)
}

/// Writes the bundle to a file: one that is there keeps its mode, a new one only its owner can read.
fn write_bundle(path: &Path, text: &str) -> Result<(), Failure> {
    let elsewhere = |error: String| Failure::new(error).hint("choose another place with --out");
    // Replacing a pipe or a terminal by a file would lose the output.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let written = std::fs::write(path, text);
        return written.map_err(|why| elsewhere(format!("cannot write {}: {why}", path.display())));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(elsewhere(format!("there is no folder {}", folder.display())));
    }
    let written = private_file::replace_as_is(path, text.as_bytes());
    written.map_err(|error| elsewhere(error.to_string()))
}

/// Prints the response as JSON, or the lines as text.
pub(super) fn show(answer: &Value, json: bool, lines: &[String]) -> ExitCode {
    if json {
        say!("{answer}");
    } else {
        lines.iter().for_each(|line| say!("{line}"));
    }
    ExitCode::SUCCESS
}
