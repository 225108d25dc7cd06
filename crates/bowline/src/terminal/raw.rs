//! Raw mode of the terminal: keys arrive one by one and are not echoed.

use std::io::{self, Write as _};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
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
