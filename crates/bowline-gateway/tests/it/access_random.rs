//! Random requests by random credentials against random objects, judged by rules that are written
//! here a second time, apart from the gateway's table (G20).

use bowline_gateway::config::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, LOCAL_KEY, Session, list, turn};
use crate::paired::Paired;

const SCOPES: [&str; 5] = ["turns", "read", "approve", "tools", "export"];

/// A small generator of random numbers: the same run for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Holder {
    /// A key of that user with these scopes, or a paired device.
    Key {
        user: usize,
        scopes: Vec<&'static str>,
    },
    /// The same, where any program on the device could have sent it.
    Programs {
        user: usize,
        scopes: Vec<&'static str>,
    },
    /// The token of that session.
    Token(usize),
    Device(usize),
    Nobody,
}

struct Object {
    session: Session,
    owner: usize,
    /// For each user, how it is shared with them.
    shares: Vec<Option<&'static str>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Read,
    Messages,
    Talk,
    Rename,
    Exports,
    Fork,
    Approvals,
    Decide,
    Devices,
    Shares,
    List,
    Memory,
    Users,
    Paired,
}

const DEEDS: [Deed; 14] = [
    Deed::Read,
    Deed::Messages,
    Deed::Talk,
    Deed::Rename,
    Deed::Exports,
    Deed::Fork,
    Deed::Approvals,
    Deed::Decide,
    Deed::Devices,
    Deed::Shares,
    Deed::List,
    Deed::Memory,
    Deed::Users,
    Deed::Paired,
];

#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    Refused,
    Nothing,
}

/// The rules, in other words.
fn expected(holder: &Holder, deed: Deed, at: usize, object: &Object) -> Outcome {
    let yes = |is: bool| if is { Outcome::Done } else { Outcome::Refused };
    let in_session = !matches!(deed, Deed::List | Deed::Memory | Deed::Users | Deed::Paired);
    match holder {
        Holder::Nobody => Outcome::Refused,
        Holder::Token(own) | Holder::Device(own) if !in_session || *own != at => {
            // A wrong token is wrong, whatever there is.
            Outcome::Refused
        }
        Holder::Token(_) => yes(!matches!(deed, Deed::Decide | Deed::Shares)),
        Holder::Device(_) => yes(matches!(
            deed,
            Deed::Read | Deed::Messages | Deed::Talk | Deed::Approvals | Deed::Devices
        )),
        Holder::Key { user, scopes } | Holder::Programs { user, scopes } => {
            let is_program = matches!(holder, Holder::Programs { .. });
            let has = |scope| scopes.contains(&scope) && !(is_program && scope == "approve");
            let needs = match deed {
                Deed::Talk | Deed::Rename | Deed::Shares => has("turns"),
                Deed::Exports | Deed::Fork => has("export"),
                Deed::Decide => has("approve"),
                Deed::Users | Deed::Paired => false,
                Deed::Read | Deed::Messages | Deed::Approvals | Deed::Devices => has("read"),
                Deed::List | Deed::Memory => has("read"),
            };
            if !in_session || object.owner == *user {
                return yes(needs);
            }
            match (object.shares[*user], deed) {
                (None, _) => Outcome::Nothing,
                (Some(_), Deed::Read | Deed::Messages | Deed::Approvals | Deed::Devices) => {
                    yes(needs)
                }
                (Some("talk" | "approve"), Deed::Talk) => yes(needs),
                (Some("approve"), Deed::Decide) => yes(needs),
                (Some(_), _) => Outcome::Refused,
            }
        }
    }
}

fn outcome(said: &Answer) -> Outcome {
    match (said.status, said.body["error"]["code"].as_str()) {
        (401 | 403, _) => Outcome::Refused,
        (404, Some("SBP_SESSION_NOT_FOUND")) => Outcome::Nothing,
        (status, _) => {
            assert!(status < 500, "{}", said.text);
            Outcome::Done
        }
    }
}

async fn by(bench: &Bench, bearer: &str, method: Method, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {bearer}");
    let shown = [("authorization", bearer.as_str())];
    let shown = if bearer.len() > "Bearer ".len() { &shown[..] } else { &[] };
    bench.call(method, path, shown, &body).await
}

async fn text(bench: &Bench, path: &str, body: Value, field: &str) -> String {
    let made = by(bench, LOCAL_KEY, Method::POST, path, body).await;
    made.body[field].as_str().unwrap_or_else(|| panic!("{}", made.text)).to_owned()
}

