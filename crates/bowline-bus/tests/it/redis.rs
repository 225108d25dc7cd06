//! What the bus does when its Redis fails.

use std::time::{Duration, Instant};

use bowline_bus::{Bus as _, BusError, Lane, Redis};
use bowline_servers::{Certificate, Redis as Server};
use bowline_store::ReplicaId;

use crate::receiving::{
    becomes_degraded, becomes_good, receive, receive_until, replica, send_until_taken,
};

/// An entry whose id is in the year 2286, as if the server's clock had been ahead.
fn add_from_the_future(server: &Server, prefix: &str, to: ReplicaId) {
    let key = format!("bowline:{prefix}:{}:control", to.0);
    let number = [7; 24];
    let parts: [&[u8]; 7] =
        [b"XADD", key.as_bytes(), b"9999999999999-0", b"n", &number, b"m", b"from the future"];
    command(server, &parts);
}

#[tokio::test]
async fn a_redis_that_restarts_empty_is_read_from_the_start() {
    let mut server = Server::start().unwrap();
    let (here, there) = (bus(&server), bus(&server));
    let me = replica();
    let mut inbox = here.open(me).await.unwrap();
    add_from_the_future(&server, "it", me);
    receive(&mut *inbox, 1).await;

    server.kill().unwrap();
    becomes_degraded(&here).await;
    becomes_degraded(&there).await;
    let refused = there.send(me, Lane::Control, vec!["lost".into()]).await;
    assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");

    server.restart().unwrap();
    send_until_taken(&there, me, Lane::Control, "after").await;
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Control, "after".into())]);
    becomes_good(&here).await;
    becomes_good(&there).await;
}

#[tokio::test]
async fn a_stream_that_begins_anew_behind_our_back_is_read_from_the_start() {
    let server = Server::start().unwrap();
    let (bus, me) = (bus(&server), replica());
    let mut inbox = bus.open(me).await.unwrap();
    add_from_the_future(&server, "it", me);
    receive(&mut *inbox, 1).await;
    command(&server, &[b"FLUSHALL"]);
    bus.send(me, Lane::Control, vec!["after".into()]).await.unwrap();
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Control, "after".into())]);
}

#[tokio::test]
async fn what_was_read_does_not_stay_in_redis() {
    let server = Server::start().unwrap();
    let (here, there, me) = (bus(&server), bus(&server), replica());
    there.send(me, Lane::Control, vec!["before it was there".into()]).await.unwrap();
    let mut inbox = here.open(me).await.unwrap();
    for round in 0..3 {
        for lane in [Lane::Control, Lane::Text] {
            let said = ["a", "b", "c"].map(|text| format!("{text}{round}").into());
            there.send(me, lane, said.to_vec()).await.unwrap();
        }
        receive(&mut *inbox, 6).await;
        let deadline = Instant::now() + Duration::from_secs(30);
        while ["control", "text"].iter().any(|lane| kept(&server, me, lane) > 0) {
            assert!(Instant::now() < deadline, "Redis keeps what was read");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn kept(server: &Server, replica: ReplicaId, lane: &str) -> u64 {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let key = format!("bowline:it:{}:{lane}", replica.0);
    redis::cmd("XLEN").arg(key).query(&mut connection).unwrap()
}

#[tokio::test]
async fn a_stopped_redis_holds_no_send_and_order_is_kept() {
    let server = Server::start().unwrap();
    let (here, there, me) = (bus(&server), bus(&server), replica());
    let mut inbox = here.open(me).await.unwrap();
    there.send(me, Lane::Control, vec!["0".into()]).await.unwrap();

    server.signal("STOP").unwrap();
    let stopped = Instant::now();
    let mut number = 0;
    while stopped.elapsed() < Duration::from_secs(3) {
        number += 1;
        let began = Instant::now();
        let sent = there.send(me, Lane::Control, vec![number.to_string().into()]).await;
        assert!(matches!(sent, Err(BusError::Unreachable(_))), "{sent:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    becomes_degraded(&there).await;
    server.signal("CONT").unwrap();
    send_until_taken(&there, me, Lane::Control, "last").await;
    let mut received = receive_until(&mut *inbox, "last").await;
    assert_eq!(received.pop().unwrap(), "last");
    let received: Vec<usize> = received.iter().map(|number| number.parse().unwrap()).collect();
    assert!(received.is_sorted() && received[0] == 0, "{received:?}");
    becomes_good(&here).await;
    becomes_good(&there).await;
}

#[tokio::test]
async fn a_wrong_password_is_told_apart_and_not_told() {
    let server = Server::start_with(&["--requirepass", "correct-horse"]).unwrap();
    for wrong in [":battery-staple@", ""] {
        let url = format!("redis://{wrong}{}", server.address()).parse().unwrap();
        let bus = Redis::new(&url, "it").unwrap();
        let refused = bus.open(replica()).await.err().unwrap();
        assert_eq!(refused, BusError::Refused("its password or user is wrong".into()));
        let degraded = becomes_degraded(&bus).await;
        let sent = bus.send(replica(), Lane::Text, vec!["x".into()]).await;
        assert_eq!(sent, Err(refused));
        assert!(!format!("{bus:?} {degraded}").contains("staple"));
    }
    let url = format!("redis://:correct-horse@{}", server.address()).parse().unwrap();
    let (bus, me) = (Redis::new(&url, "it").unwrap(), replica());
    let mut inbox = bus.open(me).await.unwrap();
    bus.send(me, Lane::Text, vec!["x".into()]).await.unwrap();
    receive(&mut *inbox, 1).await;
}

#[tokio::test]
async fn tls_trusts_the_named_authority_and_no_other() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = Certificate { certificate: &certificate, key: &key };
    let server = Server::start_with_tls(tls).expect("a redis-server with TLS");
    let at = format!("{}/0", server.tls_url().unwrap());
    let trusting = format!("{at}?cafile={}", file.path().display()).parse().unwrap();
    let (bus, me) = (Redis::new(&trusting, "it").unwrap(), replica());
    let mut inbox = bus.open(me).await.unwrap();
    bus.send(me, Lane::Control, vec!["sealed".into()]).await.unwrap();
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Control, "sealed".into())]);

    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, other.cert.pem()).unwrap();
    let distrusting = format!("{at}?cafile={}", file.path().display()).parse().unwrap();
    let refused = Redis::new(&distrusting, "it").unwrap().open(me).await.err().unwrap();
    assert!(matches!(&refused, BusError::Refused(why) if why.starts_with("TLS:")), "{refused}");
    let missing = format!("{at}?cafile=/nowhere.pem").parse().unwrap();
    assert!(Redis::new(&missing, "it").is_err());
}

fn bus(server: &Server) -> Redis {
    Redis::new(&server.url().parse().unwrap(), "it").unwrap()
}

/// One command on a connection of its own.
fn command(server: &Server, parts: &[&[u8]]) {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut command = redis::Cmd::new();
    for part in parts {
        command.arg(*part);
    }
    command.exec(&mut connection).unwrap();
}
