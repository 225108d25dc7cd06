//! SBP-L3-12 across gateways: where a session was before, who is told, and what is believed of it.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bowline_gateway::config::{Config, PeerConfig};
use bowline_gateway::identity_file;
use bowline_sbp::federation::{
    Allow, Asked, Endpoints, FederationAction, FederationClaims, GatewayId, Manifest, Role,
};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Answer, Bench, Session};
use crate::federation_move::{arrived, free};
use crate::roaming::{of, text};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn knows(config: &mut Config, n: usize, places: &[SocketAddr; 3]) {
    config.listen = places[n];
    config.federation.enabled = true;
    config.federation.gateway_id = Some(NAMES[n].parse().unwrap());
    for (name, at) in NAMES.iter().zip(places).filter(|(name, _)| **name != NAMES[n]) {
        let url = Some(format!("http://{at}").parse().unwrap());
        config.federation.peers.insert((*name).into(), PeerConfig { url, ..PeerConfig::default() });
    }
}

async fn three(change: impl Fn(usize, &mut Config)) -> ([Bench; 3], [SocketAddr; 3]) {
    let places = [free(), free(), free()];
    let start = async |n: usize| {
        Bench::with(|config| {
            knows(config, n, &places);
            change(n, config);
        })
        .await
    };
    ([start(0).await, start(1).await, start(2).await], places)
}

async fn moved(from: &Bench, session: &Session, to: &Bench) -> Session {
    let imported = to.import_token(&from.token_of(session).await).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    arrived(&imported.body)
}

/// The edges of a lineage: from, its gateway, to, its gateway, and who says so.
fn edges(lineage: &Value) -> Vec<[String; 5]> {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let edge = |edge: &Value| {
        [
            text(&edge["from_session_id"]),
            word(&edge["from_gateway"]["gateway_id"]),
            text(&edge["to_session_id"]),
            word(&edge["to_gateway"]["gateway_id"]),
            word(&edge["said_by"]),
        ]
    };
    lineage["tree"].as_array().unwrap().iter().map(edge).collect()
}

fn expected(from: &str, at: &str, to: &str, there: &str, said_by: &str) -> [String; 5] {
    [from, at, to, there, said_by].map(str::to_owned)
}

/// What `asking` is told of a session at the second gateway.
async fn asked(asking: &Bench, name: &str, of: &Bench, whose: &str, session: &str) -> Answer {
    let identity = identity_file::load(asking.folder.path()).unwrap().unwrap();
    let whose: GatewayId = whose.parse().unwrap();
    let wanted = Asked { gateway: &whose, action: FederationAction::Lineage, subject: session };
    let (me, url) = (name.parse().unwrap(), asking.url("").parse().unwrap());
    let claims = FederationClaims::new(me, url, wanted, Uuid::new_v4(), Timestamp::now());
    let bearer = format!("Bearer {}", claims.sign(&identity));
    let path = format!("/v1/sbp/federation/lineage/{session}?depth=8");
    of.call(Method::GET, &path, &[("authorization", &bearer)], &Value::Null).await
}

#[tokio::test]
async fn sbp_l3_12_a_lineage_goes_back_through_all_gateways_and_home_again() {
    let ([a, b, c], _) = three(|_, _| {}).await;
    let first = a.session_with(1).await;
    let second = moved(&a, &first, &b).await;
    let third = moved(&b, &second, &c).await;
    let seen = edges(&c.lineage(&third.as_owner()).await);
    assert_eq!(
        seen,
        [
            expected(&first.id, "a", &second.id, "b", "b"),
            expected(&second.id, "b", &third.id, "-", "-"),
        ]
    );
    let away = edges(&a.lineage(&first.as_owner()).await);
    assert_eq!(
        away,
        [expected(&first.id, "-", &second.id, "b", "-")],
        "where it went is known here"
    );

    let fourth = moved(&c, &third, &a).await;
    let seen = edges(&a.lineage(&fourth.as_owner()).await);
    assert_eq!(
        seen,
        [
            // It knows itself that the session went from here to `b`.
            expected(&first.id, "-", &second.id, "b", "-"),
            expected(&second.id, "b", &third.id, "c", "c"),
            expected(&third.id, "c", &fourth.id, "-", "-"),
        ]
    );
}

