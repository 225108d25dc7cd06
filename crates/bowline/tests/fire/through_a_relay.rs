//! The same promises when the way to the gateway leads through a relay: relay, control plane, gateway and
//! the two devices are processes, which are killed and put to sleep at random moments, under load.

use std::process::Command;
use std::time::Duration;

use bowline_checker::Status;
use bowline_servers::quiet_port;
use serde_json::Value;

use crate::load::Load;
use crate::process::bowline;
use crate::relay_world::{Program, World as RelayWorld};
use crate::seed::{Dice, scale};
use crate::world::World;

/// A device that is paired with the gateway, and its local port.
struct Device {
    name: &'static str,
    port: String,
    connect: Program,
}

impl Device {
    fn pair(relay: &RelayWorld, gateway: &World, name: &'static str) -> Self {
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let offer = run(bowline().args(["pair", "--json", "--data"]).arg(gateway.folder()));
        let text = offer["text"].as_str().unwrap();
        let accept = ["pair", "--accept", text, "--name", "home", "--json"];
        run(&mut relay.device(name, &accept));
        let port = format!("127.0.0.1:{}", quiet_port());
        let connect = connect(relay, name, &port);
        connect.event("established");
        Self { name, port, connect }
    }

    /// kill -9, and the next one at the same port.
    fn kill(&mut self, relay: &RelayWorld) {
        self.connect.kill();
        self.connect = connect(relay, self.name, &self.port);
    }

    /// The lid is closed, and opened again after a while.
    async fn sleep(&self, time: Duration) {
        self.connect.signal("STOP");
        tokio::time::sleep(time).await;
        self.connect.signal("CONT");
    }
}

fn connect(relay: &RelayWorld, name: &str, port: &str) -> Program {
    Program::start(relay.device(name, &["connect", "home", "--json", "--listen", port]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Gateway,
    Relay,
    Control,
    Device,
    Sleep,
}

const FAULTS: [Fault; 5] =
    [Fault::Gateway, Fault::Relay, Fault::Control, Fault::Device, Fault::Sleep];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g22_kills_on_the_way_through_a_relay_lose_alter_and_repeat_nothing() {
    let mut dice = Dice::for_test("g2_g22_kills_on_the_way");
    let kills = scale(12, 500);
    let (mut relay, mut world, mut devices) = tokio::task::block_in_place(|| {
        let relay = RelayWorld::start();
        let environment = vec![
            ("BOWLINE_RELAY_URL", relay.url().to_owned()),
            ("BOWLINE_CONTROL_KEY", relay.key.clone()),
        ];
        let world = World::started(tempfile::tempdir().unwrap(), "1ms", environment);
        let devices = ["phone", "laptop"].map(|name| Device::pair(&relay, &world, name));
        (relay, world, devices)
    });
    world.reached_by(&devices[0].port, &devices[1].port);
    let mut sessions = Vec::new();
    let mut load = Load::new();
    for _ in 0..2 {
        let session = world.session().await;
        load.asks(&world, &session, dice.fork(), 40);
        load.asks(&world, &session, dice.fork(), 10);
        load.roams(&world, &session, dice.fork());
        sessions.push(session);
    }
    let mut done = std::collections::BTreeMap::<Fault, usize>::new();
    // Each kind in turn first, then at random.
    for number in 0..kills {
        let fault = match FAULTS.get(number) {
            Some(fault) => *fault,
            None => FAULTS[dice.below(FAULTS.len())],
        };
        world.progress(1 + dice.below(5)).await;
        tokio::time::sleep(Duration::from_millis(dice.below(80) as u64)).await;
        let device = &mut devices[dice.below(2)];
        match fault {
            Fault::Gateway => world.crash(|_| {}),
            Fault::Relay => tokio::task::block_in_place(|| {
                relay.relay.kill();
                relay.restart_relay();
            }),
            Fault::Control => tokio::task::block_in_place(|| {
                relay.control.kill();
                relay.restart_control();
            }),
            Fault::Device => tokio::task::block_in_place(|| device.kill(&relay)),
            Fault::Sleep => {
                device.sleep(Duration::from_millis(200 + dice.below(1500) as u64)).await
            }
        }
        *done.entry(fault).or_default() += 1;
    }
    load.finish().await;
    world.reached_directly();
    let anomalies = world.verdict(&sessions).await;
    let given_up = world.record.with(|history| {
        let entries = history.logs.values().flat_map(|log| &log.entries);
        entries.filter(|entry| entry.status == Status::Interrupted).count()
    });
    println!(
        "{done:?}, {} acknowledged, {} taken up, {given_up} given up after two",
        world.record.acknowledged(),
        world.recovered
    );
    assert!(world.record.acknowledged() > kills / 2, "the load was no load");
    assert_eq!(anomalies, []);
}
