//! Bodies and headers of the requests between gateways.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::gateway_id::{BaseUrl, GatewayId};
use super::reservation::Refusal;
use crate::api::ErrorDetail;
use crate::cid::Cid;
use crate::id::{Seq, SessionId, TurnId};

/// Where the manifest of a gateway or tracker is.
pub const MANIFEST_PATH: &str = "/.well-known/sbp";
/// Where bundles are: followed by `/` and the content id.
pub const BUNDLES_PATH: &str = "/v1/sbp/bundles";
/// Where reservations are made: followed by `/`, an id, and for the confirmation `/confirm`.
pub const RESERVATIONS_PATH: &str = "/v1/sbp/federation/reservations";
/// Where it is asked which session one came from: followed by `/` and the session's id.
pub const LINEAGE_PATH: &str = "/v1/sbp/federation/lineage";
/// How many gateways a session may be traced back through.
pub const MOST_HOPS: usize = 8;
/// Where attach tokens are asked for, for surfaces of a session that has moved.
pub const ATTACH_PATH: &str = "/v1/sbp/federation/attach";
/// Header of a request for a bundle: its roaming token.
pub const ROAMING_TOKEN_HEADER: &str = "sbp-roaming-token";
/// Header of a request for a bundle: the reservation that the asking gateway holds.
pub const RESERVATION_HEADER: &str = "sbp-reservation";

/// The id of a reservation: the importing gateway makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String, format = "uuid"))]
pub struct ReservationId(pub Uuid);

impl std::fmt::Display for ReservationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Body of `POST /v1/sbp/federation/reservations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReservationRequest {
    pub reservation_id: ReservationId,
    /// The token that is to be used up.
    pub roaming_token: String,
}

/// Body of `POST /v1/sbp/federation/reservations/{id}/confirm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Confirmation {
    /// The session at the gateway that asks.
    pub session_id: SessionId,
}

/// Answer to a confirmation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Confirmed {
    pub reservation_id: ReservationId,
    pub session_id: SessionId,
    /// What surfaces have not got yet. It changes no more: nobody confirms anything at the origin now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tether: Option<MovedTether>,
}

/// What the surfaces of a session that moves have not got yet. Positions are those of the bundle's messages,
/// counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MovedTether {
    /// The furthest position that any surface has confirmed.
    pub delivered: Seq,
    /// The turns that some surface has not confirmed, oldest first, by their position. Their ids stay the same,
    /// so that a surface recognises one that it got and could not confirm.
    pub turns: Vec<(Seq, TurnId)>,
    /// Devices that have confirmed less, by their `surface_id`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<(String, Seq)>,
}

/// The most turns and devices of a [`MovedTether`]: the newest.
pub const MOST_MOVED_TURNS: usize = 20_000;
pub const MOST_MOVED_DEVICES: usize = 256;

/// Body of `POST /v1/sbp/federation/attach`. The federation token's `ref` is the reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttachRequest {
    /// The one by which the session moved.
    pub reservation_id: ReservationId,
}

/// Answer to it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttachGranted {
    pub session_id: SessionId,
    /// Opens the session once, within a minute.
    pub attach_token: String,
}

/// Without the token.
impl std::fmt::Debug for AttachGranted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachGranted")
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

/// Answer to `GET /v1/sbp/federation/lineage/{session_id}`: where a session came from, the last gateway first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CameFrom {
    pub session_id: SessionId,
    pub hops: Vec<Hop>,
}

/// A session at a gateway from which it went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hop {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub gateway_id: GatewayId,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub url: BaseUrl,
    pub session_id: SessionId,
    /// When it went on.
    pub at: Timestamp,
}

/// Answer to a reservation, confirmation or release that is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedBody {
    pub error: ErrorDetail,
    /// Why, for programs.
    pub refused: Refusal,
}

/// Answer to a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reserved {
    pub reservation_id: ReservationId,
    /// The bundle that is reserved.
    pub cid: Cid,
    /// From then on another gateway may reserve it, unless this one has confirmed.
    pub expires_at: Timestamp,
}
