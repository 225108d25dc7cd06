//! Every documented route by every kind of credential, compared with the table of `bowline_sbp::access`
//! (G20).

use bowline_sbp::access::{
    Action, Authorization, Credential, CredentialId, CredentialKind, OWNER, Relation, Scope,
    Scopes, Share, may,
};
use bowline_sbp::id::{SessionId, UserId};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, LOCAL_KEY, plain};
use crate::operations::documented;
use crate::paired::{DevicePort, Paired};
use crate::people::{call, key, person, session_of, share};

/// What a route does. Every documented address is here: a new one fails the test below.
fn action_of(method: &Method, path: &str) -> Option<Action> {
    let path = path.replace("/v1/sbp/sessions", "/v1/sessions");
    let get = *method == Method::GET;
    Some(match path.as_str() {
        "/healthz" | "/readyz" | "/v1/sbp/token/{token}" | "/v1/sbp/identity" => return None,
        path if path.starts_with("/spec/") => return None,
        // Other gateways' tokens, which are no credentials of users: see `federation.rs`.
        "/.well-known/sbp" => return None,
        path if path.starts_with("/v1/sbp/bundles") || path.starts_with("/v1/sbp/federation") => {
            return None;
        }
        // Metrics are open to this machine; but whoever shows a key is asked for the scope.
        "/metrics" | "/v1/sbp/keys/rotate" | "/v1/replicas" => Action::Operate,
        path if path.starts_with("/v1/peers") => Action::Operate,
        path if ["users", "keys", "devices"]
            .iter()
            .any(|kind| path.starts_with(&format!("/v1/{kind}"))) =>
        {
            Action::ManageUsers
        }
        "/v1/mcp/servers/{server}/accept" => Action::Operate,
        "/v1/usage" => Action::ReadUsage,
        "/v1/audit" => Action::ReadAudit,
        path if path.starts_with("/v1/mcp/servers") => Action::UseServers,
        path if path.starts_with("/v1/agents") && get => Action::ReadMemory,
        path if path.starts_with("/v1/agents") => Action::WriteMemory,
        "/v1/sessions" if get => Action::ListSessions,
        "/v1/sessions/search" => Action::ListSessions,
        "/v1/sessions" => Action::CreateSession,
        "/v1/sessions/import" => Action::ImportSession,
        "/v1/sessions/{id}" if get => Action::ReadSession,
        "/v1/sessions/{id}" if *method == Method::DELETE => Action::DeleteSession,
        "/v1/sessions/{id}" | "/v1/sessions/{id}/status" => Action::ChangeSession,
        "/v1/sessions/{id}/cancel" => Action::Talk,
        "/v1/sessions/{id}/turns" | "/v1/sessions/{id}/messages" => Action::ReadSession,
        "/v1/sessions/{id}/blobs/{hash}" | "/v1/sessions/{id}/lineage" => Action::ReadSession,
        "/v1/sessions/{id}/surfaces" if get => Action::ReadSession,
        path if path.starts_with("/v1/sessions/{id}/surfaces") => Action::ManageDevices,
        "/v1/sessions/{id}/approvals" => Action::ReadSession,
        "/v1/sessions/{id}/approvals/{approval_id}" => Action::Decide,
        "/v1/sessions/{id}/token" => Action::ShareSession,
        path if path.starts_with("/v1/sessions/{id}/shares") => Action::ShareSession,
        "/v1/sessions/{id}/export"
        | "/v1/sessions/{id}/exports"
        | "/v1/sessions/{id}/fork"
        | "/v1/sessions/{id}/handoff"
        | "/v1/sessions/{id}/exports/{export_id}/bundle" => Action::TakeAway,
        "/v1/chat/completions" | "/v1/completions" | "/v1/models" | "/v1/models/{model}" => {
            Action::UseModels
        }
        path if ["embeddings", "moderations", "images", "audio"]
            .iter()
            .any(|kind| path.starts_with(&format!("/v1/{kind}"))) =>
        {
            Action::UseModels
        }
        path => panic!("{method} {path} is not in the table of this test"),
    })
}

/// What is shown, and what it stands for.
struct Shown<'a> {
    name: &'static str,
    bearer: String,
    /// The device that it comes from.
    by: Option<&'a DevicePort>,
    credential: Credential,
    relation: Relation,
}

