//! Redis fails, and PostgreSQL is there.

use bowline_bus::{Bus, Fallback, Inbox, Lane};
use bowline_servers::Redis as Server;
use bowline_store::ReplicaId;
use bytes::Bytes;

use crate::receiving::{
    becomes_degraded, becomes_good, receive, receive_until, replica, send_until_heard,
    send_until_taken,
};
use crate::servers;
use crate::way::{Part, Way};

async fn bus(redis: &Server) -> Fallback {
    bus_at(&redis.address()).await
}

async fn bus_at(redis: &str) -> Fallback {
    let url = format!("redis://{redis}").parse().unwrap();
    Fallback::connect(&url, "it", &servers::postgres()).await.unwrap()
}

#[tokio::test]
async fn without_redis_control_goes_by_postgresql_and_text_is_dropped() {
    let mut redis = Server::start().unwrap();
    let (here, there) = (bus(&redis).await, bus(&redis).await);
    let me = replica();
    let mut inbox = here.open(me).await.unwrap();
    there.send(me, Lane::Text, vec!["by redis".into()]).await.unwrap();
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Text, "by redis".into())]);

    redis.kill().unwrap();
    becomes_degraded(&there).await;
    there.send(me, Lane::Text, vec!["dropped".into()]).await.unwrap();
    for number in 0..50 {
        there.send(me, Lane::Control, vec![format!("{number}").into()]).await.unwrap();
    }
    let received = receive(&mut *inbox, 50).await;
    let expected = (0..50).map(|number| (Lane::Control, format!("{number}").into()));
    assert!(received.into_iter().eq(expected));

    redis.restart().unwrap();
    becomes_good(&there).await;
    becomes_good(&here).await;
    send_until_taken(&there, me, Lane::Text, "by redis again").await;
    receive_until(&mut *inbox, "by redis again").await;
}

#[tokio::test]
async fn a_stopped_redis_delays_control_and_loses_none() {
    let redis = Server::start().unwrap();
    let (here, there) = (bus(&redis).await, bus(&redis).await);
    let me = replica();
    let mut inbox = here.open(me).await.unwrap();
    redis.signal("STOP").unwrap();
    for number in 0..20 {
        there.send(me, Lane::Control, vec![format!("{number}").into()]).await.unwrap();
    }
    // The first one was written to Redis, which may take it when it goes on: by then it is late.
    let received = receive(&mut *inbox, 20).await;
    redis.signal("CONT").unwrap();
    let expected = (0..20).map(|number| (Lane::Control, format!("{number}").into()));
    assert!(received.into_iter().eq(expected));
    becomes_good(&there).await;
    there.send(me, Lane::Control, vec!["last".into()]).await.unwrap();
    assert_eq!(receive_until(&mut *inbox, "last").await, ["last"]);
}

#[tokio::test]
async fn an_inbox_opens_without_redis_and_hears_it_when_it_comes() {
    let mut redis = Server::start().unwrap();
    redis.kill().unwrap();
    let (here, there) = (bus(&redis).await, bus(&redis).await);
    let me = replica();
    let mut inbox = here.open(me).await.unwrap();
    there.send(me, Lane::Control, vec!["by postgresql".into()]).await.unwrap();
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Control, "by postgresql".into())]);
    redis.restart().unwrap();
    becomes_good(&there).await;
    there.send(me, Lane::Text, vec!["by redis".into()]).await.unwrap();
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Text, "by redis".into())]);
}

#[tokio::test]
async fn a_replica_that_alone_cannot_read_redis_is_reached() {
    one_alone_loses(Part::Reading).await;
}

#[tokio::test]
async fn a_replica_that_alone_cannot_write_to_redis_reaches_the_others() {
    one_alone_loses(Part::Sending).await;
}

#[tokio::test]
async fn a_replica_that_alone_loses_redis_reaches_the_others_and_is_reached() {
    one_alone_loses(Part::All).await;
}

async fn one_alone_loses(part: Part) {
    let redis = Server::start().unwrap();
    let way = Way::to(redis.address()).await;
    let (here, there) = (bus_at(&way.address).await, bus(&redis).await);
    let (me, other) = (replica(), replica());
    let (mut inbox, mut inbox_there) =
        (here.open(me).await.unwrap(), there.open(other).await.unwrap());

    way.cut(part);
    let message = (Lane::Control, "is it heard?");
    send_until_heard(&there, (me, &mut *inbox), message).await;
    send_until_heard(&here, (other, &mut *inbox_there), message).await;
    // From then on nothing is lost. Some may be repeated.
    all_arrive(&there, me, &mut *inbox).await;
    all_arrive(&here, other, &mut *inbox_there).await;

    way.cut(Part::Nothing);
    let message = (Lane::Text, "by redis again");
    send_until_heard(&there, (me, &mut *inbox), message).await;
    send_until_heard(&here, (other, &mut *inbox_there), message).await;
    becomes_good(&here).await;
    all_arrive(&there, me, &mut *inbox).await;
    all_arrive(&here, other, &mut *inbox_there).await;
}

/// Sends control messages, and expects them in order.
async fn all_arrive(bus: &dyn Bus, to: ReplicaId, inbox: &mut dyn Inbox) {
    let numbers: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    for number in &numbers {
        bus.send(to, Lane::Control, vec![Bytes::from(number.clone())]).await.unwrap();
    }
    let mut received = receive_until(inbox, "49").await;
    received.retain(|message| message.parse::<u32>().is_ok());
    received.dedup();
    // A batch may hold the second copies, too.
    received.truncate(numbers.len());
    assert_eq!(received, numbers);
}
