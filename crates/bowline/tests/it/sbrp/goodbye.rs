//! Commands that end tell the daemon so, however they end: it does not keep their tunnels.

use std::process::Stdio;
use std::time::Instant;

use super::gateway::gateway;
use super::world::{Program, World, dial, echo};
use crate::process::DEADLINE;

const CLOSED: &str = "a tunnel was closed";
const KEPT: &str = "a tunnel waits for its client";

/// Waits until the daemon was told so often.
fn until_closed(daemon: &Program, times: usize) {
    let begun = Instant::now();
    while daemon.said().matches(CLOSED).count() < times {
        assert!(begun.elapsed() < DEADLINE, "not told: {}", daemon.said());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(daemon.said().matches(KEPT).count(), 0, "{}", daemon.said());
}

#[test]
fn connect_says_goodbye_when_a_signal_stops_it() {
    let world = World::logging(Some("debug"));
    let daemon = world.daemon(echo());
    let mut told = 0;
    for signal in ["TERM", "INT", "HUP"] {
        let (mut listening, address) = world.connect("home");
        // A connection in use does not hold it up.
        let _open = dial(address);
        listening.signal(signal);
        assert!(listening.ended().success(), "--listen, {signal}");
        told += 1;
        until_closed(&daemon, told);

        let mut stdio = world.owner(&["connect", "home", "--stdio"]);
        stdio.arg("--data").arg(world.home("client")).stdin(Stdio::piped());
        let mut stdio = Program::start(stdio);
        stdio.write("17");
        assert_eq!(stdio.line(), 17);
        stdio.signal(signal);
        assert!(stdio.ended().success(), "--stdio, {signal}");
        told += 1;
        until_closed(&daemon, told);

        let mut ping = world.owner(&["connect", "home", "--ping", "--count", "100000"]);
        // Without a pin it says so as soon as it is let in.
        ping.arg("--data").arg(world.home(signal));
        let mut ping = Program::start(ping);
        ping.until_said("first use of `home`");
        ping.signal(signal);
        assert_eq!(ping.ended().code(), Some(130), "--ping, {signal}: it has not measured");
        told += 1;
        until_closed(&daemon, told);
    }
    let pinged = world.ping("home", &[]);
    assert!(pinged.status.success(), "{pinged:?}");
    until_closed(&daemon, told + 1);
}

#[test]
fn commands_by_way_of_a_relay_say_goodbye_at_their_end_and_when_a_signal_stops_them() {
    let world = World::logging(Some("debug"));
    let gateway = gateway(&world);
    let paired = world.pair("gateway", "phone", &[]);
    assert!(paired.status.success(), "{paired:?}");
    let before = gateway.said().matches(CLOSED).count();
    let list = world.device("phone", &["sessions", "list", "--via", "home"]).output().unwrap();
    assert!(list.status.success(), "{list:?}");
    until_closed(&gateway, before + 1);
    let missing = world.device("phone", &["sessions", "show", "x", "--via", "home"]);
    assert!(!{ missing }.output().unwrap().status.success());
    until_closed(&gateway, before + 2);

    let mut chat = world.device("phone", &["chat", "--via", "home", "--lines", "--json"]);
    let mut chat = Program::start({
        chat.stdin(Stdio::piped());
        chat
    });
    chat.write("echo hi");
    while !chat.line().to_string().contains("hi") {}
    chat.terminate();
    chat.ended();
    until_closed(&gateway, before + 3);

    // A command that knows nothing of signals.
    let mut serve = world.device("phone", &["mcp", "serve", "--via", "home"]);
    let mut serve = Program::start({
        serve.stdin(Stdio::piped());
        serve
    });
    serve.write(
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\
         \"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"x\",\"version\":\"1\"}}}",
    );
    serve.line();
    serve.terminate();
    assert_eq!(serve.ended().code(), Some(143));
    until_closed(&gateway, before + 4);
}
