//! The machine of PostgreSQL's primary is lost, and its synchronous standby is promoted.

use std::time::{Duration, Instant};

use bowline_servers::{Flush, Postgres, Redis};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::client::{Client, Session, eventually};
use crate::installation::{Addresses, Installation, REPLICAS};
use crate::process::DEADLINE;

/// So many programs ask at once, spread over the replicas.
const CALLERS: usize = 6;

/// An answer that came with 200.
struct Acknowledged {
    caller: usize,
    seq: u64,
    turn_id: Value,
    words: String,
}

/// Asks one thing after the other, each under its key until it is answered. Every answer is reported.
async fn asks(
    caller: usize,
    client: Client,
    session: Session,
    told: mpsc::UnboundedSender<Acknowledged>,
    stop: watch::Receiver<bool>,
) {
    for number in 0.. {
        if *stop.borrow() {
            return;
        }
        let words = format!("words {number} of {caller}");
        let (begun, key) = (Instant::now(), format!("{caller}-{number}"));
        let answer = loop {
            let request = client.request(Method::POST, "/v1/chat/completions");
            let request = request.header("Idempotency-Key", &key);
            match client.send(request.json(&session.turn(&format!("echo {words}")))).await {
                Some(answer) if answer.status == 200 => break answer,
                Some(answer) => assert_eq!(answer.status, 503, "{}", answer.text),
                None => {}
            }
            assert!(begun.elapsed() < DEADLINE, "never answered: {words}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(answer.content(), words);
        let seq = answer.body["sbp"]["seq"].as_u64().unwrap();
        let turn_id = answer.body["sbp"]["turn_id"].clone();
        let _ = told.send(Acknowledged { caller, seq, turn_id, words });
    }
}

/// How long the standby waits until it is promoted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promotion {
    AtOnce,
    /// Until no replica can be sure of its lease any more.
    Late,
}

async fn failover(promotion: Promotion) {
    let mut primary = Postgres::start(Flush::Off).unwrap();
    primary.make_database("failover").unwrap();
    let standby = primary.standby("second").unwrap();
    let redis = Redis::start().unwrap();
    let both = format!("{},{}", primary.address(), standby.address());
    let addresses = Addresses { store: primary.url_at(&both, "failover"), bus: redis.url() };
    let world = Installation::at(addresses, "", &[]);

    let (told, mut heard) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let (mut callers, mut sessions) = (Vec::new(), Vec::new());
    for caller in 0..CALLERS {
        let client = world.clients()[caller % REPLICAS].clone();
        let session = client.session().await;
        sessions.push(session.clone());
        callers.push(tokio::spawn(asks(caller, client, session, told.clone(), stopped.clone())));
    }
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    let mut until_each_has = async |more: usize| {
        let mut counts = [0; CALLERS];
        while counts.iter().any(|count| *count < more) {
            let next = tokio::time::timeout(DEADLINE, heard.recv()).await;
            let next = next.expect("nothing is answered any more").unwrap();
            counts[next.caller] += 1;
            acknowledged.push(next);
        }
    };
    until_each_has(5).await;
    let watched = world.clients()[0].session().await;
    let mut phones = Vec::new();
    for client in world.clients() {
        phones.push(client.attach(&watched, json!({ "surface_id": client.address })).await);
    }

    let begun = Instant::now();
    tokio::task::block_in_place(|| primary.kill().unwrap());
    if promotion == Promotion::Late {
        for phone in phones.drain(..) {
            assert_eq!(phone.closed().await, 1012);
        }
        println!("{promotion:?}: surfaces are sent away after {:?}", begun.elapsed());
    }
    let promoted = Instant::now();
    tokio::task::block_in_place(|| standby.promote().unwrap());
    println!("{promotion:?}: promoted after {:?}", begun.elapsed());
    // Of what comes first, some was answered before.
    until_each_has(10).await;
    for client in world.clients() {
        eventually("it is ready", async || {
            let ready = client.get("/readyz").await;
            ready.status == 200 && ready.body["degraded"] == json!([])
        })
        .await;
        if promotion == Promotion::Late {
            phones.push(client.attach(&watched, json!({ "surface_id": client.address })).await);
        }
    }
    println!("{promotion:?}: everybody is served {:?} after the promotion", promoted.elapsed());
    // Who was not sent away is still there.
    assert_eq!(world.clients()[1].say(&watched, "echo to all").await.content(), "to all");
    for phone in &mut phones {
        assert_eq!(phone.until("TURN_COMPLETE").await["status"], "complete");
    }
    stop.send_replace(true);
    for caller in callers {
        caller.await.unwrap();
    }
    while let Ok(one) = heard.try_recv() {
        acknowledged.push(one);
    }
    println!("{promotion:?}: {} turns were acknowledged", acknowledged.len());
    for (number, session) in sessions.iter().enumerate() {
        let mine: Vec<_> = acknowledged.iter().filter(|one| one.caller == number).collect();
        for client in world.clients() {
            let log = whole_log(client, session).await;
            assert_eq!(log.len(), 2 * mine.len(), "each turn once, and nothing else");
            for one in &mine {
                let entry = &log[one.seq as usize - 1];
                assert_eq!(entry["turn_id"], one.turn_id, "lost or moved: {}", one.words);
                assert_eq!(entry["message"]["content"], *one.words);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_lost_primary_costs_no_acknowledged_turn_and_the_gateways_find_the_new_one() {
    failover(Promotion::AtOnce).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_nor_does_one_whose_standby_is_promoted_after_all_leases_have_ended() {
    failover(Promotion::Late).await;
}

/// Page by page.
async fn whole_log(client: &Client, session: &Session) -> Vec<Value> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let path = session.path(&format!("messages?limit=500&after={}", entries.len()));
        let page = client.get(&path).await.body;
        entries.extend(page["messages"].as_array().unwrap().iter().cloned());
        if page["more"] == false {
            return entries;
        }
    }
}
