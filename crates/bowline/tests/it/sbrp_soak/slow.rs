//! A client that does not read must not slow down the others.

use std::time::{Duration, Instant};

use bowline_client::relay::{
    ClientConfig, DaemonConfig, DaemonEvent, KnownDaemons, RelayClient, RelayDaemon, Session,
};
use bowline_sbrp::identity::IdentitySecret;
use tokio::sync::mpsc;

use super::ends::Identity;
use super::plant::Plant;
use super::proxy::{Break, Who};
use super::seed::{Dice, scale};

const BACKPRESSURE: &str = "bowline_relay_told_total{code=\"backpressure\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbrp_relay_08_soak_a_client_that_does_not_read_is_closed_and_others_go_on() {
    let mut dice = Dice::for_test_in("it", "sbrp_relay_08_soak");
    let rounds = scale(2, 30) as u64;
    let plant = Plant::start(Duration::from_secs(30)).await;
    let here = Identity::register(&plant.plane, 0).await;
    let elsewhere = Identity::register(&plant.plane, 1).await;
    let mut sessions = serve(&plant, &here);
    serve(&plant, &elsewhere);
    plant.until_metric("bowline_relay_connections{role=\"daemon\"}", 2).await;
    let (mut before, mut during) = ([vec![], vec![]], [vec![], vec![]]);
    let mut most = 0;
    for round in 1..=rounds {
        // The slow client connects first, so that it is the only client connection to be silenced.
        let mut slow = connect(&plant, &here);
        let _unread = slow.session().await.unwrap();
        let flooded = sessions.recv().await.unwrap();
        assert!(plant.proxy.cut(Who::Client, Break::Silence(Duration::from_secs(300)), &mut dice));
        let mut neighbours = [connect(&plant, &here), connect(&plant, &elsewhere)];
        let mut ends =
            [neighbours[0].session().await.unwrap(), neighbours[1].session().await.unwrap()];
        let echoed = sessions.recv().await.unwrap();
        let echoing = tokio::spawn(echo(echoed));
        for _ in 0..20 {
            // Metrics are read as often as in the loop below, so that both loops have the same
            // load.
            most = most.max(plant.metric("bowline_relay_queued_bytes").await);
            assert_eq!(plant.metric(BACKPRESSURE).await, round - 1);
            ten_round_trips(&mut ends, &mut before).await;
        }
        let flood = tokio::spawn(async move {
            while flooded.send(vec![7; 60_000]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        // The others get their answers meanwhile, and the queue stays bounded.
        let begun = Instant::now();
        while plant.metric(BACKPRESSURE).await < round {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is never closed");
            most = most.max(plant.metric("bowline_relay_queued_bytes").await);
            ten_round_trips(&mut ends, &mut during).await;
        }
        tokio::time::timeout(Duration::from_secs(60), flood)
            .await
            .expect("its end is told")
            .unwrap();
        drop((ends, neighbours, slow, echoing));
        plant.until_metric("bowline_relay_connections{role=\"client\"}", 0).await;
    }
    assert!(most <= (1 << 20) + (1 << 16), "{most} bytes waited");
    println!("{rounds} clients that do not read closed; at most {most} bytes waited at the relay");
    for (place, name) in ["the same daemon", "another daemon"].into_iter().enumerate() {
        let [p50, p99] = [50, 99].map(|share| percentile(&mut before[place], share));
        println!("  round trips, {name}: alone p50 {p50:?}, p99 {p99:?}");
        let [p50, p99] = [50, 99].map(|share| percentile(&mut during[place], share));
        println!("  round trips, {name}: beside it p50 {p50:?}, p99 {p99:?}");
    }
}

/// A daemon that sends its sessions to the receiver, or echoes if the receiver was dropped.
fn serve(plant: &Plant, identity: &Identity) -> mpsc::Receiver<Session> {
    let (give, sessions) = mpsc::channel(8);
    let secret = IdentitySecret::from_seed(&identity.seed);
    let mut daemon = RelayDaemon::start(DaemonConfig::new(plant.plane.clone(), secret));
    tokio::spawn(async move {
        while let Some(event) = daemon.next().await {
            if let DaemonEvent::SessionOpened(session) = event
                && let Err(refused) = give.send(session).await
            {
                tokio::spawn(echo(refused.0));
            }
        }
    });
    sessions
}

fn connect(plant: &Plant, identity: &Identity) -> RelayClient {
    let (plane, id) = (plant.plane.clone(), identity.id.clone());
    RelayClient::connect(ClientConfig::new(plane, id, "daemon", KnownDaemons::nowhere()))
}

async fn echo(mut session: Session) {
    while let Some(message) = session.recv().await {
        if session.send(message).await.is_err() {
            return;
        }
    }
}

async fn ten_round_trips(ends: &mut [Session; 2], times: &mut [Vec<Duration>; 2]) {
    for _ in 0..10 {
        for (end, times) in ends.iter_mut().zip(&mut *times) {
            times.push(round_trip(end).await);
        }
    }
}

async fn round_trip(session: &mut Session) -> Duration {
    let begun = Instant::now();
    session.send(b"there and back".to_vec()).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(60), session.recv()).await.unwrap();
    assert_eq!(heard.as_deref(), Some(&b"there and back"[..]));
    begun.elapsed()
}

fn percentile(times: &mut [Duration], share: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * share).div_ceil(100) - 1]
}
