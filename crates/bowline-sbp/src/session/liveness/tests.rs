use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const ME: ReplicaId = ReplicaId(Uuid::from_u128(1));
const OTHER: ReplicaId = ReplicaId(Uuid::from_u128(2));
const FRESH: ReplicaId = ReplicaId(Uuid::from_u128(3));
const TIMING: fn() -> Timing = Timing::default;

/// A replica, and the clock that it is given.
struct Table {
    liveness: Liveness,
    begun: Instant,
    now: Instant,
}

impl Table {
    /// After its first renewal, look and search at time zero.
    fn new() -> Self {
        let now = Instant::now();
        let mut table = Self { liveness: Liveness::new(ME, TIMING(), now), begun: now, now };
        let actions = table.at(0, Event::Deadline);
        assert_eq!(actions, [Action::Renew(ME), Action::Look, Action::TakeOver(ME)]);
        assert_eq!(table.at(0, Event::Renewed(Renewal::Extended)), []);
        assert_eq!(table.at(0, Event::Looked(Some(vec![mine(), running(OTHER)]))), []);
        assert_eq!(table.at(0, Event::TookOver(true)), []);
        table
    }

    fn at(&mut self, millis: u64, event: Event) -> Vec<Action> {
        self.now = self.begun + Duration::from_millis(millis);
        self.liveness.handle(event, self.now)
    }

    /// A look that is sent and answered at that time.
    fn look(&mut self, millis: u64, leases: Vec<ReplicaLease>) -> Vec<Action> {
        let sent = self.at(millis, Event::Deadline);
        assert!(sent.contains(&Action::Look), "{sent:?}");
        self.at(millis, Event::Looked(Some(leases)))
    }

    fn renew(&mut self, millis: u64, renewal: Renewal) -> Vec<Action> {
        let sent = self.at(millis, Event::Deadline);
        assert!(sent.contains(&Action::Renew(self.liveness.me())), "{sent:?}");
        self.at(millis, Event::Renewed(renewal))
    }

    fn next(&self) -> Option<u64> {
        let next = self.liveness.deadline()?;
        Some(u64::try_from((next - self.begun).as_millis()).unwrap())
    }
}

fn lease(id: ReplicaId, ends: i64, has_expired: bool) -> ReplicaLease {
    let expires_at = Some(Timestamp::from_millisecond(ends).unwrap());
    ReplicaLease { id, expires_at, has_expired }
}

fn mine() -> ReplicaLease {
    lease(ME, 3000, false)
}

fn running(id: ReplicaId) -> ReplicaLease {
    lease(id, 3000, false)
}

fn expired(id: ReplicaId, ends: i64) -> ReplicaLease {
    lease(id, ends, true)
}

#[test]
fn it_renews_and_looks_at_their_times() {
    let mut table = Table::new();
    assert_eq!(table.next(), Some(500));
    assert_eq!(table.at(499, Event::Deadline), []);
    assert_eq!(table.at(500, Event::Deadline), [Action::Look]);
    assert_eq!(table.next(), Some(750));
    assert_eq!(table.at(750, Event::Deadline), [Action::Renew(ME)]);
    // Both are under way: what is next is the end of the lease that it has.
    assert_eq!(table.next(), Some(2750));
    assert_eq!(table.at(760, Event::Renewed(Renewal::Extended)), []);
    assert_eq!(table.next(), Some(1500));
}

#[test]
fn g19_two_looks_a_second_apart_declare_a_replica_dead() {
    let mut table = Table::new();
    assert_eq!(table.look(500, vec![mine(), expired(OTHER, 400)]), []);
    table.renew(1000, Renewal::Extended);
    assert_eq!(table.at(1000, Event::Looked(Some(vec![mine(), expired(OTHER, 400)]))), []);
    let declares =
        [Action::DeclareDead { replica: OTHER, seen: Timestamp::from_millisecond(400).unwrap() }];
    assert_eq!(table.look(1500, vec![mine(), expired(OTHER, 400)]), declares);
    table.renew(2000, Renewal::Extended);
    // Not again while the store is asked.
    assert_eq!(table.at(2000, Event::Looked(Some(vec![mine(), expired(OTHER, 400)]))), []);
    let dead = [Action::ReplicaDead(OTHER), Action::TakeOver(ME)];
    assert_eq!(table.at(2100, Event::Declared(OTHER, true)), dead);
}

#[test]
fn a_look_that_was_sent_too_soon_does_not_count_however_late_its_answer_is() {
    let mut table = Table::new();
    assert_eq!(table.at(500, Event::Deadline), [Action::Look]);
    table.renew(750, Renewal::Extended);
    // The database was paused: the answer to the first look comes now.
    assert_eq!(
        table.at(1400, Event::Looked(Some(vec![mine(), expired(OTHER, 700)]))),
        [Action::Look]
    );
    table.renew(1500, Renewal::Extended);
    table.renew(2250, Renewal::Extended);
    assert_eq!(
        table.at(2500, Event::Looked(Some(vec![mine(), expired(OTHER, 700)]))),
        [Action::Look]
    );
    let answer = vec![mine(), expired(OTHER, 700)];
    assert_eq!(table.at(2510, Event::Looked(Some(answer))).len(), 1);
}

