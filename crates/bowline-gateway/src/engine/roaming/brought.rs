//! A surface brings its session from another gateway (SBP-L6-05): it attaches here with a roaming token.
//!
//! Apart from the import that it is, because a surface comes again: cut off in the middle, or before it heard that it
//! is attached. The same token leads the same user to the same session then, and never to a second one.

use std::sync::Arc;

use bowline_sbp::bundle::RequiredSignature;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{ForeignRoamingClaims, UnverifiedRoamingToken};
use bowline_sbp::id::SessionId;
use bowline_store::KeptMigration;
use jiff::SignedDuration;

use super::super::{Engine, Identity, internal};
use super::import::{Import, Source};
use super::{arrival, origin};
use crate::clock;

/// How long a token that was used up leads to its session without any other credential.
const TOKEN_ALONE: SignedDuration = SignedDuration::from_mins(10);

/// What a surface shows that brings its session.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) token: String,
    pub(crate) foreign: UnverifiedRoamingToken,
    /// The session in the address: the origin's.
    pub(crate) origin_session: String,
    /// It shows nothing else, and the origin is trusted.
    pub(crate) by_token_alone: bool,
}

impl Engine {
    /// Brings the session of another gateway's token here, or finds it here if it came by this token before, for the
    /// same user. Returns its id here, and whether it is new.
    pub(crate) async fn arrive(
        self: &Arc<Self>,
        identity: &Identity,
        asked: Arriving,
        signature: RequiredSignature,
    ) -> Result<(SessionId, bool), Failure> {
        let Arriving { token, foreign, origin_session, by_token_alone } = asked;
        let federation = self.federation.as_ref().ok_or_else(internal)?;
        let (_, claims) = origin::find(federation, &foreign).await?;
        if claims.sid.to_string() != origin_session {
            let why = "the roaming token is of another session than the one in the address";
            return Err(Failure::new(Code::TokenInvalid, why));
        }
        if let Some(session) = self.came_before(identity, &claims, by_token_alone).await? {
            return Ok((session, false));
        }
        let import = Import {
            source: Source::Token(token.clone()),
            agent: None,
            reuse: false,
            with_memory: false,
            signature,
            by_token_alone,
        };
        match self.import_from_peer(identity, token, foreign, import, None).await {
            Ok(imported) => Ok((imported.session_id, true)),
            // Another attempt of the same surface was faster.
            Err(failure) if failure.code == Code::TokenConsumed => {
                let came = self.came_before(identity, &claims, by_token_alone).await?;
                came.map(|session| (session, false)).ok_or(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The session that came by that token before, if it is theirs.
    async fn came_before(
        &self,
        identity: &Identity,
        claims: &ForeignRoamingClaims,
        by_token_alone: bool,
    ) -> Result<Option<SessionId>, Failure> {
        let kept = self.store.migration_of(claims.iss.clone(), claims.sub).await?;
        let is_theirs = |kept: &KeptMigration| {
            let age = clock::now().duration_since(kept.at);
            // Of an import with a credential, the token alone opens nothing: whoever has seen it could show it.
            let by_token = || arrival::came_by_token_alone(kept) && age < TOKEN_ALONE;
            kept.user == identity.user() && (!by_token_alone || by_token())
        };
        Ok(kept.filter(is_theirs).and_then(|kept| kept.session))
    }
}
