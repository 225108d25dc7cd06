//! Logs contain no key, token or message, at any log level.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::world::{World, dial, echo, text};
use crate::process_memory::{dump, is_in};

const PAYLOAD: &[u8] = b"payload-canary-zq";

#[test]
fn nothing_secret_is_logged_by_any_program_at_any_level() {
    let mut world = World::logging(Some("trace"));
    let daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    let say = || {
        let mut stream = dial(address);
        let mut heard = [0; PAYLOAD.len()];
        stream.write_all(PAYLOAD).unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard, PAYLOAD);
    };
    say();
    let ping = world.ping("home", &[]);
    assert!(ping.status.success());
    let wrong =
        world.owner(&["daemons", "list"]).env("BOWLINE_CONTROL_KEY", "bck_canary-zq").output();
    let wrong = text(&wrong.unwrap().stderr);
    let mut relays = Vec::new();
    // The relay is killed and restarted, then stopped gracefully and restarted.
    world.relay.kill();
    relays.push(world.relay.said());
    connect.event("lost");
    world.restart_relay();
    let session = connect.event("established")["session"].as_str().unwrap().to_owned();
    say();
    world.relay.terminate();
    assert!(world.relay.ended().success());
    relays.push(world.relay.said());
    world.restart_relay();
    connect.event("established");
    relays.push(world.relay.said());
    let id = world.daemons()[0]["id"].as_str().unwrap().to_owned();
    let seed = std::fs::read(world.home("daemon/relay/identity")).unwrap();
    let ends = [daemon.said(), connect.said(), text(&ping.stderr), wrong];
    let control = world.control.said();
    // All logs were captured, at a higher level than the default.
    assert!(relays[1].contains("stopping"), "{}", relays[1]);
    assert!(ends[0].contains("DEBUG") && ends[1].contains("DEBUG"), "{ends:?}");

    let mut secrets = vec![
        text(PAYLOAD),
        format!("{PAYLOAD:?}").trim_matches(['[', ']']).to_owned(),
        world.key.clone(),
        world.key.trim_start_matches("bck_").to_owned(),
        "bck_canary-zq".into(),
        "Bearer ".into(),
        "token=".into(),
        // The beginning of every JWT's header.
        "eyJ".into(),
        URL_SAFE_NO_PAD.encode(&seed),
    ];
    // If the identity file is text, its text is secret, too.
    secrets.extend(String::from_utf8(seed).ok().map(|words| words.trim().to_owned()));
    let secrets: Vec<_> = secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
    for log in relays.iter().chain(&ends).chain([&control]) {
        for secret in &secrets {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} was logged");
        }
    }
    // A relay does not log the ids of daemons either.
    for log in &relays {
        for name in [&id, &session, "alice", "home"] {
            let line = log.lines().find(|line| line.contains(name));
            assert_eq!(line, None, "{name} was logged");
        }
    }
}

#[test]
fn g22_neither_names_nor_words_nor_codes_reach_relay_or_control_plane() {
    let world = World::logging(Some("trace"));
    let _gateway = super::gateway::gateway(&world);
    let device = "device-canary-zq";
    let mut pair = crate::process::bowline();
    pair.args(["pair", "--json", "--data"]).arg(world.home("gateway"));
    let offer: serde_json::Value = serde_json::from_slice(&pair.output().unwrap().stdout).unwrap();
    let invitation = offer["text"].as_str().unwrap();
    let args = ["pair", "--accept", invitation, "--name", "home", "--device-name", device];
    assert!(world.device("phone", &args).output().unwrap().status.success());
    let said = "words-canary-zq";
    let message = format!("echo {said}");
    let chat = world.device("phone", &["chat", "--via", "home", "--message", &message]);
    let chat = { chat }.output().unwrap();
    assert!(text(&chat.stdout).contains(said), "{chat:?}");
    let sessions = ["sessions", "show", "last", "--via", "home", "--json"];
    let shown = world.device("phone", &sessions).output().unwrap();
    assert!(text(&shown.stdout).contains(said), "{shown:?}");
    // The code in the pairing text: 16 bytes after the version.
    let bytes = URL_SAFE_NO_PAD.decode(invitation.trim_start_matches("bowline-pair:")).unwrap();
    let (code, token) = (&bytes[1..17], b"sbt_");
    let secrets = [device.as_bytes(), said.as_bytes(), code, token];
    // They are where they should be, so they would be found.
    assert!(is_in(device.as_bytes(), &world.home("gateway")));
    let dumped = world.folder.path().join("memory");
    for program in [&world.relay, &world.control] {
        assert!(dump(program.pid(), &dumped) > 1 << 20, "its memory was read");
        for (number, secret) in secrets.iter().enumerate() {
            assert!(!is_in(secret, &dumped), "secret {number} is in the memory in between");
        }
        let log = program.said();
        for name in [device, said, invitation] {
            assert!(!log.contains(name), "{name} was logged");
        }
    }
    for secret in secrets {
        assert!(!is_in(secret, &world.home("control")));
    }
}
