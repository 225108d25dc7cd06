//! SBP L4: what a device is reaches those who write for it.

use serde_json::{Value, json};

use crate::bench::{Bench, turn};
use crate::upstream::MockUpstream;

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
