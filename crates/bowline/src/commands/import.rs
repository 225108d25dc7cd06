//! `bowline import`: a session from a token, a bundle, or another product's export.
//!
//! Invariants
//! - The idempotency key of another product's conversation is a hash of the request. So importing
//!   the same file again, while the gateway remembers its keys, returns the same sessions.
//! - Text from a file is printed without control characters.

use std::collections::HashMap;
use std::process::ExitCode;

use bowline_sbp::api::SignatureView;
use bowline_sbp::bundle::{Opened, RequiredSignature};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::given::{Given, given};
use super::signature;
use crate::api::{Api, IdempotentRequest, RequestFailure, fresh_key};
use crate::cli::roaming::ImportArgs;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{note, one_line, printable, progress, say};
use bowline_import::{Conversation, Format, Found};

pub(crate) async fn run(args: ImportArgs) -> Result<ExitCode, Failure> {
    match given(args.source.as_deref(), args.token_file.as_deref())? {
        Given::Token(_) if args.dry_run => Err(Failure::new("--dry-run is for files")
            .hint("look at a token with `bowline inspect --token-file FILE`")
            .kind(FailureKind::Usage)),
        Given::Token(token) => {
            let fields = json!({ "roaming_token": token, "allow_reuse": args.fork });
            let look = "before you try again, check with `bowline inspect` whether the token was \
                        used, and with `bowline sessions list` for the new session";
            take_one(&args, fields, None, look).await
        }
        Given::Text { text, written } => {
            let found = bowline_import::read(&text, written).map_err(|error| {
                Failure::new(error).hint("`bowline import --help` lists the supported formats")
            })?;
            match found.format {
                Format::Bundle => take_bundle(&args, &text).await,
                format if required(&args) != RequiredSignature::None => {
                    Err(Failure::new(format!("this is {format}, which has no signature"))
                        .hint("leave out --require-signature, or ask for a bundle")
                        .kind(FailureKind::Usage))
                }
                _ => take_foreign(&args, found).await,
            }
        }
    }
}

/// Imports an SBP bundle. Its content id and its signature are checked here before it is sent; the
/// gateway checks them again before it stores anything.
async fn take_bundle(args: &ImportArgs, text: &str) -> Result<ExitCode, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::new(printable(&error.to_string())).hint("ask the sender for the file again")
    };
    let Opened { contents, cid, signature } = Opened::read(text).map_err(|e| refused(&e))?;
    signature.check(required(args)).map_err(|error| refused(&error))?;
    if args.dry_run {
        let memories = contents.memory.map_or(0, |memory| memory.len());
        let own = signature::own_key(&args.gateway);
        let session = json!({
            "title": contents.label, "messages": contents.messages.len(), "memories": memories,
            "bundle_cid": cid, "agent_id": contents.session.agent,
            "signature": SignatureView::new(signature, own.as_ref()),
        });
        return would(args, Format::Bundle, &[session], &[]);
    }
    let look = "before you try again, check with `bowline sessions list` and `bowline lineage \
                last` whether it was imported";
    take_one(args, json!({}), Some(text), look).await
}

fn required(args: &ImportArgs) -> RequiredSignature {
    match args.require_signature {
        None => RequiredSignature::None,
        Some(None) => RequiredSignature::OfAnyone,
        Some(Some(fingerprint)) => RequiredSignature::Of(fingerprint),
    }
}

