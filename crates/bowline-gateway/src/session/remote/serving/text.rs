//! The texts of turns that one link follows: chunks of turns that it submitted or joined, and the text
//! of the running turn while somebody watches.
//!
//! Text goes by a lane of its own, which may be lost for as long as a server of the bus is. Whoever streams a
//! turn must not wait that long for its end: chunks that are asked for after the turn has ended go by the lane
//! of control messages, some at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_bus::Lane;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::LiveState;
use futures_util::future::select_all;
use tokio::sync::watch;

use super::super::wire::{LinkId, TextAt, TextPiece};
use crate::session::text::TextBuffer;

/// How long the text of an ended turn is kept for one who has not asked yet how it ended.
const UNASKED: Duration = Duration::from_secs(60);
/// About how many bytes of chunks, and of text, are in one piece.
const PIECE: usize = 512 << 10;
/// The same for one that goes by the lane of control messages, which are small; and how many such pieces are
/// sent before the edge has to ask again.
const CONTROL_PIECE: usize = 64 << 10;
const CONTROL_PIECES: usize = 16;

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
    /// The edge has that reply and misses chunks: how many pieces it may be sent as control messages.
    overdue: Option<usize>,
    /// Since when its turn neither runs nor waits.
    over: Option<Instant>,
}

impl Followed {
    fn new(text: Arc<TextBuffer>) -> Self {
        let grew = text.subscribe();
        Self { text, grew, chunks: None, bytes: 0, ended: None, overdue: None, over: None }
    }

    /// The next piece that was not sent yet. `is_watched`: somebody reads the text besides its chunks.
    fn piece(&mut self, link: LinkId, is_watched: bool) -> Option<(Lane, TextPiece)> {
        let (lane, limit) = match &mut self.overdue {
            Some(0) => return None,
            Some(_) => (Lane::Control, CONTROL_PIECE),
            None => (Lane::Text, PIECE),
        };
        let is_watched = is_watched && lane == Lane::Text;
        let text = &self.text;
        let said = match is_watched {
            true => text.text_within(self.bytes, limit),
            false => String::new(),
        };
        let chunks = self.chunks.map_or_else(Vec::new, |from| text.chunks_within(from, limit));
        if said.is_empty() && chunks.is_empty() {
            return None;
        }
        let at = TextAt {
            turn: text.turn,
            attempt: text.attempt,
            chunks: self.chunks.unwrap_or_default(),
            bytes: if is_watched { self.bytes } else { 0 },
        };
        self.bytes += said.len();
        self.chunks = self.chunks.map(|sent| sent + chunks.len());
        self.overdue = self.overdue.map(|left| left - 1);
        let chunks = chunks.iter().map(|chunk| String::from_utf8_lossy(chunk).into_owned());
        let piece = TextPiece { link, at, seq: text.seq(), chunks: chunks.collect(), text: said };
        Some((lane, piece))
    }
}

impl Texts {
    /// The turn was accepted over this link, which may stream its answer.
    pub(super) fn follow_chunks(&mut self, text: Arc<TextBuffer>) {
        let followed = self.follow(text);
        followed.chunks.get_or_insert(0);
        (followed.ended, followed.overdue) = (None, None);
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
            followed.overdue = followed.ended.map(|_| CONTROL_PIECES);
        }
    }

    /// What was not sent yet, and by which lane it goes. It counts as sent.
    pub(super) fn pieces(&mut self, link: LinkId) -> Vec<(Lane, TextPiece)> {
        let mut pieces = Vec::new();
        for followed in &mut self.followed {
            let running = self.running.as_ref().filter(|_| self.watches);
            let is_watched = running.is_some_and(|running| Arc::ptr_eq(running, &followed.text));
            // Before it is read, or what is added meanwhile would wake nobody.
            followed.grew.borrow_and_update();
            while let Some(piece) = followed.piece(link, is_watched) {
                pieces.push(piece);
            }
        }
        pieces
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
