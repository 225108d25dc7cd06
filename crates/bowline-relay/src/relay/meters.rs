//! The metrics of a relay, and their Prometheus text. One set per relay. Labels never hold ids.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::token::TokenError;

#[derive(Debug, Default)]
pub(crate) struct Meters {
    connections: ByRole<AtomicI64>,
    frames: ByRole<AtomicU64>,
    bytes: ByRole<AtomicU64>,
    discarded: AtomicU64,
    closes: Named<u16>,
    told: Named<&'static str>,
    rejected: Named<&'static str>,
    turned_away: AtomicU64,
    panics: AtomicU64,
    impossible: AtomicU64,
}

/// Values that are computed by walking the daemon slots when metrics are read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Gauges {
    pub(crate) paired: usize,
    pub(crate) paused: usize,
    pub(crate) pending: usize,
    pub(crate) queued_frames: usize,
    pub(crate) queued_bytes: usize,
}

#[derive(Debug, Default)]
struct ByRole<T> {
    client: T,
    daemon: T,
}

impl<T> ByRole<T> {
    fn of(&self, role: Role) -> &T {
        match role {
            Role::Client => &self.client,
            Role::Daemon => &self.daemon,
        }
    }
}

/// Counters by label; updated when connections open and close, not for each frame.
#[derive(Debug, Default)]
struct Named<K>(Mutex<BTreeMap<K, u64>>);

impl<K: Ord + Copy> Named<K> {
    fn count(&self, name: K) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }

    fn all(&self) -> Vec<(K, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(name, count)| (*name, *count)).collect()
    }
}

impl Meters {
    pub(crate) fn connected(&self, role: Role) {
        self.connections.of(role).fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self, role: Role) {
        self.connections.of(role).fetch_sub(1, Relaxed);
    }

    /// Counts messages forwarded to a receiver of this role.
    pub(crate) fn forwarded(&self, to: Role, frames: usize, bytes: usize) {
        self.frames.of(to).fetch_add(frames as u64, Relaxed);
        self.bytes.of(to).fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a message for a session without a connected peer; its sender was notified.
    pub(crate) fn discarded(&self) {
        self.discarded.fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self, code: u16) {
        self.closes.count(code);
    }

    pub(crate) fn told(&self, code: ControlCode) {
        self.told.count(code.name());
    }

    pub(crate) fn rejected(&self, why: &'static str) {
        self.rejected.count(why);
    }

    /// Counts a connection refused by the rate limit.
    pub(crate) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn impossible(&self) {
        self.impossible.fetch_add(1, Relaxed);
    }

    /// All metrics in the Prometheus text format.
    pub(crate) fn render(&self, gauges: &Gauges) -> String {
        let mut page = Page(String::with_capacity(4096));
        let role = |clients: u64, daemons: u64| {
            vec![("role=\"client\"".into(), clients), ("role=\"daemon\"".into(), daemons)]
        };
        let open = |count: &AtomicI64| u64::try_from(count.load(Relaxed)).unwrap_or(0);
        let rows = role(open(&self.connections.client), open(&self.connections.daemon));
        page.put("relay_connections", "gauge", "Open connections", rows);
        let states =
            [("paired", gauges.paired), ("paused", gauges.paused), ("pending", gauges.pending)];
        let states = states.map(|(name, count)| (format!("state=\"{name}\""), count as u64));
        page.put("relay_pairs", "gauge", "Sessions by state", states.into());
        for (name, help, value) in [
            ("relay_queued_frames", "Messages that wait to be written", gauges.queued_frames),
            ("relay_queued_bytes", "Bytes that wait to be written", gauges.queued_bytes),
        ] {
            page.put(name, "gauge", help, vec![(String::new(), value as u64)]);
        }
        for (name, help, counts) in [
            ("relay_frames_total", "Messages passed on, by receiver", &self.frames),
            ("relay_bytes_total", "Bytes of messages passed on, by receiver", &self.bytes),
        ] {
            let rows = role(counts.client.load(Relaxed), counts.daemon.load(Relaxed));
            page.put(name, "counter", help, rows);
        }
        let closes = self.closes.all().into_iter();
        let closes = closes.map(|(code, count)| (format!("code=\"{code}\""), count)).collect();
        page.put("relay_closes_total", "counter", "Closed connections by close code", closes);
        for (name, label, help, counts) in [
            ("relay_told_total", "code", "Control messages sent that close", &self.told),
            ("relay_rejected_tokens_total", "reason", "Tokens refused", &self.rejected),
        ] {
            let rows = counts.all().into_iter();
            let rows = rows.map(|(value, count)| (format!("{label}=\"{value}\""), count));
            page.put(name, "counter", help, rows.collect());
        }
        for (name, help, count) in [
            ("relay_discarded_total", "Messages without another end", &self.discarded),
            ("relay_turned_away_total", "Connections over the rate", &self.turned_away),
            ("relay_panics_total", "Connections ended by a defect", &self.panics),
            ("relay_impossible_total", "Events without a meaning", &self.impossible),
        ] {
            page.put(name, "counter", help, vec![(String::new(), count.load(Relaxed))]);
        }
        page.0
    }
}

struct Page(String);

impl Page {
    fn put(&mut self, name: &str, kind: &str, help: &str, rows: Vec<(String, u64)>) {
        let page = &mut self.0;
        // Writing into a string does not fail.
        let _ = write!(page, "# HELP bowline_{name} {help}.\n# TYPE bowline_{name} {kind}\n");
        for (labels, value) in rows {
            let _ = match labels.as_str() {
                "" => writeln!(page, "bowline_{name} {value}"),
                labels => writeln!(page, "bowline_{name}{{{labels}}} {value}"),
            };
        }
    }
}

/// A short name of a token error, for metrics and for clients.
pub(crate) fn reason(error: TokenError) -> &'static str {
    match error {
        TokenError::Malformed => "malformed",
        TokenError::Type => "type",
        TokenError::UnknownKey => "unknown_key",
        TokenError::Signature => "signature",
        TokenError::Audience => "audience",
        TokenError::Issuer => "issuer",
        TokenError::Times => "times",
        TokenError::Expired => "expired",
        TokenError::Version => "version",
        TokenError::Role => "role",
        TokenError::Daemon => "daemon",
        TokenError::Client => "client",
        TokenError::Region => "region",
        TokenError::Lifetime => "lifetime",
        TokenError::Scopes => "scopes",
        TokenError::Limits => "limits",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let meters = Meters::default();
        meters.connected(Role::Client);
        meters.forwarded(Role::Daemon, 3, 99);
        meters.closed(1012);
        meters.rejected(reason(TokenError::Expired));
        let page = meters.render(&Gauges { paused: 2, queued_bytes: 5, ..Gauges::default() });
        for line in [
            "bowline_relay_connections{role=\"client\"} 1",
            "bowline_relay_pairs{state=\"paused\"} 2",
            "bowline_relay_queued_bytes 5",
            "bowline_relay_frames_total{role=\"daemon\"} 3",
            "bowline_relay_bytes_total{role=\"daemon\"} 99",
            "bowline_relay_closes_total{code=\"1012\"} 1",
            "bowline_relay_rejected_tokens_total{reason=\"expired\"} 1",
            "bowline_relay_panics_total 0",
            "# TYPE bowline_relay_pairs gauge",
        ] {
            assert!(page.lines().any(|there| there == line), "{line} in {page}");
        }
    }
}
