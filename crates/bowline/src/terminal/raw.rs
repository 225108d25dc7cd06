//! Raw mode of the terminal: keys arrive one by one and are not echoed.

use std::io::{self, Write as _};

use crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEventKind, KeyModifiers,
};
use crossterm::{execute, terminal};

/// Raw mode and bracketed paste, until dropped.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let raw = Self(());
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(raw)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(io::stdout(), DisableBracketedPaste);
        let _ = io::stdout().flush();
        let _ = terminal::disable_raw_mode();
    }
}

/// Asks for a secret, which is not shown while it is typed or pasted.
pub(crate) fn secret(prompt: &str) -> io::Result<String> {
    write!(io::stderr(), "{prompt}")?;
    let typed = {
        let _raw = RawMode::enter()?;
        read_secret()
    };
    writeln!(io::stderr())?;
    typed
}

fn read_secret() -> io::Result<String> {
    let mut text = String::new();
    loop {
        match event::read()? {
            Event::Paste(pasted) => text.push_str(&pasted),
            Event::Key(key) if key.kind == KeyEventKind::Release => {}
            Event::Key(key) => match key.code {
                KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                KeyCode::Char(c) => text.push(c),
                KeyCode::Backspace => drop(text.pop()),
                KeyCode::Enter => return Ok(text),
                _ => {}
            },
            _ => {}
        }
    }
}
