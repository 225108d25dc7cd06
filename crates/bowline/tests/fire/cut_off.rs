//! One replica alone does not reach Redis, or none does: whoever asks another replica is served, and streams end.

use std::time::{Duration, Instant};

use bowline_checker::Outcome;
use serde_json::json;

use crate::caller::Way;
use crate::installation::{DATABASE, Installation, REPLICAS};
use crate::process::DEADLINE;
use crate::reach::Session;
use crate::surface::Taste;

/// Longer than the silence after which an owner takes a replica with surfaces for gone.
const CUT: Duration = Duration::from_secs(13);

impl Installation {
    /// A session that the first replica owns.
    async fn owned_by_the_first(&self) -> Session {
        let first = self.reach_at(0);
        let session = first.session().await;
        let (_, outcome) = first.caller().ask(&session.id, "mine", Way::Whole).await;
        assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
        assert_eq!(self.owner(&session), self.replica(0).id().await.unwrap());
        session
    }

    fn owner(&self, session: &Session) -> String {
        let query = format!("SELECT owner FROM sessions WHERE id = '{}'", session.id);
        let postgres = self.postgres.lock().unwrap();
        tokio::task::block_in_place(|| postgres.sql(DATABASE, &query)).unwrap().trim().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_replica_that_alone_loses_redis_is_reached_and_keeps_its_surfaces_elsewhere() {
    let world = Installation::start("0ms").await;
    let (session, quiet) = (world.owned_by_the_first().await, world.owned_by_the_first().await);
    let (owner, second) = (world.owner(&session), world.reach_at(1));
    let mut surface = second.attach(&session, Taste::Whole).await.unwrap();
    let mut idle = second.attach(&quiet, Taste::Whole).await.unwrap();
    while idle.last < 2 {
        idle.turn().await.unwrap();
    }
    world.replica(0).to_redis.cut();
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < CUT {
        for number in 0..REPLICAS {
            let caller = world.reach_at(number).caller();
            let (_, outcome) = caller.ask(&session.id, "are you there", Way::Whole).await;
            assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
            asked += 1;
        }
        if asked == REPLICAS {
            println!("asked at each replica: answered after {:?}", begun.elapsed());
        }
    }
    for _ in 0..=asked {
        surface.turn().await.unwrap();
    }
    // Nothing has happened in this one for all that time.
    let (_, outcome) = world.reach_at(0).caller().ask(&quiet.id, "still", Way::Whole).await;
    assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
    idle.turn().await.unwrap();
    assert_eq!([world.owner(&session), world.owner(&quiet)], [owner.clone(), owner]);
    world.replica(0).to_redis.mend();
    world.healed().await;
    surface.detach().await;
    idle.detach().await;
    assert_eq!(world.verdict(&[session, quiet]).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g18_streams_end_whole_at_each_replica_while_redis_is_down() {
    let world = Installation::start("0ms").await;
    let session = world.owned_by_the_first().await;
    tokio::task::block_in_place(|| world.redis.lock().unwrap().kill().unwrap());
    let words: String = (0..3000).map(|n| format!("wörd-{n} ")).collect();
    for number in 0..REPLICAS {
        let begun = Instant::now();
        let url = format!("{}/v1/chat/completions", world.reach_at(number).caller_url);
        let body = json!({
            "model": "m", "stream": true, "sbp": { "session_id": session.id },
            "messages": [{ "role": "user", "content": format!("echo {words}") }],
        });
        let request = world.http.post(url).json(&body).timeout(DEADLINE);
        let body = request.send().await.unwrap().text().await.expect("the stream ends");
        assert!(body.ends_with("data: [DONE]\n\n"), "{}", &body[body.len().min(2000)..]);
        assert_eq!(said(&body).trim_end(), words.trim_end());
        println!("replica {number}: streamed after {:?}", begun.elapsed());
    }
}

/// The words of a stream.
fn said(body: &str) -> String {
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks = events.filter_map(|event| serde_json::from_str::<serde_json::Value>(event).ok());
    let text = |chunk: serde_json::Value| {
        Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())
    };
    chunks.filter_map(text).collect()
}
