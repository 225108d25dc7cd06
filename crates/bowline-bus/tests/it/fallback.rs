//! Redis fails, and PostgreSQL is there.

use bowline_bus::{Bus as _, Fallback, Lane};
use bowline_servers::Redis as Server;

use crate::receiving::{
    becomes_degraded, becomes_good, receive, receive_until, replica, send_until_taken,
};
use crate::servers;

async fn bus(redis: &Server) -> Fallback {
    let url = redis.url().parse().unwrap();
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
