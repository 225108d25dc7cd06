//! What a credential may be used for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One thing that a credential may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// Talk: create sessions, take turns, change and delete one's sessions.
    Turns,
    /// Read sessions, lists and memory.
    Read,
    /// Say yes or no to tool calls.
    Approve,
    /// Call tools of devices and use the gateway's MCP servers.
    Tools,
    /// Export, fork and hand off sessions.
    Export,
    /// Manage users and credentials, rotate keys, read metrics.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 6] =
        [Scope::Turns, Scope::Read, Scope::Approve, Scope::Tools, Scope::Export, Scope::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Turns => "turns",
            Scope::Read => "read",
            Scope::Approve => "approve",
            Scope::Tools => "tools",
            Scope::Export => "export",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope `{0}`; scopes are turns, read, approve, tools, export and admin")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let found = Scope::ALL.into_iter().find(|scope| scope.as_str() == text.trim());
        found.ok_or_else(|| UnknownScope(text.trim().chars().take(32).collect()))
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Scopes(u8);

impl Scopes {
    pub const NONE: Scopes = Scopes(0);

    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= 1 << scopes[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    pub const fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// Those that are in both.
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// All but that one.
    pub const fn without(self, scope: Scope) -> Self {
        Self(self.0 & !(1 << scope as u8))
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}

/// Written as `turns,read`.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        text.split(',').filter(|name| !name.trim().is_empty()).map(str::parse).collect()
    }
}

/// On the wire a list of names.
impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(Scope::as_str))
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        names
            .iter()
            .map(|name| name.parse::<Scope>())
            .collect::<Result<_, _>>()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_and_written_by_name() {
        let some: Scopes = "read, turns".parse().unwrap();
        assert_eq!(some, Scopes::of(&[Scope::Turns, Scope::Read]));
        assert_eq!(some.to_string(), "turns,read");
        assert_eq!(serde_json::to_string(&some).unwrap(), r#"["turns","read"]"#);
        assert_eq!(serde_json::from_str::<Scopes>(r#"["read","turns"]"#).unwrap(), some);
        assert!("read,write".parse::<Scopes>().unwrap_err().to_string().contains("`write`"));
        assert!(serde_json::from_str::<Scopes>(r#"["root"]"#).is_err());
        assert_eq!(Scopes::all().iter().count(), Scope::ALL.len());
        assert!(!Scopes::all().without(Scope::Admin).has(Scope::Admin));
        assert!("".parse::<Scopes>().unwrap().is_empty());
    }
}
