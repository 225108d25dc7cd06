//! Paired devices: whose they are, what they may do, and what they are not taken for (G20, G21, G22).

use bowline_gateway::config::Loopback;
use bowline_net::DeviceEntry;
use bowline_sbp::access::{Scope, Scopes};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, LOCAL_KEY, Session, list, plain, turn};
use crate::locked::{KEY, bearer, lock};
use crate::paired::{DevicePort, Paired, pair};
use crate::people::{call, get, person, session_of, share};

#[tokio::test]
async fn g20_a_device_uses_what_is_its_users_and_nothing_else() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let phone = Paired::of(&bench, "ada").await;
    let hers = session_of(&bench, &ada.key).await;
    let his = session_of(&bench, &bob.key).await;
    for port in [&phone.own, &phone.programs] {
        let seen = port.get("/v1/sessions").await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        assert!(seen.text.contains(&hers.id) && !seen.text.contains(&his.id), "{}", seen.text);
        let said = port.post("/v1/chat/completions", turn(&hers, "m", "echo hi")).await;
        assert_eq!((said.status, said.content()), (200, "hi"), "{}", said.text);
        let one = format!("/v1/sessions/{}", his.id);
        assert_eq!(port.get(&one).await.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
        let talk = port.post("/v1/chat/completions", turn(&his, "m", "echo hi")).await;
        assert_eq!(talk.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
        assert_eq!(port.get("/v1/users").await.status, 403);
        // A session of its own is its user's.
        let made = port.session().await;
        assert_eq!(get(&bench, &ada.key, &format!("/v1/sessions/{}", made.id)).await.status, 200);
        let (_surface, welcome) = port.attach(&made, "").await;
        assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
        let (_surface, refused) = port.attach(&his, "").await;
        assert_eq!(refused["type"], "SESSION_NOT_FOUND", "{refused}");
    }
    share(&bench, &bob.key, &his, "ada", "talk").await;
    let talk = phone.own.post("/v1/chat/completions", turn(&his, "m", "echo hi")).await;
    assert_eq!(talk.status, 200, "{}", talk.text);
}

#[tokio::test]
async fn g20_a_devices_scopes_hold_and_its_session_tokens_do_no_more() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let reads = Paired::with(&bench, Some("ada"), Some(Scopes::of(&[Scope::Read]))).await;
    assert_eq!(reads.own.get(&format!("/v1/sessions/{}", session.id)).await.status, 200);
    let said = reads.own.post("/v1/chat/completions", turn(&session, "m", "echo x")).await;
    assert_eq!(said.refusal(), (403, "SBP_FORBIDDEN"));
    assert!(said.text.contains("`turns`"), "{}", said.text);
    let (_surface, refused) = reads.own.attach(&session, "").await;
    assert_eq!(refused["type"], "FORBIDDEN", "{refused}");
    let talks = Paired::with(&bench, Some("ada"), Some(Scopes::of(&[Scope::Turns]))).await;
    assert_eq!(talks.own.session().await.token, "", "a token may do more");
    let all = Paired::of(&bench, "ada").await;
    assert!(all.own.session().await.token.starts_with("sbt_"));
}

#[tokio::test]
async fn g21_programs_behind_a_device_never_approve_and_never_manage() {
    let bench = Bench::start().await;
    let owners = Paired::with(&bench, None, Some(Scopes::all())).await;
    let session = bench.session().await;
    let id = Uuid::now_v7();
    let path = format!("/v1/sessions/{}/approvals/{id}", session.id);
    let decision = json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true });
    for (port, is_person) in [(&owners.own, true), (&owners.programs, false)] {
        let said = port.post(&path, json!({ "approved": true })).await;
        assert_eq!(said.status, if is_person { 404 } else { 403 }, "{}", said.text);
        for path in ["/v1/users", "/v1/devices", "/v1/audit", "/metrics"] {
            let seen = port.get(path).await.status;
            assert_eq!(seen, if is_person { 200 } else { 403 }, "{path}");
        }
        // With the session's token in the frame as well.
        for token in ["", session.token.as_str()] {
            let (mut surface, welcome) = port.attach(&session, token).await;
            assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
            surface.send(decision.clone()).await;
            surface.send(json!({ "type": "PING" })).await;
            let answers = surface.until("PONG").await;
            let refused = answers.iter().any(|frame| frame["type"] == "PROTOCOL_ERROR");
            assert_eq!(refused, !is_person, "{answers:?}");
        }
    }
}

