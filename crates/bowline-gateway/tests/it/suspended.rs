//! G19: a replica that cannot renew its lease serves no surface until it can.

use std::sync::Arc;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message as Packet};

use crate::bench::{Bench, eventually, hello, list};
use crate::failing::{Failing, LeasesEnd};
use crate::upstream::MockUpstream;

/// A gateway whose lease ends unless it is renewed.
async fn leased() -> (Bench, Arc<Failing>) {
    let upstream = MockUpstream::start().await;
    let mut failing = None;
    let wrap = |store| {
        let store = Arc::new(Failing::new(store));
        store.leases_end(LeasesEnd::UnlessRenewed);
        failing = Some(Arc::clone(&store));
        store as _
    };
    let bench = Bench::before_on(&upstream, wrap, |_| {}).await;
    (bench, failing.unwrap())
}

async fn until_ready(bench: &Bench, ready: bool) {
    let what = if ready { "ready" } else { "the lease has ended" };
    eventually(what, async || (bench.get("/readyz").await.status == 200) == ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_a_replica_that_may_have_lost_its_lease_attaches_nobody() {
    let (bench, store) = leased().await;
    let session = bench.session().await;
    let (mut attached, _) = bench.attach(&session).await;
    let mut late = bench.socket(&session.id).await;
    store.leases_end(LeasesEnd::Always);
    until_ready(&bench, false).await;
    assert_eq!(attached.closed().await, 1012);
    // One that had connected before is not attached either.
    late.socket.send(Packet::text(hello(&session, json!({})).to_string())).await.unwrap();
    let Packet::Close(Some(close)) = late.packet().await else { panic!("it was attached") };
    assert_eq!(u16::from(close.code), 1012);
    let url = format!("ws://{}/v1/sbp/ws/{}", bench.gateway.address(), session.id);
    let Err(Error::Http(refused)) = tokio_tungstenite::connect_async(&url).await else {
        panic!("it was let in");
    };
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    let body: Value = serde_json::from_slice(refused.body().as_ref().unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "SBP_INTERNAL");
    // Nor does it take turns, which would wait for its database.
    let said = bench.say(&session, "hello").await;
    assert_eq!(said.refusal(), (503, "SBP_INTERNAL"), "{}", said.text);
    assert!(said.text.contains("cannot be renewed"), "{}", said.text);
    let opened = bench.chat(json!({
        "model": "m", "sbp": {}, "messages": [{ "role": "user", "content": "hello" }],
    }));
    assert_eq!(opened.await.status, 503);
    bench.until(&session, "nobody", |seen| list(&seen["attached"]).is_empty()).await;
    store.leases_end(LeasesEnd::UnlessRenewed);
    until_ready(&bench, true).await;
    bench.attach(&session).await;
    assert_eq!(bench.say(&session, "hello").await.status, 200);
}
