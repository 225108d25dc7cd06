//! What the control plane tells all relays to end: the list that it publishes for them.
//!
//! The protocol does not define how a relay learns of a revocation. The list is published beside
//! the key set and is public, so it contains neither ids nor names: each entry is a hash, which
//! reveals something only to those who know it already.
//!
//! - `daemons`: revoked daemons. No token of theirs is good any more.
//! - `users`: users whose tokens of up to a time are no longer good, because they were revoked, or
//!   their API keys were replaced.
//! - `draining`: relays that hand their daemons over to others.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::DaemonId;

/// The path of the list, below the issuer's URL.
pub const PATH: &str = "/.well-known/revoked.json";

const DAEMON: &[u8] = b"sbrp-v1-revoked";
const USER: &[u8] = b"sbrp-v1-revoked-user\0";
const RELAY: &[u8] = b"sbrp-v1-draining-relay\0";

/// The published document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationList {
    daemons: Vec<String>,
    // The control planes of others, and older ones of ours, publish neither of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    users: Vec<UserEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    draining: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UserEntry {
    user: String,
    /// Seconds since 1970. Tokens issued at this time or before are no longer good.
    until: u64,
}

impl RevocationList {
    /// The list of these daemons.
    pub fn of<'a>(daemons: impl IntoIterator<Item = &'a DaemonId>) -> Self {
        let daemons = daemons.into_iter().map(|daemon| text(DAEMON, daemon.as_str()));
        Self { daemons: daemons.collect(), ..Self::default() }
    }

    /// Adds users by their ids in tokens, each with the time up to which its tokens are ended.
    pub fn with_users<'a>(mut self, users: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let users = users.into_iter().map(|(id, until)| UserEntry { user: text(USER, id), until });
        self.users.extend(users);
        self
    }

    /// Adds relays that are being drained, by name.
    pub fn with_draining<'a>(mut self, relays: impl IntoIterator<Item = &'a str>) -> Self {
        self.draining.extend(relays.into_iter().map(|name| text(RELAY, name)));
        self
    }
}

/// What a relay has to refuse and to end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked {
    daemons: HashSet<[u8; 32]>,
    users: HashMap<[u8; 32], u64>,
    draining: HashSet<[u8; 32]>,
}

/// Why a list is refused. The caller keeps its current list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of revoked daemons is malformed")]
pub struct BadList;

impl Revoked {
    /// Parses the document. One malformed entry invalidates the whole list: a partial list would
    /// admit a revoked daemon.
    pub fn from_json(json: &[u8]) -> Result<Self, BadList> {
        let document: RevocationList = serde_json::from_slice(json).map_err(|_| BadList)?;
        let marks = |texts: &[String]| {
            texts.iter().map(|text| read(text)).collect::<Result<HashSet<_>, _>>()
        };
        let mut users = HashMap::new();
        for UserEntry { user, until } in &document.users {
            let latest: &mut u64 = users.entry(read(user)?).or_default();
            *latest = (*latest).max(*until);
        }
        Ok(Self { daemons: marks(&document.daemons)?, users, draining: marks(&document.draining)? })
    }

    /// Whether this daemon was revoked.
    pub fn contains(&self, daemon: &DaemonId) -> bool {
        !self.daemons.is_empty() && self.daemons.contains(&mark(DAEMON, daemon.as_str()))
    }

    /// Whether a token that was issued to this user then is no longer good.
    pub fn ends_token(&self, user: &str, issued_at: u64) -> bool {
        !self.users.is_empty()
            && self.users.get(&mark(USER, user)).is_some_and(|until| issued_at <= *until)
    }

    /// Whether the relay of this name is being drained.
    pub fn is_draining(&self, relay: &str) -> bool {
        !self.draining.is_empty() && self.draining.contains(&mark(RELAY, relay))
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.daemons.is_empty() && self.users.is_empty() && self.draining.is_empty()
    }

    /// Whether this list ends something that the other does not: a further daemon, or further tokens
    /// of a user.
    pub fn adds_to(&self, other: &Self) -> bool {
        !self.daemons.is_subset(&other.daemons)
            || self.users.iter().any(|(user, until)| other.users.get(user) < Some(until))
    }
}

