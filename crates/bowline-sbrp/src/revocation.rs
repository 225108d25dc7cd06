//! Which daemons were taken out of force, as a control plane tells relays.
//!
//! The protocol leaves open how a relay learns of it. The list is published beside the key set, for
//! anyone to fetch, so it holds no ids: each stands there as a hash, which says something only to
//! those who know the id already.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::DaemonId;

/// Where the list is, below the issuer.
pub const PATH: &str = "/.well-known/revoked.json";

const CONTEXT: &[u8] = b"sbrp-v1-revoked";

/// The document, as it is published.
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

/// The daemons that no relay serves any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked(HashSet<[u8; 32]>);

/// Why a list is not taken. The caller keeps the one it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of revoked daemons is malformed")]
pub struct BadList;

impl Revoked {
    /// Reads the document. An entry that is no hash spoils the whole list: half a list would let
    /// somebody in.
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

    /// Whether it names a daemon that the other does not.
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
