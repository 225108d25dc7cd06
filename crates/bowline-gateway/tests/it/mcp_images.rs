//! Images in the results of MCP tools: shown to models that read them, named to all others.

use bowline_gateway::config::Config;
use bowline_store::Log;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, list, turn};
use crate::mcp_southbound::{program, until};
use crate::python::place;
use crate::upstream::MockUpstream;

const LINE: &str = "[image: image/png, 12 KB]";

async fn bench(upstream: &MockUpstream, change: impl FnOnce(&mut Config)) -> (Bench, Session) {
    let bench = Bench::before_with(upstream, |config| {
        config.mcp.servers.insert("test".into(), program());
        let mock = config.upstream.get_mut("mock").unwrap();
        mock.vision = vec!["*-vision".into()];
        change(config);
    })
    .await;
    until(&bench, "up").await;
    let session = bench.session().await;
    (bench, session)
}

/// What the model was sent last, without the system messages.
fn sent(upstream: &MockUpstream) -> Vec<Value> {
    list(&upstream.calls().last().unwrap().body["messages"])
}

fn is_shown(message: &Value) -> bool {
    let url = &message["content"][1]["image_url"]["url"];
    message["role"] == "user"
        && url.as_str().is_some_and(|url| url.starts_with("data:image/png;base64,iVBORw0KGgoA"))
}

#[tokio::test]
async fn sbp_l5_06_an_image_is_shown_to_a_model_that_reads_images_and_named_to_others() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = bench(&upstream, |_| {}).await;
    let calls = json!([
        ["mcp_test_picture", "{\"size\":12288}"],
        ["mcp_test_echo", "{\"text\":\"beside\"}"]
    ]);
    let said = bench.chat(turn(&session, "calls-vision", &calls.to_string())).await;
    assert_eq!(said.content(), format!("a picture\n{LINE} | beside"), "{}", said.text);
    let messages = sent(&upstream);
    let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"], "the results stay together");
    assert_eq!(messages[2]["content"], format!("a picture\n{LINE}"));
    assert!(is_shown(&messages[4]), "{}", messages[4]);
    assert_eq!(messages[4]["content"].as_array().unwrap().len(), 2);

    // Another model of the same session reads only text.
    bench.say_to(&session, "m", "and now?").await;
    let text = upstream.calls().last().unwrap().text.clone();
    assert!(text.contains(LINE) && !text.contains("iVBOR") && !text.contains("image_url"));

    // The first one sees the image in later turns, too, at the same place.
    bench.say_to(&session, "m-vision", "and you?").await;
    let messages = sent(&upstream);
    assert!(is_shown(&messages[4]) && messages[5]["role"] == "assistant", "{messages:?}");
}

#[tokio::test]
async fn sbp_l5_06_an_image_reaches_no_surface_no_list_of_messages_and_no_bundle() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = bench(&upstream, |_| {}).await;
    let (mut phone, _) = bench.attach(&session).await;
    let calls = json!([["mcp_test_picture", "{\"size\":12288}"]]).to_string();
    bench.chat(turn(&session, "calls-vision", &calls)).await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert!(frames.iter().all(|frame| !frame.to_string().contains("iVBOR")), "{frames:?}");
    let messages = bench.get(&format!("/v1/sessions/{}/messages", session.id)).await;
    assert!(messages.text.contains(LINE) && !messages.text.contains("iVBOR"), "{}", messages.text);
    let export = bench.post(&format!("/v1/sessions/{}/export", session.id), json!({})).await;
    let (id, export) = (&session.id, export.body["export_id"].as_str().unwrap().to_owned());
    let bundle = bench.get(&format!("/v1/sessions/{id}/exports/{export}/bundle")).await;
    assert_eq!(bundle.status, 200, "{}", bundle.text);
    assert!(bundle.text.contains("12 KB") && !bundle.text.contains("iVBOR"), "{}", bundle.text);
}

#[tokio::test]
async fn g11_images_over_limits_tool_images_and_of_other_types_are_only_named() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = bench(&upstream, |config| config.limits.tool_images = 2000).await;
    let calls = [
        ("mcp_test_picture", "{\"size\":2001}"),
        ("mcp_test_picture", "{\"size\":99,\"format\":\"svg\"}"),
        ("mcp_test_picture", "{\"size\":1998}"),
    ];
    let asked = json!(calls).to_string();
    let said = bench.chat(turn(&session, "calls-vision", &asked)).await;
    let results: Vec<_> = said.content().split(" | ").collect();
    assert_eq!(results[1], "a picture\n[image: image/svg, 99 bytes]", "{results:?}");
    let messages = sent(&upstream);
    let shown = messages.last().unwrap();
    assert!(is_shown(shown), "{shown}");
    assert_eq!(shown["content"].as_array().unwrap().len(), 2, "only the last one is kept");
}

#[tokio::test]
async fn g11_images_beyond_limits_prompt_images_are_only_named_the_oldest_first() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = bench(&upstream, |config| config.limits.prompt_images = 3000).await;
    for size in [2100, 1200, 1500] {
        let asked = json!([["mcp_test_picture", json!({ "size": size }).to_string()]]);
        bench.chat(turn(&session, "calls-vision", &asked.to_string())).await;
    }
    let messages = sent(&upstream);
    assert_eq!(messages.iter().filter(|message| is_shown(message)).count(), 2, "{messages:?}");
    assert!(is_shown(messages.last().unwrap()));
    assert!(messages[2]["role"] == "tool" && messages[3]["role"] == "assistant", "{messages:?}");
}

#[tokio::test]
async fn sbp_l5_06_a_large_image_is_stored_once_and_shown_as_it_was() {
    let _place = place().await;
    let upstream = MockUpstream::start().await;
    let (bench, session) = bench(&upstream, |_| {}).await;
    let asked = json!([["mcp_test_picture", "{\"size\":300000}"]]).to_string();
    for turns in 1..=2 {
        let said = bench.chat(turn(&session, "calls-vision", &asked)).await;
        assert_eq!(said.content(), "a picture\n[image: image/png, 292 KB]", "{}", said.text);
        let messages = sent(&upstream);
        let shown: Vec<_> = messages.iter().filter(|message| is_shown(message)).collect();
        assert_eq!(shown.len(), turns, "in every later turn, too");
        for message in shown {
            let url = message["content"][1]["image_url"]["url"].as_str().unwrap();
            assert_eq!(url.len(), "data:image/png;base64,".len() + 400_000);
        }
    }
    let log = bench.store.history(session.id.parse().unwrap()).await.unwrap();
    let long = log.entries.iter().map(|entry| entry.message.as_json().len()).max();
    assert!(long < Some(2000), "{long:?}");
}

#[tokio::test]
async fn sbp_l5_02_a_photo_of_a_device_is_shown_in_the_same_way() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().vision = vec!["*-vision".into()];
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    let device = async {
        let call = phone.until("TOOL_CALL").await.pop().unwrap();
        let photo = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoA" });
        let result = json!({ "content": [{ "type": "text", "text": "here" }, photo] });
        let frame = json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": result });
        phone.send(frame).await;
        phone
    };
    let asked = json!([["surface_camera", "{}"]]).to_string();
    let (said, _phone) = tokio::join!(bench.chat(turn(&session, "calls-vision", &asked)), device);
    assert_eq!(said.content(), "here\n[image: image/png, 9 bytes]", "{}", said.text);
    assert!(is_shown(sent(&upstream).last().unwrap()));
}
