//! What one end of sessions sent and received, and every violation it found. An end is a process: it prints its
//! record whenever that changed, and the test reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_client::relay::{LossReason, SendError, Session, SessionEnd};
use serde::{Deserialize, Serialize};

use super::seed::Dice;

/// A session that stays open without progress for this long has lost a message silently: all grace
/// periods, back-offs and timeouts are shorter.
const STALL: Duration = Duration::from_secs(60);
/// How many messages are sent ahead of the peer's confirmations.
const AHEAD: u64 = 24;
/// Of this many new confirmations, at least one is for a message that was sent after the first of
/// them.
pub(crate) const NEWS: u64 = 2 * AHEAD;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// How often the daemon came online, or the client got a session.
    pub(crate) arrivals: u64,
    /// Messages that the peer confirmed, over all sessions.
    pub(crate) confirmed: u64,
    /// Sessions that have not ended.
    pub(crate) open: u64,
    sessions: u64,
    heard: u64,
    /// Messages sent but not confirmed when their session ended with a reason.
    unconfirmed: u64,
    ends: BTreeMap<String, u64>,
    /// Why a connection was lost or not made, and the longest wait that followed, in ms.
    losses: BTreeMap<String, (u64, u64)>,
    wrong: Vec<String>,
}

impl Record {
    pub(crate) fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    pub(crate) fn lost(&mut self, side: &str, reason: &LossReason, wait: Duration) {
        let (count, longest) = self.losses.entry(format!("{side}: {reason}")).or_default();
        *count += 1;
        *longest = (*longest).max(wait.as_millis() as u64);
    }

    fn ended(&mut self, side: &str, end: Option<SessionEnd>, unconfirmed: u64) {
        self.unconfirmed += unconfirmed;
        match end {
            Some(end) => *self.ends.entry(format!("{side}: {end}")).or_default() += 1,
            None => self.wrong(format!("{side}: a session ended and did not say why")),
        }
    }

    fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.heard += other.heard;
        self.unconfirmed += other.unconfirmed;
        for (why, count) in &other.ends {
            *self.ends.entry(why.clone()).or_default() += count;
        }
        for (why, (more, wait)) in &other.losses {
            let (count, longest) = self.losses.entry(why.clone()).or_default();
            (*count, *longest) = (*count + more, (*longest).max(*wait));
        }
    }
}

/// A record that tasks of one end share, or the copy of it in the test.
pub(crate) type SharedRecord = Arc<Mutex<Record>>;

/// The records of all ends, also of those that were killed.
#[derive(Default)]
pub(crate) struct Records(Mutex<Vec<SharedRecord>>);

impl Records {
    /// The record of a new end.
    pub(crate) fn begin(&self) -> SharedRecord {
        let record = SharedRecord::default();
        self.0.lock().unwrap().push(Arc::clone(&record));
        record
    }

    pub(crate) fn assert_right(&self) {
        let records = self.0.lock().unwrap();
        let wrong: Vec<_> =
            records.iter().flat_map(|record| record.lock().unwrap().wrong.clone()).collect();
        assert!(wrong.is_empty(), "{} things are wrong: {wrong:#?}", wrong.len());
    }

    pub(crate) fn summary(&self) -> String {
        let mut sum = Record::default();
        self.0.lock().unwrap().iter().for_each(|record| sum.add(&record.lock().unwrap()));
        let Record { sessions, heard, unconfirmed, ends, losses, .. } = sum;
        let ends: Vec<_> =
            ends.iter().map(|(why, count)| format!("    {count:5}  {why}")).collect();
        let losses: Vec<_> = losses
            .iter()
            .map(|(why, (count, wait))| format!("    {count:5}  {why} (waits up to {wait} ms)"))
            .collect();
        format!(
            "{sessions} ends of sessions, {heard} messages heard, {unconfirmed} unconfirmed at a visible end\n{}\n\
             connections lost or not made\n{}",
            ends.join("\n"),
            losses.join("\n")
        )
    }
}

/// Sends and receives numbered messages until the session ends; each also confirms what was
/// received.
pub(crate) async fn talk(
    side: &'static str,
    mut session: Session,
    record: SharedRecord,
    mut dice: Dice,
) {
    let record = || record.lock().unwrap();
    record().sessions += 1;
    record().open += 1;
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
                    record().wrong(format!("{side}: {came} came in place of {heard}, own: {of}"));
                    break;
                }
                if number(2) < confirmed || number(2) > said {
                    let told = number(2);
                    record().wrong(format!("{side}: {told} confirmed of {confirmed}..={said}"));
                    break;
                }
                heard += 1;
                record().heard += 1;
                if number(2) > confirmed {
                    record().confirmed += number(2) - confirmed;
                    confirmed = number(2);
                    moved = Instant::now();
                }
            }
            () = tokio::time::sleep(pause) => {
                if said == confirmed {
                    moved = Instant::now();
                } else if moved.elapsed() > STALL {
                    record().wrong(format!(
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
        record().ended(side, session.end(), said - confirmed);
    }
    record().open -= 1;
}
