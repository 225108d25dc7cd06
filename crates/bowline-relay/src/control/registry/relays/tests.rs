use bowline_sbrp::api::{Registration, RenewPresence};
use bowline_sbrp::identity::IdentitySecret;

use super::super::{KeyHash, NewDaemons, PresenceTerms, Renewed};
use super::*;

const NOW: u64 = 1_000_000_000;
const HOME: &str = "wss://home.example/relay";

struct Bench {
    _folder: tempfile::TempDir,
    registry: Registry,
    key: KeyHash,
    now: u64,
}

fn url(name: &str) -> Url {
    format!("wss://{name}.example/relay").parse().unwrap()
}

fn at(name: &str) -> String {
    url(name).to_string()
}

fn process(id: &str) -> DaemonProcess {
    DaemonProcess { id: Some(id.to_owned()), ..DaemonProcess::default() }
}

impl Bench {
    /// A registry with these relays, each `name` or `name/region`.
    fn with(relays: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut registry = Registry::open(folder.path()).unwrap();
        let key = KeyHash::of(registry.add_user("alice", NOW).unwrap().reveal());
        for relay in relays {
            let (name, region) = match relay.split_once('/') {
                Some((name, region)) => (name, Some(region)),
                None => (*relay, None),
            };
            registry.add_relay(name, &url(name), region, NOW).unwrap();
        }
        Self { _folder: folder, registry, key, now: NOW }
    }

    fn terms(&self) -> PresenceTerms {
        PresenceTerms {
            limits: NewDaemons { most: 100, per_day: 100 },
            configured: Configured { url: HOME.into(), region: None },
            now: self.now,
            until: self.now + 3600,
        }
    }

    fn register(&mut self, seed: u8, process: DaemonProcess) -> Result<Renewed> {
        let asked = Registration {
            api_key: None,
            identity: IdentitySecret::from_seed(&[seed; 32]).public(),
            name: None,
            resumable: Some(true),
            process,
        };
        let terms = self.terms();
        self.registry.register(&self.key, &asked, &terms)
    }

    fn renew(&mut self, daemon: &str, process: DaemonProcess) -> Result<Renewed> {
        let terms = self.terms();
        let asked = RenewPresence { resumable: None, process };
        self.registry.renew(&self.key, daemon, &asked, &terms)
    }

    /// Where a client of the daemon is sent, and for which epoch.
    fn client(&mut self, daemon: &str) -> (Option<String>, u64) {
        let terms = self.registry.open_session(&self.key, daemon, self.now, self.now + 120);
        let terms = terms.unwrap();
        (terms.relay.map(|relay| relay.url), terms.epoch)
    }
}

fn place(made: &Renewed) -> Option<String> {
    made.relay.as_ref().map(|relay| relay.url.clone())
}

#[test]
fn without_rows_the_configured_relay_is_the_one() {
    let mut bench = Bench::with(&[]);
    let made = bench.register(1, process("p")).unwrap();
    assert_eq!(made.relay, None);
    let lost = DaemonProcess { unreachable: vec![HOME.into()], ..process("p") };
    let again = bench.renew(&made.daemon, lost).unwrap();
    assert_eq!((again.relay, again.epoch), (None, made.epoch), "there is nothing else");
    assert_eq!(bench.client(&made.daemon), (None, made.epoch));
}

#[test]
fn daemons_are_spread_evenly_and_keep_their_relay() {
    let mut bench = Bench::with(&["a", "b"]);
    let made: Vec<_> = (1..=6).map(|seed| bench.register(seed, process("p")).unwrap()).collect();
    let on = |name: &str| made.iter().filter(|made| place(made) == Some(at(name))).count();
    assert_eq!((on("a"), on("b")), (3, 3));
    for (seed, first) in (1..).zip(&made) {
        let renewed = bench.renew(&first.daemon, process("p")).unwrap();
        assert_eq!((place(&renewed), renewed.epoch), (place(first), first.epoch));
        let restarted = bench.register(seed, process("q")).unwrap();
        assert_eq!(place(&restarted), place(first));
        assert!(restarted.epoch > first.epoch, "another process");
        assert_eq!(bench.client(&first.daemon), (place(first), restarted.epoch));
    }
    // Those whose token has long expired do not count.
    bench.now += 7200;
    let relays = bench.registry.relays(bench.now).unwrap();
    assert_eq!(relays.iter().map(|relay| relay.daemons).sum::<u32>(), 0);
}

