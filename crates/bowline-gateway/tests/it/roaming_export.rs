//! SBP L3: exports, their tokens and bundles, and the signing keys of tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_gateway::config::Price;
use bowline_sbp::cid::Cid;
use bowline_sbp::id::ExportId;
use bowline_sbp::roaming_token::RoamingClaims;
use bowline_store::{NewExport, Roaming, Upkeep};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, list};
use crate::roaming::{carried, made, names, of, parsed, part, sealed, text};
use crate::upstream::MockUpstream;

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// The token's decoded header and claims.
fn parts(token: &str) -> [Value; 2] {
    let mut parts = token.split('.').take(2).map(|part| {
        let json = URL_SAFE_NO_PAD.decode(part).unwrap();
        serde_json::from_slice(&json).unwrap()
    });
    [parts.next().unwrap(), parts.next().unwrap()]
}

#[tokio::test]
async fn sbp_l3_01_an_export_says_what_was_packed_and_how_to_open_it() {
    let bench = Bench::start().await;
    let session = bench.session_with(2).await;
    let asked = json!({ "ttl_seconds": 3600, "label": "to the lake", "unknown": [1] });
    let exported = bench.export(&session, asked).await;
    assert_eq!(exported.status, 201, "{}", exported.text);
    let body = &exported.body;
    let fields = [
        "export_id",
        "roaming_token",
        "session_id",
        "expires_at",
        "bundle_cid",
        "bundle_hash",
        "message_count",
        "label",
        "with_memory",
    ];
    assert_eq!(names(body), fields);
    assert_eq!(
        (&body["session_id"], &body["message_count"], &body["label"]),
        (&json!(session.id), &json!(4), &json!("to the lake"))
    );
    assert_eq!(body["bundle_hash"], body["bundle_cid"]);
    assert!(text(&body["bundle_cid"]).parse::<Cid>().is_ok());
    assert!(text(&body["export_id"]).parse::<ExportId>().is_ok());
    // The session is as it was, and goes on.
    assert_eq!(bench.say(&session, "echo 3").await.content(), "3");
}

#[tokio::test]
async fn sbp_l3_01_a_token_lives_for_a_day_unless_something_else_is_said() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    for (asked, seconds) in [
        (json!({}), 86_400),
        (Value::Null, 86_400),
        (json!({ "ttl_seconds": null }), 86_400),
        (json!({ "ttl_seconds": 60 }), 60),
        (json!({ "ttl_seconds": 604_800 }), 604_800),
    ] {
        for base in ["/v1/sbp/sessions", "/v1/sessions"] {
            let path = format!("{base}/{}/export", session.id);
            let exported = bench.call(Method::POST, &path, &[], &asked).await;
            assert_eq!(exported.status, 201, "{asked}: {}", exported.text);
            let token = text(&exported.body["roaming_token"]);
            let seen = bench.inspect(&token).await.body;
            let lasts =
                time(&exported.body["expires_at"]).duration_since(time(&seen["created_at"]));
            assert_eq!(lasts, SignedDuration::from_secs(seconds), "{asked}");
        }
    }
    for wrong in [json!(59), json!(604_801), json!(0), json!(-60), json!("60"), json!(60.5)] {
        let refused = bench.export(&session, json!({ "ttl_seconds": wrong })).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{wrong}");
        assert!(refused.text.contains("ttl_seconds") || !wrong.is_u64(), "{}", refused.text);
    }
    assert_eq!(list(&bench.get(&of(&session, "exports")).await.body["exports"]).len(), 10);
}

#[tokio::test]
async fn sbp_l3_01_a_label_has_at_most_120_characters() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (longest, too_long) = ("é".repeat(120), "é".repeat(121));
    let exported = bench.export(&session, json!({ "label": longest })).await;
    assert_eq!((exported.status, &exported.body["label"]), (201, &json!(longest)));
    let refused = bench.export(&session, json!({ "label": too_long })).await;
    assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"));
    assert_eq!(refused.body["error"]["param"], "label");
    let empty = bench.export(&session, json!({ "label": "" })).await;
    assert_eq!((empty.status, &empty.body["label"]), (201, &Value::Null), "no label");
}

#[tokio::test]
async fn sbp_l3_02_a_token_is_a_jwt_that_names_the_export_and_its_end() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let exported = bench.export(&session, json!({})).await.body;
    let token = text(&exported["roaming_token"]);
    let [header, claims] = parts(&token);
    assert_eq!((&header["alg"], &header["typ"]), (&json!("HS256"), &json!("JWT")));
    assert_eq!(names(&claims), ["sub", "sid", "iat", "exp"]);
    assert_eq!((&claims["sub"], &claims["sid"]), (&exported["export_id"], &json!(session.id)));
    assert_eq!(claims["exp"], json!(time(&exported["expires_at"]).as_second()));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 86_400);
    let (a, b) = (bench.signing_key().await, Bench::start().await.signing_key().await);
    assert_ne!(a.secret, b.secret, "each gateway has a secret of its own");
}

