//! G7, G8: concurrent requests. One token makes one session, one session has one successor, and
//! nothing acknowledged is lost.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bench::{Bench, Session, answer, list, turn};
use crate::roaming::{forked, made, of, text};

fn is_soak() -> bool {
    std::env::var_os("BOWLINE_SOAK").is_some()
}

/// A number of repetitions: small, or large in a soak.
fn scale(short: usize, soak: usize) -> usize {
    if is_soak() { soak } else { short }
}

/// Starts requests at the same time; returns their responses, in order.
async fn at_once(
    bench: &Bench,
    requests: Vec<(Method, String, Value)>,
) -> Vec<crate::bench::Answer> {
    let barrier = Arc::new(Barrier::new(requests.len()));
    let mut tasks = JoinSet::new();
    for (n, (method, path, body)) in requests.into_iter().enumerate() {
        let request = bench.http.request(method, bench.url(&path)).json(&body);
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            barrier.wait().await;
            (n, answer(request).await)
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn count(bench: &Bench) -> usize {
    let (mut count, mut page) = (0, String::new());
    loop {
        let seen = bench.get(&format!("/v1/sessions?limit=200{page}")).await.body;
        count += list(&seen["sessions"]).len();
        match seen["next"].as_str() {
            Some(next) => page = format!("&before={next}"),
            None => return count,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g7_soak_of_many_who_come_with_one_token_exactly_one_gets_the_session() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let (tokens, importers) = (scale(50, 1000), scale(16, 64));
    for n in 0..tokens {
        let exported = bench.export(&session, json!({ "ttl_seconds": 604_800 })).await.body;
        let body = json!({ "roaming_token": exported["roaming_token"] });
        let request = (Method::POST, crate::roaming::IMPORT.to_owned(), body);
        let answers = at_once(&bench, vec![request; importers]).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status == 201);
        assert_eq!(won.len(), 1, "token {n}");
        for lost in lost {
            assert_eq!(lost.refusal(), (410, "SBP_TOKEN_CONSUMED"), "{}", lost.text);
        }
        let used = &bench.get(&of(&session, "exports")).await.body["exports"][0];
        assert_eq!(used["export_id"], exported["export_id"]);
        assert_eq!(used["import_session_id"], won[0].body["session_id"]);
    }
    assert_eq!(count(&bench).await, 1 + tokens);
    if is_soak() {
        eprintln!("{tokens} tokens, {importers} importers each, {tokens} sessions");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g7_an_import_and_the_deletion_of_its_origin_do_not_mix() {
    let bench = Bench::start().await;
    let mut imported = 0;
    for round in 0..scale(30, 300) {
        let before = count(&bench).await;
        let session = bench.session_with(2).await;
        let token = bench.token_of(&session).await;
        let path = format!("/v1/sessions/{}", session.id);
        let others = vec![
            (Method::POST, crate::roaming::IMPORT.to_owned(), json!({ "roaming_token": token })),
            (Method::POST, of(&session, "fork"), json!({})),
            (Method::POST, of(&session, "handoff"), json!({ "to_agent_id": "a" })),
        ];
        let delete = async {
            // A little later each time, so that it meets them at every stage.
            for _ in 0..round % 10 {
                bench.get(&path).await;
            }
            bench.call(Method::DELETE, &path, &[], &Value::Null).await
        };
        let (answers, deleted) = tokio::join!(at_once(&bench, others), delete);
        assert_eq!(deleted.status, 204);
        let mut alive = Vec::new();
        for (answer, refusal) in [
            (&answers[0], (422, "SBP_TOKEN_INVALID")),
            (&answers[1], (404, "SBP_SESSION_NOT_FOUND")),
            (&answers[2], (404, "SBP_SESSION_NOT_FOUND")),
        ] {
            match answer.status {
                201 if answer.body["fork_session_id"].is_string() => alive.push(forked(answer)),
                201 => alive.push(made(answer)),
                _ => assert_eq!(answer.refusal(), refusal, "{}", answer.text),
            }
        }
        imported += usize::from(answers[0].status == 201);
        assert_eq!(bench.get(&path).await.status, 404);
        assert_eq!(count(&bench).await, before + alive.len());
        for session in alive {
            assert_eq!(bench.words(&session).await[..4], ["echo 1", "1", "echo 2", "2"]);
            assert_eq!(bench.say(&session, "echo on").await.content(), "on");
        }
    }
    eprintln!("{imported} imports were first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g8_a_session_has_one_successor_with_every_acknowledged_turn() {
    let bench = Bench::start().await;
    let (mut kept, mut refused) = (0, 0);
    for round in 0..scale(20, 500) {
        let session = bench.session_with(1).await;
        let chat = "/v1/chat/completions".to_owned();
        let say =
            |n: usize| (Method::POST, chat.clone(), turn(&session, "m", &format!("echo said {n}")));
        let hand = |to: &str| (Method::POST, of(&session, "handoff"), json!({ "to_agent_id": to }));
        let requests = match round % 2 {
            0 => vec![say(0), say(1), hand("a"), say(2), hand("b"), say(3)],
            _ => vec![hand("a"), hand("b"), say(0), say(1), say(2), say(3)],
        };
        let answers = at_once(&bench, requests).await;
        let is_turn = |answer: &&crate::bench::Answer| answer.body["choices"].is_array();
        let winners: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(winners.len(), 1, "one handoff wins");
        for loser in answers.iter().filter(|answer| answer.status != 201 && answer.status != 200) {
            assert_eq!(loser.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", loser.text);
        }
        let successor = made(winners[0]);
        let words = bench.words(&successor).await;
        let acknowledged: Vec<_> = answers.iter().filter(is_turn).collect();
        for said in &acknowledged {
            let content = said.content();
            assert!(words.contains(&content.to_owned()), "lost: {content} in {words:?}");
        }
        // Two before, two for each turn, and the bridge: nothing that was refused is there.
        assert_eq!(words.len(), 2 + 2 * acknowledged.len() + 1, "{words:?}");
        assert_eq!(bench.words(&session).await, words[..words.len() - 1], "one history");
        kept += acknowledged.len();
        refused += 4 - acknowledged.len();

        let shown = bench.show(&session).await;
        assert_eq!(text(&shown["handed_off_to"]), successor.id);
        assert_eq!(bench.say(&session, "echo no").await.status, 409, "one owner");
        assert_eq!(bench.say(&successor, "echo yes").await.content(), "yes");
        assert_eq!(list(&bench.lineage(&session).await["outgoing_handoffs"]).len(), 1);
    }
    assert_eq!(count(&bench).await, 2 * scale(20, 500));
    eprintln!("{kept} turns were before the handoff, {refused} behind it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g8_a_fork_taken_under_load_is_a_beginning_of_its_origin() {
    let bench = Bench::start().await;
    for _ in 0..scale(10, 200) {
        let session = bench.session_with(2).await;
        let chat = "/v1/chat/completions".to_owned();
        let say =
            |n: usize| (Method::POST, chat.clone(), turn(&session, "m", &format!("echo said {n}")));
        let fork = |body: Value| (Method::POST, of(&session, "fork"), body);
        let requests = vec![
            say(0),
            fork(json!({})),
            say(1),
            fork(json!({ "at_step": 2 })),
            fork(json!({})),
            say(2),
        ];
        let answers = at_once(&bench, requests).await;
        let whole = bench.words(&session).await;
        assert_eq!(whole.len(), 10);
        for n in [1, 3, 4] {
            let fork: Session = forked(&answers[n]);
            let words = bench.words(&fork).await;
            assert_eq!(words, whole[..words.len()]);
            let step = answers[n].body["fork_point_step"].as_u64().unwrap() as usize;
            assert_eq!(words.len(), 2 * step, "whole turns only");
            assert_eq!(bench.show(&fork).await["step_count"], step);
        }
        assert_eq!(answers[3].body["fork_point_step"], 2);
    }
}
