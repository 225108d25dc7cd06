//! Surfaces of a session that has moved to another gateway are sent on (SBP-L6-05).
//!
//! The gateway that had the session asks the one that has it now for an attach token, once for each surface, and
//! gives it to the surface. The session's own token stays where it is.
//!
//! Invariants
//! - Only whoever may do here what the session's token may is sent on: a guest, or a device with a token of its
//!   own, is told where the session is, and nothing that opens it.
//! - An attach token is given to the gateway that the session came from, and to nobody else, as long as
//!   `federation.follow_for` says.

use std::time::Duration;

use bowline_federation::{PeerRequest, ReadLimits};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::migration::Stage;
use bowline_sbp::federation::wire::{ATTACH_PATH, AttachGranted, AttachRequest};
use bowline_sbp::federation::{
    AttachClaims, FederationAction, ReservationId, UnverifiedAttachToken,
};
use bowline_sbp::frame::{AcceptedMessage, SessionMoved};
use bowline_sbp::id::SessionId;
use bowline_store::Moved;
use jiff::Timestamp;
use uuid::Uuid;

use super::super::{Deed, Engine, internal};
use crate::clock;
use crate::federation::{AskingGateway, Federation};

/// The most messages that a surface is told to be accepted: more than its client has on the wire.
const MOST_ACCEPTED: u32 = 256;
/// How often the gateway is asked where the session is about to arrive, and the pause between.
const ARRIVING: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// The largest answer to a request for an attach token.
const LARGEST_GRANT: usize = 16 << 10;

/// What the other gateway says.
enum Granted {
    Token(String),
    /// The session has not arrived there yet.
    Later,
    /// It lets no surface in from here.
    Never,
}

impl Engine {
    /// Where the session went, if it did. `sends_on`: with a token that attaches there. An error: the other gateway
    /// does not answer, and may later.
    pub(crate) async fn moved(
        &self,
        session: SessionId,
        sends_on: bool,
    ) -> Result<Option<SessionMoved>, Failure> {
        let Some(federation) = &self.federation else { return Ok(None) };
        let Some(moved) = self.store.moved(session, MOST_ACCEPTED).await? else { return Ok(None) };
        let attach_token = match sends_on {
            true => self.ask_for_attach_token(federation, &moved).await?,
            false => None,
        };
        let Moved { forward, accepted, .. } = moved;
        let accepted = accepted.into_iter();
        Ok(Some(SessionMoved {
            session_id: session,
            new_session_id: forward.session,
            gateway_id: forward.peer.to_string(),
            url: forward.url.as_str().to_owned(),
            attach_token,
            accepted: accepted
                .map(|(client_turn_id, turn_id)| AcceptedMessage { client_turn_id, turn_id })
                .collect(),
        }))
    }

    /// None: the other gateway gives none.
    async fn ask_for_attach_token(
        &self,
        federation: &Federation,
        moved: &Moved,
    ) -> Result<Option<String>, Failure> {
        for _ in 0..ARRIVING {
            match self.ask_once(federation, moved).await? {
                Granted::Token(token) => return Ok(Some(token)),
                Granted::Never => return Ok(None),
                Granted::Later => tokio::time::sleep(PAUSE).await,
            }
        }
        Err(Failure::new(
            Code::NotNow,
            "the session has not arrived yet where it goes; try again soon",
        ))
    }

    async fn ask_once(&self, federation: &Federation, moved: &Moved) -> Result<Granted, Failure> {
        let Moved { forward, reservation, .. } = moved;
        let target = federation.peers.target(&forward.peer, &forward.url);
        let body = serde_json::to_vec(&AttachRequest { reservation_id: *reservation });
        let request = PeerRequest::post(ATTACH_PATH, body.map_err(|_| internal())?);
        let (subject, limits) = (reservation.to_string(), ReadLimits::small(LARGEST_GRANT));
        let asked =
            federation.peers.ask(&target, FederationAction::Attach, &subject, request, limits);
        let unreachable = |why: String| {
            let why = format!("the gateway {}, which has the session now: {why}", forward.peer);
            Failure::new(Code::NotNow, why)
        };
        let (status, text) = asked.await.map_err(|fault| unreachable(fault.to_string()))?;
        match status.as_u16() {
            // It has confirmed, and is about to make the session.
            409 => Ok(Granted::Later),
            408 | 429 => Err(unreachable(format!("it answers {status}"))),
            200 => {
                let granted = serde_json::from_slice::<AttachGranted>(&text);
                let granted = granted.ok().filter(|granted| granted.session_id == forward.session);
                Ok(granted.map_or(Granted::Never, |granted| Granted::Token(granted.attach_token)))
            }
            _ => {
                tracing::info!(peer = %forward.peer, %status, "a surface is not let in where its session went");
                Ok(Granted::Never)
            }
        }
    }

    /// An attach token for a surface of a session that came from that peer.
    pub(crate) async fn grant_attach(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        by: ReservationId,
    ) -> Result<AttachGranted, Failure> {
        let now = clock::now();
        let kept = self.store.migration(by).await?;
        let kept = kept.filter(|kept| kept.origin == peer.iss);
        let gone = || Failure::new(Code::NotFound, "no session came here by that reservation");
        let kept = kept.ok_or_else(gone)?;
        match kept.stage {
            Stage::Active => {}
            Stage::Reserving | Stage::Staged => {
                let why = "the session has not arrived here yet";
                let failure = Failure::new(Code::SessionConflict, why);
                return Err(Failure { retry_after: Some(1), ..failure });
            }
            Stage::Dropped(_) => return Err(gone()),
        }
        let session = kept.session.ok_or_else(internal)?;
        if now.duration_since(kept.at) >= federation.follow_for {
            let why = "surfaces of the gateway that the session came from are not let in any more; see \
                       `federation.follow_for`";
            return Err(Failure::new(Code::Forbidden, why));
        }
        self.store.session(session).await?.ok_or_else(gone)?;
        federation.met(peer).await?;
        let claims = AttachClaims::new(session, Uuid::new_v4(), now);
        self.audit.gateway_did(None, Deed::SendOn, format!("{session} {}", peer.iss));
        Ok(AttachGranted {
            session_id: session,
            attach_token: claims.sign(&self.signer.identity()),
        })
    }

    /// Whether the token attaches to that session; it is used up then. None: it is another kind of token.
    pub(crate) async fn use_attach_token(
        &self,
        token: &str,
        session: SessionId,
    ) -> Result<Option<bool>, Failure> {
        let Some(federation) = &self.federation else { return Ok(None) };
        let Some(unverified) = UnverifiedAttachToken::peek(token) else { return Ok(None) };
        let now = clock::now();
        let claims = || {
            let mut keys = self.signer.accepted(now).into_iter();
            keys.find_map(|key| unverified.verify(&key, session, now))
        };
        let claims = match claims() {
            Some(claims) => Some(claims),
            None => {
                self.read_signer_again().await?;
                claims()
            }
        };
        let Some(claims) = claims else { return Ok(Some(false)) };
        let until = Timestamp::from_second(claims.exp).map_err(|_| internal())?;
        let me = federation.me().id.clone();
        Ok(Some(self.store.use_peer_token(me, claims.jti, until).await?))
    }
}