/// Imports a token or a bundle. Has a new idempotency key: each run makes another session.
async fn take_one(
    args: &ImportArgs,
    fields: Value,
    bundle: Option<&str>,
    look: &str,
) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let made = post(&api, body(args, fields, bundle), fresh_key(), look).await?;
    if args.json {
        say!("{made}");
    } else {
        say_made(&[made]);
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports another product's conversations, each with its own request: if one is refused, the
/// others are still imported.
async fn take_foreign(args: &ImportArgs, found: Found) -> Result<ExitCode, Failure> {
    let Found { format, sessions, report: unplaced } = found;
    let mut lines: Vec<_> =
        unplaced.iter().map(|unplaced| format!("{}: {}", unplaced.place, unplaced.what)).collect();
    let (sessions, empty): (Vec<_>, Vec<_>) =
        sessions.into_iter().partition(|session| !session.contents.messages.is_empty());
    lines.extend(empty.iter().map(|session| format!("{}: it has no messages", title(session))));
    if args.dry_run {
        let sessions: Vec<_> = sessions
            .iter()
            .map(|session| {
                let memories = session.contents.memory.as_ref().map_or(0, Vec::len);
                let messages = session.contents.messages.len();
                json!({ "title": title(session), "messages": messages, "memories": memories })
            })
            .collect();
        return would(args, format, &sessions, &lines);
    }
    let api = Api::new(&args.gateway).await?;
    let mut keys = ImportKeys::default();
    let mut outcome = ImportResult { without_place: lines, ..ImportResult::default() };
    let count = sessions.len();
    let mut sessions = (1..).zip(&sessions);
    for (number, session) in &mut sessions {
        progress("importing", number, count, title(session));
        let body = body(args, json!({}), Some(&session.contents.seal().text));
        let key = keys.of(&body);
        match post(&api, body, key, AGAIN).await {
            Ok(made) => outcome.imported.push(made),
            Err(trouble) => {
                outcome.fail(session, &trouble.what);
                let refused = trouble.refused;
                outcome.trouble = Some(trouble);
                if !refused {
                    break;
                }
            }
        }
    }
    for (_, session) in sessions {
        outcome.fail(session, "not tried, since the gateway does not answer");
    }
    outcome.report(args)
}

/// The results for all conversations of a file.
#[derive(Debug, Default)]
struct ImportResult {
    imported: Vec<Value>,
    failed: Vec<Value>,
    without_place: Vec<String>,
    /// The last error.
    trouble: Option<RequestFailure>,
}

impl ImportResult {
    fn fail(&mut self, session: &Conversation, why: &str) {
        let origin = &session.contents.session.id;
        self.failed
            .push(json!({ "title": title(session), "origin_session_id": origin, "error": why }));
    }

    fn report(self, args: &ImportArgs) -> Result<ExitCode, Failure> {
        let Self { imported, failed, without_place, trouble } = self;
        let count = imported.len() + failed.len();
        if args.json {
            let answer = json!({
                "imported": imported, "failed": failed, "without_place": without_place,
            });
            say!("{answer}");
        } else {
            say_made(&imported);
            say_unplaced(&without_place);
        }
        let Some(trouble) = trouble else { return Ok(ExitCode::SUCCESS) };
        if count > 1 && !args.json {
            note!("\nNot imported:");
            for failed in &failed {
                let text = |name: &str| one_line(failed[name].as_str().unwrap_or_default());
                note!("  {}: {}", text("title"), text("error"));
            }
            note!();
        }
        if imported.is_empty() {
            return Err(trouble.into());
        }
        let what = format!("{} of {count} conversations could not be imported", failed.len());
        Err(Failure::new(what).hint(AGAIN))
    }
}

/// Idempotency keys made of a hash of the request body, so that the same request has the same key.
/// Two identical conversations in one file get different keys, since each becomes a session.
#[derive(Debug, Default)]
struct ImportKeys(HashMap<String, u32>);

impl ImportKeys {
    fn of(&mut self, body: &str) -> String {
        let digest = Sha256::digest(body);
        let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let count = self.0.entry(hash.clone()).or_default();
        *count += 1;
        format!("import-{hash}-{count}")
    }
}

fn title(session: &Conversation) -> String {
    one_line(session.title.as_deref().unwrap_or(&session.contents.session.id))
}

/// The request body. The bundle is inserted as unchanged text: parsing it could change its numbers,
/// and with them its content id.
fn body(args: &ImportArgs, mut fields: Value, bundle: Option<&str>) -> String {
    if let Some(agent) = &args.agent {
        fields["target_agent_id"] = json!(agent);
    }
    if args.with_memory {
        fields["with_memory"] = json!(true);
    }
    match required(args) {
        RequiredSignature::None => {}
        RequiredSignature::OfAnyone => fields["require_signature"] = json!(true),
        RequiredSignature::Of(fingerprint) => {
            fields["require_signature"] = json!(fingerprint.to_string());
        }
    }
    let mut body = fields.to_string();
    if let Some(bundle) = bundle {
        let comma = if body == "{}" { "" } else { "," };
        body.truncate(body.len() - 1);
        body = format!("{body}{comma}\"bundle\":{bundle}}}");
    }
    body
}

async fn post(api: &Api, body: String, key: String, look: &str) -> Result<Value, RequestFailure> {
    let path = "/v1/sbp/sessions/import";
    let deed = IdempotentRequest { path, body, key, name: "the import", look: look.to_owned() };
    let made = api.once(deed).await?;
    serde_json::from_str(&made)
        .map_err(|_| RequestFailure::refused("the gateway's answer cannot be read"))
}

fn would(
    args: &ImportArgs,
    format: Format,
    sessions: &[Value],
    unplaced: &[String],
) -> Result<ExitCode, Failure> {
    if args.json {
        let answer = json!({
            "format": format.to_string(), "would_import": sessions, "without_place": unplaced,
            "with_memory": args.with_memory,
        });
        say!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    say!("This is {format}. It would become {} session(s):", sessions.len());
    for session in sessions {
        let title = session["title"].as_str().unwrap_or("(without a title)");
        say!("  {} messages  {}", session["messages"], one_line(title));
        if let Some(signature) = signature::words_of(session) {
            say!("  {signature}");
        }
    }
    let memories: u64 = sessions.iter().filter_map(|session| session["memories"].as_u64()).sum();
    match (memories, args.with_memory) {
        (0, _) => {}
        (count, true) => say!("{count} memories would be added to the agent's memory."),
        (count, false) => say!(
            "{count} memories would travel with the session(s); --with-memory would add them to \
             the agent's memory."
        ),
    }
    say_unplaced(unplaced);
    Ok(ExitCode::SUCCESS)
}

fn say_made(made: &[Value]) {
    let text = |session: &Value, name: &str| one_line(session[name].as_str().unwrap_or("-"));
    for session in made {
        say!("{}", text(session, "session_id"));
        let agent = text(session, "agent_id");
        note!("  {} messages, agent {agent}", session["message_count"]);
        if let Some(signature) = signature::words_of(session) {
            note!("  {signature}");
        }
        match (session["memory_count"].as_u64().unwrap_or_default(), &session["memory_restored"]) {
            (0, _) => {}
            (count, Value::Bool(true)) => note!("  {count} memories added to the agent's memory"),
            (count, _) => note!(
                "  {count} memories travel with the session; --with-memory adds them to the \
                 agent's memory"
            ),
        }
    }
    if let [one] = made {
        note!("\nContinue with `bowline chat --session {}`.", text(one, "session_id"));
    }
}

fn say_unplaced(unplaced: &[String]) {
    if !unplaced.is_empty() {
        note!("\nLeft out or changed:");
        unplaced.iter().for_each(|unplaced| note!("  {}", one_line(unplaced)));
    }
}

/// 24 hours is the default of `limits.key_memory`.
const AGAIN: &str = "run the same command again: within 24 hours, what was imported from a file is \
                     not imported a second time";
