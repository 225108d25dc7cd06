//! Records what is done at the gateway, and by whom: ids only, never what was said, no tokens.
//!
//! Changes of users, keys and shares are on disk before they are answered. What happens often is written
//! with the next commit, for which nobody waits: it costs no flush of its own. What a stranger can make
//! happen as often as they like is only tallied, by hour, and the number of tallies of an hour is
//! bounded: so nobody can fill the audit, or push something out of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_net::PeerName;
use bowline_sbp::access::{Credential, CredentialKind};
use bowline_sbp::approval::{ApprovalState, Decider};
use bowline_sbp::id::UserId;
use bowline_sbp::session::{Commit, Write};
use bowline_store::{AuditEntry, Error, Store};
use jiff::Timestamp;

use super::{Engine, Identity};
use crate::clock;
use crate::config::AuditConfig;

/// The most tallies of one hour. Further ones are counted together, whatever their address.
const MOST_TALLIES: usize = 1000;
const SECONDS_OF_AN_HOUR: i64 = 3600;

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    AddUser,
    DisableUser,
    EnableUser,
    LimitUser,
    MakeKey,
    RevokeKey,
    Share,
    Unshare,
    CreateSession,
    DeleteSession,
    ExportSession,
    DownloadBundle,
    ImportSession,
    HandOffSession,
    ForkSession,
    /// Another gateway fetched a bundle.
    GiveBundle,
    /// A session went to another gateway.
    MoveSession,
    /// A surface of a session that came from another gateway may attach here.
    SendOn,
    MakeDeviceToken,
    ForgetDevice,
    /// A code was made that pairs a device.
    OfferPairing,
    PairDevice,
    RotateSigningKey,
    RotateToken,
    RevokeToken,
    AcceptTool,
    ApprovePeer,
    ForgetPeer,
    Approve,
    Deny,
    /// A tool ran after it was approved.
    RunApproved,
    Start,
    Stop,
    /// Tallied: a request was refused for want of rights.
    Refused,
    /// Tallied: a user's key was used.
    UseKey,
}

