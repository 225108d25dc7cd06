//! Sessions that are exported, and several programs that import each with the one token there is, at several
//! replicas at once.

use std::time::{Duration, Instant};

use bowline_checker::{Import, Outcome, Token};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::caller::Way;
use crate::load::Opened;
use crate::process::DEADLINE;
use crate::reach::{Export, Reach, Session};
use crate::seed::Dice;

/// So many want a token.
const RACERS: usize = 4;

/// Makes a session, exports it and has it imported, again and again. Gives the sessions that were exported.
pub(crate) async fn imports(
    reach: Reach,
    mut dice: Dice,
    opened: Opened,
    stop: watch::Receiver<bool>,
) {
    let caller = reach.caller();
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(dice.below(100) as u64)).await;
        let Some(session) = caller.open(&dice.words(12)).await else { continue };
        opened.lock().unwrap().push(session.clone());
        let (_, outcome) = caller.ask(&session.id, &dice.words(5), Way::Whole).await;
        assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
        let (token, roaming_token) = export(&reach, &session, &mut dice).await;
        let mut racers = JoinSet::new();
        for racer in 0..RACERS {
            racers.spawn(import(reach.clone(), token, roaming_token.clone(), racer));
        }
        racers.join_all().await;
    }
}

/// Asks until there is a token.
async fn export(reach: &Reach, session: &Session, dice: &mut Dice) -> (Token, String) {
    let (http, begun) = (reqwest::Client::new(), Instant::now());
    loop {
        let url = &reach.replica_urls[dice.below(reach.replica_urls.len())];
        let url = format!("{url}/v1/sessions/{}/export", session.id);
        let asked = http.post(url).json(&json!({})).timeout(DEADLINE).send().await;
        if let Some((StatusCode::CREATED, made)) = answer(asked).await {
            let token = reach.record.with(|history| history.exported(&session.id));
            let id = made["export_id"].as_str().unwrap().to_owned();
            reach.exports.lock().unwrap().push(Export { token, origin: session.clone(), id });
            return (token, made["roaming_token"].as_str().unwrap().to_owned());
        }
        assert!(begun.elapsed() < DEADLINE, "{} is never exported", session.id);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Imports at one replica, and at the next ones until it knows whether it has the session.
async fn import(reach: Reach, token: Token, roaming_token: String, first: usize) {
    let (http, begun) = (reqwest::Client::new(), Instant::now());
    for url in reach.replica_urls.iter().cycle().skip(first) {
        let body = json!({ "roaming_token": roaming_token });
        let request = http.post(format!("{url}/v1/sbp/sessions/import")).json(&body);
        let outcome = match answer(request.timeout(DEADLINE).send().await).await {
            Some((StatusCode::CREATED, made)) => {
                Import::Made { session: made["session_id"].as_str().unwrap().to_owned() }
            }
            Some((StatusCode::GONE, _)) => Import::Refused,
            Some((status, said)) if status.is_client_error() => panic!("{status}: {said}"),
            Some(_) | None => Import::Unknown,
        };
        reach.record.with(|history| history.imported(token, outcome.clone()));
        if outcome != Import::Unknown {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "an import never knows");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// None if there is no answer, or half of one.
async fn answer(asked: reqwest::Result<reqwest::Response>) -> Option<(StatusCode, Value)> {
    let asked = asked.inspect_err(|error| assert!(!error.is_timeout(), "it hangs: {error}"));
    let response = asked.ok()?;
    let status = response.status();
    Some((status, response.json().await.ok()?))
}
