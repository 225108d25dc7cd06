//! Every frame by every kind of credential, on own, shared and foreign sessions, compared with the table of
//! `bowline_sbp::access` (G20, G21).

use bowline_sbp::access::{
    Action, Authorization, Credential, CredentialId, CredentialKind, OWNER, Relation, Scope,
    Scopes, Share, may,
};
use bowline_sbp::frame::ClientFrame;
use bowline_sbp::id::{SessionId, UserId};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, LOCAL_KEY, Phone, Session, hello};
use crate::paired::Paired;
use crate::people::{call, key, person, session_of, share};

/// What a frame does besides attaching. A new frame does not compile until it is here.
fn action_of(frame: &ClientFrame) -> Option<Action> {
    match frame {
        ClientFrame::UserMessage(_) | ClientFrame::Cancel | ClientFrame::ToolResult { .. } => {
            Some(Action::Talk)
        }
        ClientFrame::Decide { .. } => Some(Action::Decide),
        // Whoever is attached may do these.
        ClientFrame::Attach(_)
        | ClientFrame::Ack { .. }
        | ClientFrame::Ping
        | ClientFrame::Pong
        | ClientFrame::Unknown
        | ClientFrame::Detach => None,
    }
}

/// One of each, but for those that end the connection.
fn frames() -> Vec<Value> {
    let id = Uuid::nil();
    vec![
        json!({ "type": "USER_MESSAGE", "client_turn_id": "1", "content": "echo x" }),
        json!({ "type": "CANCEL_TURN" }),
        json!({ "type": "TOOL_RESULT", "call_id": id, "result": 1 }),
        json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true }),
        json!({ "type": "TETHER_ACK", "seq": 1 }),
        json!({ "type": "PONG" }),
        json!({ "type": "SOMETHING_NEW" }),
    ]
}

/// What became of an attach, and of each frame after it.
async fn tried(mut socket: Phone, session: &Session) -> (Authorization, Vec<bool>) {
    socket.send(hello(session, json!({ "surface_id": "x" }))).await;
    let verdict = match socket.next().await["type"].as_str() {
        Some("SESSION_ATTACHED") => Authorization::Allowed,
        Some("SESSION_NOT_FOUND") => Authorization::NotFound,
        Some("FORBIDDEN") => Authorization::Forbidden,
        other => panic!("{other:?}"),
    };
    let mut allowed = Vec::new();
    if verdict == Authorization::Allowed {
        for frame in frames() {
            socket.send(frame).await;
            socket.send(json!({ "type": "PING" })).await;
            let answers = socket.until("PONG").await;
            let refused = |answer: &Value| {
                answer["type"] == "PROTOCOL_ERROR" || answer["code"] == "SBP_FORBIDDEN"
            };
            allowed.push(!answers.iter().any(refused));
        }
    }
    (verdict, allowed)
}

#[tokio::test]
async fn g20_every_frame_asks_the_table() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let bob = person(&bench, "bob").await;
    let (a, b) = (UserId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)));
    let of_key = |user: UserId, scopes: Scopes| Credential {
        kind: CredentialKind::Key(CredentialId::from_bytes([1; 8])),
        user,
        scopes,
    };
    let mut keys = vec![(ada.key.clone(), Scopes::all().without(Scope::Admin))];
    let pairs = [&[Scope::Turns, Scope::Read][..], &[Scope::Turns, Scope::Read, Scope::Approve]];
    let single =
        Scope::ALL.iter().filter(|scope| **scope != Scope::Admin).map(std::slice::from_ref);
    for scopes in single.chain(pairs) {
        let scopes = Scopes::of(scopes);
        let made = key(&bench, "ada", json!({ "scopes": scopes })).await;
        keys.push((made.key, scopes));
    }
    let all = Scopes::all().without(Scope::Admin);
    let (hers, his) = (Paired::of(&bench, "ada").await, Paired::of(&bench, "bob").await);
    let talking = Scopes::of(&[Scope::Turns, Scope::Read]);
    let talks = Paired::with(&bench, Some("ada"), Some(talking)).await;
    let mut tried_all = 0;
    for with in [None, Some(Share::Read), Some(Share::Talk), Some(Share::Approve)] {
        let session = session_of(&bench, &ada.key).await;
        let id = SessionId(session.id.parse().unwrap());
        if let Some(with) = with {
            share(&bench, &ada.key, &session, "bob", with.as_str()).await;
        }
        let shared = with.map_or(Relation::Foreign, Relation::SharedWith);
        let mut cases = vec![(bob.key.clone(), of_key(b, all), shared)];
        // What a device shows besides being it.
        let mut by_device = vec![(&his.own, "", of_key(b, all), shared)];
        if with.is_none() {
            let own =
                keys.iter().map(|(key, scopes)| (key.clone(), of_key(a, *scopes), Relation::Own));
            cases.extend(own);
            cases.push((session.token.clone(), Credential::of_session(id, a), Relation::Own));
            let path = format!("/v1/sessions/{}/surfaces", session.id);
            let device = call(&bench, &ada.key, Method::POST, &path, json!({})).await;
            let device = device.body["surface_token"].as_str().unwrap().to_owned();
            cases.push((device, Credential::of_device(id, a), Relation::Own));
            cases.push((LOCAL_KEY.into(), Credential::local(), Relation::Foreign));
            let admin = json!({ "name": "x", "scopes": ["admin"] });
            let admin = bench.post_as_owner("/v1/keys", admin).await;
            let admin = admin.body["key"].as_str().unwrap().to_owned();
            let scopes = Scopes::of(&[Scope::Admin]);
            cases.push((admin, of_key(OWNER, scopes), Relation::Foreign));
            let programs = of_key(a, all.without(Scope::Approve));
            let token = session.token.as_str();
            for shown in ["", token] {
                by_device.push((&hers.own, shown, of_key(a, all), Relation::Own));
                by_device.push((&hers.programs, shown, programs.clone(), Relation::Own));
                by_device.push((&talks.own, shown, of_key(a, talking), Relation::Own));
            }
            by_device.push((&his.own, token, Credential::of_session(id, a), Relation::Own));
            by_device.push((&his.own, &ada.key, of_key(a, all), Relation::Own));
        }
        let direct = cases
            .into_iter()
            .map(|(token, credential, relation)| (None, token, credential, relation));
        let by_device = by_device.into_iter().map(|(port, token, credential, relation)| {
            (Some(port), token.to_owned(), credential, relation)
        });
        for (port, token, credential, relation) in direct.chain(by_device) {
            let socket = match port {
                Some(port) => port.socket(&session.id).await,
                None => bench.socket(&session.id).await,
            };
            let (verdict, allowed) = tried(socket, &Session { token, ..session.clone() }).await;
            let told = format!("{:?} {} {relation:?}", credential.kind, credential.scopes);
            assert_eq!(verdict, may(&credential, Action::Attach, relation), "attach by {told}");
            for (frame, allowed) in frames().iter().zip(allowed) {
                let read = ClientFrame::read(&frame.to_string()).unwrap();
                let expected = action_of(&read).is_none_or(|action| {
                    may(&credential, action, relation) == Authorization::Allowed
                });
                assert_eq!(allowed, expected, "{} by {told}", frame["type"]);
                tried_all += 1;
            }
        }
    }
    assert!(tried_all >= 40, "{tried_all}");
}
