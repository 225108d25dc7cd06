//! The levels of SBP. Each includes those before it.

use std::fmt::{self, Display};
use std::str::FromStr;

/// A level of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    L1,
    L2,
    L3,
    L4,
    L5,
    L6,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 6] = [Level::L1, Level::L2, Level::L3, Level::L4, Level::L5, Level::L6];

    /// What the level is about.
    pub fn title(self) -> &'static str {
        match self {
            Level::L1 => "stateful proxy",
            Level::L2 => "Tether and resume",
            Level::L3 => "roaming",
            Level::L4 => "surfaces",
            Level::L5 => "MCP bridge",
            Level::L6 => "federation",
        }
    }

    /// The level of a requirement, such as `SBP-L2-06`.
    pub(crate) fn of(id: &str) -> Self {
        let digit = id.as_bytes().get(5).copied().unwrap_or_default();
        let place = usize::from(digit.saturating_sub(b'1'));
        Self::ALL.get(place).copied().unwrap_or(Level::L1)
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The text names no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no level `{0}`; levels are L1 to L6")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let named = |level: &Level| {
            let digit = &level.to_string()[1..];
            text.eq_ignore_ascii_case(&level.to_string()) || text == digit
        };
        Self::ALL.into_iter().find(named).ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_people_write_them() {
        for text in ["L3", "l3", "3"] {
            assert_eq!(text.parse(), Ok(Level::L3));
        }
        assert!("L7".parse::<Level>().is_err(), "reserved by the protocol, and never claimed");
        assert!("".parse::<Level>().is_err());
    }

    #[test]
    fn a_requirement_names_its_level() {
        assert_eq!(Level::of("SBP-L1-01"), Level::L1);
        assert_eq!(Level::of("SBP-L6-03b"), Level::L6);
    }
}
