//! Stopping (G16).

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::peer::data;
use super::server::{PATIENCE, start, start_with};

#[tokio::test]
async fn g16_a_stop_closes_with_1012_and_delivers_what_waits() {
    let server = start().await;
    let address = server.address;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    daemon.send(&data(1, "on its way")).await;
    daemon.expect_quiet().await;
    let stopped = server.stop();
    client.expect(&data(1, "on its way")).await;
    client.expect_close(1012).await;
    daemon.expect_close(1012).await;
    drop((client, daemon));
    tokio::time::timeout(PATIENCE, stopped).await.expect("it ends").unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn g16_a_stop_does_not_wait_for_those_who_do_not_listen() {
    let server = start_with(|config| config.limits.farewell = Duration::from_millis(200)).await;
    let mut daemon = server.daemon("d").await;
    daemon.expect_quiet().await;
    // Neither reads the close nor goes away; and a request that is never finished.
    let _half = TcpStream::connect(server.address).await.unwrap();
    let start = Instant::now();
    let stopped = server.stop();
    tokio::time::timeout(PATIENCE, stopped).await.expect("it ends").unwrap();
    assert!(start.elapsed() < PATIENCE);
    daemon.expect_close(1012).await;
}
