//! A notice on the user's desktop, or at least in the terminal.

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};

use super::{program, required, text};
use crate::terminal::{note, printable};

/// The longest notice, in characters.
const LONGEST: usize = 500;

/// What shows notices here, if anything does.
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
        // A notice that begins like an option is still a notice.
        Some(other) => drop(program::call(other, &["--", &title, &body], None).await?),
        None => note!("\u{7}· {title}: {body}"),
    }
    Ok(json!({ "shown": true }))
}
