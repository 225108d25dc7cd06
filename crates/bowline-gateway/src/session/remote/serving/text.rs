//! The texts of turns that one link follows: chunks of turns that it submitted or joined, and the text
//! of the running turn while somebody watches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::id::TurnId;
use bowline_sbp::session::LiveState;
use futures_util::future::select_all;
use tokio::sync::watch;

use super::super::wire::{LinkId, TextAt, TextPiece};
use crate::session::text::TextBuffer;

/// How long the text of an ended turn is kept for one who has not asked yet how it ended.
const UNASKED: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Texts {
    followed: Vec<Followed>,
    /// Somebody reads the text of the running turn.
    watches: bool,
    running: Option<Arc<TextBuffer>>,
}

struct Followed {
    text: Arc<TextBuffer>,
    grew: watch::Receiver<()>,
    /// How many chunks were sent, if they are wanted.
    chunks: Option<usize>,
    /// How much of the text was sent.
    bytes: usize,
    /// The number of the reply that says how it ended.
    ended: Option<u64>,
    /// Since when its turn neither runs nor waits.
    over: Option<Instant>,
}

impl Followed {
    fn new(text: Arc<TextBuffer>) -> Self {
        let grew = text.subscribe();
        Self { text, grew, chunks: None, bytes: 0, ended: None, over: None }
    }
}

impl Texts {
    /// The turn was accepted over this link, which may stream its answer.
    pub(super) fn follow_chunks(&mut self, text: Arc<TextBuffer>) {
        let followed = self.follow(text);
        followed.chunks.get_or_insert(0);
        followed.ended = None;
    }

    /// Drops the texts of turns that ended a while ago and whose end nobody asks for.
    pub(super) fn tidy(&mut self, state: &LiveState) {
        let now = Instant::now();
        self.followed.retain_mut(|followed| {
            let is_live = state.turns.iter().any(|turn| turn.id == followed.text.turn);
            let over = followed.over.filter(|_| !is_live);
            followed.over = (!is_live).then(|| over.unwrap_or(now));
            followed.ended.is_some() || over.is_none_or(|since| now - since < UNASKED)
        });
    }

    /// That reply says how the turn ended. Returns how many chunks belong before it.
    pub(super) fn ends(&mut self, turn: TurnId, reply: u64) -> Option<TextAt> {
        let followed = self.followed.iter_mut().find(|followed| followed.text.turn == turn)?;
        followed.chunks?;
        followed.ended = Some(reply);
        let (chunks, bytes) = followed.text.position();
        Some(TextAt { turn, attempt: followed.text.attempt, chunks, bytes })
    }

    /// Replies before `base` have arrived: the text of turns that ended in one is complete.
    pub(super) fn acknowledged(&mut self, base: u64) {
        self.followed.retain(|followed| followed.ended.is_none_or(|reply| reply >= base));
    }

    pub(super) fn watch(&mut self, watches: bool) {
        self.watches = watches;
        if let Some(running) = self.running.clone().filter(|_| watches) {
            self.follow(running);
        }
    }

    /// That turn runs now.
    pub(super) fn runs(&mut self, running: Option<&Arc<TextBuffer>>) {
        self.running = running.cloned();
        // The text of an earlier one is in the log.
        let runs = |text: &Arc<TextBuffer>| running.is_some_and(|it| Arc::ptr_eq(it, text));
        self.followed.retain(|followed| followed.chunks.is_some() || runs(&followed.text));
        self.watch(self.watches);
    }

    /// The proxy has the text up to there, and misses more.
    pub(super) fn again(&mut self, at: TextAt) {
        let its = |it: &&mut Followed| (it.text.turn, it.text.attempt) == (at.turn, at.attempt);
        if let Some(followed) = self.followed.iter_mut().find(its) {
            followed.bytes = followed.bytes.min(at.bytes);
            followed.chunks = followed.chunks.map(|chunks| chunks.min(at.chunks));
        }
    }

    /// What was not sent yet. It counts as sent.
    pub(super) fn pieces(&mut self, link: LinkId) -> Vec<TextPiece> {
        let watches = self.watches;
        let running = self.running.clone();
        let piece = |followed: &mut Followed| {
            // Before it is read, or what is added meanwhile would wake nobody.
            followed.grew.borrow_and_update();
            let text = &followed.text;
            let is_watched =
                watches && running.as_ref().is_some_and(|running| Arc::ptr_eq(running, text));
            let said = if is_watched { text.text_from(followed.bytes) } else { String::new() };
            let chunks = followed.chunks.map_or_else(Vec::new, |from| text.chunks(from));
            if said.is_empty() && chunks.is_empty() {
                return None;
            }
            let at = TextAt {
                turn: text.turn,
                attempt: text.attempt,
                chunks: followed.chunks.unwrap_or_default(),
                bytes: if is_watched { followed.bytes } else { 0 },
            };
            followed.bytes += said.len();
            followed.chunks = followed.chunks.map(|sent| sent + chunks.len());
            let chunks = chunks.iter().map(|chunk| String::from_utf8_lossy(chunk).into_owned());
            Some(TextPiece { link, at, seq: text.seq(), chunks: chunks.collect(), text: said })
        };
        self.followed.iter_mut().filter_map(piece).collect()
    }

    /// Resolves when a followed text has grown; never if none is followed. Cancel-safe.
    pub(super) async fn grew(&mut self) {
        if self.followed.is_empty() {
            return std::future::pending().await;
        }
        let grew = self.followed.iter_mut().map(|followed| Box::pin(followed.grew.changed()));
        let _ = select_all(grew).await;
    }

    fn follow(&mut self, text: Arc<TextBuffer>) -> &mut Followed {
        let known = self.followed.iter().position(|followed| Arc::ptr_eq(&followed.text, &text));
        let at = known.unwrap_or_else(|| {
            self.followed.push(Followed::new(text));
            self.followed.len() - 1
        });
        &mut self.followed[at]
    }
}
