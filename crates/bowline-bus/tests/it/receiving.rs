//! Waits of the tests, all with a deadline.

use std::time::Duration;

use bowline_bus::{Bus, BusHealth, Inbox, Lane};
use bowline_store::ReplicaId;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// For what must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn replica() -> ReplicaId {
    ReplicaId(Uuid::new_v4())
}

/// `count` messages.
pub(crate) async fn receive(inbox: &mut dyn Inbox, count: usize) -> Vec<(Lane, Bytes)> {
    let mut received = Vec::new();
    let all = async {
        while received.len() < count {
            received.extend(inbox.next().await);
        }
    };
    if timeout(DEADLINE, all).await.is_err() {
        panic!("{} of {count} messages came", received.len());
    }
    received
}

/// Reads until this message comes; what comes before it is returned.
pub(crate) async fn receive_until(inbox: &mut dyn Inbox, last: &str) -> Vec<String> {
    let mut received = Vec::new();
    let found = async {
        loop {
            for (_, message) in inbox.next().await {
                received.push(String::from_utf8(message.to_vec()).unwrap());
            }
            if received.iter().any(|message| message == last) {
                return;
            }
        }
    };
    if timeout(DEADLINE, found).await.is_err() {
        panic!("{last} did not come, but {received:?}");
    }
    received
}

/// Sends until the bus takes it.
pub(crate) async fn send_until_taken(bus: &dyn Bus, to: ReplicaId, lane: Lane, message: &str) {
    let deadline = Instant::now() + DEADLINE;
    while let Err(why) = bus.send(to, lane, vec![Bytes::from(message.to_owned())]).await {
        assert!(Instant::now() < deadline, "{why}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sends again and again until that message arrives.
pub(crate) async fn send_until_heard(
    bus: &dyn Bus,
    (to, inbox): (ReplicaId, &mut dyn Inbox),
    (lane, message): (Lane, &'static str),
) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        // An error is as good as a loss.
        let _ = bus.send(to, lane, vec![message.into()]).await;
        let heard = timeout(Duration::from_millis(50), inbox.next()).await.unwrap_or_default();
        if heard.contains(&(lane, message.into())) {
            return;
        }
        assert!(Instant::now() < deadline, "{message} is not heard");
    }
}

pub(crate) async fn becomes_degraded(bus: &dyn Bus) -> String {
    let mut health = bus.health();
    let degraded = health.wait_for(|health| *health != BusHealth::Good);
    let degraded = timeout(DEADLINE, degraded).await.expect("the bus stays good").unwrap().clone();
    match degraded {
        BusHealth::Degraded(why) => why,
        BusHealth::Good => unreachable!(),
    }
}

pub(crate) async fn becomes_good(bus: &dyn Bus) {
    let mut health = bus.health();
    let good = timeout(DEADLINE, health.wait_for(|health| *health == BusHealth::Good)).await;
    good.expect("the bus stays degraded").unwrap();
}
