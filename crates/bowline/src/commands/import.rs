//! `bowline import`: a session from a token, a bundle, or another product's export.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use bowline_sbp::bundle::Contents;
use reqwest::Method;
use serde_json::{Value, json};

use super::sessions::printable;
use crate::api::Api;
use crate::cli::roaming::ImportArgs;
use crate::failure::Failure;
use crate::foreign::{self, Conversation, Format, Found};

/// What was named: a token, or a text.
pub(super) enum Given {
    Token(String),
    Text(String),
}

/// A file, standard input, or else a token.
pub(super) fn given(source: &str) -> Result<Given, Failure> {
    let unreadable = |error: std::io::Error| Failure::new(format!("cannot read {source}: {error}"));
    if source == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        return Ok(Given::Text(text));
    }
    let looks_like_a_token = source.split('.').count() == 3 && source.starts_with("ey");
    if looks_like_a_token && !Path::new(source).exists() {
        return Ok(Given::Token(source.to_owned()));
    }
    let text = std::fs::read_to_string(source).map_err(|error| {
        unreadable(error).hint("give a file, `-`, or a roaming token from `bowline export`")
    })?;
    Ok(Given::Text(text))
}

pub(crate) async fn run(args: ImportArgs) -> Result<ExitCode, Failure> {
    match given(&args.source)? {
        Given::Token(token) if args.dry_run => Err(Failure::new("--dry-run is for files")
            .hint(format!("look at a token with `bowline inspect {}…`", &token[..8]))),
        Given::Token(token) => {
            let fields = json!({ "roaming_token": token, "allow_reuse": args.fork });
            let made = post(&args, fields, None).await?;
            report(&args, &[made], None)
        }
        Given::Text(text) => {
            // Some editors put a mark before the first character.
            let text = text.trim_start_matches('\u{feff}');
            let found = foreign::read(text, jiff::Timestamp::now()).map_err(|error| {
                Failure::new(error).hint("`bowline import --help` lists what is understood")
            })?;
            match found.format {
                Format::Bundle => take_bundle(&args, text).await,
                _ => take_foreign(&args, found).await,
            }
        }
    }
}

/// Checked here before it is sent, and there again before it is written.
async fn take_bundle(args: &ImportArgs, text: &str) -> Result<ExitCode, Failure> {
    let (contents, cid) = Contents::open(text)
        .map_err(|error| Failure::new(error).hint("ask the sender for the file again"))?;
    if args.dry_run {
        let session = json!({
            "title": contents.label, "messages": contents.messages.len(), "bundle_cid": cid,
            "agent_id": contents.session.agent,
        });
        return would(args, Format::Bundle, &[session], &[]);
    }
    let made = post(args, json!({}), Some(text)).await?;
    report(args, &[made], None)
}

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
                json!({ "title": title(session), "messages": session.contents.messages.len() })
            })
            .collect();
        return would(args, format, &sessions, &lines);
    }
    let mut made = Vec::new();
    let count = sessions.len();
    for session in sessions {
        if count > 1 {
            eprintln!("importing {} of {count}: {}", made.len() + 1, title(&session));
        }
        let sealed = session.contents.seal();
        made.push(post(args, json!({}), Some(&sealed.text)).await?);
    }
    report(args, &made, Some(&lines))
}

fn title(session: &Conversation) -> String {
    session.title.as_deref().map_or_else(|| session.contents.session.id.clone(), printable)
}

/// Sends a bundle as the text it is: reading it into numbers would change them.
async fn post(
    args: &ImportArgs,
    mut fields: Value,
    bundle: Option<&str>,
) -> Result<Value, Failure> {
    if let Some(agent) = &args.agent {
        fields["target_agent_id"] = json!(agent);
    }
    let mut body = fields.to_string();
    if let Some(bundle) = bundle {
        let comma = if body == "{}" { "" } else { "," };
        body.truncate(body.len() - 1);
        body = format!("{body}{comma}\"bundle\":{bundle}}}");
    }
    let api = Api::new(&args.gateway)?;
    let made = api.send(Method::POST, "/v1/sbp/sessions/import", Some(body)).await?;
    serde_json::from_str(&made).map_err(|_| Failure::new("the gateway's answer makes no sense"))
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
        });
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("This is {format}. It would become {} session(s):", sessions.len());
    for session in sessions {
        let title = session["title"].as_str().unwrap_or("(without a title)");
        println!("  {} messages  {}", session["messages"], printable(title));
    }
    say_unplaced(unplaced);
    Ok(ExitCode::SUCCESS)
}

fn report(
    args: &ImportArgs,
    made: &[Value],
    unplaced: Option<&[String]>,
) -> Result<ExitCode, Failure> {
    if args.json {
        match (made, unplaced) {
            ([one], None) => println!("{one}"),
            _ => println!("{}", json!({ "imported": made, "without_place": unplaced })),
        }
        return Ok(ExitCode::SUCCESS);
    }
    for session in made {
        println!("{}", session["session_id"].as_str().unwrap_or("-"));
        let agent = session["agent_id"].as_str().unwrap_or("-");
        eprintln!("  {} messages, agent {agent}", session["message_count"]);
    }
    say_unplaced(unplaced.unwrap_or_default());
    if let [one] = made {
        let id = one["session_id"].as_str().unwrap_or("-");
        eprintln!("\nGo on with `bowline chat --session {id}`.");
    }
    Ok(ExitCode::SUCCESS)
}

fn say_unplaced(unplaced: &[String]) {
    if !unplaced.is_empty() {
        eprintln!("\nWithout a place here, or changed on the way:");
        unplaced.iter().for_each(|line| eprintln!("  {}", printable(line)));
    }
}
