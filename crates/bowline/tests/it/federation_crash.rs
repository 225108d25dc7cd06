//! A session moves between two gateways, and one of them is ended with kill -9 at each step (SBP-L6-05, G7).
//!
//! A proxy between the two stops the request of that step, before it is passed on or before its answer is, until the
//! gateway has been killed; then it drops the connection, as a network does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::process::{DEADLINE, Process, bowline};

/// A request of the gateway that imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Reserve,
    Fetch,
    Confirm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The origin never hears of it.
    Before,
    /// The origin has done it, and its answer is lost.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Origin,
    Destination,
}

const STEPS: [(Request, Moment); 6] = [
    (Request::Reserve, Moment::Before),
    (Request::Reserve, Moment::After),
    (Request::Fetch, Moment::Before),
    (Request::Fetch, Moment::After),
    (Request::Confirm, Moment::Before),
    (Request::Confirm, Moment::After),
];

impl Request {
    fn of(head: &str) -> Option<Self> {
        let line = head.lines().next()?;
        let (method, path) = line.split_once(' ')?;
        let path = path.split(' ').next()?;
        match method {
            "GET" if path.starts_with("/v1/sbp/bundles/") => Some(Self::Fetch),
            "POST" if path.ends_with("/confirm") => Some(Self::Confirm),
            "POST" if path.ends_with("/federation/reservations") => Some(Self::Reserve),
            _ => None,
        }
    }
}

/// Stops at one step, once.
struct Trap {
    step: (Request, Moment),
    /// Told when it is reached; and what to wait for then.
    armed: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>,
}

impl Trap {
    /// Whether the connection is dropped here.
    async fn springs(&self, request: Option<Request>, moment: Moment) -> bool {
        if request.map(|request| (request, moment)) != Some(self.step) {
            return false;
        }
        let Some((reached, killed)) = self.armed.lock().unwrap().take() else { return false };
        let _ = reached.send(());
        let _ = killed.await;
        true
    }
}

/// A request or an answer with a body of a known length; none at the end of the connection.
async fn message(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((String::from_utf8_lossy(&bytes[..head]).into_owned(), bytes))
}

async fn carry(mut near: TcpStream, origin: SocketAddr, trap: Arc<Trap>) -> Option<()> {
    let mut far = TcpStream::connect(origin).await.ok()?;
    loop {
        let (head, asked) = message(&mut near).await?;
        let request = Request::of(&head);
        if trap.springs(request, Moment::Before).await {
            return None;
        }
        far.write_all(&asked).await.ok()?;
        let (_, answer) = message(&mut far).await?;
        if trap.springs(request, Moment::After).await {
            return None;
        }
        near.write_all(&answer).await.ok()?;
    }
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], bowline_servers::quiet_port()))
}

fn started(data: &Path, (id, listen): (&str, SocketAddr), peer: (&str, SocketAddr)) -> Process {
    let mut command = bowline();
    let peer = format!("{}=http://{}", peer.0, peer.1);
    command.args(["gateway", "run", "--json", "--listen", &listen.to_string(), "--federation"]);
    command.args(["--gateway-id", id, "--peer", &peer, "--data"]).arg(data);
    command.env("BOWLINE_OFFLINE_PACE", "0ms");
    Process::spawned(command, data)
}

async fn import(url: &str, token: &str) -> Option<(StatusCode, Value)> {
    let request = reqwest::Client::new().post(format!("{url}/v1/sbp/sessions/import"));
    let answer = request.json(&json!({ "roaming_token": token })).send().await.ok()?;
    Some((answer.status(), answer.json().await.ok()?))
}

/// The sessions of a gateway, by their ids, and where they went.
async fn sessions(gateway: &Process) -> Vec<(String, Value)> {
    let listed = gateway.get("/v1/sessions").await;
    let all = listed["sessions"].as_array().unwrap().clone();
    let session =
        |one: Value| (one["session_id"].as_str().unwrap().to_owned(), one["handed_off_to"].clone());
    all.into_iter().map(session).collect()
}

async fn one_case(step: (Request, Moment), victim: Victim) {
    let (at_home, at_away) = (free(), free());
    let (folder_home, folder_away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let between = listener.local_addr().unwrap();
    let (tell_reached, reached) = oneshot::channel();
    let (tell_killed, killed) = oneshot::channel();
    let trap = Arc::new(Trap { step, armed: Mutex::new(Some((tell_reached, killed))) });
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(carry(near, at_home, Arc::clone(&trap)));
        }
    });
    let begin_home = || started(folder_home.path(), ("home", at_home), ("away", at_away));
    let begin_away = || started(folder_away.path(), ("away", at_away), ("home", between));
    let (mut home, mut away) = (begin_home(), begin_away());
    let made = home.post("/v1/sessions", json!({})).await;
    let session = made["session_id"].as_str().unwrap().to_owned();
    home.say(Some(&session), "echo 1").await;
    let exported = home.post(&format!("/v1/sbp/sessions/{session}/export"), json!({})).await;
    let token = exported["roaming_token"].as_str().unwrap().to_owned();

    let first = tokio::spawn({
        let (url, token) = (away.url.clone(), token.clone());
        async move { import(&url, &token).await }
    });
    tokio::time::timeout(DEADLINE, reached).await.expect("the step is reached").unwrap();
    match victim {
        Victim::Origin => home.kill(),
        Victim::Destination => away.kill(),
    }
    let _ = tell_killed.send(());
    match victim {
        Victim::Origin => home = begin_home(),
        Victim::Destination => away = begin_away(),
    }
    let _ = first.await.unwrap();

    // Whoever asked shows the token again, until it is decided.
    let begun = Instant::now();
    loop {
        let answer = import(&away.url, &token).await;
        let decided = answer
            .as_ref()
            .is_some_and(|(status, _)| [StatusCode::CREATED, StatusCode::GONE].contains(status));
        let there = sessions(&away).await;
        assert!(there.len() <= 1, "imported twice: {there:?}");
        if decided && there.len() == 1 {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "{step:?} {victim:?}: never imported: {answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let there = sessions(&away).await.remove(0);
    assert_eq!(there.1, Value::Null, "it is live there");
    let here = sessions(&home).await;
    let here = here.iter().find(|(id, _)| *id == session).unwrap();
    assert_eq!(here.1, json!(there.0), "{step:?} {victim:?}: and not here");
    let log = away.log(&there.0).await;
    assert_eq!(log[..2], ["echo 1", "1"]);
    away.say(Some(&there.0), "echo 2").await;
    let (used, _) = import(&home.url, &token).await.unwrap();
    assert_eq!(used, StatusCode::GONE, "the token is used up at home");
}

async fn each_step(victim: Victim) {
    let mut cases = tokio::task::JoinSet::new();
    for step in STEPS {
        cases.spawn(one_case(step, victim));
    }
    while let Some(ended) = cases.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_session_moves_once_when_the_destination_is_killed_at_any_step() {
    each_step(Victim::Destination).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_session_moves_once_when_the_origin_is_killed_at_any_step() {
    each_step(Victim::Origin).await;
}
