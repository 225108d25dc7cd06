//! Missed turns of a surface, read ahead: while it is being attached, and while the page before is
//! being sent.
//!
//! Invariants
//! - Pages are contiguous, from the cursor on.
//! - The last page is not the end of the log: more may have been appended, or a read failed. The
//!   sender reads once more after it.

use std::sync::Arc;

use bowline_sbp::delivery::Logged;
use bowline_sbp::id::{Seq, SessionId};
use bowline_store::Store;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Pages in the channel. One more may wait to be sent to it, and the receiver holds up to two.
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
