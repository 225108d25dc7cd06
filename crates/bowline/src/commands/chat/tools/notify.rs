//! The tool `notify`: a desktop notification, or a line on stderr if there is no program for it.

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};

use super::{program, required, text};
use crate::terminal::{note, printable};

/// The longest title or text, in characters.
const LONGEST: usize = 500;

/// The installed program that shows desktop notifications.
pub(super) fn program() -> Option<&'static str> {
    ["notify-send", "terminal-notifier"].into_iter().find(|name| program::is_here(name))
}

pub(super) async fn notify(program: Option<&str>, input: &Value) -> ToolOutcome {
    let short = |text: &str| printable(text).chars().take(LONGEST).collect::<String>();
    let body = short(required(input, "text")?);
    let title = text(input, "title").map_or_else(|| "Bowline".to_owned(), short);
    match program {
        Some("terminal-notifier") => {
            let args = ["-title", &title, "-message", &body];
            program::call("terminal-notifier", &args, None).await?;
        }
        // `--`: a text that begins with a dash must not be parsed as an option.
        Some(other) => drop(program::call(other, &["--", &title, &body], None).await?),
        None => note!("\u{7}· {title}: {body}"),
    }
    Ok(json!({ "shown": true }))
}
