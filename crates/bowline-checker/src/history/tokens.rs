//! Roaming tokens, and the imports that want to use them.

use std::collections::BTreeMap;

use super::{Event, History};

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub usize);

/// The outcome of one import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Import {
    /// 2xx: it made this session.
    Made { session: String },
    /// The token was used before.
    Refused,
    /// 5xx, or no answer: it may have made a session or not.
    Unknown,
}

impl History {
    /// A token for the session was made, after the last write to it.
    pub fn exported(&mut self, session: &str) -> Token {
        let token = Token(self.tokens);
        self.tokens += 1;
        self.events.push(Event::Exported { token, session: session.to_owned() });
        token
    }

    /// An import has ended.
    pub fn imported(&mut self, token: Token, outcome: Import) {
        self.events.push(Event::Imported { token, outcome });
    }

    /// The sessions that came from the token, with the contents of their logs: all that there are, by the
    /// word of the gateway.
    pub fn came_from(&mut self, token: Token, sessions: BTreeMap<String, Vec<String>>) {
        self.imports.insert(token, sessions);
    }
}
