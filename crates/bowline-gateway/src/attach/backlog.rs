//! What a surface missed, read ahead of it: while it is being attached, and while what comes before
//! is on its way.

use std::sync::Arc;

use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::id::{Seq, SessionId};
use bowline_store::{Result, Store};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Pages that wait to be sent, besides the one that is being read.
const AHEAD: usize = 2;

/// The log from some position to where it ended when it was read.
pub(super) struct Backlog {
    pages: mpsc::Receiver<Result<Vec<LoggedTurn>>>,
    _task: AbortOnDropHandle<()>,
}

impl Backlog {
    pub(super) fn after(store: Arc<dyn Store>, session: SessionId, mut seq: Seq) -> Self {
        let (tell, pages) = mpsc::channel(AHEAD);
        let task = tokio::spawn(async move {
            loop {
                let page = store.tethered_after(session, seq).await;
                match page.as_deref() {
                    Ok([]) => break,
                    Ok([.., last]) => seq = last.seq,
                    Err(_) => {}
                }
                if page.is_err() | tell.send(page).await.is_err() {
                    break;
                }
            }
        });
        Self { pages, _task: AbortOnDropHandle::new(task) }
    }

    /// The next page. None at the end: what came later is for its reader to look for.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<LoggedTurn>>> {
        self.pages.recv().await
    }
}
