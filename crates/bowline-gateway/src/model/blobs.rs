//! The images, sounds and files of one prompt, within a bound.
//!
//! Apart, because a prompt may refer to one blob many times: each time its bytes are sent anew, so
//! each time counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::cid::Cid;

/// What the references of a prompt stand for.
#[derive(Debug, Clone, Default)]
pub struct Blobs {
    bytes: HashMap<BlobRef, Arc<[u8]>>,
    /// How many of the first references to a blob are sent as a line of text.
    left_out: HashMap<BlobRef, usize>,
}

impl Blobs {
    /// Chooses the references that are sent with their bytes: the newest, up to `most` bytes.
    /// `references` are those of a prompt in its order, `known` those that name a blob. Also returns
    /// the blobs to be read for [`Self::filled`].
    pub fn choose(
        references: &[BlobRef],
        known: &HashSet<BlobRef>,
        most: u64,
    ) -> (Self, HashSet<Cid>) {
        let (mut left, mut wanted, mut left_out) = (most, HashSet::new(), HashMap::new());
        for blob in references.iter().rev().filter(|blob| known.contains(blob)) {
            match left.checked_sub(blob.size) {
                Some(rest) => {
                    left = rest;
                    wanted.insert(blob.cid);
                }
                None => *left_out.entry(*blob).or_default() += 1,
            }
        }
        (Self { bytes: HashMap::new(), left_out }, wanted)
    }

    /// With the blobs that were read.
    pub fn filled(self, blobs: Vec<Blob>) -> Self {
        let bytes = blobs.into_iter().map(|blob| (blob.reference(), blob.bytes)).collect();
        Self { bytes, ..self }
    }

    /// Gives the bytes for each reference of the prompt, which must be asked for in its order.
    pub fn in_order(&self) -> impl FnMut(BlobRef) -> Option<Arc<[u8]>> {
        let mut left_out = self.left_out.clone();
        move |blob| match left_out.get_mut(&blob) {
            Some(times) if *times > 0 => {
                *times -= 1;
                None
            }
            _ => self.bytes.get(&blob).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(seed: u8, size: usize) -> Blob {
        Blob::new(vec![seed; size])
    }

    /// For each reference, whether its bytes are sent.
    fn sent(references: &[BlobRef], blobs: &[Blob], most: u64) -> Vec<bool> {
        let known = blobs.iter().map(Blob::reference).collect();
        let (chosen, wanted) = Blobs::choose(references, &known, most);
        let read = blobs.iter().filter(|blob| wanted.contains(&blob.cid)).cloned().collect();
        let chosen = chosen.filled(read);
        let mut find = chosen.in_order();
        references.iter().map(|reference| find(*reference).is_some()).collect()
    }

    #[test]
    fn g11_every_reference_counts_and_the_newest_are_sent() {
        let (a, b) = (blob(1, 10), blob(2, 4));
        let prompt = [&a, &a, &b, &a].map(Blob::reference);
        let blobs = [a, b];
        assert_eq!(sent(&prompt, &blobs, 34), [true; 4]);
        assert_eq!(sent(&prompt, &blobs, 33), [false, true, true, true]);
        assert_eq!(sent(&prompt, &blobs, 23), [false, false, true, true]);
        assert_eq!(sent(&prompt, &blobs, 9), [false, false, true, false]);
        assert_eq!(sent(&prompt, &blobs, 3), [false; 4]);
    }

    #[test]
    fn g11_a_reference_with_another_size_or_of_another_session_is_not_sent_and_costs_nothing() {
        let a = blob(1, 10);
        let lie = BlobRef { size: 1, ..a.reference() };
        let foreign = BlobRef { cid: Cid::of_bytes(b"x"), size: u64::MAX };
        let prompt = [a.reference(), lie, foreign, lie];
        assert_eq!(sent(&prompt, &[a], 10), [true, false, false, false]);
    }
}
