//! Where the messages of a chat come from: a keyboard, lines, or nowhere but the first message.

use std::io::IsTerminal as _;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines, Stdin};

use super::keyboard::{Keyboard, UserInput};
use super::view::can_redraw;
use crate::cli::ChatArgs;
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
    /// The input, and the message that was given at once: by --message, or piped.
    pub(super) async fn open(args: &ChatArgs) -> Result<(Self, Option<String>), Failure> {
        let unreadable = |error: std::io::Error| {
            Failure::new(format!("cannot read standard input: {error}"))
                .hint("give the message with --message")
        };
        if let Some(message) = &args.message {
            return Ok((Input::None, Some(message.clone())));
        }
        let by_person = std::io::stdin().is_terminal();
        if by_person && !args.json && !args.lines && can_redraw() {
            let keyboard = Keyboard::open().map_err(unreadable)?;
            return Ok((Input::Keyboard(Box::new(keyboard)), None));
        }
        if by_person || args.lines {
            let lines = BufReader::new(tokio::io::stdin()).lines();
            return Ok((Input::Lines { lines, by_person }, None));
        }
        let mut bytes = Vec::new();
        tokio::io::stdin().take(PIPED).read_to_end(&mut bytes).await.map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Failure::new("standard input is not text in UTF-8")
                .hint("pipe a text, not a binary file")
        })?;
        match text.trim() {
            "" => Err(Failure::new("there is no message: standard input is empty")
                .hint("run it in a terminal to talk, or give a message with --message")),
            _ => Ok((Input::None, Some(text.trim_end().to_owned()))),
        }
    }

    /// The next input; never, if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> InputEvent {
        match self {
            Input::Keyboard(keyboard) => InputEvent::User(keyboard.next().await),
            Input::Lines { lines, .. } => match lines.next_line().await {
                Ok(Some(line)) => InputEvent::Line(line),
                Ok(None) | Err(_) => InputEvent::End,
            },
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
