//! How much a session holds and a user spends, counted the same way in every backend.

use bowline_sbp::session::Write;

use crate::NewEntry;

/// The bytes of an entry's message, without its blobs.
pub(crate) fn text_bytes(entry: &NewEntry) -> u64 {
    entry.message.as_json().len() as u64
}

/// The bytes of the messages that these writes add to a session. Blobs are counted where they are stored.
pub(crate) fn added_text(writes: &[Write]) -> u64 {
    let added = |write: &Write| match write {
        Write::Append { entries, .. } => {
            let texts = entries.iter().map(|placed| text_bytes(&placed.entry));
            texts.fold(0, u64::saturating_add)
        }
        _ => 0,
    };
    writes.iter().map(added).fold(0, u64::saturating_add)
}

/// A number of the database's. What a server reports may be absurd, and sums must not overflow: a column ends
/// at `1 << 60`, so that one more addend still fits.
pub(crate) fn whole(number: u64) -> i64 {
    number.min(1 << 48) as i64
}
