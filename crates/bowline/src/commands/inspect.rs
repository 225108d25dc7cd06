//! `bowline inspect`: what a roaming token or a file contains, without consuming the token.

use std::process::ExitCode;

use bowline_sbp::api::SignatureView;
use bowline_sbp::bundle::{BundleSignature, Opened};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::export::show;
use super::given::{Given, given};
use super::signature;
use crate::api::Api;
use crate::cli::roaming::InspectArgs;
use crate::failure::Failure;
use crate::terminal::{columns, one_line, printable};
use bowline_import::Format;

pub(crate) async fn run(args: InspectArgs) -> Result<ExitCode, Failure> {
    let seen = match given(args.source.as_deref(), args.token_file.as_deref())? {
        Given::Token(token) => {
            Api::new(&args.gateway).await?.get(&format!("/v1/sbp/token/{token}")).await?
        }
        Given::Text { text, written } => look(&args, &text, written)?,
    };
    // The content is untrusted: without control characters, and with line breaks removed so that it
    // cannot imitate another field.
    let shown = |name: &str, value: &Value| match value {
        _ if name == "signature" => signature::words_of(&seen).unwrap_or_default(),
        Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    };
    let fields = seen.as_object().into_iter().flatten();
    let rows: Vec<_> = fields.map(|(name, value)| [one_line(name), shown(name, value)]).collect();
    let lines: Vec<_> = columns(&rows).lines().map(str::to_owned).collect();
    let shown = show(&seen, args.json, &lines);
    Ok(if seen["intact"] == false { ExitCode::FAILURE } else { shown })
}

fn look(args: &InspectArgs, text: &str, written: Timestamp) -> Result<Value, Failure> {
    let found = bowline_import::read(text, written).map_err(Failure::new)?;
    if !matches!(found.format, Format::Bundle) {
        let messages: usize = found.sessions.iter().map(|s| s.contents.messages.len()).sum();
        return Ok(json!({
            "format": found.format.to_string(), "sessions": found.sessions.len(),
            "messages": messages, "without_place": found.report.len(),
        }));
    }
    let Opened { contents, cid, signature } =
        Opened::read(text).map_err(|error| Failure::new(printable(&error.to_string())))?;
    let own = signature::own_key(&args.gateway);
    let with_memory = contents.has_memory();
    Ok(json!({
        "format": found.format.to_string(),
        "bundle_cid": cid,
        "session_id": contents.session.id,
        "agent_id": contents.session.agent,
        "label": contents.label,
        "exported_at": contents.exported_at,
        "step_count": contents.session.step_count,
        "message_count": contents.messages.len(),
        "memories": contents.memory.map(|memory| memory.len()),
        "with_memory": with_memory,
        "signature": SignatureView::new(signature, own.as_ref()),
        "intact": signature != BundleSignature::Broken,
    }))
}
