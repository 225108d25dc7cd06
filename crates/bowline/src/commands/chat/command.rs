//! Commands that begin with a slash.

/// A line of input that is not an answer to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    Nothing,
    Message(String),
    Help,
    Stop,
    Who,
    /// Shows the model, or sets it.
    Model(Option<String>),
    /// Shows the title, or sets it.
    Title(Option<String>),
    /// Forks the session, with a label.
    Fork(Option<String>),
    /// Exports the session, to a file.
    Export(Option<String>),
    Back,
    Session,
    Quit,
    Unknown(String),
}

/// Every command, for completion.
pub(super) const NAMES: [&str; 10] = [
    "/help", "/stop", "/who", "/model", "/title", "/fork", "/export", "/back", "/session", "/quit",
];

pub(super) const HELP: &str = "\
/stop            stop the running answer (Ctrl-C)
/back            show earlier messages
/who             show who is attached
/model [NAME]    show or choose the model
/title [TEXT]    show or set the session's title
/fork [LABEL]    start a second session from here
/export [FILE]   export the session to a file, or as a token
/session         show the session's id
/quit            disconnect; the agent continues (Ctrl-D)
Ctrl-J or \\ and Enter begins a new line; the arrow keys walk through the history.
A message that begins with / is sent with a space before it.";

pub(super) fn parse(line: &str) -> Typed {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Typed::Nothing;
    }
    // Only a single line is a command: pasted text that begins with a path is a message.
    if !line.starts_with('/') || trimmed.contains('\n') {
        return Typed::Message(line.to_owned());
    }
    let (name, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    let argument = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    match (name, argument) {
        ("/help", None) => Typed::Help,
        ("/stop" | "/cancel", None) => Typed::Stop,
        ("/who", None) => Typed::Who,
        ("/model", name) => Typed::Model(name),
        ("/title", text) => Typed::Title(text),
        ("/fork", label) => Typed::Fork(label),
        ("/export", file) => Typed::Export(file),
        ("/back", None) => Typed::Back,
        ("/session", None) => Typed::Session,
        ("/quit" | "/exit", None) => Typed::Quit,
        // A path, such as /etc/hosts, is not a mistyped command.
        _ if name[1..].contains('/') => Typed::Message(line.to_owned()),
        (name, _) => Typed::Unknown(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_begins_with_a_slash_is_a_command() {
        let message = |text: &str| Typed::Message(text.into());
        for (line, expected) in [
            ("", Typed::Nothing),
            ("  ", Typed::Nothing),
            ("hello", message("hello")),
            (" /help me", message(" /help me")),
            ("/etc/hosts is odd", message("/etc/hosts is odd")),
            ("/help\nme", message("/help\nme")),
            ("/help", Typed::Help),
            ("/cancel ", Typed::Stop),
            ("/model  big one ", Typed::Model(Some("big one".into()))),
            ("/title", Typed::Title(None)),
            ("/quit now", Typed::Unknown("/quit".into())),
            ("/hepl", Typed::Unknown("/hepl".into())),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn every_command_is_known_and_in_the_help() {
        for name in NAMES {
            assert!(!matches!(parse(name), Typed::Unknown(_)), "{name}");
            assert!(name == "/help" || HELP.contains(name), "{name}");
        }
    }
}
