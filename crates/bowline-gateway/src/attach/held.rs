//! The turn that is held back from a surface while it is being translated (SBP-L4-03).
//!
//! Apart from the rest of attaching, because nothing else can delay a logged turn. Whether the
//! translation succeeds or fails, the turn is sent, and then the pump continues.

use bowline_sbp::delivery::LoggedTurn;

use super::SurfaceTask;
use crate::socket::SocketEnd;
use crate::translate::{PassEnd, Translated};

impl SurfaceTask<'_> {
    /// The newest turn in the log: held back if a translation of it begins, sent at once if not.
    pub(super) async fn newest(&mut self, turn: LoggedTurn) -> Result<(), SocketEnd> {
        self.delivery.hold(turn);
        let stays = self.watched.borrow().state.handed_to.is_none();
        let begins = match (&mut self.translator, self.delivery.held()) {
            (Some(translator), Some(turn)) => {
                let spender = self.rights.identity.spender();
                stays && translator.begin(&self.app.translation, &self.app.engine, spender, turn)
            }
            _ => false,
        };
        if begins { Ok(()) } else { self.release(PassEnd::Dropped).await }
    }

    /// Sends more of a translation, or handles its end.
    pub(super) async fn said(&mut self, said: Translated) -> Result<(), SocketEnd> {
        match said {
            Translated::More(text) => match self.delivery.translated(&text) {
                Some(chunk) => self.socket.send(&chunk).await,
                None => Ok(()),
            },
            Translated::End(outcome) => self.release(outcome).await,
        }
    }

    /// Sends the turn that is held back, if there is one.
    pub(super) async fn release(&mut self, outcome: PassEnd) -> Result<(), SocketEnd> {
        let (translated, frames) = self.delivery.release(outcome == PassEnd::Ok);
        if let Some(translator) = &mut self.translator {
            translator.ended(if translated { PassEnd::Ok } else { outcome.or_failed() });
        }
        if frames.is_empty() {
            return Ok(());
        }
        metrics::counter!("bowline_turns_sent_total").increment(1);
        for frame in &frames {
            self.socket.feed(frame).await?;
        }
        self.socket.flush().await
    }
}
