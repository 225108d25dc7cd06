//! SBP-L6-05: what is in the way of an import is refused before the session is given up where it was; what gets into the
//! way after that is left out, and the session is made.

use bowline_store::Federation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, eventually};
use crate::disk::on_a_bad_disk_with;
use crate::federation_move::{Two, arrived, free, knows};
use crate::roaming::{IMPORT, text};
use crate::upstream::MockUpstream;

const MEMORY: &str = "/v1/agents/default/memory";
const TEA: &str = "Anna drinks tea.";

/// Fills the memory of the agent.
async fn fill(bench: &Bench) {
    let many: Vec<_> = (0..10_000).map(|n| json!({ "text": format!("fact {n}") })).collect();
    let filled = bench.call(Method::PUT, MEMORY, &[], &json!({ "memories": many })).await;
    assert_eq!(filled.status, 200, "{}", filled.text);
}

/// A token for `away`, of a session whose agent remembers something; and the body that imports it with its memory.
async fn with_memory(home: &Bench, session: &crate::bench::Session) -> Value {
    let known = home.post(MEMORY, json!({ "memories": [{ "text": TEA }] })).await;
    assert_eq!(known.status, 200, "{}", known.text);
    let exported = home.export(session, json!({ "for_gateway": "away" })).await;
    json!({ "roaming_token": text(&exported.body["roaming_token"]), "with_memory": true })
}

#[tokio::test]
async fn g7_a_session_whose_memories_do_not_fit_is_refused_before_it_is_given_up() {
    let Two { home, away } = Two::start().await;
    let session = home.session_with(1).await;
    let body = with_memory(&home, &session).await;
    fill(&away).await;
    let refused = away.import(body.clone()).await;
    assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{}", refused.text);
    assert!(refused.text.contains("10000 memories"), "{}", refused.text);
    assert!(away.sessions().await.is_empty());
    assert!(away.store.open_migrations().await.unwrap().is_empty());
    assert_eq!(home.say(&session, "echo 2").await.content(), "2", "it goes on");
    // Without its memory there is room for it.
    let without = json!({ "roaming_token": body["roaming_token"] });
    let imported = away.import(without).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
}

/// An import at `away`, during which `meanwhile` happens there: after home has confirmed, and before the session is made.
async fn confirmed_then(
    headers: &[(&str, &str)],
    meanwhile: impl AsyncFnOnce(&Bench, &Bench),
) -> (Bench, Answer) {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let upstream = MockUpstream::start().await;
    let (away, disk) =
        on_a_bad_disk_with(&upstream, |config| knows(config, at_away, at_home)).await;
    let session = home.session_with(1).await;
    let body = with_memory(&home, &session).await;
    let go = disk.hold("activate_migration");
    let importing = away.call(Method::POST, IMPORT, headers, &body);
    let changing = async {
        eventually("confirmed", async || !home.show(&session).await["handed_off_to"].is_null())
            .await;
        meanwhile(&home, &away).await;
        go.send(()).unwrap();
    };
    let (imported, ()) = tokio::join!(importing, changing);
    assert_eq!(imported.status, 201, "{}", imported.text);
    let shown = home.show(&session).await["handed_off_to"].clone();
    assert_eq!(shown, imported.body["session_id"], "it is where home says");
    (away, imported)
}

#[tokio::test]
async fn g7_a_session_that_was_confirmed_is_made_without_the_memories_that_do_not_fit() {
    let (away, imported) = confirmed_then(&[], async |_, away| fill(away).await).await;
    assert_eq!(imported.body["memory_restored"], false);
    let there = arrived(&imported.body);
    assert_eq!(away.log(&there).await[0].1, "echo 1");
    assert!(away.bundle_of(&there).await.contains(TEA), "they travel on with it");
    assert!(away.store.open_migrations().await.unwrap().is_empty());
}

#[tokio::test]
async fn g7_a_session_that_was_confirmed_is_made_without_a_key_that_another_request_took() {
    let key = [("idempotency-key", "once")];
    let taken = async |home: &Bench, away: &Bench| {
        let bundle = home.bundle_of(&home.session_with(1).await).await;
        let bundle = serde_json::from_str::<Value>(&bundle).unwrap();
        let other = away.call(Method::POST, IMPORT, &key, &json!({ "bundle": bundle })).await;
        assert_eq!(other.status, 201, "{}", other.text);
    };
    let (away, imported) = confirmed_then(&key, taken).await;
    assert_eq!(imported.body["memory_restored"], true);
    assert_eq!(away.sessions().await.len(), 2);
    assert!(away.store.open_migrations().await.unwrap().is_empty());
}

#[tokio::test]
async fn g3_a_retry_that_overtakes_the_first_request_is_answered_like_it() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let upstream = MockUpstream::start().await;
    let (away, disk) =
        on_a_bad_disk_with(&upstream, |config| knows(config, at_away, at_home)).await;
    for held in ["begin_migration", "stage_migration"] {
        let token = home.token_of(&home.session_with(1).await).await;
        let body = json!({ "roaming_token": token });
        let key = [("idempotency-key", held)];
        let go = disk.hold(held);
        let first = away.call(Method::POST, IMPORT, &key, &body);
        let retried = async {
            eventually("held", async || disk.waits()).await;
            let second = away.call(Method::POST, IMPORT, &key, &body).await;
            go.send(()).unwrap();
            second
        };
        let (first, second) = tokio::join!(first, retried);
        assert_eq!((first.status, second.status), (201, 201), "{} {}", first.text, second.text);
        assert_eq!(arrived(&first.body).id, arrived(&second.body).id, "{held}");
        assert_eq!(away.import(body).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    }
    assert_eq!(away.sessions().await.len(), 2);
}