#[test]
fn a_daemon_that_cannot_reach_its_relay_gets_another_and_a_greater_epoch() {
    let mut bench = Bench::with(&["a", "b"]);
    let made = bench.register(1, process("p")).unwrap();
    assert_eq!(place(&made), Some(at("a")));
    let without = |names: &[&str]| DaemonProcess {
        unreachable: names.iter().map(|name| at(name)).collect(),
        ..process("p")
    };
    let moved = bench.renew(&made.daemon, without(&["a"])).unwrap();
    assert_eq!(place(&moved), Some(at("b")));
    assert!(moved.epoch > made.epoch);
    assert_eq!(bench.client(&made.daemon), (Some(at("b")), moved.epoch));
    // Asked again, because the answer was lost: it is there already.
    let again = bench.renew(&made.daemon, without(&["a"])).unwrap();
    assert_eq!((place(&again), again.epoch), (Some(at("b")), moved.epoch));
    // Where nothing can be reached, it stays, and may go back later.
    let stays = bench.renew(&made.daemon, without(&["a", "b"])).unwrap();
    assert_eq!((place(&stays), stays.epoch), (Some(at("b")), moved.epoch));
    let back = bench.renew(&made.daemon, without(&["b"])).unwrap();
    assert_eq!(place(&back), Some(at("a")));
    assert!(back.epoch > moved.epoch);
    let audit = bench.registry.audit(10).unwrap();
    assert!(audit.iter().any(|row| row.event == "daemon_moved" && row.count == 2), "{audit:?}");
}

#[test]
fn a_region_is_preferred_and_not_insisted_on() {
    let mut bench = Bench::with(&["us-1/us", "eu-1/eu", "eu-2/eu"]);
    let in_eu = |unreachable: &[&str]| DaemonProcess {
        region: Some("eu".into()),
        unreachable: unreachable.iter().map(|name| at(name)).collect(),
        ..process("p")
    };
    let made = bench.register(1, in_eu(&[])).unwrap();
    assert_eq!(place(&made), Some(at("eu-1")));
    assert_eq!(made.relay.unwrap().region.as_deref(), Some("eu"));
    let moved = bench.renew(&made.daemon, in_eu(&["eu-1"])).unwrap();
    assert_eq!(place(&moved), Some(at("eu-2")));
    let far = bench.renew(&made.daemon, in_eu(&["eu-1", "eu-2"])).unwrap();
    assert_eq!(place(&far), Some(at("us-1")));
}

#[test]
fn a_daemon_that_had_to_leave_its_region_is_back_when_it_starts_again() {
    let mut bench = Bench::with(&["eu-1/eu", "us-1/us", "us-2/us"]);
    let in_eu = |id: &str, unreachable: &[&str]| DaemonProcess {
        region: Some("eu".into()),
        unreachable: unreachable.iter().map(|name| at(name)).collect(),
        ..process(id)
    };
    let made = bench.register(1, in_eu("p", &[])).unwrap();
    assert_eq!(place(&made), Some(at("eu-1")));
    let far = bench.renew(&made.daemon, in_eu("p", &["eu-1"])).unwrap();
    assert_eq!(place(&far), Some(at("us-1")));
    // While it goes on, it stays: a move would cost its clients their sessions.
    let renewed = bench.renew(&made.daemon, in_eu("p", &[])).unwrap();
    assert_eq!((place(&renewed), renewed.epoch), (Some(at("us-1")), far.epoch));
    // It cannot be back as long as nothing in its region can be reached, or is active; and another
    // relay that is no nearer is no reason to move.
    let stays = bench.register(1, in_eu("q", &["eu-1"])).unwrap();
    assert_eq!(place(&stays), Some(at("us-1")));
    bench.registry.drain_relay("eu-1", false, NOW).unwrap();
    assert_eq!(place(&bench.register(1, in_eu("r", &[])).unwrap()), Some(at("us-1")));
    bench.registry.add_relay("eu-1", &url("eu-1"), Some("eu"), NOW).unwrap();
    // One that does not say which process it is may be connected.
    let unnamed = DaemonProcess { id: None, ..in_eu("", &[]) };
    assert_eq!(place(&bench.register(1, unnamed).unwrap()), Some(at("us-1")));
    let back = bench.register(1, in_eu("s", &[])).unwrap();
    assert_eq!(place(&back), Some(at("eu-1")));
    assert!(back.epoch > far.epoch);
    assert_eq!(bench.client(&made.daemon), (Some(at("eu-1")), back.epoch));
}