#[tokio::test]
async fn g20_every_route_asks_the_table() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let bob = person(&bench, "bob").await;
    let mut single = Vec::new();
    for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
        let made = key(&bench, "ada", json!({ "scopes": [scope.as_str()] })).await;
        single.push((scope, made.key));
    }
    let admin = bench.post_as_owner("/v1/keys", json!({ "name": "x", "scopes": ["admin"] })).await;
    let admin = admin.body["key"].as_str().unwrap().to_owned();
    let (hers, his) = (Paired::of(&bench, "ada").await, Paired::of(&bench, "bob").await);
    let reading = Scopes::of(&[Scope::Read]);
    let reads = Paired::with(&bench, Some("ada"), Some(reading)).await;
    let owners = Paired::with(&bench, None, Some(Scopes::all())).await;
    let of_key = |user: UserId, scopes: Scopes| Credential {
        kind: CredentialKind::Key(CredentialId::from_bytes([1; 8])),
        user,
        scopes,
    };
    let (a, b) = (UserId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)));
    let all = Scopes::all().without(Scope::Admin);
    let document = bench.get("/openapi.json").await.body;
    let mut checked = 0;
    for (method, path) in documented(&document) {
        let Some(action) = action_of(&method, &path) else {
            assert_ne!(bench.call(method, &path, &[], &Value::Null).await.status, 401, "{path}");
            continue;
        };
        let with_all = [None, Some(Share::Read), Some(Share::Talk), Some(Share::Approve)];
        // Each on a session of its own: some actions delete it.
        let cases = with_all.into_iter().flat_map(|with| {
            let others = if with.is_none() { 12 + single.len() } else { 1 };
            (0..=others).map(move |n| (with, n))
        });
        for (with, n) in cases {
            let session = session_of(&bench, &ada.key).await;
            if let Some(with) = with {
                share(&bench, &ada.key, &session, "bob", with.as_str()).await;
            }
            let id = SessionId(session.id.parse().unwrap());
            let key_of_a = |scopes: &[Scope]| of_key(a, Scopes::of(scopes));
            let own = |name, bearer: &str, credential| Shown {
                name,
                bearer: bearer.to_owned(),
                by: None,
                credential,
                relation: Relation::Own,
            };
            let foreign = |name, bearer: &str, credential| Shown {
                relation: Relation::Foreign,
                ..own(name, bearer, credential)
            };
            let device = |name, by, credential| Shown { by: Some(by), ..own(name, "", credential) };
            let programs = all.without(Scope::Approve);
            let with_bob = with.map_or(Relation::Foreign, Relation::SharedWith);
            let Shown { name, bearer, by, credential, relation } = match n {
                0 => Shown { relation: with_bob, ..own("bob", &bob.key, of_key(b, all)) },
                1 => {
                    Shown { relation: with_bob, ..device("bob's device", &his.own, of_key(b, all)) }
                }
                6 => device("ada's device", &hers.own, of_key(a, all)),
                7 => device("ada's programs", &hers.programs, of_key(a, programs)),
                8 => device("ada's reading device", &reads.own, of_key(a, reading)),
                9 => Shown {
                    relation: Relation::Foreign,
                    ..device("owner's device", &owners.own, of_key(OWNER, Scopes::all()))
                },
                10 => Shown {
                    relation: Relation::Foreign,
                    ..device("owner's programs", &owners.programs, of_key(OWNER, programs))
                },
                // A key that a device shows counts, and not the device.
                11 => Shown {
                    by: Some(&his.own),
                    ..own("ada, by bob's device", &ada.key, of_key(a, all))
                },
                12 => own("token", &session.token, Credential::of_session(id, a)),
                2 => {
                    let path = format!("/v1/sessions/{}/surfaces", session.id);
                    let made = call(&bench, &ada.key, Method::POST, &path, json!({})).await;
                    let token = made.body["surface_token"].as_str().unwrap();
                    own("device", token, Credential::of_device(id, a))
                }
                3 => foreign("admin", &admin, of_key(OWNER, Scopes::of(&[Scope::Admin]))),
                4 => foreign("owner", LOCAL_KEY, Credential::local()),
                5 => own("ada", &ada.key, of_key(a, all)),
                n => {
                    let (scope, key) = &single[n - 13];
                    own(scope.as_str(), key, key_of_a(&[*scope]))
                }
            };
            let expected = may(&credential, action, relation);
            let address = path
                .replace("/v1/users/{name}", "/v1/users/nobody")
                .replace("/v1/keys/{id}", "/v1/keys/nothing")
                .replace("/v1/devices/{id}", "/v1/devices/nothing")
                .replace("{id}", &session.id)
                .replace("{user}", "nobody")
                .replace("{model}", "bowline/offline")
                .replace("{agent_id}", "a");
            // Sessions' tokens also list models, and take turns instead of passing through.
            if action == Action::UseModels && credential.only().is_some() {
                continue;
            }
            let body = match address.ends_with("completions") {
                true => plain("m", "echo x"),
                false => Value::Null,
            };
            let said = match by {
                Some(port) => port.call_with(&bearer, method.clone(), &address, body).await,
                None => call(&bench, &bearer, method.clone(), &address, body).await,
            };
            let got = match (said.status, said.body["error"]["code"].as_str()) {
                (401 | 403, _) => Authorization::Forbidden,
                (404, Some("SBP_SESSION_NOT_FOUND")) => Authorization::NotFound,
                _ => Authorization::Allowed,
            };
            assert_eq!(got, expected, "{method} {path} by {name} with {with:?}: {}", said.text);
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked}");
}