#[tokio::test]
async fn sbp_l3_03_a_bundle_holds_the_whole_session() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.prices.insert("*".into(), Price { input: 1.0, output: 0.0 });
    })
    .await;
    let session = bench.session().await;
    bench.say_to(&session, "gpt-x", "one").await;
    bench.say_to(&session, "gpt-y", "two").await;
    let exported = bench.export(&session, json!({ "label": "l" })).await.body;
    let path = of(&session, &format!("exports/{}/bundle", text(&exported["export_id"])));
    let bundle = bench.get(&path).await;
    assert_eq!((bundle.status, bundle.header("content-type")), (200, "application/json"));
    let body = &bundle.body;
    assert_eq!((&body["sbp_version"], &body["label"]), (&json!("1.0"), &json!("l")));
    assert_eq!(body["bundle_cid"], exported["bundle_cid"]);
    let shown = bench.show(&session).await;
    let part = &body["session"];
    for (name, value) in [
        ("id", json!(session.id)),
        ("agent_external_id", json!("default")),
        ("status", json!("running")),
        ("last_task", json!("two")),
        ("created_at", shown["created_at"].clone()),
        ("step_count", json!(2)),
    ] {
        assert_eq!(part[name], value, "{name}");
    }
    let entries = bench.entries(&session).await;
    let messages = list(&body["messages"]);
    assert_eq!(messages.len(), 4);
    for (message, entry) in messages.iter().zip(&entries) {
        for name in ["model_used", "cost_usd", "created_at"] {
            assert_eq!(message[name], entry[name], "{name}");
        }
        assert_eq!(message["role"], entry["message"]["role"]);
        assert_eq!(message["content"], entry["message"]["content"]);
    }
    assert_eq!(messages[1]["model_used"], "gpt-x");
    assert_eq!(messages[3]["cost_usd"], 0.001);
    assert_eq!(body["memory"], Value::Null);
    assert_eq!(body["state_snapshot"]["bowline"]["seq"], 4);
    assert_eq!(body["metadata"]["export_id"], exported["export_id"]);
    assert_eq!(body["metadata"]["message_count"], 4);
    assert_eq!(body["metadata"]["total_cost_usd"], 0.002);
}

#[tokio::test]
async fn sbp_l3_04_the_content_id_is_the_hash_of_all_else() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let text = bench.bundle_of(&session).await;
    let bundle = parsed(&text);
    assert_eq!(part(&bundle, &["bundle_cid"]), format!("\"{}\"", Cid::of_bundle(&bundle)));
    assert_eq!(parsed(&sealed(&text)), bundle);
}

#[tokio::test]
async fn sbp_l3_09_looking_at_a_token_does_not_use_it_up() {
    let bench = Bench::start().await;
    let session = bench.session_with(2).await;
    let exported = bench.export(&session, json!({ "label": "l" })).await.body;
    let token = text(&exported["roaming_token"]);
    for _ in 0..3 {
        let seen = bench.inspect(&token).await;
        assert_eq!(seen.status, 200);
        for name in
            ["export_id", "session_id", "label", "message_count", "bundle_cid", "expires_at"]
        {
            assert_eq!(seen.body[name], exported[name], "{name}");
        }
        let state = ["expired", "consumed", "valid"].map(|name| seen.body[name].clone());
        assert_eq!(state, [json!(false), json!(false), json!(true)]);
    }
    made(&bench.import_token(&token).await);
    let seen = bench.inspect(&token).await.body;
    assert_eq!((&seen["consumed"], &seen["valid"]), (&json!(true), &json!(false)));
    assert_eq!(seen["expired"], false);
    for wrong in ["not-a-token", "%ff", "%00", "a.b.c"] {
        assert_eq!(bench.inspect(wrong).await.refusal(), (422, "SBP_TOKEN_INVALID"), "{wrong}");
    }
}

#[tokio::test]
async fn sbp_l3_09_an_expired_token_can_still_be_looked_at() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let expired = bench.expired(&token, 1).await;
    let seen = bench.inspect(&expired).await;
    assert_eq!((seen.status, &seen.body["expired"]), (200, &json!(true)), "{}", seen.text);
    assert_eq!((&seen.body["consumed"], &seen.body["valid"]), (&json!(false), &json!(false)));
    assert_eq!(bench.inspect(&token).await.body["valid"], true);
    // Its bundle was thrown away; what it was is still known.
    let later = Timestamp::now() + SignedDuration::from_hours(25);
    assert_eq!(bench.store.forget_bundles(later).await, Ok(1));
    let seen = bench.inspect(&token).await.body;
    assert_eq!((&seen["session_id"], &seen["valid"]), (&json!(session.id), &json!(false)));
}

