//! Kills connections, daemons, clients and the relay in random order, under traffic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ends::{Identity, Process, client, daemon};
use super::plant::Plant;
use super::proxy::{Break, Who};
use super::record::{NEWS, Records};
use super::seed::{Dice, is_soak, scale};

/// What is killed, with weights per thousand.
const KILLS: [(Kill, usize); 7] = [
    (Kill::DaemonConnection, 400),
    (Kill::ClientConnection, 350),
    (Kill::Daemon, 90),
    (Kill::Client, 100),
    (Kill::Twin, 50),
    (Kill::Relay, 5),
    (Kill::RelayGently, 5),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kill {
    DaemonConnection,
    ClientConnection,
    Daemon,
    Client,
    /// Starts a second daemon with the same identity, or stops it if there is one.
    Twin,
    Relay,
    RelayGently,
}

struct Fleet {
    plant: Plant,
    records: Arc<Records>,
    dice: Dice,
    identities: Vec<Identity>,
    daemons: Vec<Process>,
    twins: Vec<Option<Process>>,
    /// Each client with the index of its daemon.
    clients: Vec<(usize, Process)>,
    replaced: u64,
    longest_return: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_soak_kills_of_daemons_clients_and_relay_lose_nothing_silently() {
    let dice = Dice::for_test_in("it", "g10_soak_kills");
    let begun = Instant::now();
    // Many ends, since back-off grows for an end that is cut off repeatedly.
    let (kills, daemons, clients) = (scale(40, 2_000), scale(12, 40), 2);
    let mut fleet = Fleet::start(dice, daemons, clients).await;
    fleet.all_talk("before").await;
    println!("all talk after {:?}", begun.elapsed());
    let mut done = BTreeMap::<Kill, u64>::new();
    for kill in deck(&mut fleet.dice, kills) {
        let pause = fleet.dice.below(scale(120, 400)) as u64;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        fleet.kill(kill).await;
        *done.entry(kill).or_default() += 1;
        if done.values().sum::<u64>() % 100 == 0 {
            println!("{:?} after {:?}", done, begun.elapsed());
            fleet.records.assert_right();
        }
    }
    let fire = begun.elapsed();
    fleet.all_talk("after").await;
    let settled = begun.elapsed() - fire;
    println!("{done:?} in {fire:?}; all talked again after {settled:?}");
    let replaced = fleet.replaced().await;
    println!("{replaced} daemon connections replaced");
    // A kill at a daemon can cause one replacement, two if it has a twin; a relay's, that for each
    // daemon.
    let blows = |kills: &[Kill]| kills.iter().filter_map(|kill| done.get(kill)).sum::<u64>();
    let daemon_blows = blows(&[Kill::DaemonConnection, Kill::Daemon, Kill::Twin]);
    let relay_blows = blows(&[Kill::Relay, Kill::RelayGently]) * daemons as u64;
    assert!(replaced <= 2 * (daemon_blows + relay_blows), "two daemons fight: {replaced}");
    let longest = fleet.longest_return;
    let records = Arc::clone(&fleet.records);
    fleet.leave().await;
    println!("{}\nthe relay was away for {longest:?} at most", records.summary());
    records.assert_right();
}

/// `kills` kills in random order, at least one of each kind.
fn deck(dice: &mut Dice, kills: usize) -> Vec<Kill> {
    let mut deck = Vec::new();
    for (kill, share) in KILLS {
        deck.extend(vec![kill; (kills * share / 1000).max(1)]);
    }
    for place in (1..deck.len()).rev() {
        deck.swap(place, dice.below(place + 1));
    }
    deck
}

impl Fleet {
    async fn start(mut dice: Dice, daemons: usize, clients: usize) -> Self {
        // A short grace period, so that some sessions expire.
        let plant = Plant::start(Duration::from_secs(3)).await;
        let records = Arc::<Records>::default();
        let mut identities = Vec::new();
        for number in 0..daemons {
            identities.push(Identity::register(&plant.plane, number as u8).await);
        }
        let running: Vec<_> =
            identities.iter().map(|one| daemon(&plant, one, &records, &mut dice)).collect();
        plant.until_metric("bowline_relay_connections{role=\"daemon\"}", daemons as u64).await;
        let clients = (0..daemons * clients)
            .map(|n| {
                let of = n % daemons;
                (of, client(&plant, &identities[of], &records, &mut dice))
            })
            .collect();
        Self {
            plant,
            records,
            dice,
            twins: running.iter().map(|_| None).collect(),
            daemons: running,
            identities,
            clients,
            replaced: 0,
            longest_return: Duration::ZERO,
        }
    }

    async fn kill(&mut self, kill: Kill) {
        let dice = &mut self.dice;
        let how = Break::random(dice);
        match kill {
            Kill::DaemonConnection => self.cut(Who::Daemon, how).await,
            Kill::ClientConnection => self.cut(Who::Client, how).await,
            Kill::Daemon => {
                let of = dice.below(self.daemons.len());
                let again = daemon(&self.plant, &self.identities[of], &self.records, dice);
                std::mem::replace(&mut self.daemons[of], again).kill();
            }
            Kill::Client => {
                let place = dice.below(self.clients.len());
                let of = self.clients[place].0;
                let again = client(&self.plant, &self.identities[of], &self.records, dice);
                std::mem::replace(&mut self.clients[place].1, again).kill();
            }
            Kill::Twin => {
                let of = dice.below(self.daemons.len());
                match self.twins[of].take() {
                    Some(twin) => twin.kill(),
                    None => {
                        let identity = &self.identities[of];
                        let twin = daemon(&self.plant, identity, &self.records, dice);
                        self.twins[of] = Some(twin);
                    }
                }
            }
            Kill::Relay | Kill::RelayGently => {
                self.count_replaced().await;
                let begun = Instant::now();
                match kill {
                    Kill::Relay => self.plant.kill_relay(),
                    _ => self.plant.stop_relay(),
                }
                let pause = Duration::from_millis(self.dice.below(500) as u64);
                tokio::time::sleep(pause).await;
                self.plant.start_relay().await;
                self.longest_return = self.longest_return.max(begun.elapsed());
            }
        }
    }

    /// Cuts a connection of this kind; waits until there is one.
    async fn cut(&mut self, who: Who, how: Break) {
        let begun = Instant::now();
        while !self.plant.proxy.cut(who, how, &mut self.dice) {
            assert!(begun.elapsed() < Duration::from_secs(90), "nobody comes back: {who:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every client has a confirmation from its daemon for a message sent from now on.
    async fn all_talk(&self, when: &str) {
        let begun = Instant::now();
        let patience = Duration::from_secs(if is_soak() { 120 } else { 90 });
        let confirmed = |(_, process): &(usize, Process)| process.record().confirmed;
        let before: Vec<_> = self.clients.iter().map(confirmed).collect();
        for (place, (client, before)) in self.clients.iter().zip(before).enumerate() {
            while confirmed(client) < before + NEWS {
                assert!(begun.elapsed() < patience, "client {place} does not talk {when}");
                self.records.assert_right();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    async fn count_replaced(&mut self) {
        self.replaced += self.plant.metric("bowline_relay_closes_total{code=\"4009\"}").await;
        assert_eq!(self.plant.metric("bowline_relay_panics_total").await, 0);
    }

    async fn replaced(&mut self) -> u64 {
        self.count_replaced().await;
        self.replaced
    }

    /// Stops all ends, and checks that the relay has nothing left of them.
    async fn leave(self) {
        let Self { plant, daemons, twins, clients, .. } = self;
        for (_, client) in clients {
            client.stop().await;
        }
        plant.until_metric("bowline_relay_pairs", 0).await;
        plant.until_metric("bowline_relay_connections{role=\"client\"}", 0).await;
        for daemon in daemons.into_iter().chain(twins.into_iter().flatten()) {
            let begun = Instant::now();
            while daemon.record().open > 0 {
                let open = daemon.record().open;
                assert!(begun.elapsed() < Duration::from_secs(30), "{open} sessions are left");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            daemon.stop().await;
        }
        plant.until_metric("bowline_relay_connections", 0).await;
        plant.until_metric("bowline_relay_queued_bytes", 0).await;
    }
}