#[tokio::test]
async fn g20_random_requests_are_judged_as_by_rules_written_apart() {
    let soak = std::env::var_os("BOWLINE_SOAK").is_some();
    let (requests, seed) = (if soak { 10_000 } else { 2000 }, 20_261_118);
    let mut random = Random(seed);
    let bench = Bench::with(|config: &mut Config| config.limits.connections = 4096).await;
    let users = ["ada", "bob", "eve"];
    // What each shows, and the device that it comes from.
    let mut holders = vec![(Holder::Nobody, String::new(), None)];
    let mut full = Vec::new();
    let mut devices = Vec::new();
    for (n, name) in users.iter().enumerate() {
        text(&bench, "/v1/users", json!({ "name": name }), "id").await;
        let asked = json!({ "user": name, "name": "all" });
        full.push(text(&bench, "/v1/keys", asked, "key").await);
        holders.push((Holder::Key { user: n, scopes: SCOPES.to_vec() }, full[n].clone(), None));
        let some = [*random.pick(&SCOPES), "approve"];
        for scopes in [&SCOPES[..], &some] {
            let asked = scopes.join(",").parse().unwrap();
            devices.push((n, scopes.to_vec(), Paired::with(&bench, Some(name), Some(asked)).await));
        }
        for _ in 0..5 {
            let mut scopes: Vec<_> = SCOPES.into_iter().filter(|_| random.below(2) == 0).collect();
            if scopes.is_empty() {
                scopes.push("tools");
            }
            let asked = json!({ "user": name, "name": "some", "scopes": scopes });
            let key = text(&bench, "/v1/keys", asked, "key").await;
            holders.push((Holder::Key { user: n, scopes }, key, None));
        }
    }
    for (user, scopes, device) in &devices {
        let (user, scopes) = (*user, scopes.clone());
        let person = Holder::Key { user, scopes: scopes.clone() };
        holders.push((person, String::new(), Some(&device.own)));
        holders.push((Holder::Programs { user, scopes }, String::new(), Some(&device.programs)));
    }
    let mut objects = Vec::new();
    for n in 0..9 {
        let owner = n % users.len();
        let made = by(&bench, &full[owner], Method::POST, "/v1/sessions", json!({})).await;
        let session = Session::of(&made.body);
        let path = format!("/v1/sessions/{}", session.id);
        let device =
            by(&bench, &full[owner], Method::POST, &format!("{path}/surfaces"), json!({})).await;
        let mut shares = vec![None; users.len()];
        for (other, name) in users.iter().enumerate().filter(|(other, _)| *other != owner) {
            let scope = *random.pick(&[None, Some("read"), Some("talk"), Some("approve")]);
            if let Some(scope) = scope {
                let path = format!("{path}/shares/{name}");
                let said = by(&bench, &full[owner], Method::PUT, &path, json!({ "scope": scope }));
                assert_eq!(said.await.status, 200);
            }
            shares[other] = scope;
        }
        holders.push((Holder::Token(n), session.token.clone(), None));
        // A token says which session, whosever device shows it.
        let by = Some(&devices[n % devices.len()].2.own);
        holders.push((Holder::Token(n), session.token.clone(), by));
        let device = device.body["surface_token"].as_str().unwrap().to_owned();
        holders.push((Holder::Device(n), device, None));
        objects.push(Object { session, owner, shares });
    }
    let mut seen = [0; 3];
    for n in 0..requests {
        let (holder, bearer, port) = random.pick(&holders).clone();
        let at = random.below(objects.len());
        let (object, deed) = (&objects[at], *random.pick(&DEEDS));
        let one = format!("/v1/sessions/{}", object.session.id);
        let (get, post, none) = (Method::GET, Method::POST, Value::Null);
        let (method, path, body) = match deed {
            Deed::Read => (get, one.clone(), none),
            Deed::Messages => (get, format!("{one}/messages"), none),
            Deed::Talk => (
                post,
                "/v1/chat/completions".to_owned(),
                turn(&object.session, "m", &format!("echo {n}")),
            ),
            Deed::Rename => (Method::PATCH, one.clone(), json!({ "title": format!("title {n}") })),
            Deed::Exports => (get, format!("{one}/exports"), none),
            Deed::Fork => (post, format!("{one}/fork"), json!({ "at_step": 99_999 })),
            Deed::Approvals => (get, format!("{one}/approvals"), none),
            Deed::Decide => {
                let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
                (post, format!("{one}/approvals/{id}"), json!({ "approved": true }))
            }
            Deed::Devices => (get, format!("{one}/surfaces"), none),
            Deed::Shares => (get, format!("{one}/shares"), none),
            Deed::List => (get, "/v1/sessions?limit=200".to_owned(), none),
            Deed::Memory => (get, "/v1/agents/cook/memory".to_owned(), none),
            Deed::Users => (get, "/v1/users".to_owned(), none),
            Deed::Paired => (get, "/v1/devices".to_owned(), none),
        };
        let said = match port {
            Some(port) => port.call_with(&bearer, method, &path, body).await,
            None => by(&bench, &bearer, method, &path, body).await,
        };
        let (got, wanted) = (outcome(&said), expected(&holder, deed, at, object));
        assert_eq!(
            got, wanted,
            "request {n} of seed {seed}: {deed:?} at {at} by {holder:?}: {}",
            said.text
        );
        seen[match wanted {
            Outcome::Done => 0,
            Outcome::Refused => 1,
            Outcome::Nothing => 2,
        }] += 1;
        if let (Deed::List, Outcome::Done) = (deed, &got)
            && let Holder::Key { user, .. } | Holder::Programs { user, .. } = &holder
        {
            let sees = |object: &&Object| object.owner == *user || object.shares[*user].is_some();
            let mut wanted: Vec<_> =
                objects.iter().filter(sees).map(|o| o.session.id.clone()).collect();
            let listed = list(&said.body["sessions"]);
            let mut listed: Vec<_> =
                listed.iter().map(|s| s["session_id"].as_str().unwrap().to_owned()).collect();
            wanted.sort();
            listed.sort();
            assert_eq!(listed, wanted, "{holder:?}");
        }
    }
    assert!(seen.iter().all(|times| *times > requests / 50), "all kinds of outcomes: {seen:?}");
}
