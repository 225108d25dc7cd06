//! Where the messages of a chat come from: a keyboard, lines, or nowhere but the first message.

use std::io::IsTerminal as _;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines, Stdin};

use super::keyboard::{Keyboard, UserInput};
use super::view::can_redraw;
use crate::cli::chat::ChatArgs;
use crate::failure::Failure;

/// The longest message that is read from a pipe; the gateway's own limit is lower.
const PIPED: u64 = 16 << 20;

#[derive(Debug)]
pub(super) enum Input {
    Keyboard(Box<Keyboard>),
    Lines { lines: Lines<BufReader<Stdin>>, by_person: bool },
    None,
}

#[derive(Debug)]
pub(super) enum InputEvent {
    User(UserInput),
    Line(String),
    End,
}

impl Input {
    /// Where messages come from, if none was [`given`]. Enters the raw mode of a terminal: call it
    /// when nothing else has to be waited for.
    pub(super) fn open(args: &ChatArgs) -> Result<Self, Failure> {
        let by_person = std::io::stdin().is_terminal();
        if by_person && !args.json && !args.lines && can_redraw() {
            let keyboard = Keyboard::open().map_err(|error| unreadable(&error))?;
            return Ok(Input::Keyboard(Box::new(keyboard)));
        }
        Ok(Input::Lines { lines: BufReader::new(tokio::io::stdin()).lines(), by_person })
    }

    /// The next input; never, if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<InputEvent, Failure> {
        match self {
            Input::Keyboard(keyboard) => Ok(InputEvent::User(keyboard.next().await)),
            Input::Lines { lines, .. } => {
                let line = lines.next_line().await.map_err(|error| unreadable(&error))?;
                Ok(line.map_or(InputEvent::End, InputEvent::Line))
            }
            Input::None => std::future::pending().await,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Input::None)
    }

    pub(super) fn keyboard(&mut self) -> Option<&mut Keyboard> {
        match self {
            Input::Keyboard(keyboard) => Some(keyboard),
            _ => None,
        }
    }

    /// Whether a person types.
    pub(super) fn is_by_person(&self) -> bool {
        matches!(self, Input::Keyboard(_) | Input::Lines { by_person: true, .. })
    }
}

/// The message that was given at once: by --message, or piped without --lines.
pub(super) async fn given(args: &ChatArgs) -> Result<Option<String>, Failure> {
    if let Some(message) = &args.message {
        return Ok(Some(message.clone()));
    }
    if args.lines || std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let read = tokio::io::stdin().take(PIPED).read_to_end(&mut bytes).await;
    read.map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::new("standard input is not text in UTF-8").hint("pipe a text, not a binary file")
    })?;
    match text.trim() {
        "" => Err(Failure::new("there is no message: standard input is empty")
            .hint("run it in a terminal to talk, or give a message with --message")),
        _ => Ok(Some(text.trim_end().to_owned())),
    }
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read standard input: {error}"))
        .hint("pipe text in UTF-8, or give the message with --message")
}