#[test]
fn a_replica_that_renews_late_is_not_declared_dead() {
    let mut table = Table::new();
    table.look(500, vec![mine(), expired(OTHER, 400)]);
    // It has renewed, and that lease has expired, too.
    table.renew(1000, Renewal::Extended);
    table.at(1000, Event::Looked(Some(vec![mine(), running(OTHER)])));
    assert_eq!(table.look(1500, vec![mine(), expired(OTHER, 1400)]), []);
    // The store found a newer value than the two looks.
    let mut table = Table::new();
    table.look(500, vec![mine(), expired(OTHER, 400)]);
    table.renew(1000, Renewal::Extended);
    table.at(1000, Event::Looked(None));
    assert_eq!(table.look(1500, vec![mine(), expired(OTHER, 400)]).len(), 1);
    assert_eq!(table.at(1500, Event::Declared(OTHER, false)), []);
    table.renew(2000, Renewal::Extended);
    assert_eq!(table.at(2000, Event::Looked(Some(vec![mine(), expired(OTHER, 400)]))), []);
}

#[test]
fn a_replica_that_is_missing_is_dead() {
    let mut table = Table::new();
    let actions = table.look(500, vec![mine()]);
    assert_eq!(actions, [Action::ReplicaDead(OTHER), Action::TakeOver(ME)]);
    // While turns are looked for, another one dies: they are looked for again.
    table.renew(1000, Renewal::Extended);
    table.at(1000, Event::Looked(Some(vec![mine(), running(FRESH)])));
    assert_eq!(table.look(1500, vec![mine()]), [Action::ReplicaDead(FRESH)]);
    assert_eq!(table.at(1600, Event::TookOver(true)), [Action::TakeOver(ME)]);
}

#[test]
fn it_never_declares_itself_dead() {
    let mut table = Table::new();
    table.look(500, vec![expired(ME, 400)]);
    table.at(1000, Event::Deadline);
    table.at(1000, Event::Looked(Some(vec![expired(ME, 400)])));
    assert_eq!(table.look(1500, vec![expired(ME, 400)]), []);
}

#[test]
fn g14_it_stops_serving_before_its_lease_can_have_ended() {
    let mut table = Table::new();
    table.at(750, Event::Deadline);
    assert!(table.liveness.serves(table.begun + Duration::from_millis(2749)));
    // Whoever asks after a stop of the process is told the truth before any timer has run.
    assert!(!table.liveness.serves(table.begun + Duration::from_millis(2750)));
    assert_eq!(table.at(2750, Event::Deadline), [Action::Suspend]);
    assert_eq!(table.at(2760, Event::Renewed(Renewal::Failed)), []);
    let tries = [Action::Renew(ME)];
    assert_eq!(table.at(3010, Event::Deadline), tries);
    assert_eq!(table.at(3020, Event::Renewed(Renewal::Extended)), [Action::Resume]);
    assert!(table.liveness.serves(table.now));
    assert_eq!(table.liveness.me(), ME);
}

#[test]
fn g14_a_lease_counts_from_before_the_renewal_was_sent() {
    let mut table = Table::new();
    table.at(750, Event::Deadline);
    // The answer took three seconds: that lease may have ended already.
    assert_eq!(table.at(3750, Event::Deadline), [Action::Suspend]);
    assert_eq!(table.at(3750, Event::Renewed(Renewal::Extended)), [Action::Renew(ME)]);
    assert!(!table.liveness.serves(table.now));
    assert_eq!(table.at(3760, Event::Renewed(Renewal::Extended)), [Action::Resume]);
}

#[test]
fn g19_a_replica_that_is_dead_abandons_everything_and_joins_under_another_id() {
    let mut table = Table::new();
    let actions = table.renew(750, Renewal::Dead);
    assert_eq!(actions, [Action::Suspend, Action::AbandonAll]);
    assert!(!table.liveness.serves(table.now));
    // Until that is done nothing is due, and late answers change nothing.
    assert_eq!(table.next(), None);
    assert_eq!(table.at(800, Event::Looked(Some(vec![]))), []);
    assert_eq!(table.at(900, Event::Abandoned(FRESH)), [Action::Register(FRESH)]);
    assert_eq!(table.at(910, Event::Registered(false)), []);
    assert_eq!(table.at(1160, Event::Deadline), [Action::Register(FRESH)]);
    let actions = table.at(1170, Event::Registered(true));
    assert_eq!(actions, [Action::Renew(FRESH)]);
    let actions = table.at(1180, Event::Renewed(Renewal::Extended));
    assert_eq!(actions, [Action::Resume, Action::TakeOver(FRESH)]);
    assert_eq!(table.liveness.me(), FRESH);
}

