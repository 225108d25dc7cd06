//! Records what both ends of every session sent and received, and every violation found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_client::relay::{LossReason, SendError, Session, SessionEnd};

use super::seed::Dice;

/// A session that stays open without progress for this long has lost a message silently: all grace
/// periods, back-offs and timeouts are shorter.
const STALL: Duration = Duration::from_secs(60);
/// How many messages are sent ahead of the peer's confirmations.
const AHEAD: u64 = 24;
/// Of this many new confirmations, at least one is for a message that was sent after the first of
/// them.
pub(crate) const NEWS: u64 = 2 * AHEAD;

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) sessions: AtomicU64,
    pub(crate) heard: AtomicU64,
    /// Messages sent but not confirmed when their session ended with a reason.
    pub(crate) unconfirmed: AtomicU64,
    ends: Mutex<BTreeMap<String, u64>>,
    /// Why a connection was lost or not made, and the longest wait that followed.
    losses: Mutex<BTreeMap<String, (u64, Duration)>>,
    wrong: Mutex<Vec<String>>,
}

impl Record {
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    pub(crate) fn assert_right(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} things are wrong: {:#?}", wrong.len(), &wrong[..]);
    }

    pub(crate) fn summary(&self) -> String {
        let ends = self.ends.lock().unwrap();
        let ends: Vec<_> =
            ends.iter().map(|(why, count)| format!("    {count:5}  {why}")).collect();
        let losses = self.losses.lock().unwrap();
        let losses: Vec<_> = losses
            .iter()
            .map(|(why, (count, wait))| format!("    {count:5}  {why} (waits up to {wait:?})"))
            .collect();
        format!(
            "{} ends of sessions, {} messages heard, {} unconfirmed at a visible end\n{}\n\
             connections lost or not made\n{}",
            self.sessions.load(Relaxed),
            self.heard.load(Relaxed),
            self.unconfirmed.load(Relaxed),
            ends.join("\n"),
            losses.join("\n")
        )
    }

    pub(crate) fn lost(&self, side: &str, reason: &LossReason, wait: Duration) {
        let mut losses = self.losses.lock().unwrap();
        let (count, longest) = losses.entry(format!("{side}: {reason}")).or_default();
        *count += 1;
        *longest = wait.max(*longest);
    }

    fn ended(&self, side: &str, end: Option<SessionEnd>, unconfirmed: u64) {
        self.unconfirmed.fetch_add(unconfirmed, Relaxed);
        match end {
            Some(end) => {
                *self.ends.lock().unwrap().entry(format!("{side}: {end}")).or_default() += 1;
            }
            None => self.wrong(format!("{side}: a session ended and did not say why")),
        }
    }
}

/// The progress of one end, over all its sessions.
#[derive(Default)]
pub(crate) struct Progress {
    /// Messages that the peer confirmed.
    pub(crate) confirmed: AtomicU64,
    /// Sessions that have not ended.
    pub(crate) open: AtomicUsize,
}

/// Sends and receives numbered messages until the session ends; each also confirms what was
/// received.
pub(crate) async fn talk(
    side: &'static str,
    mut session: Session,
    record: Arc<Record>,
    progress: Arc<Progress>,
    mut dice: Dice,
) {
    record.sessions.fetch_add(1, Relaxed);
    progress.open.fetch_add(1, Relaxed);
    let id = session.id().to_wire();
    let (mut said, mut confirmed, mut heard) = (0, 0, 0);
    let mut moved = Instant::now();
    let mut pause = Duration::ZERO;
    let mut broken = true;
    loop {
        tokio::select! {
            message = session.recv() => {
                let Some(message) = message else {
                    broken = false;
                    break;
                };
                let number = |at: usize| {
                    u64::from_be_bytes(message[8 * at..8 * at + 8].try_into().unwrap())
                };
                if number(0) != id || number(1) != heard {
                    let (of, came) = (number(0) == id, number(1));
                    record.wrong(format!("{side}: {came} came in place of {heard}, own: {of}"));
                    break;
                }
                if number(2) < confirmed || number(2) > said {
                    let told = number(2);
                    record.wrong(format!("{side}: {told} confirmed of {confirmed}..={said}"));
                    break;
                }
                heard += 1;
                record.heard.fetch_add(1, Relaxed);
                if number(2) > confirmed {
                    progress.confirmed.fetch_add(number(2) - confirmed, Relaxed);
                    confirmed = number(2);
                    moved = Instant::now();
                }
            }
            () = tokio::time::sleep(pause) => {
                if said == confirmed {
                    moved = Instant::now();
                } else if moved.elapsed() > STALL {
                    record.wrong(format!(
                        "{side}: {confirmed} of {said} confirmed, {heard} heard, and no end for {STALL:?}"
                    ));
                    break;
                }
                let burst = if dice.chance(5) { 20 } else { 1 };
                for _ in 0..burst {
                    // A full window does not always stop sending: messages carry confirmations, and
                    // two ends that both stopped would wait for each other.
                    if said - confirmed > AHEAD && !dice.chance(5) {
                        break;
                    }
                    let filler = if dice.chance(3) { 60_000 } else { dice.below(1500) };
                    let head = [id, said, heard].map(u64::to_be_bytes).concat();
                    match session.try_send([head, vec![0x55; filler]].concat()) {
                        Ok(()) => said += 1,
                        Err(SendError::TooLong(_)) => unreachable!("short enough"),
                        Err(_) => break,
                    }
                }
                pause = Duration::from_millis(10 + dice.below(50) as u64);
            }
        }
    }
    if !broken {
        record.ended(side, session.end(), said - confirmed);
    }
    progress.open.fetch_sub(1, Relaxed);
}
