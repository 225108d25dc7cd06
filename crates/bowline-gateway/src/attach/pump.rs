//! Brings an attached surface up to date: the log from its cursor on, then the live text.
//!
//! Apart from the rest of attaching, because only this reads the log for a surface. State changes
//! wake it, and it acts on the current state; nothing is queued.

use std::sync::Arc;
use std::time::Instant;

use bowline_sbp::delivery::{LiveText, Logged};
use bowline_sbp::error::Close;
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use bowline_sbp::session::{Closed, LiveState};
use futures_util::FutureExt;

use super::authenticate::{REVOKED, forbidden, not_found};
use super::{CHUNK_PAUSE, SurfaceTask};
use crate::session::{Live, Phase, TextBuffer};
use crate::socket::{Received, SocketEnd};
use crate::translate::PassEnd;

impl SurfaceTask<'_> {
    /// Sends the log first, then the live text, then a delivery barrier (a WebSocket ping).
    pub(super) async fn pump(&mut self, look_at_log: bool) -> Result<(), SocketEnd> {
        let Live { phase, state, text } = self.watched.borrow_and_update().clone();
        if phase == Phase::OwnerLost {
            // Also what is left of a session that has moved to another gateway.
            let moved = Box::pin(self.moved()).await;
            return Err(moved.unwrap_or(SocketEnd::Bare(Close::ServiceRestart)));
        }
        if state.handed_to.is_some()
            && let Some(end) = Box::pin(self.moved()).await
        {
            return Err(end);
        }
        self.check(&state)?;
        // After a handoff no translation delays the surface.
        if state.handed_to.is_some() {
            self.release(PassEnd::Dropped).await?;
        }
        if (look_at_log || state.head > self.read) && self.delivery.held().is_none() {
            // Boxed: it is short, and would make this task's future larger for as long as it lives.
            Box::pin(self.drain()).await?;
            self.read = self.read.max(state.head).max(self.delivery.sent());
        }
        // After the log: the turn that the handoff waited for has been sent whole.
        if let Some((new_session_id, to_agent_id)) = state.handed_to.clone() {
            let session_id = self.session_id;
            let frame = ServerFrame::SessionHandedOff { session_id, new_session_id, to_agent_id };
            return Err(SocketEnd::with(frame, Close::HandedOff));
        }
        // The log is ahead of this state: the newer state wakes the pump again.
        if self.delivery.sent() > state.head {
            return Ok(());
        }
        for frame in self.notices.questions(&state, self.session_id, &mut self.asked) {
            self.socket.send(&frame).await?;
        }
        self.show_text(&state, text).await?;
        for frame in self.notices.update(&state, self.session_id) {
            self.socket.send(&frame).await?;
        }
        if self.inputs.resume(&state) {
            self.inputs.start(self.app);
        }
        if let Some(payload) = self.delivery.barrier() {
            self.socket.ping(payload).await?;
        }
        Ok(())
    }

    /// Whether the surface is still attached; if not, how its socket is closed.
    fn check(&self, state: &LiveState) -> Result<(), SocketEnd> {
        if state.gone {
            return Err(not_found(&self.session_id.to_string()));
        }
        let here = state.surfaces.iter().any(|surface| surface.epoch == self.epoch);
        if here || state.handed_to.is_some() {
            return Ok(());
        }
        let closed = state.closed.iter().find(|(epoch, _)| *epoch == self.epoch);
        Err(match closed.map(|(_, why)| *why) {
            Some(Closed::Replaced) => SocketEnd::Bare(Close::Replaced),
            Some(Closed::Revoked) => forbidden(REVOKED),
            None => SocketEnd::Bare(Close::TryAgain),
        })
    }

    /// Sends the running turn's text so far.
    async fn show_text(
        &mut self,
        state: &LiveState,
        text: Option<Arc<TextBuffer>>,
    ) -> Result<(), SocketEnd> {
        let running = state.turns.first().filter(|turn| turn.running && turn.tethered);
        let Some((turn, text)) = running.zip(text) else {
            self.text = None;
            self.chunk_waits = false;
            return Ok(());
        };
        // Subscribe before reading, or text added in between would not wake the pump.
        if !self.text.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &text)) {
            self.text = Some((Arc::clone(&text), text.subscribe()));
        }
        let Some(seq) = text.seq() else { return Ok(()) };
        let now = Instant::now();
        self.chunk_waits = now < self.next_chunk;
        if self.chunk_waits {
            return Ok(());
        }
        let from = self.delivery.read_of(text.turn, text.attempt);
        let more = text.text_from(from);
        let frames = self.delivery.live(LiveText {
            turn_id: text.turn,
            seq,
            attempt: text.attempt,
            from,
            text: &more,
            step: state.step_count + 1,
            model: &turn.model,
        });
        if !frames.is_empty() {
            self.next_chunk = now + CHUNK_PAUSE;
        }
        for frame in frames {
            self.socket.send(&frame).await?;
        }
        Ok(())
    }

    /// Sends the log from the cursor on, page by page, each followed by a barrier.
    async fn drain(&mut self) -> Result<(), SocketEnd> {
        let store = Arc::clone(&self.app.engine.store);
        let (session_id, questions) = (self.session_id, self.joined);
        let mut backlog = self.backlog.take();
        let mut read = async |after| {
            if let Some(ahead) = &mut backlog
                && let Some(page) = ahead.next().await
            {
                return Ok(page);
            }
            backlog = None;
            let page = store.shown_after(session_id, after, questions).await;
            page.map_err(|_| SocketEnd::Bare(Close::TryAgain))
        };
        let mut page = read(self.delivery.sent()).await?;
        while let Some(last) = page.last().map(Logged::seq) {
            // Only the newest turn is translated. Whether this one is the newest is known when the
            // next page was read.
            let newest = match &self.translator {
                Some(_) => page.pop_if(|logged| matches!(logged, Logged::Turn(_))),
                None => None,
            };
            // The next page is read while this one is sent.
            let (next, sent) = tokio::join!(read(last), self.send_page(page));
            sent?;
            let Live { phase, state, .. } = self.watched.borrow().clone();
            if phase != Phase::OwnerLost {
                self.check(&state)?;
            }
            page = next?;
            match newest {
                Some(Logged::Turn(newest)) if page.is_empty() => {
                    self.take_replies().await?;
                    self.asked.remove(&newest.turn_id);
                    self.newest(newest).await?;
                }
                Some(older) => page.insert(0, older),
                None => {}
            }
        }
        for _ in 0..std::mem::take(&mut self.pinged_meanwhile) {
            self.pinged().await?;
        }
        Ok(())
    }

    /// Handles what has come while missed turns are sent, without waiting for more. Nothing that the
    /// surface says waits for the end of a long backlog; and one that is cut off before that end has
    /// confirmed what it had, or it would be sent the same turns again each time it comes (G3). Only its
    /// pings wait: the answer to one comes behind the turns.
    async fn hear_meanwhile(&mut self) -> Result<(), SocketEnd> {
        while let Some(received) = self.socket.frame().now_or_never() {
            self.keepalive.heard(Instant::now());
            match received {
                Received::Frame(frame) if *frame == ClientFrame::Ping => self.pinged_meanwhile += 1,
                received => Box::pin(self.heard(received)).await?,
            }
        }
        while let Some(confirmed) = self.confirming.next().now_or_never() {
            self.confirmed(confirmed).await?;
        }
        self.take_replies().await
    }

    async fn send_page(&mut self, page: Vec<Logged>) -> Result<(), SocketEnd> {
        let mut turns = 0;
        for logged in page {
            self.hear_meanwhile().await?;
            match logged {
                Logged::Turn(turn) => {
                    turns += 1;
                    self.asked.remove(&turn.turn_id);
                    for frame in self.delivery.logged(turn) {
                        self.socket.feed(&frame).await?;
                    }
                }
                Logged::Question(question) => {
                    let known = !self.asked.insert(question.turn_id);
                    let frame = self.delivery.question(question).filter(|_| !known);
                    if let Some(frame) = frame {
                        self.socket.feed(&frame).await?;
                    }
                }
            }
        }
        metrics::counter!("bowline_turns_sent_total").increment(turns);
        if let Some(payload) = self.delivery.barrier() {
            self.socket.feed_ping(payload).await?;
        }
        self.socket.flush().await
    }
}
