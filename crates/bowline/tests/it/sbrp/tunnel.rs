//! Normal use: TCP through the tunnel, `--ping`, and the list of daemons.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use serde_json::Value;

use super::world::{World, dial, echo, exchange, pattern};

#[test]
fn many_tcp_connections_go_through_one_session_whole_and_in_order() {
    let world = World::start();
    let _daemon = world.daemon(echo());
    let (_connect, address) = world.connect("home");
    std::thread::scope(|scope| {
        for n in 0..40 {
            scope.spawn(move || {
                let sent = pattern(10_000 + 1_000 * n as usize, n);
                assert!(exchange(address, &sent).unwrap() == sent, "{n}");
            });
        }
        // Large transfers in both directions at the same time.
        for n in 100..102 {
            scope.spawn(move || {
                let sent = pattern(1 << 20, n);
                assert!(exchange(address, &sent).unwrap() == sent, "{n}");
            });
        }
    });
}

#[test]
fn each_direction_of_a_connection_ends_by_itself() {
    let world = World::start();
    let _daemon = world.daemon(echo());
    let (_connect, address) = world.connect("home");
    let mut stream = dial(address);
    let mut heard = [0; 4];
    for _ in 0..3 {
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"ping");
    }
    stream.write_all(b"last").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last");
}

#[test]
fn round_trips_are_measured_and_daemons_listed_as_they_are() {
    let world = World::start();
    let mut daemon = world.daemon(echo());
    let output = world.ping("home", &[]);
    assert!(output.status.success(), "{output:?}");
    let ping: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&ping["count"], &ping["name"]), (&5.into(), &"home".into()));
    assert!(ping["p50_ms"].as_f64().unwrap() > 0.0 && ping["p99_ms"].as_f64() < Some(60_000.0));
    let listed = world.daemons();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["status"], &listed[0]["id"]), (&"online".into(), &ping["daemon"]));
    daemon.kill();
    world.until_status("offline");
    let mut daemon = world.daemon(echo());
    world.until_status("online");
    daemon.terminate();
    assert!(daemon.ended().success());
    world.until_status("offline");
}