#[test]
fn clients_find_the_daemons_of_a_removed_relay_until_those_have_left() {
    let mut bench = Bench::with(&["a"]);
    let made = bench.register(1, process("p")).unwrap();
    bench.registry.remove_relay("a", true, NOW).unwrap();
    let late = NOW + RELAY_KEPT + 1;
    // There is nowhere to go: it stays, for as long as it renews its token.
    bench.now = late - 60;
    let stays = bench.renew(&made.daemon, process("p")).unwrap();
    assert_eq!((place(&stays), stays.epoch), (Some(at("a")), made.epoch));
    bench.registry.rotate(late).unwrap();
    assert_eq!(bench.client(&made.daemon), (Some(at("a")), made.epoch));
    // Nor does the same name at another address change where it is.
    bench.registry.add_relay("a", &url("b"), None, late).unwrap();
    assert!(!bench.registry.draining(late).unwrap().contains(&"a".to_owned()));
    assert_eq!(bench.client(&made.daemon), (Some(at("a")), made.epoch));
    let names: Vec<_> = bench.registry.relays(late).unwrap().into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["a"]);
    // It leaves with its next token.
    bench.now = late;
    let moved = bench.renew(&made.daemon, process("p")).unwrap();
    assert_eq!(place(&moved), Some(at("b")));
    assert!(moved.epoch > made.epoch);
    assert_eq!(bench.client(&made.daemon), (Some(at("b")), moved.epoch));
    bench.registry.rotate(late).unwrap();
    let rows = "SELECT count(*) FROM relays";
    let rows: u32 = bench.registry.conn.query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "nothing of it is kept for ever");
}

#[test]
fn a_process_that_was_replaced_gets_no_more_tokens() {
    let mut bench = Bench::with(&["a", "b"]);
    let old = bench.register(1, process("old")).unwrap();
    let new = bench.register(1, process("new")).unwrap();
    assert_eq!(old.daemon, new.daemon);
    assert_eq!(bench.renew(&old.daemon, process("old")).unwrap_err(), Error::Replaced);
    assert_eq!(bench.client(&old.daemon).1, new.epoch, "clients go to the newer one");
    bench.renew(&old.daemon, process("new")).unwrap();
    // It may register again, when the other is gone.
    assert!(bench.register(1, process("old")).unwrap().epoch > new.epoch);
    // Daemons that do not name their process go on as ever, without epochs.
    let plain = bench.register(2, DaemonProcess::default()).unwrap();
    let again = bench.register(2, DaemonProcess::default()).unwrap();
    assert_eq!(again.epoch, plain.epoch);
    bench.renew(&plain.daemon, DaemonProcess::default()).unwrap();
    let other = bench.register(1, DaemonProcess::default()).unwrap();
    assert!(other.epoch > new.epoch, "a process that has no name is another one, too");
}

#[test]
fn an_epoch_never_goes_back_even_with_a_registry_from_a_backup() {
    let mut bench = Bench::with(&[]);
    let first = bench.register(1, process("p")).unwrap();
    assert!(first.epoch >= NOW);
    bench.now -= 1000;
    assert_eq!(bench.register(1, process("q")).unwrap().epoch, first.epoch + 1, "nor by the clock");
}

#[test]
fn a_drained_relay_gets_no_new_daemons_and_keeps_those_that_have_not_left() {
    let mut bench = Bench::with(&["a", "b"]);
    let made = bench.register(1, process("p")).unwrap();
    let drained = bench.registry.drain_relay("a", false, NOW).unwrap();
    assert_eq!((drained.daemons, drained.drained_at), (1, Some(NOW)));
    assert_eq!(bench.registry.draining(NOW).unwrap(), ["a"]);
    // It is still there: its clients are sent there, and its token is renewed.
    let renewed = bench.renew(&made.daemon, process("p")).unwrap();
    assert_eq!((place(&renewed), renewed.epoch), (Some(at("a")), made.epoch));
    assert_eq!(bench.client(&made.daemon).0, Some(at("a")));
    for seed in 2..=4 {
        assert_eq!(place(&bench.register(seed, process("p")).unwrap()), Some(at("b")));
    }
    let sent_away = DaemonProcess { unreachable: vec![at("a")], ..process("p") };
    assert_eq!(place(&bench.renew(&made.daemon, sent_away).unwrap()), Some(at("b")));
    // And back into service.
    bench.registry.add_relay("a", &url("a"), None, NOW).unwrap();
    assert!(bench.registry.draining(NOW).unwrap().is_empty());
    assert_eq!(place(&bench.register(5, process("p")).unwrap()), Some(at("a")));
}

#[test]
fn a_daemon_that_cannot_ask_is_moved_by_its_next_token() {
    let mut bench = Bench::with(&["a", "b"]);
    let made = bench.register(1, DaemonProcess::default()).unwrap();
    bench.registry.drain_relay("a", false, NOW).unwrap();
    let renewed = bench.renew(&made.daemon, DaemonProcess::default()).unwrap();
    assert_eq!(place(&renewed), Some(at("b")));
    assert!(renewed.epoch > made.epoch);
}

