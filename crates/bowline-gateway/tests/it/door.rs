//! The door: who is let in before anything else of a request is read, and what the path there may be.

use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::config::{Config, Loopback};
use bowline_gateway::{Gateway, StartError, identity_file};
use bowline_net::DoorError;
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::bench::{Bench, LOCAL_KEY, some_of};
use crate::locked::{KEY, bearer, lock};
use crate::operations::documented;
use crate::people::{call, key, person};

/// Keys and tokens in every form that the gateway knows, none of them right.
const WRONG: [&str; 5] = [
    "a-key-that-nobody-was-given",
    "bk_0001020304050607.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "sbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "sbd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "short",
];

#[tokio::test]
async fn g11_a_wrong_credential_is_refused_before_the_body_is_read() {
    let bench = Bench::with(|config| {
        lock(config);
        config.limits.body_timeout = Duration::from_secs(3600);
    })
    .await;
    let document = bench.get("/openapi.json").await.body;
    let routes = documented(&document).into_iter().filter(|(method, _)| *method != Method::GET);
    let routes: Vec<_> = routes.chain([(Method::POST, "/mcp".to_owned())]).collect();
    assert!(routes.len() > 30, "{}", routes.len());
    for (method, path) in routes {
        let path = path.replace("{id}", "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f");
        let path = path.replace(['{', '}'], "");
        let shown = WRONG.map(|wrong| format!("Authorization: Bearer {wrong}\r\n"));
        let tokens = WRONG.map(|wrong| format!("X-Session-Token: {wrong}\r\n"));
        for header in shown.iter().chain(&tokens).map(String::as_str).chain([""]) {
            for expect in ["", "Expect: 100-continue\r\n"] {
                // A part of the body, and then nothing more.
                let part = if expect.is_empty() { "{" } else { "" };
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}{expect}Content-Type: \
                     application/json\r\nAccept: application/json, text/event-stream\r\n\
                     Content-Length: 1000\r\n\r\n{part}"
                );
                let mut socket = bench.raw(&head).await;
                let said = some_of(&mut socket).await;
                let refused = ["HTTP/1.1 401 ", "HTTP/1.1 403 ", "HTTP/1.1 404 "];
                let is_refused = refused.iter().any(|status| said.starts_with(status));
                assert!(is_refused, "{method} {path} {header}{expect}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn wrong_keys_never_lock_out_a_right_one_of_the_same_address() {
    let bench = Bench::with(|config| {
        lock(config);
        config.behind_proxy = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let ada = person(&bench, "ada").await;
    let made = call(&bench, &ada.key, Method::POST, "/v1/sessions", json!({})).await;
    let token = made.body["session_token"].as_str().unwrap().to_owned();
    let one = format!("/v1/sessions/{}", made.body["session_id"].as_str().unwrap());
    // Directly, and through a proxy that names one client address for all.
    for forwarded in [None, Some(("x-forwarded-for", "203.0.113.9"))] {
        let get = async |path: &str, shown: &str| {
            let shown = bearer(shown);
            let headers: Vec<_> =
                [("authorization", shown.as_str())].into_iter().chain(forwarded).collect();
            bench.call(Method::GET, path, &headers, &Value::Null).await.status
        };
        for guess in 0..300 {
            let wrong = format!("{}{guess}", WRONG[guess % 4]);
            let status = get("/v1/sessions", &wrong).await;
            assert!([401, 403, 429].contains(&status), "{wrong}: {status}");
        }
        for right in [KEY, &ada.key] {
            assert_eq!(get("/v1/sessions", right).await, 200);
        }
        assert_eq!(get(&one, &token).await, 200);
    }
    assert_eq!(call(&bench, LOCAL_KEY, Method::GET, "/v1/users", Value::Null).await.status, 200);
}

#[tokio::test]
async fn metrics_are_for_this_machine_and_for_admins() {
    let status = async |bench: &Bench, headers: &[(&str, &str)]| {
        bench.call(Method::GET, "/metrics", headers, &Value::Null).await.status
    };
    let proxied = [("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=127.0.0.1")];
    for change in [
        |_: &mut Config| {},
        lock,
        |config: &mut Config| {
            config.access.loopback = Loopback::Open;
        },
    ] {
        let bench = Bench::with(change).await;
        person(&bench, "ada").await;
        let admin = key(&bench, "owner", json!({ "scopes": ["admin"] })).await;
        let reader = key(&bench, "ada", json!({ "scopes": ["read", "turns"] })).await;
        let (admin, reader) = (bearer(&admin.key), bearer(&reader.key));
        assert_eq!(status(&bench, &[]).await, 200, "from this machine");
        assert_eq!(status(&bench, &[("authorization", &reader)]).await, 403);
        for header in proxied {
            let refused = status(&bench, &[header]).await;
            assert!([401, 403].contains(&refused), "{refused}");
            assert_eq!(status(&bench, &[header, ("authorization", &reader)]).await, 403);
            assert_eq!(status(&bench, &[header, ("authorization", &admin)]).await, 200);
        }
    }
    let closed = Bench::with(|config| config.access.loopback = Loopback::Closed).await;
    assert_eq!(status(&closed, &[]).await, 401);
    assert_eq!(status(&closed, &[("authorization", &bearer(LOCAL_KEY))]).await, 200);
}

#[tokio::test]
async fn g20_an_open_gateway_says_why_it_refuses_a_surface_behind_a_proxy() {
    let attach = async |bench: &Bench, headers: &[(&'static str, &str)]| {
        let id = bench.session().await.id;
        let url = format!("ws://{}/v1/sbp/ws/{id}", bench.gateway.address());
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok(_) => None,
            Err(SocketError::Http(response)) => {
                let text = response.body().clone().unwrap_or_default();
                Some((response.status().as_u16(), String::from_utf8(text).unwrap()))
            }
            Err(error) => panic!("{error}"),
        }
    };
    let bench = Bench::start().await;
    for header in ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host"] {
        let (status, text) = attach(&bench, &[(header, "for=203.0.113.9")]).await.unwrap();
        assert_eq!(status, 403, "{header}");
        assert!(text.contains("proxy") && text.contains("auth.api_keys"), "{text}");
    }
    assert_eq!(attach(&bench, &[]).await, None);
    let meant = Bench::with(|config| config.access.loopback = Loopback::Open).await;
    assert_eq!(attach(&meant, &[("forwarded", "for=203.0.113.9")]).await, None);
}

#[tokio::test]
async fn a_public_address_needs_a_path_that_nobody_can_read() {
    let start = async |change: &dyn Fn(&mut Config)| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
        config.auth.api_keys = vec![KEY.into()];
        change(&mut config);
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        let signer = identity_file::load_or_make(folder.path()).unwrap();
        let started = Gateway::start(config, store, None, signer).await;
        started.map(|gateway| (gateway, folder))
    };
    let refused = start(&|_| {}).await.unwrap_err();
    assert!(matches!(refused, StartError::Door(DoorError::Plain(_))), "{refused}");
    start(&|config| config.insecure = true).await.unwrap();
    let network = || vec!["198.51.100.0/24".parse().unwrap()];
    let older: &dyn Fn(&mut Config) = &|config| config.http.trusted_proxies = network();
    for proxy in [&|config: &mut Config| config.behind_proxy = network(), older] {
        let (gateway, _folder) = start(proxy).await.unwrap();
        let port = gateway.address().port();
        let get = async |host: &str| {
            let url = format!("http://{host}:{port}/healthz");
            reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await
        };
        assert_eq!(get("127.0.0.1").await.unwrap().status(), 200, "from this machine");
        // Not from the proxy, and not from loopback: in the clear nobody else is listened to.
        for own in bowline_net::listen::from_elsewhere(gateway.address()) {
            assert!(get(&own.ip().to_string()).await.is_err(), "{own}");
        }
    }
}
