//! What gateways and trackers tell each other: which gateway has which bundle (SBP-L6-03).
//!
//! A gateway signs what it announces, a tracker what it answers. Neither holds content. Whoever gets
//! an answer still verifies what the gateways in it say: a tracker can hide a bundle, never forge one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::gateway_id::{BaseUrl, GatewayId};
use crate::cid::Cid;
use crate::gateway_key::{GatewayIdentity, GatewayKey};
use crate::signed_object::{self, Purpose, UnverifiedObject};

/// The most bundles in one announcement, withdrawals included.
pub const MOST_CIDS: usize = 1_000;
/// The most gateways that a tracker names for one bundle.
pub const MOST_HOLDERS: usize = 16;
/// The longest life of an announced bundle, in seconds. Gateways announce again.
pub const LONGEST_ANNOUNCEMENT: i64 = 24 * 3600;
/// The largest announcement that is read, in bytes.
pub const LARGEST_ANNOUNCEMENT: usize = 256 << 10;
/// The largest answer that is read, in bytes.
pub const LARGEST_ANSWER: usize = 64 << 10;
/// How far the clocks of gateway and tracker may differ, in seconds. An older record may be a replay.
pub const CLOCK_DIFFERENCE: i64 = 300;

/// A bundle that a gateway has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    pub cid: Cid,
    /// Seconds since 1970.
    pub expires_at: i64,
}

/// Body of `POST /v1/sbp/registry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    pub gateway_id: GatewayId,
    pub url: BaseUrl,
    #[serde(default)]
    pub cids: Vec<Announced>,
    /// Bundles that the gateway gives no more.
    #[serde(default)]
    pub withdraw: Vec<Cid>,
    /// Seconds since 1970.
    pub issued_at: i64,
}

/// A gateway that has a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub gateway_id: GatewayId,
    pub url: BaseUrl,
    /// Seconds since 1970.
    pub expires_at: i64,
}

/// Answer to `GET /v1/sbp/registry/{cid}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryAnswer {
    pub cid: Cid,
    pub gateways: Vec<Holder>,
    /// Seconds since 1970.
    pub issued_at: i64,
    pub tracker_id: GatewayId,
}

/// Why a record is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("the record cannot be read, or is too large")]
    Unreadable,
    #[error("the record's signature is not of the key of the gateway that it names")]
    Signature,
    #[error(
        "the record is of another time: the clocks differ by more than five minutes, or it is a replay"
    )]
    Time,
    #[error("an announcement has at most 1,000 content ids, each for at most 24 hours")]
    Limits,
    #[error("the answer is of another tracker, or for another bundle")]
    Other,
}

impl Announcement {
    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        signed_object::sign(self, Purpose::Announcement, identity)
    }

    /// What came, to find the key with which it is verified.
    pub fn peek(text: &[u8]) -> Result<UnverifiedAnnouncement, RegistryError> {
        let object = UnverifiedObject::parse(text, LARGEST_ANNOUNCEMENT);
        let object = object.ok_or(RegistryError::Unreadable)?;
        let announcement = object.peek().ok_or(RegistryError::Unreadable)?;
        Ok(UnverifiedAnnouncement { object, announcement })
    }

    fn check(&self, now: Timestamp) -> Result<(), RegistryError> {
        is_recent(self.issued_at, now)?;
        let latest = self.issued_at.saturating_add(LONGEST_ANNOUNCEMENT);
        let fits = self.cids.len().saturating_add(self.withdraw.len()) <= MOST_CIDS
            && self.cids.iter().all(|announced| announced.expires_at <= latest);
        if fits { Ok(()) } else { Err(RegistryError::Limits) }
    }
}

/// An announcement of which nothing was checked.
#[derive(Debug, Clone)]
pub struct UnverifiedAnnouncement {
    object: UnverifiedObject,
    announcement: Announcement,
}

impl UnverifiedAnnouncement {
    /// Whose it says it is.
    pub fn gateway_id(&self) -> &GatewayId {
        &self.announcement.gateway_id
    }

    /// Where it says that gateway serves.
    pub fn url(&self) -> &BaseUrl {
        &self.announcement.url
    }

    pub fn verify(self, key: &GatewayKey, now: Timestamp) -> Result<Announcement, RegistryError> {
        // What costs nothing first: a tracker is asked by anybody.
        self.announcement.check(now)?;
        let verified = self.object.verify(Purpose::Announcement, key);
        verified.map_err(|_| RegistryError::Signature)?;
        Ok(self.announcement)
    }

    /// What needs no key, so that nobody is asked for the key of what is refused anyway.
    pub fn check(&self, now: Timestamp) -> Result<(), RegistryError> {
        self.announcement.check(now)
    }
}

impl RegistryAnswer {
    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        signed_object::sign(self, Purpose::RegistryAnswer, identity)
    }

    /// The answer of that tracker to a question for `cid`. Gateways whose time has ended are left out.
    pub fn read(
        text: &[u8],
        tracker: &GatewayId,
        key: &GatewayKey,
        cid: Cid,
        now: Timestamp,
    ) -> Result<Self, RegistryError> {
        let object = UnverifiedObject::parse(text, LARGEST_ANSWER);
        let object = object.ok_or(RegistryError::Unreadable)?;
        let verified = object.verify(Purpose::RegistryAnswer, key);
        verified.map_err(|_| RegistryError::Signature)?;
        let mut answer: Self = object.peek().ok_or(RegistryError::Unreadable)?;
        if answer.tracker_id != *tracker || answer.cid != cid {
            return Err(RegistryError::Other);
        }
        is_recent(answer.issued_at, now)?;
        answer.gateways.retain(|holder| holder.expires_at > now.as_second());
        answer.gateways.truncate(MOST_HOLDERS);
        Ok(answer)
    }
}

fn is_recent(issued_at: i64, now: Timestamp) -> Result<(), RegistryError> {
    match issued_at.abs_diff(now.as_second()) <= CLOCK_DIFFERENCE as u64 {
        true => Ok(()),
        false => Err(RegistryError::Time),
    }
}

#[cfg(test)]
mod tests;
