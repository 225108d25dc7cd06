//! What a surface missed, read ahead of it: while it is being attached, and while what comes before
//! is on its way.
//!
//! Invariants
//! - Pages follow each other without a gap, from where the reading began.
//! - Their end is not the log's: more may have come since, or the reading failed. Whoever sends them
//!   looks once more behind the last.

use std::sync::Arc;

use bowline_sbp::delivery::Logged;
use bowline_sbp::id::{Seq, SessionId};
use bowline_store::Store;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Pages that wait in line. One more may stand before the line, and two are with the sender.
const AHEAD: usize = 1;

pub(super) struct Backlog {
    pages: mpsc::Receiver<Vec<Logged>>,
    _task: AbortOnDropHandle<()>,
}

impl Backlog {
    pub(super) fn after(
        store: Arc<dyn Store>,
        session: SessionId,
        mut seq: Seq,
        questions: bool,
    ) -> Self {
        let (tell, pages) = mpsc::channel(AHEAD);
        let task = tokio::spawn(async move {
            while let Ok(page) = store.shown_after(session, seq, questions).await
                && let Some(last) = page.last()
            {
                seq = last.seq();
                if tell.send(page).await.is_err() {
                    break;
                }
            }
        });
        Self { pages, _task: AbortOnDropHandle::new(task) }
    }

    /// The next page; none at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<Logged>> {
        self.pages.recv().await
    }
}
