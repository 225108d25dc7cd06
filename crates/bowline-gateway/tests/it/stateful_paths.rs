//! Paths under which a server keeps what it is sent: off, unless the owner allows them.

use bowline_gateway::config::STATEFUL_PATHS;
use reqwest::Method;
use serde_json::json;

use crate::bench::{Bench, some_of};
use crate::echo_upstream::{EchoUpstream, binary};

async fn allowing(upstream: &EchoUpstream, paths: &[&str]) -> Bench {
    let paths = paths.iter().map(|path| path.to_string()).collect();
    Bench::with(|config| {
        // Its models do not matter: such a request need not name one.
        upstream.configure(config, "keeper", &["a"]);
        upstream.configure(config, "any", &[]);
        config.upstream.get_mut("any").unwrap().url = "http://127.0.0.1:1/v1".into();
        config.upstream.get_mut("keeper").unwrap().stateful_paths = paths;
    })
    .await
}

#[tokio::test]
async fn paths_that_keep_things_are_off_and_say_why_and_how_to_allow_them() {
    let upstream = EchoUpstream::start().await;
    let bench = allowing(&upstream, &["/v1/responses"]).await;
    for path in STATEFUL_PATHS.iter().filter(|path| **path != "/v1/responses") {
        for (method, address) in [
            (Method::GET, path.to_string()),
            (Method::POST, path.to_string()),
            (Method::DELETE, format!("{path}/id")),
            (Method::GET, format!("{path}/id/content")),
        ] {
            let body = json!({ "model": "a" });
            let refused = bench.call(method, &address, &[], &body).await;
            assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{address}");
            assert!(refused.text.contains("share its key"), "{}", refused.text);
            let how = format!("stateful_paths = [\\\"{path}\\\"]");
            assert!(refused.text.contains(&how), "{}", refused.text);
        }
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn an_allowed_path_passes_every_method_and_what_is_below_it() {
    let upstream = EchoUpstream::start().await;
    let bench = allowing(&upstream, &["/v1/responses", "/v1/files"]).await;
    for (method, address, body) in [
        (Method::POST, "/v1/responses", "{\"model\":\"x\",\"input\":\"hi\"}"),
        (Method::GET, "/v1/responses/resp_1?include%5B%5D=a&after=b", ""),
        (Method::POST, "/v1/responses/resp_1/cancel", ""),
        (Method::GET, "/v1/files/file-1/content", ""),
        (Method::PUT, "/v1/files/a%20b.txt", "x"),
        (Method::PATCH, "/v1/files/f", "x"),
        (Method::DELETE, "/v1/files/file-1", ""),
        (Method::GET, "/v1/files/", ""),
    ] {
        let mut request = bench.http.request(method.clone(), bench.url(address));
        request = request.header("OpenAI-Beta", "assistants=v2").header("X-Session-Token", "");
        if !body.is_empty() {
            request = request.body(body);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 201, "{method} {address}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["content-security-policy"], "sandbox");
        assert_eq!(response.bytes().await.unwrap(), binary());
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.line, format!("{method} {address}"));
        assert_eq!(seen.body, body);
        assert_eq!(seen.header("openai-beta"), "assistants=v2");
        assert_eq!(seen.header("transfer-encoding"), "", "no body stays no body");
    }
}

#[tokio::test]
async fn an_address_cannot_leave_an_allowed_path() {
    let upstream = EchoUpstream::start().await;
    let bench = allowing(&upstream, &["/v1/files"]).await;
    // Raw, because a client would clean the address up.
    for address in [
        "/v1/files/../batches",
        "/v1/files/..",
        "/v1/files/./../batches",
        "/v1/files/%2e%2e/batches",
        "/v1/files/.%2E/batches",
        "/v1/files/..%2fbatches",
        "/v1/files/x%2f..%2f..%2fbatches",
        "/v1/files/x%5c..%5cbatches",
        "/v1/files//batches",
        "/v1/files/%252e%252e/batches",
        "/v1/files/%00",
        "/v1/files/%0d%0aX: y",
        "/v1/filesystem",
        "/v1/files%2f..%2fbatches",
    ] {
        let address = address.replace(' ', "%20");
        let text =
            format!("GET {address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let said = some_of(&mut bench.raw(&text).await).await;
        let status = &said[..said.len().min(12)];
        assert!(["HTTP/1.1 400", "HTTP/1.1 404"].contains(&status), "{address}: {said}");
    }
    assert_eq!(upstream.seen().len(), 0);
    for method in ["TRACE", "CONNECT", "OPTIONS"] {
        let text = format!("{method} /v1/files HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let said = some_of(&mut bench.raw(&text).await).await;
        assert!(said.starts_with("HTTP/1.1 4"), "{method}: {said}");
    }
    assert_eq!(upstream.seen().len(), 0, "an echo would show the gateway's key");
}
