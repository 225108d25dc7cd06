//! What replicas send each other: how much for sessions in which nothing happens (G11), and what becomes of
//! a request whose owner dies before it has taken it, or before its answer arrived (G3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bowline_bus::{Bus, BusError, BusHealth, Inbox, Lane, Memory};
use bowline_store::{Leases, ReplicaId};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bench::{Bench, DEADLINE, Session, answer, eventually, turn};
use crate::l2_surfaces::join;
use crate::replicas::{Replicas, stream};
use crate::upstream::Piece;

/// A bus that counts what it carries, and loses what a test tells it to.
#[derive(Debug, Default)]
struct Counting {
    bus: Memory,
    beats: AtomicUsize,
    others: AtomicUsize,
    /// As if the replicas were of a release without beats.
    without_beats: AtomicBool,
    /// States that are lost from now on.
    lost_states: AtomicUsize,
    /// Whether what proxies send, and what owners reply, is lost.
    lost_commands: AtomicBool,
    lost_replies: AtomicBool,
    /// Whether the lane of texts is lost, as it is without Redis; and the largest message of the other one.
    lost_text: AtomicBool,
    largest: AtomicUsize,
    /// The first command of each message is one of a later release.
    later_release: AtomicBool,
}

impl Counting {
    fn counted(&self) -> (usize, usize) {
        (self.beats.load(Ordering::SeqCst), self.others.load(Ordering::SeqCst))
    }

    /// How many messages besides beats are carried while each of two replicas beats so often.
    async fn carried_during(&self, beats: usize) -> usize {
        let (begun, before) = self.counted();
        eventually("beats", async || self.counted().0 >= begun + 2 * beats).await;
        self.counted().1 - before
    }
}