impl Deed {
    /// The action and its result.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Deed::AddUser => ("user.add", "ok"),
            Deed::DisableUser => ("user.disable", "ok"),
            Deed::EnableUser => ("user.enable", "ok"),
            Deed::LimitUser => ("user.limit", "ok"),
            Deed::MakeKey => ("key.make", "ok"),
            Deed::RevokeKey => ("key.revoke", "ok"),
            Deed::Share => ("session.share", "ok"),
            Deed::Unshare => ("session.unshare", "ok"),
            Deed::CreateSession => ("session.create", "ok"),
            Deed::DeleteSession => ("session.delete", "ok"),
            Deed::ExportSession => ("session.export", "ok"),
            Deed::DownloadBundle => ("session.download", "ok"),
            Deed::ImportSession => ("session.import", "ok"),
            Deed::HandOffSession => ("session.handoff", "ok"),
            Deed::GiveBundle => ("session.give", "ok"),
            Deed::MoveSession => ("session.move", "ok"),
            Deed::SendOn => ("session.send_on", "ok"),
            Deed::ForkSession => ("session.fork", "ok"),
            Deed::MakeDeviceToken => ("device.token", "ok"),
            Deed::ForgetDevice => ("device.forget", "ok"),
            Deed::OfferPairing => ("device.offer", "ok"),
            Deed::PairDevice => ("device.pair", "ok"),
            Deed::RotateSigningKey => ("signing_key.rotate", "ok"),
            Deed::RotateToken => ("token.rotate", "ok"),
            Deed::RevokeToken => ("token.revoke", "ok"),
            Deed::AcceptTool => ("tool.accept", "ok"),
            Deed::ApprovePeer => ("peer.approve", "ok"),
            Deed::ForgetPeer => ("peer.forget", "ok"),
            Deed::Approve => ("approval.decide", "approved"),
            Deed::Deny => ("approval.decide", "denied"),
            Deed::RunApproved => ("tool.run", "approved"),
            Deed::Start => ("gateway.start", "ok"),
            Deed::Stop => ("gateway.stop", "ok"),
            Deed::Refused => ("request", "denied"),
            Deed::UseKey => ("key.use", "ok"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Audit {
    enabled: bool,
    store: Arc<dyn Store>,
    tallies: Mutex<Tallies>,
}

/// The tallies of one hour.
#[derive(Debug, Default)]
struct Tallies {
    hour: i64,
    /// How often since they were last written.
    counts: HashMap<Tally, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tally {
    deed: Deed,
    user: Option<UserId>,
    credential: String,
    address: String,
}

impl Audit {
    pub(super) fn new(config: &AuditConfig, store: Arc<dyn Store>) -> Self {
        Self { enabled: config.enabled, store, tallies: Mutex::default() }
    }

    /// Records a change of who may do what. It is on disk when this returns, so before it is answered.
    pub(crate) async fn change(
        &self,
        by: &Identity,
        deed: Deed,
        object: impl ToString,
    ) -> Result<(), Error> {
        match self.enabled {
            true => self.store.record(vec![entry(by, deed, object.to_string())]).await,
            false => Ok(()),
        }
    }

    /// Records something with the next commit.
    pub(crate) fn did(&self, by: &Identity, deed: Deed, object: impl ToString) {
        if self.enabled {
            self.store.record_later(vec![entry(by, deed, object.to_string())]);
        }
    }

    /// Records a person's decision.
    fn decided(&self, by: &Decider, deed: Deed, object: String) {
        if self.enabled {
            let (action, result) = deed.names();
            self.store.record_later(vec![AuditEntry {
                at: clock::now(),
                user: Some(by.user),
                credential: by.credential.clone(),
                action: action.into(),
                object,
                result: result.into(),
                address: by.from.clone().unwrap_or_default(),
                times: 1,
                is_tally: false,
            }]);
        }
    }

    /// Records something that the gateway did by itself, for a user's session or for nobody.
    pub(crate) fn gateway_did(&self, user: Option<UserId>, deed: Deed, object: impl ToString) {
        if self.enabled {
            let (action, result) = deed.names();
            self.store.record_later(vec![AuditEntry {
                at: clock::now(),
                user,
                credential: "gateway".into(),
                action: action.into(),
                object: object.to_string(),
                result: result.into(),
                address: String::new(),
                times: 1,
                is_tally: false,
            }]);
        }
    }

    /// Tallies a request that was refused. `by`: who showed something that is right; `shown`: something
    /// was shown.
    pub(crate) fn refused(&self, by: Option<&Credential>, shown: bool, from: Option<PeerName>) {
        let credential = match by {
            Some(by) => by.kind.record(),
            None if shown => "wrong".to_owned(),
            None => "none".to_owned(),
        };
        self.tally(Deed::Refused, by.map(|by| by.user), credential, from);
    }

    /// Tallies the use of a user's key.
    pub(crate) fn used(&self, by: &Credential, from: Option<PeerName>) {
        if matches!(by.kind, CredentialKind::Key(_)) {
            self.tally(Deed::UseKey, Some(by.user), by.kind.record(), from);
        }
    }

    fn tally(&self, deed: Deed, user: Option<UserId>, credential: String, from: Option<PeerName>) {
        if !self.enabled {
            return;
        }
        let address = from.map(|from| from.network().to_string()).unwrap_or_default();
        let tally = Tally { deed, user, credential, address };
        locked(&self.tallies).count(tally, clock::now());
    }

    /// Hands tallies to the store.
    pub(crate) fn flush(&self) {
        let entries = locked(&self.tallies).take(clock::now());
        if !entries.is_empty() {
            self.store.record_later(entries);
        }
    }
}

impl Tallies {
    fn count(&mut self, mut tally: Tally, now: Timestamp) {
        let hour = now.as_second().div_euclid(SECONDS_OF_AN_HOUR);
        // Those of the hour before were written, or are written a little late under this one.
        if self.hour != hour {
            self.hour = hour;
            self.counts.retain(|_, times| *times > 0);
        }
        if self.counts.len() >= MOST_TALLIES && !self.counts.contains_key(&tally) {
            let (user, credential) = (None, "many".to_owned());
            tally = Tally { deed: tally.deed, user, credential, address: "many".to_owned() };
        }
        *self.counts.entry(tally).or_default() += 1;
    }

    fn take(&mut self, now: Timestamp) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        for (tally, times) in &mut self.counts {
            let Tally { deed, user, credential, address } = tally.clone();
            let (action, result) = deed.names();
            let times = std::mem::take(times);
            if times > 0 {
                entries.push(AuditEntry {
                    at: now,
                    user,
                    credential,
                    action: action.into(),
                    object: String::new(),
                    result: result.into(),
                    address,
                    times,
                    is_tally: true,
                });
            }
        }
        entries
    }
}

fn entry(by: &Identity, deed: Deed, object: String) -> AuditEntry {
    let (action, result) = deed.names();
    AuditEntry {
        at: clock::now(),
        user: Some(by.user()),
        credential: by.credential.kind.record(),
        action: action.into(),
        object,
        result: result.into(),
        address: by.address().map(|address| address.to_string()).unwrap_or_default(),
        times: 1,
        is_tally: false,
    }
}

impl Engine {
    /// Records the decisions of a commit, and the calls that are made now that they were approved.
    pub(super) fn record_approvals(&self, user: UserId, commit: &Commit) {
        for write in &commit.writes {
            let Write::StepApproval { id, state, decision } = write else { continue };
            let object = format!("{} {id}", commit.session);
            if let Some(decision) = decision {
                let approved = *state == ApprovalState::Approved;
                let deed = if approved { Deed::Approve } else { Deed::Deny };
                self.audit.decided(&decision.by, deed, object);
            } else if *state == ApprovalState::Used {
                self.audit.gateway_did(Some(user), Deed::RunApproved, object);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(n: usize) -> Tally {
        let address = format!("10.0.{}.{}", n / 256, n % 256);
        Tally { deed: Deed::Refused, user: None, credential: "wrong".into(), address }
    }

    #[test]
    fn g11_a_flood_from_many_addresses_is_a_bounded_number_of_tallies() {
        let mut tallies = Tallies::default();
        let now = Timestamp::from_second(36_000).unwrap();
        for n in 0..5 * MOST_TALLIES {
            tallies.count(tally(n), now);
            tallies.count(tally(0), now);
        }
        let written = tallies.take(now);
        assert_eq!(written.len(), MOST_TALLIES + 1);
        let times: u64 = written.iter().map(|entry| entry.times).sum();
        assert_eq!(times, 10 * MOST_TALLIES as u64, "each is counted");
        assert!(tallies.take(now).is_empty(), "once");
        // In the same hour no more become known, in the next one they do.
        tallies.count(tally(4000), now);
        assert_eq!(tallies.take(now)[0].address, "many");
        let later = Timestamp::from_second(36_000 + 3600).unwrap();
        tallies.count(tally(4000), later);
        assert_eq!(tallies.take(later)[0].address, tally(4000).address);
    }
}
