//! A link between two hosts, which can be shaped and cut while it carries something (`link.py`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::namespace::Namespace;

/// How one direction of a link is. By default it is as good as loopback.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    /// Bytes per second.
    pub(crate) rate: Option<u64>,
    /// One way.
    pub(crate) delay: Duration,
    /// The share of packets that are lost.
    pub(crate) loss: f64,
    /// All are lost.
    pub(crate) dead: bool,
}

impl Shape {
    pub(crate) fn rate(bytes_per_s: u64) -> Self {
        Self { rate: Some(bytes_per_s), ..Self::default() }
    }

    fn to_json(self) -> Value {
        let Self { rate, delay, loss, dead } = self;
        json!({ "rate": rate, "delay": delay.as_secs_f64(), "loss": loss, "dead": dead })
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    child: Child,
    answers: Mutex<BufReader<ChildStdout>>,
}

impl Link {
    /// A device with this name on both hosts.
    pub(crate) fn between(host: &Namespace, relay: &Namespace, name: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/network/link.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args([&host.pid().to_string(), name, &relay.pid().to_string(), name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let link = Self { child, answers: Mutex::new(answers) };
        link.answer("ready");
        link
    }

    /// Changes both directions: up is towards the relay.
    pub(crate) fn shape(&self, up: Shape, down: Shape) {
        let command = json!({ "a_to_b": up.to_json(), "b_to_a": down.to_json() });
        writeln!(self.child.stdin.as_ref().unwrap(), "{command}").unwrap();
        self.answer("ok");
    }

    pub(crate) fn both(&self, shape: Shape) {
        self.shape(shape, shape);
    }

    /// A black hole: nothing passes for this time, and then it is as before.
    pub(crate) fn dead_for(&self, time: Duration, then: Shape) {
        self.both(Shape { dead: true, ..then });
        std::thread::sleep(time);
        self.both(then);
    }

    fn answer(&self, wanted: &str) {
        let mut line = String::new();
        self.answers.lock().unwrap().read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), wanted, "the link does not work");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