#[async_trait::async_trait]
impl Bus for Counting {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        self.bus.open(me).await
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        for message in messages {
            let mut message = message;
            let mut read: Value = serde_json::from_slice(&message).unwrap();
            let command = read.pointer_mut("/message/ToOwner/items/0/1/Command");
            if let Some(command) = command.filter(|_| self.later_release.load(Ordering::SeqCst)) {
                *command = json!({ "Dance": {} });
                message = read.to_string().into();
            }
            let is_beat = !read["message"]["Beat"].is_null();
            let count = if is_beat { &self.beats } else { &self.others };
            count.fetch_add(1, Ordering::SeqCst);
            if is_beat && self.without_beats.load(Ordering::SeqCst) {
                continue;
            }
            let is_lost = |kind: &str, all: &AtomicBool| {
                !read["message"][kind].is_null() && all.load(Ordering::SeqCst)
            };
            match lane {
                Lane::Text if self.lost_text.load(Ordering::SeqCst) => continue,
                Lane::Text => {}
                Lane::Control => drop(self.largest.fetch_max(message.len(), Ordering::SeqCst)),
            }
            if is_lost("ToOwner", &self.lost_commands) || is_lost("ToEdge", &self.lost_replies) {
                continue;
            }
            let lost = |left: usize| left.checked_sub(1);
            if !read["message"]["ToEdge"]["state"].is_null()
                && self.lost_states.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok()
            {
                continue;
            }
            self.bus.send(to, lane, vec![message]).await?;
        }
        Ok(())
    }

    fn health(&self) -> watch::Receiver<BusHealth> {
        self.bus.health()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g11_idle_surfaces_of_other_replicas_share_one_message_a_second() {
    const SESSIONS: usize = 30;
    const BEATS: usize = 4;
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let mut phones = Vec::new();
    for _ in 0..SESSIONS {
        let session = replicas.session().await;
        phones.push((join(&replicas.all[1], &session, "phone").await, session));
    }
    // What was attached is acknowledged first. Where a beat is late, sessions ask for themselves.
    let begun = Instant::now();
    let with = loop {
        let with = bus.carried_during(BEATS).await;
        if with <= 2 || begun.elapsed() > DEADLINE {
            break with;
        }
    };
    bus.without_beats.store(true, Ordering::SeqCst);
    bus.carried_during(4).await;
    let without = bus.carried_during(BEATS).await;
    println!(
        "{SESSIONS} idle sessions, {BEATS} s: {with} messages and {BEATS} beats each way; {without} without"
    );
    assert!(with <= 2, "{with}");
    assert!(without >= SESSIONS * (BEATS - 1), "{without}");
    // They are all still there.
    bus.without_beats.store(false, Ordering::SeqCst);
    for ((phone, _), session) in &mut phones {
        assert_eq!(replicas.all[0].say(session, "hello").await.status, 200);
        phone.until("TURN_COMPLETE").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g2_a_state_that_the_bus_loses_is_sent_again_although_nobody_asks() {
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let session = replicas.session().await;
    let (mut phone, _) = join(&replicas.all[1], &session, "phone").await;
    phone.until("SURFACES").await;
    bus.carried_during(3).await;
    bus.lost_states.store(2, Ordering::SeqCst);
    let _desk = join(&replicas.all[0], &session, "desk").await;
    let seen = phone.until("SURFACES").await.pop().unwrap();
    assert_eq!(seen["list"].as_array().unwrap().len(), 2, "{seen}");
    assert_eq!(bus.lost_states.load(Ordering::SeqCst), 0);
}

/// Sends a turn without a key to a replica that does not own the session.
fn ask(bench: &Bench, session: &Session) -> tokio::task::JoinHandle<crate::bench::Answer> {
    let request = bench.http.post(bench.url("/v1/chat/completions"));
    tokio::spawn(answer(request.json(&turn(session, "m", "hello"))))
}

/// The first replica dies: its writes are refused, and the other one knows of it.
async fn dies(replicas: &Replicas) {
    let dead = replicas.all[0].gateway.replica();
    replicas.store.retire(dead).await.unwrap();
    replicas.all[1].gateway.replica_died(dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_a_request_without_a_key_runs_elsewhere_if_its_owner_died_before_it_came() {
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let (session, b) = (replicas.session().await, &replicas.all[1]);
    bus.lost_commands.store(true, Ordering::SeqCst);
    let (_, before) = bus.counted();
    let asked = ask(b, &session);
    eventually("it was sent", async || bus.counted().1 > before).await;
    dies(&replicas).await;
    let said = asked.await.unwrap();
    assert_eq!((said.status, said.content()), (200, "answer 1"), "{}", said.text);
    assert_eq!((b.log(&session).await.len(), replicas.upstream.calls().len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g3_a_request_without_a_key_never_runs_twice_although_its_answer_is_lost() {
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    bus.lost_replies.store(true, Ordering::SeqCst);
    let asked = ask(b, &session);
    eventually("it has run", async || a.log(&session).await.len() == 2).await;
    dies(&replicas).await;
    let said = asked.await.unwrap();
    assert_eq!(said.refusal(), (503, "SBP_INTERNAL"), "{}", said.text);
    assert!(said.text.contains("whether this was done is unknown"), "{}", said.text);
    assert_eq!((b.log(&session).await.len(), replicas.upstream.calls().len()), (2, 1));
}

/// As without Redis, for as long as that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g18_a_stream_at_another_replica_ends_whole_although_no_text_arrives() {
    const PIECES: usize = 8000;
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let [a, b] = &replicas.all[..] else { panic!() };
    let session = replicas.session().await;
    bus.lost_text.store(true, Ordering::SeqCst);
    let gate = replicas.upstream.gate();
    let at_b = stream(b, &session, "key");
    replicas.upstream.until_calls(1).await;
    let at_a = stream(a, &session, "key");
    for n in 0..PIECES {
        gate.send(Piece::Text(format!("wörd {n} "))).unwrap();
    }
    drop(gate);
    let (at_a, at_b) = (at_a.await.unwrap(), at_b.await.unwrap());
    assert_eq!(at_b.0, 200);
    let last = format!("wörd {}", PIECES - 1);
    assert!(at_b.1.contains(&last) && at_b.1.ends_with("data: [DONE]\n\n"));
    assert!(at_a == at_b, "another stream than the owner's");
    let largest = bus.largest.load(Ordering::SeqCst);
    assert!(at_b.1.len() > 1 << 20 && largest < 200 << 10, "{largest} of {}", at_b.1.len());
    assert_eq!(replicas.upstream.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g16_a_command_of_a_later_release_is_refused_and_the_link_goes_on() {
    let bus = Arc::new(Counting::default());
    let replicas = Replicas::on(2, Arc::clone(&bus), |_| {}).await;
    let (session, b) = (replicas.session().await, &replicas.all[1]);
    let (mut phone, _) = join(b, &session, "phone").await;
    bus.later_release.store(true, Ordering::SeqCst);
    let refused = ask(b, &session).await.unwrap();
    assert_eq!(refused.refusal(), (503, "SBP_INTERNAL"), "{}", refused.text);
    assert!(refused.text.contains("earlier release"), "{}", refused.text);
    bus.later_release.store(false, Ordering::SeqCst);
    let said = ask(b, &session).await.unwrap();
    assert_eq!((said.status, said.content()), (200, "answer 1"), "{}", said.text);
    phone.until("TURN_COMPLETE").await;
}
