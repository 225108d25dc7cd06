//! SBP L4: the model is told for which device it writes.

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, joined, turn};
use crate::upstream::{MockUpstream, Piece};

#[tokio::test]
async fn sbp_l4_02_the_device_reaches_the_model_and_never_the_log() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let watch = json!({ "device_type": "watch", "max_output_tokens": 60, "locale": "de-CH" });
    let (phone, welcome) = bench.attach_as(&session, watch).await;
    assert_eq!(welcome["device_type"], "watch", "echoed as it was said");
    bench.say(&session, "one").await;
    let mut own = turn(&session, "m", "two");
    own["max_completion_tokens"] = json!(5);
    bench.chat(own).await;
    drop(phone);
    bench.until_status(&session, "suspended").await;
    bench.say(&session, "three").await;
    let calls = upstream.calls();
    assert_eq!(calls[0].body["max_tokens"], 60);
    assert!(calls[0].said()[0].contains("watch") && calls[0].said()[0].contains("de-CH"));
    assert_eq!(calls[1].body["max_tokens"], Value::Null, "the caller is not overruled");
    assert_eq!(calls[1].body["max_completion_tokens"], 5);
    assert_eq!((calls[2].said().len(), &calls[2].body["max_tokens"]), (5, &Value::Null));
    assert!(bench.log(&session).await.iter().all(|(role, _)| role != "system"));
}

#[tokio::test]
async fn sbp_l4_04_a_bad_or_minimal_context_changes_nothing() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for surface in [json!({}), json!({ "device_type": 7, "max_output_tokens": "x", "locale": [] })]
    {
        let (phone, _) = bench.attach_as(&session, surface).await;
        bench.say(&session, "hi").await;
        let call = upstream.calls().pop().unwrap();
        assert!(
            call.body["max_tokens"].is_null() && !call.text.contains("device"),
            "{}",
            call.text
        );
        drop(phone);
        bench.until_status(&session, "suspended").await;
    }
}

#[tokio::test]
async fn sbp_l4_05_a_returning_device_is_recognised_and_listed() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let whole = json!({ "surface_id": "annas-watch", "device_type": "watch", "locale": "de",
                        "max_output_tokens": 60, "ui_capabilities": ["text"], "mcp_tools": ["t"] });
    let (phone, _) = bench.attach_as(&session, whole).await;
    drop(phone);
    bench.until(&session, "let go", |seen| seen["surface"].is_null()).await;
    // It says only who it is, and who it was comes back; tools have to be there now.
    let (mut phone, welcome) =
        bench.attach_as(&session, json!({ "surface_id": "annas-watch", "locale": "fr" })).await;
    assert_eq!(welcome["device_type"], "unknown", "an echo of what was said");
    assert_eq!(welcome["mcp_tools_registered"], json!([]));
    bench.say(&session, "hi").await;
    assert_eq!(upstream.calls()[0].body["max_tokens"], 60);
    assert!(upstream.calls()[0].said()[0].contains("fr"));
    assert_eq!(phone.next().await["type"], "TETHER_TURN", "it does not stream, as it said once");

    let path = format!("/v1/sessions/{}/surfaces", session.id);
    let list = async || bench.get(&path).await.body["surfaces"].clone();
    let known = list().await;
    assert_eq!(known[0]["surface_id"], "annas-watch");
    assert_eq!((&known[0]["locale"], &known[0]["device_type"]), (&json!("fr"), &json!("watch")));
    assert_eq!((&known[0]["attached"], &known[1]), (&json!(true), &Value::Null));
    let (_other, _) = bench.attach_as(&session, json!({ "surface_id": "desk" })).await;
    let known = list().await;
    assert_eq!((&known[0]["surface_id"], &known[0]["attached"]), (&json!("desk"), &json!(true)));
    assert_eq!(known[1]["attached"], false);
    let one = format!("{path}/annas-watch");
    assert_eq!(bench.call(Method::DELETE, &one, &[], &Value::Null).await.status, 204);
    assert_eq!(bench.call(Method::DELETE, &one, &[], &Value::Null).await.status, 404);
    assert!(list().await[1].is_null());
}

const ANSWER: &str = "echo # Trip\n\nGo **now**: [map](https://example.com/x).\n\n| day | town |\n\
                      |---|---|\n| Monday | Lyon |\n";

#[tokio::test]
async fn sbp_l4_03_each_device_gets_its_form_and_the_log_keeps_the_original() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let original = ANSWER.strip_prefix("echo ").unwrap().trim_end();
    bench.say(&session, ANSWER).await;
    let shown = async |surface: Value| {
        let (mut phone, _) = bench.attach_as(&session, surface).await;
        phone.until("TETHER_TURN").await.pop().unwrap()["content"].as_str().unwrap().to_owned()
    };
    let plain = shown(json!({ "ui_capabilities": ["streaming"] })).await;
    assert!(plain.contains("Go now") && plain.contains("Lyon"), "{plain}");
    assert!(!plain.contains("**") && !plain.contains('|') && !plain.contains('#'), "{plain}");
    let spoken = shown(json!({ "device_type": "voice" })).await;
    assert!(!spoken.contains("https://") && spoken.contains("map"), "{spoken}");
    let short = shown(json!({ "device_type": "watch", "max_output_tokens": 4 })).await;
    assert!(short.len() < 40 && short.ends_with('…'), "{short}");
    assert_eq!(shown(json!({ "device_type": "desktop" })).await, original, "nothing is lost");
    assert_eq!(bench.log(&session).await[1].1.trim_end(), original);
}

#[tokio::test]
async fn sbp_l4_03_a_form_streams_and_ends_as_the_whole_would() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let voice = json!({ "device_type": "voice" });
    let (mut phone, _) = bench.attach_as(&session, voice.clone()).await;
    let gate = upstream.gate();
    let asked = bench.say_to(&session, "gated", "hi");
    let write = async {
        for piece in ["First **poi", "nt**.\n\n", "Then [this](https://exa", "mple.com).\n\nEnd"] {
            gate.send(Piece::Text(piece.into())).ok().unwrap();
        }
        // What is a block of its own is said before the answer has ended.
        let said = phone.until("TURN_CHUNK").await;
        assert!(joined(&said).starts_with("First point."), "{said:?}");
        drop(gate);
        let mut frames = said;
        frames.extend(phone.until("TURN_COMPLETE").await);
        frames
    };
    let (answer, frames) = tokio::join!(asked, write);
    assert!(answer.content().contains("**point**"), "the caller gets the original");
    let spoken = joined(&frames);
    assert!(!spoken.contains("https://") && spoken.contains("this"), "{spoken}");
    let (mut other, _) = bench.attach_as(&session, voice).await;
    drop(phone);
    let whole = other.until("TETHER_TURN").await.pop().unwrap();
    assert_eq!(whole["content"], spoken.as_str());
}

#[tokio::test]
async fn sbp_l4_02_desktops_and_browsers_reach_the_model_like_any_device() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    for device in ["desktop", "browser", "smart-fridge"] {
        let session = bench.session().await;
        let surface = json!({ "device_type": device, "max_output_tokens": 700 });
        let (_phone, _) = bench.attach_as(&session, surface).await;
        bench.say(&session, "hi").await;
        let call = upstream.calls().pop().unwrap();
        assert_eq!(call.body["max_tokens"], 700, "{device}");
        assert!(call.said()[0].starts_with("system: ") && call.said()[0].contains(device));
    }
}
