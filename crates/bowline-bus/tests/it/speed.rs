//! How fast each bus is. Not a test: `cargo test -p bowline-bus --test it -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use bowline_bus::Lane;
use bytes::Bytes;

use crate::backends::{self, Make};
use crate::receiving::{receive, replica};

/// Bytes of each message.
const SIZE: usize = 256;
const ROUNDS: usize = 2000;
const MESSAGES: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn speed() {
    let all = [
        ("memory", backends::memory()),
        ("redis", backends::redis()),
        ("postgresql", backends::postgres()),
        ("fallback", backends::fallback()),
    ];
    for (name, make) in all {
        let mut latencies = latencies(&make).await;
        latencies.sort_unstable();
        let p50 = latencies[latencies.len() / 2];
        let p99 = latencies[latencies.len() * 99 / 100];
        let (single, batched) = (throughput(&make, 1).await, throughput(&make, 64).await);
        println!(
            "{name}: p50 {p50:?}, p99 {p99:?}; {single:.0} messages/s sent one by one, {batched:.0} sent by 64"
        );
    }
}

/// From before the send to after the receipt, one message at a time.
async fn latencies(make: &Make) -> Vec<Duration> {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let mut latencies = Vec::new();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        there.send(me, Lane::Control, vec![Bytes::from(vec![0; SIZE])]).await.unwrap();
        receive(&mut *inbox, 1).await;
        latencies.push(sent.elapsed());
    }
    latencies
}

/// Messages a second of one sender that waits for each send.
async fn throughput(make: &Make, batch: usize) -> f64 {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let count = if batch == 1 { MESSAGES / 10 } else { MESSAGES / batch * batch };
    let began = Instant::now();
    let sender = tokio::spawn(async move {
        for _ in 0..count / batch {
            let messages = vec![Bytes::from(vec![0; SIZE]); batch];
            there.send(me, Lane::Control, messages).await.unwrap();
        }
    });
    receive(&mut *inbox, count).await;
    let elapsed = began.elapsed();
    sender.await.unwrap();
    count as f64 / elapsed.as_secs_f64()
}