#[tokio::test]
async fn g20_an_open_gateway_is_not_open_to_devices() {
    for loopback in [Loopback::Auto, Loopback::Open] {
        let bench = Bench::with(|config| config.access.loopback = loopback).await;
        assert!(bench.gateway.is_open());
        let session = bench.session().await;
        let one = format!("/v1/sessions/{}", session.id);
        let key = bench.post_as_owner("/v1/keys", json!({ "name": "laptop" })).await;
        let of_a_key = key.body["id"].as_str().unwrap();
        let entry = |id: &str| DeviceEntry { id: id.into(), programs: false };
        let reads = Paired::with(&bench, None, Some(Scopes::of(&[Scope::Read]))).await;
        for unknown in ["0123456789abcdef", "", of_a_key] {
            let port = DevicePort::open(&bench, entry(unknown)).await;
            for path in ["/v1/sessions", "/v1/models", "/metrics", &one] {
                let refused = port.get(path).await;
                assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{path}");
            }
            let (_surface, refused) = port.attach(&session, "").await;
            assert_eq!(refused["type"], "FORBIDDEN", "{refused}");
        }
        // Nor is a key that is no key ignored, as it is on this machine. At a local port, where SDKs
        // have to show something, it is the device's credential that counts, and no more.
        for wrong in ["x", "a-key-that-nobody-was-given-to-use-here"] {
            assert_eq!(bench.call_with(wrong, "/v1/sessions").await, 200);
            for (port, status) in [(&reads.own, 403), (&reads.programs, 200)] {
                let listed = port.get_with(wrong, "/v1/sessions").await;
                assert_eq!(listed.status, status, "{wrong}");
                let mcp = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
                let bearer = bearer(wrong);
                let headers = [
                    ("authorization", bearer.as_str()),
                    ("accept", "application/json, text/event-stream"),
                ];
                let said = port.call(Method::POST, "/mcp", &headers, &mcp).await;
                assert_eq!(said.status, status, "{}", said.text);
                // It takes `turns` in any case.
                let chat = plain("m", "echo x");
                let said =
                    port.call(Method::POST, "/v1/chat/completions", &headers[..1], &chat).await;
                assert_eq!(said.status, 403, "{}", said.text);
            }
        }
        let said = reads.own.post("/v1/sessions", json!({})).await;
        assert_eq!(said.refusal(), (403, "SBP_FORBIDDEN"), "its scopes hold");
    }
}

impl Bench {
    async fn call_with(&self, key: &str, path: &str) -> u16 {
        get(self, key, path).await.status
    }
}

#[tokio::test]
async fn g20_the_local_key_does_not_count_from_a_device_whatever_its_headers_say() {
    let bench = Bench::start().await;
    let phone = Paired::with(&bench, None, Some(Scopes::all())).await;
    let session = bench.session().await;
    assert_eq!(get(&bench, LOCAL_KEY, "/v1/users").await.status, 200);
    let local = bearer(LOCAL_KEY);
    for port in [&phone.own, &phone.programs] {
        for forwarded in [None, Some(("x-forwarded-for", "127.0.0.1"))] {
            let headers: Vec<_> =
                [("authorization", local.as_str())].into_iter().chain(forwarded).collect();
            let said = port.call(Method::GET, "/v1/users", &headers, &Value::Null).await;
            assert_eq!(said.refusal(), (403, "SBP_FORBIDDEN"), "{}", said.text);
        }
        let (_surface, refused) = port.attach(&session, LOCAL_KEY).await;
        assert_eq!(refused["type"], "FORBIDDEN", "{refused}");
    }
}