fn mark(context: &[u8], id: &str) -> [u8; 32] {
    Sha256::new().chain_update(context).chain_update(id).finalize().into()
}

fn text(context: &[u8], id: &str) -> String {
    URL_SAFE_NO_PAD.encode(mark(context, id))
}

fn read(text: &str) -> Result<[u8; 32], BadList> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadList)?;
    bytes.try_into().map_err(|_| BadList)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> DaemonId {
        DaemonId::new(text)
    }

    fn parsed(document: &RevocationList) -> Revoked {
        Revoked::from_json(&serde_json::to_vec(document).unwrap()).unwrap()
    }

    #[test]
    fn a_list_names_those_it_was_made_of_and_nobody_else() {
        let (lost, stolen, mine) = (id("d_lost"), id("d_stolen"), id("d_mine"));
        let document = RevocationList::of([&lost, &stolen]);
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains("lost") && !text.contains("stolen"), "{text}");
        let revoked = parsed(&document);
        assert!(revoked.contains(&lost) && revoked.contains(&stolen) && !revoked.contains(&mine));
        assert!(!Revoked::default().contains(&lost));
    }

    #[test]
    fn only_a_new_name_adds_something() {
        let (one, both) = (
            parsed(&RevocationList::of([&id("a")])),
            parsed(&RevocationList::of([&id("a"), &id("b")])),
        );
        assert!(both.adds_to(&one) && one.adds_to(&Revoked::default()));
        assert!(!one.adds_to(&both) && !one.adds_to(&one));
    }

    #[test]
    fn a_list_is_whole_or_not_taken() {
        let good = URL_SAFE_NO_PAD.encode([7; 32]);
        for bad in [
            String::new(),
            "[]".into(),
            r#"{"daemons":7}"#.into(),
            r#"{"daemons":[7]}"#.into(),
            r#"{"daemons":["d_1"]}"#.into(),
            format!(r#"{{"daemons":["{good}","{}"]}}"#, &good[..42]),
            format!(r#"{{"daemons":["{good}="]}}"#),
            format!(r#"{{"daemons":[],"users":[{{"user":"{good}"}}]}}"#),
            format!(r#"{{"daemons":[],"users":[{{"user":"{}","until":7}}]}}"#, &good[1..]),
            format!(r#"{{"daemons":[],"draining":["{}"]}}"#, &good[1..]),
        ] {
            assert_eq!(Revoked::from_json(bad.as_bytes()), Err(BadList), "{bad}");
        }
        let more = format!(r#"{{"daemons":["{good}"],"later":[]}}"#);
        assert!(!Revoked::from_json(more.as_bytes()).unwrap().is_empty(), "a newer issuer's list");
    }

    #[test]
    fn a_users_tokens_end_up_to_a_time_and_later_ones_are_good() {
        let document = RevocationList::default().with_users([("u_1", 100), ("u_2", 200)]);
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains("u_1"), "{text}");
        let list = parsed(&document);
        assert!(list.ends_token("u_1", 99) && list.ends_token("u_1", 100));
        assert!(!list.ends_token("u_1", 101) && !list.ends_token("u_3", 0));
        // The same bytes as a daemon's id are another matter.
        assert!(!list.contains(&id("u_1")));
        let later = parsed(&RevocationList::default().with_users([("u_1", 101), ("u_2", 200)]));
        assert!(later.adds_to(&list) && !list.adds_to(&later));
        assert!(list.adds_to(&Revoked::default()));
        let twice = RevocationList::default().with_users([("u_1", 101), ("u_1", 7)]);
        assert!(parsed(&twice).ends_token("u_1", 101), "the later time counts");
    }

    #[test]
    fn a_relay_finds_itself_among_those_that_are_drained() {
        let document = RevocationList::of([&id("a")]).with_draining(["eu-1"]);
        assert!(!serde_json::to_string(&document).unwrap().contains("eu-1"));
        let list = parsed(&document);
        assert!(list.is_draining("eu-1") && !list.is_draining("eu-2"));
        assert!(!Revoked::default().is_draining("eu-1"));
    }
}
