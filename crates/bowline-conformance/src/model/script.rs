//! A script: what the model does when it meets the prompt, and what it was asked then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::act::Act;
use super::asked::Asked;
use crate::verdict::Stop;

/// What a check holds of a script.
#[derive(Debug)]
pub(crate) struct Script {
    nonce: String,
    shared: Arc<Shared>,
}

/// What check and model share.
#[derive(Debug)]
pub(super) struct Shared {
    rounds: Vec<Vec<Act>>,
    /// How many gates are open.
    open: watch::Sender<usize>,
    /// How often the model was asked.
    count: watch::Sender<usize>,
    asked: Mutex<Vec<Asked>>,
    /// Whether the server has hung up while the model stood at a gate.
    hung_up: watch::Sender<bool>,
}

impl Script {
    pub(super) fn new(rounds: Vec<Vec<Act>>) -> Self {
        let shared = Shared {
            rounds,
            open: watch::Sender::new(0),
            count: watch::Sender::new(0),
            asked: Mutex::default(),
            hung_up: watch::Sender::new(false),
        };
        Self { nonce: Uuid::new_v4().simple().to_string(), shared: Arc::new(shared) }
    }

    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// What the user says, so that the model finds the script.
    pub(crate) fn prompt(&self) -> String {
        format!("Conformance check, {MARK}{}", self.nonce)
    }

    /// What tells the script's prompt from all others.
    pub(crate) fn mark(&self) -> String {
        format!("{MARK}{}", self.nonce)
    }

    /// All that the model says in the script, without what it says before it calls tools.
    pub(crate) fn text(&self) -> String {
        let last = self.shared.rounds.last().map_or(&[][..], Vec::as_slice);
        last.iter().filter_map(Act::said).collect()
    }

    /// Opens the next gate. With as many calls as gates, the whole answer is said.
    pub(crate) fn open(&self) {
        self.shared.open.send_modify(|open| *open += 1);
    }

    /// Waits until the server hangs up while the model stands at a gate, and no longer than that. A server
    /// that gives turns up with their readers does so soon; of one that does not, nothing is to be seen.
    pub(crate) async fn hung_up_within(&self, patience: Duration) {
        let mut hung_up = self.shared.hung_up.subscribe();
        let _ = timeout(patience, hung_up.wait_for(|hung_up| *hung_up)).await;
    }

    /// How often the model was asked so far.
    pub(crate) fn times(&self) -> usize {
        *self.shared.count.borrow()
    }

    /// Waits until the model was asked that often, and gives the request.
    pub(crate) async fn asked(&self, times: usize) -> Result<Asked, Stop> {
        let request = self.asked_within(times, PATIENCE).await;
        request.ok_or_else(|| {
            Stop::broken(
                self.prompt(),
                format!("the model is asked {times} times"),
                format!("{} times in {} s", self.times(), PATIENCE.as_secs()),
            )
        })
    }

    /// The same, with its own patience.
    pub(crate) async fn asked_within(&self, times: usize, patience: Duration) -> Option<Asked> {
        let mut count = self.shared.count.subscribe();
        timeout(patience, count.wait_for(|count| *count >= times)).await.ok()?.ok()?;
        let asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(times.checked_sub(1)?).cloned()
    }
}

impl Shared {
    /// Records a request, and says what to do.
    pub(super) fn take(&self, asked: Asked, round: usize) -> Vec<Act> {
        {
            let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(asked);
            self.count.send_modify(|count| *count = all.len());
        }
        self.rounds.get(round).or(self.rounds.last()).cloned().unwrap_or_default()
    }

    /// Waits until so many gates are open. Dropped before that, the server has hung up.
    pub(super) async fn opened(&self, gates: usize) {
        let mut waiting = Waiting { shared: self, is_over: false };
        let mut open = self.open.subscribe();
        // An error would mean that the script is gone: then nobody waits.
        let _ = open.wait_for(|open| *open >= gates).await;
        waiting.is_over = true;
    }
}

/// The model stands at a gate.
struct Waiting<'s> {
    shared: &'s Shared,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.hung_up.send_replace(true);
        }
    }
}

/// Stands before the number of a script.
pub(super) const MARK: &str = "script:";
/// How long the server may take to ask its model.
const PATIENCE: Duration = Duration::from_secs(15);
