//! What a run is about, and the groups that its checks are shown in: the levels of SBP, and the two parts
//! of SBRP that a relay shows to the outside.

use std::fmt::{self, Display};

use crate::level::Level;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A server of SBP, up to this level.
    Server(Level),
    /// A relay of SBRP, which has no levels.
    Relay,
}

impl About {
    /// The protocol's name.
    pub fn protocol(self) -> &'static str {
        match self {
            About::Server(_) => "SBP",
            About::Relay => "SBRP",
        }
    }

    /// The groups of a whole run, in the order in which they are shown.
    pub(crate) fn groups(self) -> Vec<Group> {
        match self {
            About::Server(level) => {
                let levels = Level::ALL.into_iter().filter(|one| *one <= level);
                levels.map(Group::Level).collect()
            }
            About::Relay => vec![Group::Tokens, Group::Relay],
        }
    }
}

/// Checks that are shown together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A level of SBP.
    Level(Level),
    /// What a relay lets in (SBRP-TOKEN).
    Tokens,
    /// What a relay does with what it let in (SBRP-RELAY).
    Relay,
}

impl Group {
    /// The group of a requirement, such as `SBP-L2-06` or `SBRP-TOKEN-05`.
    pub(crate) fn of(id: &str) -> Self {
        match id {
            id if id.starts_with("SBRP-TOKEN") => Group::Tokens,
            id if id.starts_with("SBRP") => Group::Relay,
            id => Group::Level(Level::of(id)),
        }
    }

    /// What the group is about.
    pub fn title(self) -> &'static str {
        match self {
            Group::Level(level) => level.title(),
            Group::Tokens => "who is let in",
            Group::Relay => "forwarding, sessions and codes",
        }
    }

    /// How wide a column of its ids is.
    pub fn id_width(self) -> usize {
        match self {
            Group::Level(_) => 11,
            Group::Tokens | Group::Relay => 15,
        }
    }

    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Group::Level(_) => "SBP",
            Group::Tokens | Group::Relay => "SBRP",
        }
    }
}

/// The name, as it stands in ids.
impl Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Level(level) => Display::fmt(level, f),
            Group::Tokens => f.write_str("TOKEN"),
            Group::Relay => f.write_str("RELAY"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_names_its_group() {
        assert_eq!(Group::of("SBP-L3-01b"), Group::Level(Level::L3));
        assert_eq!(Group::of("SBRP-TOKEN-05"), Group::Tokens);
        assert_eq!(Group::of("SBRP-RELAY-05b"), Group::Relay);
        assert_eq!(Group::of("SBRP-CLIENT-01").to_string(), "RELAY");
        assert_eq!(About::Server(Level::L2).groups().len(), 2);
    }
}
