//! Relay, daemon or control plane is killed; the other processes recover by themselves.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use super::world::{World, dial, echo, exchange, text};
use crate::process::DEADLINE;

#[test]
fn a_relay_that_was_killed_and_came_back_needs_nothing_else_to_be_restarted() {
    let mut world = World::start();
    let daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    let mut open = dial(address);
    open.write_all(b"before").unwrap();
    open.read_exact(&mut [0; 6]).unwrap();
    world.relay.kill();
    connect.event("lost");
    daemon.event("lost");
    world.until_status("unknown");
    // What is sent meanwhile arrives, and so does what is sent on a new connection.
    open.write_all(b"during").unwrap();
    // A connection made while there is no relay waits for it.
    let waiting = std::thread::spawn(move || exchange(address, b"while it is away"));
    world.restart_relay();
    daemon.event("online");
    let again = connect.event("established");
    assert_eq!((&again["first_use"], &again["resumed"]), (&false.into(), &true.into()));
    assert_eq!(waiting.join().unwrap().unwrap(), b"while it is away");
    let mut heard = [0; 6];
    open.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"during", "the connection of before goes on");
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
    world.until_status("online");
}

#[test]
fn g16_a_relay_that_is_told_to_stop_says_1012_and_is_gone_in_time() {
    let mut world = World::start();
    let daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    let begun = Instant::now();
    world.relay.terminate();
    assert!(world.relay.ended().success());
    assert!(begun.elapsed() < Duration::from_secs(30));
    let why = connect.event("lost")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("closed the connection (1012)"), "{why}");
    let why = daemon.event("lost")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("closed the connection (1012)"), "{why}");
    world.restart_relay();
    connect.event("established");
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
}

#[test]
fn sbrp_daemon_05_clients_of_a_daemon_that_restarted_learn_it_at_once() {
    let world = World::start();
    let mut daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    let mut open = dial(address);
    open.write_all(b"before").unwrap();
    open.read_exact(&mut [0; 6]).unwrap();
    daemon.kill();
    connect.event("paused");
    let daemon = world.daemon(echo());
    let begun = Instant::now();
    let why = connect.event("lost")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("session_expired"), "{why}");
    // Long before the grace period ends: the restarted daemon reports that it cannot resume.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(open.read(&mut [0; 1]).is_err(), "the connection that was cut is reset");
    connect.event("established");
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
    drop(daemon);
}

#[test]
fn sbrp_daemon_06_clients_of_a_daemon_that_stops_learn_it_at_once() {
    let world = World::start();
    let mut daemon = world.daemon(echo());
    let (connect, address) = world.connect("home");
    daemon.terminate();
    assert!(daemon.ended().success());
    let why = connect.event("lost")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("session_expired"), "{why}");
    let why = connect.event("lost")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("daemon_offline"), "{why}");
    let _daemon = world.daemon(echo());
    assert_eq!(exchange(address, b"after").unwrap(), b"after");
}

#[test]
fn g15_a_control_plane_that_is_away_cuts_nobody_off_and_lets_nobody_in() {
    let mut world = World::start();
    let _daemon = world.daemon(echo());
    let (_connect, address) = world.connect("home");
    world.control.kill();
    assert_eq!(exchange(address, b"without it").unwrap(), b"without it");
    let refused = world.ping("home", &[]);
    assert_eq!(refused.status.code(), Some(5));
    let said = text(&refused.stderr);
    assert!(said.contains("cannot be reached") && said.contains("check that it runs"), "{said}");
    // A relay that has not fetched the signing keys refuses everyone until it has them.
    world.relay.kill();
    world.restart_relay();
    world.restart_control();
    let begun = Instant::now();
    while exchange(address, b"after both").ok().as_deref() != Some(b"after both") {
        assert!(begun.elapsed() < DEADLINE, "the tunnel does not come back");
    }
    assert!(world.ping("home", &[]).status.success());
}
