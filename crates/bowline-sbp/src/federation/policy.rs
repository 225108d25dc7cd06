//! Which bundle a peer may fetch: one table (G20).

use serde::{Deserialize, Serialize};

use super::gateway_id::GatewayId;

/// What a peer may fetch, by configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allow {
    /// Every bundle whose content id it knows.
    All,
    /// Bundles that were exported for it, and those whose roaming token it has.
    #[default]
    ExportedToMe,
    None,
}

/// What is known of the bundle that a peer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportFacts<'a> {
    /// The gateway that it was exported for, if one was named.
    pub exported_for: Option<&'a GatewayId>,
    /// The peer has shown its roaming token, or holds its reservation.
    pub has_token: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchVerdict {
    Allowed,
    /// This gateway gives that peer nothing, whatever there is.
    Forbidden,
    /// As if there were no such bundle.
    NotFound,
}

/// Whether a peer may fetch a bundle. `export`: none if there is no such bundle.
pub fn may_fetch(peer: &GatewayId, allow: Allow, export: Option<ExportFacts<'_>>) -> FetchVerdict {
    let Some(ExportFacts { exported_for, has_token }) = export else {
        // Whether there is one is told only to who may have it.
        return if allow == Allow::None { FetchVerdict::Forbidden } else { FetchVerdict::NotFound };
    };
    match allow {
        Allow::All => FetchVerdict::Allowed,
        Allow::ExportedToMe if has_token || exported_for == Some(peer) => FetchVerdict::Allowed,
        Allow::ExportedToMe => FetchVerdict::NotFound,
        Allow::None => FetchVerdict::Forbidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g20_a_peer_gets_what_was_exported_for_it_and_learns_of_nothing_else() {
        use FetchVerdict::{Allowed, Forbidden, NotFound};
        let (me, other) = ("me".parse().unwrap(), "other".parse().unwrap());
        let facts = |exported_for, has_token| Some(ExportFacts { exported_for, has_token });
        for (export, all, exported_to_me, none) in [
            (None, NotFound, NotFound, Forbidden),
            (facts(None, false), Allowed, NotFound, Forbidden),
            (facts(Some(&other), false), Allowed, NotFound, Forbidden),
            (facts(Some(&me), false), Allowed, Allowed, Forbidden),
            (facts(None, true), Allowed, Allowed, Forbidden),
            (facts(Some(&other), true), Allowed, Allowed, Forbidden),
        ] {
            assert_eq!(may_fetch(&me, Allow::All, export), all, "{export:?}");
            assert_eq!(may_fetch(&me, Allow::ExportedToMe, export), exported_to_me, "{export:?}");
            assert_eq!(may_fetch(&me, Allow::None, export), none, "{export:?}");
        }
        assert_eq!(Allow::default(), Allow::ExportedToMe);
        assert_eq!(serde_json::to_string(&Allow::ExportedToMe).unwrap(), "\"exported-to-me\"");
    }
}
