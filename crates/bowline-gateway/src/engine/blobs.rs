//! Reads the images, sounds and files that messages refer to: for a model, for a bundle, for a
//! caller.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bowline_sbp::blob::BlobRef;
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::SessionId;
use bowline_sbp::media::{put_back, references};
use bowline_store::{Entry, Error};

use super::Engine;
use super::round::Round;
use crate::model::Blobs;

impl Round<'_> {
    /// The blobs that a prompt refers to, up to `limits.prompt_images`, the newest first.
    pub(super) async fn blobs(&self, references: Vec<BlobRef>) -> Result<Blobs, Failure> {
        if references.is_empty() {
            return Ok(Blobs::default());
        }
        let (engine, session, busy) = (self.engine, self.job.session, &self.job.store_is_busy);
        let all = distinct(&references);
        let known = || engine.store.known_blobs(session, all.clone());
        let known = engine.patiently(busy, known).await?;
        let most = engine.limits.prompt_images as u64;
        let (blobs, wanted) = Blobs::choose(&references, &known, most);
        let wanted: Vec<_> = wanted.into_iter().collect();
        let read = || engine.store.blobs(session, wanted.clone());
        Ok(blobs.filled(engine.patiently(busy, read).await?))
    }
}

fn distinct(references: &[BlobRef]) -> Vec<BlobRef> {
    let distinct: HashSet<_> = references.iter().copied().collect();
    distinct.into_iter().collect()
}

impl Engine {
    /// One blob of a session.
    pub(crate) async fn blob(&self, session: SessionId, cid: Cid) -> Result<Arc<[u8]>, Failure> {
        let found = self.store.blobs(session, vec![cid]).await?.pop();
        found.map(|blob| blob.bytes).ok_or_else(|| {
            Failure::new(Code::NotFound, "no message of this session refers to that blob")
        })
    }

    /// Puts the blobs of a session's entries back into their messages, for a bundle. Refused before
    /// anything is read if the bundle would be over its limit.
    pub(super) async fn inline(
        &self,
        session: SessionId,
        entries: &mut [Entry],
    ) -> Result<(), Failure> {
        let all: Vec<_> = entries.iter().flat_map(|entry| references(&entry.message)).collect();
        if all.is_empty() {
            return Ok(());
        }
        let known = self.store.known_blobs(session, distinct(&all)).await?;
        let encoded = all.iter().filter(|blob| known.contains(blob)).map(BlobRef::encoded);
        if encoded.fold(0, u64::saturating_add) > self.limits.import_body as u64 {
            return Err(super::roaming::too_large(self.limits.import_body));
        }
        let wanted = known.into_iter().map(|blob| blob.cid).collect();
        let blobs = self.store.blobs(session, wanted).await?;
        let blobs: HashMap<_, _> =
            blobs.into_iter().map(|blob| (blob.reference(), blob.bytes)).collect();
        if blobs.is_empty() && self.store.session(session).await?.is_none() {
            return Err(Error::NoSession.into());
        }
        for entry in entries.iter_mut().filter(|entry| entry.message.may_refer()) {
            let find = |blob: BlobRef| blobs.get(&blob).cloned();
            entry.message = put_back(entry.message.clone(), find);
        }
        Ok(())
    }
}