#[test]
fn daemons_of_the_configured_relay_stay_when_rows_are_added() {
    let mut bench = Bench::with(&[]);
    let made = bench.register(1, process("p")).unwrap();
    let plain = bench.register(2, DaemonProcess::default()).unwrap();
    bench.registry.add_relay("a", &url("a"), None, NOW).unwrap();
    for (daemon, process) in [(&made, process("p")), (&plain, DaemonProcess::default())] {
        let renewed = bench.renew(&daemon.daemon, process).unwrap();
        assert_eq!((renewed.relay, renewed.epoch), (None, daemon.epoch));
        assert_eq!(bench.client(&daemon.daemon).0, None);
    }
    assert_eq!(place(&bench.register(1, process("q")).unwrap()), Some(at("a")));
}

#[test]
fn the_last_active_relay_is_not_drained_by_mistake() {
    let mut bench = Bench::with(&["a", "b"]);
    let made = bench.register(1, process("p")).unwrap();
    bench.registry.drain_relay("b", false, NOW).unwrap();
    assert_eq!(bench.registry.drain_relay("a", false, NOW).unwrap_err(), Error::LastRelay);
    bench.registry.drain_relay("a", true, NOW).unwrap();
    assert_eq!(bench.register(2, process("p")).unwrap_err(), Error::NoActiveRelay);
    let sent_away = DaemonProcess { unreachable: vec![at("a")], ..process("p") };
    assert_eq!(bench.renew(&made.daemon, sent_away).unwrap_err(), Error::NoActiveRelay);
    assert_eq!(bench.registry.drain_relay("none", false, NOW).unwrap_err(), Error::NoRelay);
}

#[test]
fn a_relay_in_use_is_removed_only_by_force_or_when_it_is_drained() {
    let mut bench = Bench::with(&["a", "b"]);
    let made = bench.register(1, process("p")).unwrap();
    assert_eq!(bench.registry.remove_relay("a", false, NOW).unwrap_err(), Error::RelayInUse(1));
    bench.registry.remove_relay("b", false, NOW).unwrap();
    assert_eq!(bench.registry.remove_relay("b", false, NOW).unwrap_err(), Error::NoRelay);
    bench.registry.add_relay("b", &url("b"), Some("eu"), NOW).unwrap();
    bench.registry.remove_relay("a", true, NOW).unwrap();
    // What still runs there hands over; its clients find it until then.
    assert_eq!(bench.registry.draining(NOW).unwrap(), ["a"]);
    assert_eq!(bench.client(&made.daemon).0, Some(at("a")));
    let names: Vec<_> = bench.registry.relays(NOW).unwrap().into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["b"]);
    let sent_away = DaemonProcess { unreachable: vec![at("a")], ..process("p") };
    assert_eq!(place(&bench.renew(&made.daemon, sent_away).unwrap()), Some(at("b")));
    // Nothing of it is kept for ever.
    let late = NOW + RELAY_KEPT + 1;
    assert!(bench.registry.draining(late).unwrap().is_empty());
    bench.registry.rotate(late).unwrap();
    let rows = "SELECT count(*) FROM relays WHERE name = 'a'";
    let rows: u32 = bench.registry.conn.query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[test]
fn names_and_addresses_of_relays_are_plain_and_given_once() {
    let mut bench = Bench::with(&["a"]);
    let mut add = |name: &str, url: &str, region: Option<&str>| {
        bench.registry.add_relay(name, &url.parse().unwrap(), region, NOW)
    };
    for (name, region) in [("", None), ("two words", None), ("ä", None), ("b", Some(""))] {
        assert_eq!(add(name, "wss://x.example", region), Err(Error::BadRelayName), "{name}");
    }
    for bad in ["https://x.example", "ws://x.example/relay", "ftp://x"] {
        assert_eq!(add("b", bad, None), Err(Error::BadRelayUrl), "{bad}");
    }
    assert_eq!(add("a", &at("b"), None), Err(Error::RelayTaken));
    assert_eq!(add("b", &at("a"), None), Err(Error::RelayTaken));
    add("b", "ws://127.0.0.1:8090/relay", Some("eu")).unwrap();
    bench.registry.drain_relay("a", false, NOW).unwrap();
    let moved = bench.registry.add_relay("a", &url("c"), None, NOW);
    assert_eq!(moved, Err(Error::RelayTaken), "its daemons are at the old address");
}