#[tokio::test]
async fn g20_keys_and_tokens_that_a_device_shows_count_as_anywhere() {
    let bench = Bench::with(lock).await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let hers = session_of(&bench, &ada.key).await;
    let one = format!("/v1/sessions/{}", hers.id);
    let device = call(&bench, &ada.key, Method::POST, &format!("{one}/surfaces"), json!({})).await;
    let device = device.body["surface_token"].as_str().unwrap();
    let his = Paired::of(&bench, "bob").await;
    assert_eq!(his.own.get(&one).await.status, 404);
    for (shown, status) in [
        (ada.key.as_str(), 200),
        (&hers.token, 200),
        (device, 200),
        (KEY, 404),
        (&bob.key, 404),
        ("bk_0001020304050607.AAAA", 403),
        ("sbt_a-token-that-opens-nothing-at-all", 403),
    ] {
        for port in [&his.own, &his.programs] {
            assert_eq!(port.get_with(shown, &one).await.status, status, "{shown}");
        }
    }
    // A program has to show some key, as SDKs do; the device itself means what it shows.
    for (shown, [own, programs]) in [("sk-none", [403, 200]), (&"x".repeat(40), [403, 200])] {
        assert_eq!(his.own.get_with(shown, "/v1/sessions").await.status, own, "{shown}");
        assert_eq!(his.programs.get_with(shown, "/v1/sessions").await.status, programs, "{shown}");
    }
    for (shown, attached) in [(hers.token.as_str(), true), (device, true), ("wrong", false)] {
        let (_surface, first) = his.own.attach(&hers, shown).await;
        assert_eq!(first["type"] == "SESSION_ATTACHED", attached, "{first}");
    }
}