#[test]
fn where_leases_never_end_there_is_nothing_to_do() {
    let mut table = Table::new();
    let forever = ReplicaLease { expires_at: None, ..mine() };
    assert_eq!(table.look(500, vec![forever]), [Action::Rest]);
    assert_eq!(table.next(), None);
    assert!(table.liveness.serves(table.begun + Duration::from_secs(3600)));
}

#[test]
fn unfinished_turns_are_looked_for_now_and_then() {
    let mut table = Table::new();
    table.renew(9500, Renewal::Extended);
    assert_eq!(table.at(9999, Event::Deadline), []);
    assert_eq!(table.at(10_000, Event::Deadline), [Action::TakeOver(ME)]);
    assert_eq!(table.at(10_100, Event::TookOver(false)), []);
    let actions = table.at(10_350, Event::Deadline);
    assert!(actions.contains(&Action::TakeOver(ME)), "{actions:?}");
}

fn events() -> impl Strategy<Value = (u64, Event)> {
    let id = prop_oneof![Just(ME), Just(OTHER), Just(FRESH)];
    let seen = (id.clone(), 0..3_i64, any::<bool>());
    let seen = seen.prop_map(|(id, ends, has_expired)| lease(id, ends, has_expired));
    let event = prop_oneof![
        6 => Just(Event::Deadline),
        3 => Just(Event::Renewed(Renewal::Extended)),
        1 => Just(Event::Renewed(Renewal::Failed)),
        1 => Just(Event::Renewed(Renewal::Dead)),
        4 => proptest::option::of(proptest::collection::vec(seen, 0..3)).prop_map(Event::Looked),
        1 => (id, any::<bool>()).prop_map(|(id, dead)| Event::Declared(id, dead)),
        1 => any::<bool>().prop_map(Event::TookOver),
        1 => (10..20_u128).prop_map(|n| Event::Abandoned(ReplicaId(Uuid::from_u128(n)))),
        1 => any::<bool>().prop_map(Event::Registered),
    ];
    (0..1500_u64, event)
}

proptest! {
    /// Whatever the store answers and whenever: one request of each kind at a time, no busy timer, and
    /// it serves only under a lease that it has surely.
    #[test]
    fn g14_g19_whatever_happens(events in proptest::collection::vec(events(), 1..200)) {
        let mut now = Instant::now();
        let mut liveness = Liveness::new(ME, TIMING(), now);
        let mut lease_ends = now + TIMING().lease;
        let (mut renewal, mut look, mut take_over) = (None, None, None);
        let mut abandons = false;
        // Replica and value by when a look that saw it expired was answered.
        let mut first: BTreeMap<(ReplicaId, Timestamp), Instant> = BTreeMap::new();
        for (pause, event) in events {
            now += Duration::from_millis(pause);
            match &event {
                Event::Renewed(renewed) => {
                    let Some(sent) = renewal.take() else { continue };
                    if *renewed == Renewal::Extended {
                        lease_ends = sent + TIMING().lease;
                    }
                }
                Event::Looked(leases) => {
                    let Some(_) = look else { continue };
                    for lease in leases.iter().flatten().filter(|lease| lease.has_expired) {
                        first.entry((lease.id, lease.expires_at.unwrap())).or_insert(now);
                    }
                }
                Event::TookOver(_) if take_over.take().is_none() => continue,
                Event::Abandoned(_) if !std::mem::take(&mut abandons) => continue,
                _ => {}
            }
            let looked = matches!(event, Event::Looked(_)).then(|| look.take()).flatten();
            for action in liveness.handle(event, now) {
                match action {
                    Action::Renew(me) => {
                        prop_assert_eq!(me, liveness.me());
                        prop_assert_eq!(renewal.replace(now), None);
                    }
                    Action::Look => prop_assert_eq!(look.replace(now), None),
                    Action::TakeOver(_) => {
                        prop_assert_eq!(take_over.replace(now), None);
                        prop_assert!(liveness.serves(now));
                    }
                    Action::DeclareDead { replica, seen } => {
                        prop_assert_ne!(replica, liveness.me());
                        let sent: Instant = looked.unwrap();
                        prop_assert!(sent >= first[&(replica, seen)] + TIMING().apart);
                    }
                    Action::AbandonAll => {
                        prop_assert!(!liveness.serves(now));
                        abandons = true;
                    }
                    _ => {}
                }
            }
            prop_assert!(!liveness.serves(now) || now < lease_ends);
            prop_assert!(liveness.deadline().is_none_or(|next| next > now));
        }
    }
}
