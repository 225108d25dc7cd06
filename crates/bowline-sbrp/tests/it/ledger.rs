//! What was said and what was heard: the judge of the world.

use std::collections::{BTreeMap, BTreeSet};

use bowline_sbrp::frame::Frame;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::sealed::Opened;
use bytes::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    Client,
    Daemon,
}

/// The ways a client may change; a row that is not here is a defect.
const STEPS: [(&str, &str); 17] = [
    ("idle", "connecting"),
    ("connecting", "handshaking"),
    ("connecting", "reconnecting"),
    ("handshaking", "active"),
    ("handshaking", "reconnecting"),
    ("handshaking", "closed"),
    ("active", "paused"),
    ("active", "reconnecting"),
    ("active", "closed"),
    ("paused", "pending"),
    ("paused", "reconnecting"),
    ("paused", "closed"),
    ("pending", "active"),
    ("pending", "paused"),
    ("pending", "reconnecting"),
    ("pending", "closed"),
    ("reconnecting", "connecting"),
];

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    said: BTreeMap<(SessionId, To), Vec<Vec<u8>>>,
    heard: BTreeMap<(SessionId, To), Vec<Vec<u8>>>,
    /// How often the daemon has agreed on keys for a session: a relay can repeat an old init
    /// once the session is over. A client does so once.
    agreed: BTreeMap<SessionId, usize>,
    nonces: BTreeSet<(SessionId, usize, [u8; 12])>,
    /// Sessions in which somebody was told that something was wrong.
    disturbed: BTreeSet<SessionId>,
}

impl Ledger {
    pub(crate) fn said(&mut self, session: SessionId, to: To, text: &[u8]) {
        self.said.entry((session, to)).or_default().push(text.to_vec());
    }

    /// Every frame that an end sends passes here: no nonce of a key may serve twice.
    pub(crate) fn sent(&mut self, frame: &Bytes) {
        if let Ok(Frame::Data { session, payload }) = Frame::decode(frame.clone()) {
            let nonce: [u8; 12] = *payload.first_chunk().unwrap();
            let from_daemon = nonce[3] == 2;
            let keys = if from_daemon { self.agreed[&session] } else { 0 };
            assert!(
                self.nonces.insert((session, keys, nonce)),
                "a nonce of {session} served twice"
            );
        }
    }

    pub(crate) fn daemon_agreed(&mut self, session: SessionId) {
        *self.agreed.entry(session).or_default() += 1;
    }

    /// Only what was said in this session, in this direction, and only once.
    pub(crate) fn heard(&mut self, session: SessionId, to: To, opened: Opened) {
        let text = opened.plaintext.to_vec();
        let said = self.said.get(&(session, to)).is_some_and(|said| said.contains(&text));
        assert!(said, "something forged was heard in {session}");
        let heard = self.heard.entry((session, to)).or_default();
        assert!(!heard.contains(&text), "something was heard twice in {session}");
        heard.push(text);
    }

    pub(crate) fn disturbed(&mut self, session: SessionId) {
        self.disturbed.insert(session);
    }

    pub(crate) fn stepped(from: &'static str, to: &'static str) {
        assert!(from == to || STEPS.contains(&(from, to)), "{from} became {to}");
    }

    /// With an honest relay, what is heard is heard in order; and unless somebody was told
    /// otherwise, everything is heard.
    pub(crate) fn check_order_and_loss(&self) {
        for ((session, to), said) in &self.said {
            let heard = self.heard.get(&(*session, *to)).map_or(&[][..], Vec::as_slice);
            let mut rest = said.iter();
            let in_order = heard.iter().all(|text| rest.any(|other| other == text));
            assert!(in_order, "out of order in {session} to the {to:?}");
            if !self.disturbed.contains(session) {
                assert_eq!(heard, said.as_slice(), "silent loss in {session} to the {to:?}");
            }
        }
    }

    pub(crate) fn last_heard(&self, session: SessionId, to: To) -> Option<&[u8]> {
        self.heard.get(&(session, to))?.last().map(Vec::as_slice)
    }

    pub(crate) fn total_heard(&self) -> usize {
        self.heard.values().map(Vec::len).sum()
    }
}
