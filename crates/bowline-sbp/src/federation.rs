//! Federation: gateways that find each other and exchange sessions (SBP-L6), without I/O.
//!
//! What is signed here and what is checked: the manifest of a gateway, the token with which one
//! gateway asks another, roaming tokens that others can verify, and the records of trackers. Which
//! bundle a peer may fetch is one table ([`policy`]).
//!
//! Invariants
//! - Nothing that a peer says is a value of these types before its signature was verified, except
//!   where the type's name begins with `Unverified`.
//! - Every signature begins with its purpose, so that one for one use is worth nothing for another.

pub mod attach_token;
pub mod gateway_id;
pub mod key_id;
pub mod manifest;
pub mod migration;
pub mod peer_list;
pub mod policy;
pub mod registry;
pub mod reservation;
pub mod roaming;
pub mod rotation;
pub mod token;
pub mod wire;

mod claims;
mod spki;

pub use self::attach_token::{AttachClaims, UnverifiedAttachToken};
pub use self::gateway_id::{BadBaseUrl, BaseUrl, GatewayId, InvalidGatewayId};
pub use self::key_id::KeyId;
pub use self::manifest::{Endpoints, Manifest, ManifestError, Pin, Role, Trust};
pub use self::peer_list::{ApprovePeer, PeerChecked, PeerList, PeerNamed, PeerView, PinState};
pub use self::policy::{Allow, ExportFacts, FetchVerdict, may_fetch};
pub use self::registry::{
    Announced, Announcement, Holder, RegistryAnswer, RegistryError, UnverifiedAnnouncement,
};
pub use self::roaming::{ForeignRoamingClaims, UnverifiedRoamingToken};
pub use self::rotation::PreviousKey;
pub use self::spki::BadSpki;
pub use self::token::{
    Asked, FederationAction, FederationClaims, FederationTokenError, UnverifiedFederationToken,
};
pub use self::wire::{MovedTether, ReservationId, ReservationRequest, Reserved};
pub use crate::signed_object::BadSignature;
