//! The list of revoked daemons, as the control plane publishes it for relays.
//!
//! The protocol does not define how a relay learns of a revocation. The list is published beside
//! the key set and is public, so it contains no ids: each entry is a hash, which reveals a daemon
//! only to those who know its id already.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::DaemonId;

/// The path of the list, below the issuer's URL.
pub const PATH: &str = "/.well-known/revoked.json";

const CONTEXT: &[u8] = b"sbrp-v1-revoked";

/// The published document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationList {
    daemons: Vec<String>,
}

impl RevocationList {
    pub fn of<'a>(daemons: impl IntoIterator<Item = &'a DaemonId>) -> Self {
        let daemons = daemons.into_iter().map(|daemon| URL_SAFE_NO_PAD.encode(mark(daemon)));
        Self { daemons: daemons.collect() }
    }
}

/// The daemons that every relay refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked(HashSet<[u8; 32]>);

/// Why a list is refused. The caller keeps its current list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of revoked daemons is malformed")]
pub struct BadList;

impl Revoked {
    /// Parses the document. One malformed entry invalidates the whole list: a partial list would
    /// admit a revoked daemon.
    pub fn from_json(json: &[u8]) -> Result<Self, BadList> {
        let document: RevocationList = serde_json::from_slice(json).map_err(|_| BadList)?;
        let marks = document.daemons.iter().map(|text| {
            let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadList)?;
            bytes.try_into().map_err(|_| BadList)
        });
        marks.collect::<Result<_, _>>().map(Self)
    }

    pub fn contains(&self, daemon: &DaemonId) -> bool {
        !self.0.is_empty() && self.0.contains(&mark(daemon))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this list names a daemon that the other does not.
    pub fn adds_to(&self, other: &Self) -> bool {
        !self.0.is_subset(&other.0)
    }
}

fn mark(daemon: &DaemonId) -> [u8; 32] {
    Sha256::new().chain_update(CONTEXT).chain_update(daemon.as_str()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> DaemonId {
        DaemonId::new(text)
    }

    fn read(document: &RevocationList) -> Revoked {
        Revoked::from_json(&serde_json::to_vec(document).unwrap()).unwrap()
    }

    #[test]
    fn a_list_names_those_it_was_made_of_and_nobody_else() {
        let (lost, stolen, mine) = (id("d_lost"), id("d_stolen"), id("d_mine"));
        let document = RevocationList::of([&lost, &stolen]);
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains("lost") && !text.contains("stolen"), "{text}");
        let revoked = read(&document);
        assert!(revoked.contains(&lost) && revoked.contains(&stolen) && !revoked.contains(&mine));
        assert!(!Revoked::default().contains(&lost));
    }

    #[test]
    fn only_a_new_name_adds_something() {
        let (one, both) = (
            read(&RevocationList::of([&id("a")])),
            read(&RevocationList::of([&id("a"), &id("b")])),
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
        ] {
            assert_eq!(Revoked::from_json(bad.as_bytes()), Err(BadList), "{bad}");
        }
        let more = format!(r#"{{"daemons":["{good}"],"users":[]}}"#);
        assert!(!Revoked::from_json(more.as_bytes()).unwrap().is_empty(), "a newer issuer's list");
    }
}
