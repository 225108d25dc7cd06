//! What this process keeps in memory, and other replicas change: looked for once a second where the
//! store is shared, and never where it is not.
//!
//! The store counts changes of users, keys, shares, tokens, secrets and definitions of tools. Where its
//! revision is another one, everything of these that is kept is forgotten, and whoever watches (attached
//! surfaces, the program around the gateway) looks again. So a change at one replica counts at all others
//! within two seconds. ARCHITECTURE.md lists what a process keeps.

use bowline_sbp::session::ReplicaId;
use bowline_store::Result;

use super::Engine;
use super::budgets::Reported;
use crate::{clock, stored_identity};

/// What is known of the other replicas.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// None before the first look: something may have changed while the gateway started.
    revision: Option<u64>,
    counts: Reported,
}

impl Engine {
    /// Looks for what other replicas have changed, and exchanges counts with them.
    pub(crate) async fn follow_others(&self, followed: &mut Followed, me: ReplicaId) -> Result<()> {
        // Before anything is read: what changes meanwhile has another number.
        let revision = self.store.access_revision().await?;
        if followed.revision != Some(revision) {
            self.read_again().await?;
            followed.revision = Some(revision);
        }
        self.budgets.exchange(&*self.store, &mut followed.counts, me, clock::now()).await
    }

    /// For something in the gateway's name that no known key has signed: another replica may have the new key a moment
    /// before this one looks.
    pub(in crate::engine) async fn read_signer_again(&self) -> Result<()> {
        match self.signer_is_stored && self.keys.may_read_again() {
            true => stored_identity::reload(&self.signer, self.keys.sealing(), &*self.store).await,
            false => Ok(()),
        }
    }

    async fn read_again(&self) -> Result<()> {
        // A user beside the owner closes the gateway.
        if self.access.is_open() && self.store.users().await?.len() > 1 {
            self.access.close();
        }
        self.keys.reload(&*self.store).await?;
        if self.signer_is_stored {
            stored_identity::reload(&self.signer, self.keys.sealing(), &*self.store).await?;
        }
        self.pins.forget();
        self.users.changed();
        Ok(())
    }
}