#[tokio::test]
async fn g20_a_revoked_device_opens_nothing_and_its_surfaces_are_cut_off() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    for (path, shown) in [("/v1/devices", ""), ("/v1/keys", ""), ("/v1/devices", "token")] {
        let phone = Paired::of(&bench, "ada").await;
        let mut changed = bench.gateway.devices().changed();
        let token = if shown.is_empty() { "" } else { session.token.as_str() };
        let (mut surface, welcome) = phone.own.attach(&session, token).await;
        assert_eq!(welcome["type"], "SESSION_ATTACHED", "{welcome}");
        let path = format!("{path}/{}", phone.device.id);
        let revoked = call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
        assert_eq!(revoked.status, 204, "{}", revoked.text);
        let again = call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
        assert_eq!(again.status, 404, "{}", again.text);
        surface.until("FORBIDDEN").await;
        assert_eq!(surface.closed().await, 4003);
        let refused = phone.own.get("/v1/sessions").await;
        assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"));
        assert!(refused.text.contains("unpaired"), "{}", refused.text);
        changed.changed().await.unwrap();
        assert_eq!(bench.gateway.devices().find(&phone.device.key).await.unwrap(), None);
        assert!(bench.gateway.devices().all().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn g20_a_disabled_users_device_opens_nothing_until_the_user_is_enabled() {
    let bench = Bench::start().await;
    person(&bench, "ada").await;
    let phone = Paired::of(&bench, "ada").await;
    let devices = bench.gateway.devices();
    assert_eq!(devices.find(&phone.device.key).await.unwrap(), Some(phone.device.clone()));
    for (disabled, status) in [(true, 403), (false, 200)] {
        let change = json!({ "disabled": disabled });
        call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/ada", change).await;
        assert_eq!(phone.own.get("/v1/sessions").await.status, status);
        let found = devices.find(&phone.device.key).await.unwrap();
        assert_eq!(found.is_some(), !disabled);
        assert_eq!(devices.all().await.unwrap().len(), usize::from(!disabled));
    }
}

#[tokio::test]
async fn g11_foreign_pages_and_names_are_kept_out_at_a_devices_port_of_a_public_gateway() {
    let bench = Bench::with(|config| {
        lock(config);
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.behind_proxy = vec!["192.0.2.1".parse::<std::net::IpAddr>().unwrap().into()];
        config.http.allowed_origins = vec!["*".into(), "https://app.example".into()];
        config.http.allowed_hosts = vec!["laptop.lan".into()];
    })
    .await;
    let phone = Paired::with(&bench, None, None).await;
    let port = &phone.programs;
    let session = port.session().await;
    let here = port.address.to_string();
    let own_page = format!("http://{here}");
    for (host, origin, welcome) in [
        (here.as_str(), None, true),
        ("localhost", None, true),
        ("laptop.lan:8080", None, true),
        (&here, Some(own_page.as_str()), true),
        (&here, Some("https://app.example"), true),
        (&here, Some("https://evil.example"), false),
        (&here, Some("null"), false),
        ("evil.example", None, false),
        ("gateway.example", None, false),
        ("evil.example", Some("http://evil.example"), false),
    ] {
        let mut headers = vec![("Host", host)];
        headers.extend(origin.map(|origin| ("Origin", origin)));
        let seen = port.call(Method::GET, "/v1/sessions", &headers, &Value::Null).await;
        assert_eq!(seen.status, if welcome { 200 } else { 403 }, "{headers:?}");
        let refused = port.socket_with(&session.id, &headers).await.err();
        assert_eq!(refused, (!welcome).then_some(403), "{headers:?}");
    }
}

#[tokio::test]
async fn g22_what_a_device_says_of_proxies_is_ignored_and_records_name_the_device() {
    let bench = Bench::with(|config| {
        config.behind_proxy = vec!["0.0.0.0/0".parse().unwrap()];
    })
    .await;
    let phone = Paired::with(&bench, None, None).await;
    let headers = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];
    let made = phone.own.call(Method::POST, "/v1/sessions", &headers, &json!({})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let session = Session::of(&made.body);
    // With a token the credential is the session's: the device is named as well.
    let path = format!("/v1/sessions/{}/fork", session.id);
    let bearer = bearer(&session.token);
    let shown = [headers[0], ("authorization", bearer.as_str())];
    let forked = phone.own.call(Method::POST, &path, &shown, &json!({})).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    let audit = get(&bench, LOCAL_KEY, "/v1/audit?limit=1000").await;
    let entries = list(&audit.body["entries"]);
    let of = |action: &str| {
        let found = entries.iter().find(|entry| entry["action"] == action);
        found.unwrap_or_else(|| panic!("no {action}: {}", audit.text))
    };
    let (id, device) = (phone.device.id.to_string(), format!("device:{}", phone.device.id));
    for (action, credential) in
        [("device.pair", id.as_str()), ("session.create", &id), ("session.fork", "session")]
    {
        let entry = of(action);
        assert_eq!((&entry["credential"], &entry["address"]), (&json!(credential), &json!(device)));
    }
    assert!(!audit.text.contains("203.0.113.9"), "{}", audit.text);
    assert_eq!(of("device.offer")["credential"], "gateway");
}

#[tokio::test]
async fn g3_idempotency_keys_and_retries_of_two_devices_are_apart() {
    let bench = Bench::start().await;
    person(&bench, "ada").await;
    person(&bench, "bob").await;
    let (hers, his) = (Paired::of(&bench, "ada").await, Paired::of(&bench, "bob").await);
    let mut made = Vec::new();
    for phone in [&hers, &his, &hers] {
        let key = [("idempotency-key", "one")];
        let said = phone.own.call(Method::POST, "/v1/sessions", &key, &json!({})).await;
        assert_eq!(said.status, 201, "{}", said.text);
        made.push(Session::of(&said.body).id);
    }
    assert_ne!(made[0], made[1]);
    assert_eq!(made[0], made[2]);
    // A request that an SDK sends again joins its first try, and nobody else's.
    let body = json!({
        "model": "m", "messages": [{ "role": "user", "content": "echo x" }], "sbp": {},
    });
    let retry = [("x-stainless-retry-count", "1")];
    let mut answered = Vec::new();
    for phone in [&hers, &his, &hers] {
        let said = phone.own.call(Method::POST, "/v1/chat/completions", &retry, &body).await;
        assert_eq!(said.status, 200, "{}", said.text);
        answered.push(said.body["sbp"]["session_id"].as_str().unwrap().to_owned());
    }
    assert_ne!(answered[0], answered[1]);
    assert_eq!(answered[0], answered[2]);
}

#[tokio::test]
async fn a_device_that_is_paired_again_has_one_credential() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let first = Paired::with(&bench, None, None).await;
    assert_eq!(first.own.get("/v1/sessions").await.status, 200);
    let second = pair(&bench, first.device.key, Some("ada"), None).await;
    assert_ne!(first.device.id, second.id);
    let devices = bench.gateway.devices();
    assert_eq!(devices.find(&first.device.key).await.unwrap(), Some(second.clone()));
    assert_eq!(devices.all().await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(first.own.get("/v1/sessions").await.status, 403, "what it was before is revoked");
    let hers = session_of(&bench, &ada.key).await;
    let port = DevicePort::open(&bench, second.entry(false)).await;
    assert!(port.get("/v1/sessions").await.text.contains(&hers.id));
    let refused = devices.pair(first.device.key, "phone", |_| true).await;
    assert!(refused.is_err(), "only with a code");
    assert_eq!(devices.find(&first.device.key).await.unwrap(), Some(second));
}