#[tokio::test]
async fn g20_a_gateway_tells_of_a_session_only_where_it_went() {
    let ([a, b, c], _) = three(|n, config| {
        if n == 1 {
            config.federation.peers.get_mut("c").unwrap().allow = Some(Allow::ExportedToMe);
        }
    })
    .await;
    let first = a.session_with(1).await;
    let second = moved(&a, &first, &b).await;
    let stays = b.session_with(1).await;
    assert_eq!(asked(&c, "c", &a, "a", &first.id).await.status, 404, "it went to `b`, not to `c`");
    assert_eq!(asked(&c, "c", &b, "b", &second.id).await.status, 404, "it is still there");
    assert_eq!(asked(&c, "c", &b, "b", &stays.id).await.status, 404);
    assert_eq!(asked(&c, "c", &b, "b", &Uuid::nil().to_string()).await.status, 404);
    let third = moved(&b, &second, &c).await;
    let told = asked(&c, "c", &b, "b", &second.id).await;
    assert_eq!(told.status, 200, "{}", told.text);
    let hops = told.body["hops"].as_array().unwrap();
    assert_eq!((hops.len(), &hops[0]["session_id"]), (1, &json!(first.id)));
    assert!(!told.text.contains("echo"), "ids and no content: {}", told.text);
    // With a session's token alone nobody is asked.
    let bearer = format!("Bearer {}", third.token);
    let headers = [("authorization", bearer.as_str())];
    let by_token = c.call(Method::GET, &of(&third, "lineage"), &headers, &Value::Null).await;
    assert_eq!((by_token.status, edges(&by_token.body)), (200, Vec::new()));
    let unsigned = b.get(&format!("/v1/sbp/federation/lineage/{}", second.id)).await;
    assert_eq!(unsigned.status, 401);
}

#[tokio::test]
async fn g20_a_peer_that_may_have_nothing_is_told_nothing() {
    let ([a, b, c], places) = three(|_, _| {}).await;
    let first = a.session_with(1).await;
    let second = moved(&a, &first, &b).await;
    let third = moved(&b, &second, &c).await;
    let b = b
        .reopened_with(|config| {
            knows(config, 1, &places);
            config.federation.peers.get_mut("c").unwrap().allow = Some(Allow::None);
        })
        .await;
    assert_eq!(asked(&c, "c", &b, "b", &second.id).await.status, 403);
    let seen = edges(&c.lineage(&third.as_owner()).await);
    assert_eq!(seen, [expected(&second.id, "b", &third.id, "-", "-")], "its own knowledge is left");
}

/// The gateway `b` with its key, whose answers about lineage are these.
async fn liar(identity: bowline_sbp::gateway_key::GatewayIdentity, at: SocketAddr, told: Value) {
    let url: bowline_sbp::federation::BaseUrl = format!("http://{at}").parse().unwrap();
    let manifest = Manifest {
        gateway_id: "b".parse().unwrap(),
        gateway_name: String::new(),
        role: Role::Gateway,
        key: identity.public(),
        endpoints: Endpoints::of_gateway(&url),
        url,
        issued_at: Timestamp::now().as_second(),
        previous: Vec::new(),
    };
    let manifest = manifest.sign(&identity);
    let router = Router::new()
        .route("/.well-known/sbp", get(async move || manifest))
        .route("/v1/sbp/federation/lineage/{id}", get(async move || axum::Json(told)));
    let listener = tokio::net::TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
}

#[tokio::test]
async fn sbp_l6_06_what_a_gateway_says_of_a_lineage_is_bounded_and_not_believed_of_others() {
    let ([a, b, c], places) = three(|_, _| {}).await;
    let first = a.session_with(1).await;
    let second = moved(&a, &first, &b).await;
    let third = moved(&b, &second, &c).await;
    let own = c.session_with(1).await;
    let identity = identity_file::load(b.folder.path()).unwrap().unwrap();
    b.gateway.stop().await;
    let hop = |gateway: &str, session: &str| {
        json!({ "gateway_id": gateway, "url": "https://x.example", "session_id": session,
                "at": "2026-01-01T00:00:00Z" })
    };
    let mut hops: Vec<_> = (0..100).map(|_| hop("x", &Uuid::new_v4().to_string())).collect();
    // One of this gateway, which never went there: all that is said before it does not count.
    hops.insert(2, hop("c", &own.id));
    liar(identity, places[1], json!({ "session_id": second.id, "hops": hops })).await;
    // The client may still have a connection to the gateway that stopped.
    let lineage = async || edges(&c.lineage(&third.as_owner()).await);
    let mut seen = lineage().await;
    for _ in 0..50 {
        if seen.len() > 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        seen = lineage().await;
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.iter().all(|edge| edge[0] != own.id && edge[2] != own.id), "{seen:?}");
    assert!(seen.iter().filter(|edge| edge[1] == "x").all(|edge| edge[4] == "b"), "{seen:?}");
}
