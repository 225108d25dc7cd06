//! A program that asks over HTTP, and asks again under the same key until it knows.

use std::time::{Duration, Instant};

use bowline_checker::{Ask, Outcome};
use serde_json::{Value, json};

use crate::process::DEADLINE;
use crate::reach::Session;
use crate::record::Record;
use crate::seed::scale;

/// How the answer is to come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Whole,
    Streamed,
}

#[derive(Clone)]
pub(crate) struct Caller {
    id: u32,
    http: reqwest::Client,
    /// Where it asks: at the first, and at the next one when it got no answer.
    urls: Vec<String>,
    record: Record,
}

impl Caller {
    pub(crate) fn new(urls: &[String], record: &Record) -> Self {
        Self {
            id: u32::try_from(record.unique()).unwrap(),
            http: reqwest::Client::new(),
            urls: urls.iter().map(|url| format!("{url}/v1/chat/completions")).collect(),
            record: record.clone(),
        }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Has the words echoed, and asks the same at another place before the answer is there: the second
    /// request joins the turn of the first. Gives what each knows in the end.
    pub(crate) async fn ask_twice(&self, session: &str, words: &str, way: Way) -> [Outcome; 2] {
        let text = format!("echo {} {words}", self.record.unique());
        let ask = self.record.with(|history| history.asked(self.id, session, &text));
        let mut other = self.clone();
        other.urls.rotate_left(1);
        let key = key(ask);
        let (first, second) = tokio::join!(
            self.until_known(ask, &key, session, &text, way),
            other.until_known(ask, &key, session, &text, way),
        );
        [first, second]
    }

    /// Has the words echoed. Gives the ask and what the caller knows in the end.
    pub(crate) async fn ask(&self, session: &str, words: &str, way: Way) -> (Ask, Outcome) {
        let text = format!("echo {} {words}", self.record.unique());
        self.ask_exactly(session, &text, way).await
    }

    pub(crate) async fn ask_exactly(&self, session: &str, text: &str, way: Way) -> (Ask, Outcome) {
        let ask = self.record.with(|history| history.asked(self.id, session, text));
        (ask, self.until_known(ask, &key(ask), session, text, way).await)
    }

    /// Has the words echoed in a session that is made for it, without a key. Whoever hears nothing
    /// knows of no session, and there is nothing to hold against anyone.
    pub(crate) async fn open(&self, words: &str) -> Option<Session> {
        let text = format!("echo {} {words}", self.record.unique());
        let body = json!({
            "model": "m", "sbp": {}, "messages": [{ "role": "user", "content": text }],
        });
        let response = self.http.post(&self.urls[0]).json(&body).timeout(DEADLINE).send().await;
        let response =
            response.inspect_err(|error| assert!(!error.is_timeout(), "it hangs: {text}"));
        let bytes = response.ok()?.error_for_status().ok()?.bytes().await;
        let bytes =
            bytes.inspect_err(|error| assert!(!error.is_timeout(), "it hangs: {text}")).ok()?;
        let outcome = whole(&bytes)?;
        let answer: Value = serde_json::from_slice(&bytes).ok()?;
        let name = |name: &str| Some(answer["sbp"][name].as_str()?.to_owned());
        let session = Session { id: name("session_id")?, token: name("session_token")? };
        self.record.with(|history| {
            let ask = history.asked(self.id, &session.id, &text);
            history.told(ask, outcome);
        });
        Some(session)
    }

    /// Says something else under the key of an ask that was answered: it must be refused.
    pub(crate) async fn clash(&self, with: Ask, session: &str) {
        let text = format!("echo {} clash", self.record.unique());
        let ask = self.record.with(|history| history.asked(self.id, session, &text));
        let outcome = self.until_known(ask, &key(with), session, &text, Way::Whole).await;
        assert_eq!(outcome, Outcome::Refused, "other words under a used key");
    }

    async fn until_known(
        &self,
        ask: Ask,
        key: &str,
        session: &str,
        text: &str,
        way: Way,
    ) -> Outcome {
        let begun = Instant::now();
        for url in self.urls.iter().cycle() {
            let attempt = self.attempt(url, key, session, text, way);
            let answered = tokio::time::timeout(DEADLINE, attempt).await;
            let outcome = answered
                .unwrap_or_else(|_| panic!("{key} hangs in session {session}, {way:?}: {text}"));
            self.record.with(|history| history.told(ask, outcome.clone()));
            if outcome != Outcome::Unknown {
                return outcome;
            }
            assert!(begun.elapsed() < patience(), "never answered: {text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        unreachable!("a caller without a place to ask")
    }

    async fn attempt(&self, url: &str, key: &str, session: &str, text: &str, way: Way) -> Outcome {
        let body = json!({
            "model": "m", "stream": way == Way::Streamed, "sbp": { "session_id": session },
            "messages": [{ "role": "user", "content": text }],
        });
        let request = self.http.post(url).header("Idempotency-Key", key).json(&body);
        let Ok(mut response) = request.send().await else { return Outcome::Unknown };
        if response.status().is_client_error() {
            return Outcome::Refused;
        }
        let is_success = response.status().is_success();
        let mut bytes = Vec::new();
        // A stream that breaks after the chunk with `sbp` has said all the same that it is stored.
        while let Ok(Some(part)) = response.chunk().await {
            bytes.extend(part);
        }
        let answered = match way {
            Way::Whole => whole(&bytes),
            Way::Streamed => streamed(&bytes),
        };
        answered.filter(|_| is_success).unwrap_or(Outcome::Unknown)
    }
}

/// How long a client tries again until it knows. In a soak one long fault after the other is in its way.
pub(crate) fn patience() -> Duration {
    DEADLINE * scale(1, 3) as u32
}

fn key(ask: Ask) -> String {
    format!("key-{}", ask.0)
}

fn whole(body: &[u8]) -> Option<Outcome> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    // The call of a tool that is not there goes to the caller, without a word.
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    answered(&answer, content.to_owned())
}

fn streamed(body: &[u8]) -> Option<Outcome> {
    let mut content = String::new();
    for event in body.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: ")) {
        let Ok(chunk) = serde_json::from_slice::<Value>(event) else { continue };
        content += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if chunk["sbp"].is_object() {
            return answered(&chunk, content);
        }
    }
    None
}

fn answered(answer: &Value, content: String) -> Option<Outcome> {
    let seq = answer["sbp"]["seq"].as_u64()?;
    let turn_id = answer["sbp"]["turn_id"].as_str()?.to_owned();
    Some(Outcome::Answered { seq, turn_id, content })
}