#[tokio::test]
async fn sbp_l3_06_a_token_is_refused_from_the_second_of_its_end() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    for ago in [0, 1, 100_000] {
        let refused = bench.import_token(&bench.expired(&token, ago).await).await;
        assert_eq!(refused.refusal(), (410, "SBP_TOKEN_EXPIRED"), "{ago}");
    }
    // An export that had ended before anyone came.
    let bundle = bench.bundle_of(&session).await;
    let at = Timestamp::from_second(Timestamp::now().as_second() - 120).unwrap();
    let export = NewExport {
        id: ExportId(Uuid::now_v7()),
        session_id: session.id.parse().unwrap(),
        cid: *Cid::of_bundle(&parsed(&bundle)).as_bytes(),
        label: None,
        message_count: 2,
        with_memory: false,
        bundle: bundle.clone().into_bytes(),
        at,
        expires_at: at + SignedDuration::from_secs(60),
        spender: None,
        peer: None,
        announce: false,
    };
    let claims = RoamingClaims {
        sub: export.id,
        sid: export.session_id,
        iat: at.as_second(),
        exp: export.expires_at.as_second(),
    };
    bench.store.keep_export(export).await.unwrap();
    let old = claims.sign(&bench.signing_key().await);
    let refused = bench.import_token(&old).await;
    assert_eq!(refused.refusal(), (410, "SBP_TOKEN_EXPIRED"), "{}", refused.text);
    let reused = bench.import(json!({ "roaming_token": old, "allow_reuse": true })).await;
    assert_eq!(reused.refusal(), (410, "SBP_TOKEN_EXPIRED"), "for forks, too");
    assert_eq!(bench.sessions().await.len(), 1);
    made(&bench.import_token(&token).await);
}

#[tokio::test]
async fn sbp_l3_02_tokens_outlive_the_key_that_signed_them() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let kid = |token: &str| text(&parts(token)[0]["kid"]);
    let old = bench.token_of(&session).await;
    let refused = bench.post("/v1/sbp/keys/rotate", json!({})).await;
    assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "not by whoever comes: {}", refused.text);
    let rotated = bench.post_as_owner("/v1/sbp/keys/rotate", json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_eq!(rotated.body["known_keys"], json!([kid(&old)]));
    let new = bench.token_of(&session).await;
    assert_ne!(kid(&old), kid(&new));
    assert_eq!(rotated.body["key_id"], kid(&new));
    let again = bench.token_of(&session).await;
    assert_eq!(kid(&again), kid(&new));
    made(&bench.import_token(&old).await);

    let unused = bench.token_of(&session).await;
    let bench = bench.reopened().await;
    assert_eq!(bench.inspect(&old).await.body["consumed"], true);
    for token in [new, unused] {
        made(&bench.import_token(&token).await);
    }
    assert_eq!(kid(&bench.token_of(&session).await), kid(&again), "the newest signs");
}

#[tokio::test]
async fn sbp_l3_14_an_ended_session_can_be_packed_split_and_handed_over_but_takes_no_turn() {
    let bench = Bench::start().await;
    for status in ["completed", "failed"] {
        let session = bench.session_with(2).await;
        let path = format!("/v1/sessions/{}/status", session.id);
        let ended = bench.call(Method::PATCH, &path, &[], &json!({ "status": status })).await;
        assert_eq!(ended.status, 200);
        assert_eq!(bench.say(&session, "echo 3").await.refusal(), (409, "SBP_SESSION_CONFLICT"));

        let token = bench.token_of(&session).await;
        let copies = [
            made(&bench.import_token(&token).await),
            made(&bench.import_bytes(carried(&bench.bundle_of(&session).await).into()).await),
            crate::roaming::forked(&bench.fork(&session, json!({})).await),
            made(&bench.hand_off(&session, "another").await),
        ];
        for copy in &copies {
            assert_eq!(bench.words(copy).await[..4], ["echo 1", "1", "echo 2", "2"]);
            assert_eq!(bench.say(copy, "echo on").await.content(), "on", "they go on");
        }
        let left = bench.show(&session).await;
        assert_eq!((&left["status"], &left["message_count"]), (&json!(status), &json!(4)));
        assert_eq!(left["handed_off_to"], json!(copies[3].id));
        assert_eq!(bench.say(&session, "echo 3").await.refusal(), (409, "SBP_SESSION_CONFLICT"));
    }
}

#[tokio::test]
async fn sbp_l3_05_an_import_goes_on_with_the_instruction_and_the_newest_answers() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let message = |role: &str, text: &str| json!({ "role": role, "content": text });
    let send = async |instruction: &str, more: &[Value]| {
        let mut messages = vec![message("system", instruction), message("user", "one")];
        messages.extend_from_slice(more);
        let sbp = json!({ "session_id": session.id });
        let said = bench.chat(json!({ "model": "m", "messages": messages, "sbp": sbp })).await;
        assert_eq!(said.status, 200, "{}", said.text);
    };
    send("it is ten", &[]).await;
    let later = [message("assistant", "answer 1"), message("user", "two")];
    send("it is eleven", &later).await;
    send("it is twelve", &later).await;
    let bundle = bench.bundle_of(&session).await;
    let imported = bench.import_bundle(&bundle).await;
    let imported = crate::bench::Session::of(&imported.body);
    bench.say(&imported, "three").await;
    let told = upstream.calls().pop().unwrap().said();
    let expected = [
        "system: it is twelve",
        "user: one",
        "assistant: answer 1",
        "user: two",
        "assistant: answer 3",
    ];
    assert_eq!(told[..5], expected, "{told:?}");
    assert_eq!(told.last().unwrap(), "user: three");
    assert_eq!(told.len(), 7, "and what is told of the import: {told:?}");
}
