//! Users, and what they show to be known.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::OWNER;
use super::scope::{Scope, Scopes};
use crate::id::{SessionId, UserId};

/// What a user is to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May manage users and credentials.
    Owner,
    Member,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Member => "member",
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        [Role::Owner, Role::Member].into_iter().find(|role| role.as_str() == text)
    }

    /// The most that a credential of such a user can be made for.
    pub fn most(self) -> Scopes {
        match self {
            Role::Owner => Scopes::all(),
            Role::Member => Scopes::all().without(Scope::Admin),
        }
    }
}

/// The public part of a key `bk_<id>.<secret>`: it finds the key, and opens nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialId(String);

/// The number of hexadecimal digits in a [`CredentialId`].
const DIGITS: usize = 16;

/// Text that is no id of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a key has {DIGITS} hexadecimal digits")]
pub struct BadCredentialId;

impl CredentialId {
    pub fn from_bytes(bytes: [u8; DIGITS / 2]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CredentialId {
    type Err = BadCredentialId;

    fn from_str(text: &str) -> Result<Self, BadCredentialId> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == DIGITS && text.bytes().all(digit) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadCredentialId),
        }
    }
}

impl TryFrom<String> for CredentialId {
    type Error = BadCredentialId;

    fn try_from(text: String) -> Result<Self, BadCredentialId> {
        text.parse()
    }
}

impl From<CredentialId> for String {
    fn from(id: CredentialId) -> Self {
        id.0
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialKind {
    /// Nothing: the gateway is open to its own machine.
    Open,
    /// The key in the data folder, from the gateway's own machine.
    Local,
    /// A key of the configuration.
    Configured,
    /// A key that was made for a user.
    Key(CredentialId),
    /// The token of a session.
    Session(SessionId),
    /// The token of one device of a session.
    Device(SessionId),
}

impl CredentialKind {
    /// What stands for it in records: the id of a key, else what kind it is. No secret.
    pub fn record(&self) -> String {
        match self {
            CredentialKind::Open => "open".into(),
            CredentialKind::Local => "local".into(),
            CredentialKind::Configured => "configured".into(),
            CredentialKind::Key(id) => id.to_string(),
            CredentialKind::Session(_) => "session".into(),
            CredentialKind::Device(_) => "device".into(),
        }
    }
}

/// A credential that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub kind: CredentialKind,
    pub user: UserId,
    pub scopes: Scopes,
}

impl Credential {
    /// Nobody is asked who they are: everything that is the owner's, but not its management, and not
    /// what a person has to say: any program on the machine gets that far.
    pub fn open() -> Self {
        let all = Self { kind: CredentialKind::Open, user: OWNER, scopes: Scopes::all() };
        all.of_a_program()
    }

    /// The same where any program can use it: without managing, and without what a person has to say
    /// (G21).
    #[must_use]
    pub fn of_a_program(self) -> Self {
        let scopes = self.scopes.without(Scope::Admin).without(Scope::Approve);
        Self { scopes, ..self }
    }

    pub fn local() -> Self {
        Self { kind: CredentialKind::Local, user: OWNER, scopes: Scopes::all() }
    }

    pub fn configured() -> Self {
        Self { kind: CredentialKind::Configured, user: OWNER, scopes: Scopes::all() }
    }

    /// The token of a session of that user. It never approves: a program has it, too.
    pub fn of_session(session: SessionId, user: UserId) -> Self {
        let scopes = Scopes::of(&[Scope::Turns, Scope::Read, Scope::Tools, Scope::Export]);
        Self { kind: CredentialKind::Session(session), user, scopes }
    }

    /// The token of a device.
    pub fn of_device(session: SessionId, user: UserId) -> Self {
        let scopes = Scopes::of(&[Scope::Turns, Scope::Read]);
        Self { kind: CredentialKind::Device(session), user, scopes }
    }

    /// The one session that it is for; `None`: all of its user's.
    pub fn only(&self) -> Option<SessionId> {
        match self.kind {
            CredentialKind::Session(session) | CredentialKind::Device(session) => Some(session),
            CredentialKind::Open
            | CredentialKind::Local
            | CredentialKind::Configured
            | CredentialKind::Key(_) => None,
        }
    }
}

/// How a session is shared with another user. Each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Share {
    Read,
    Talk,
    Approve,
}

impl Share {
    pub const ALL: [Share; 3] = [Share::Read, Share::Talk, Share::Approve];

    pub fn as_str(self) -> &'static str {
        match self {
            Share::Read => "read",
            Share::Talk => "talk",
            Share::Approve => "approve",
        }
    }

    /// The scopes that somebody uses it with.
    pub fn scopes(self) -> Scopes {
        match self {
            Share::Read => Scopes::of(&[Scope::Read]),
            Share::Talk => Scopes::of(&[Scope::Read, Scope::Turns]),
            Share::Approve => Scopes::of(&[Scope::Read, Scope::Turns, Scope::Approve]),
        }
    }

    pub fn named(text: &str) -> Option<Self> {
        Share::ALL.into_iter().find(|share| share.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = CredentialId::from_bytes([0, 1, 0xab, 3, 4, 5, 6, 0xff]);
        assert_eq!(id.as_str(), "0001ab03040506ff");
        assert_eq!(id.as_str().parse::<CredentialId>(), Ok(id));
        for wrong in
            ["", "0001AB03040506ff", "0001ab03040506f", "0001ab03040506fff", "g001ab03040506ff"]
        {
            assert!(wrong.parse::<CredentialId>().is_err(), "{wrong}");
        }
    }
}
