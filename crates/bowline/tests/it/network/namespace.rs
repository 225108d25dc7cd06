//! A network namespace: a host of its own, with interfaces, addresses and ports of its own.
//!
//! It belongs to a child process that waits for the end of its stdin, so it has no name in the system, and
//! is gone with the test however that ends.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::bowline;

/// Variables that would lead a program's requests somewhere else.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

#[derive(Debug)]
pub(crate) struct Namespace {
    /// Keeps it alive.
    child: Child,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let namespace = Self { child };
        namespace.until_apart();
        namespace.ip("link set lo up");
        namespace
    }

    /// Waits until the child has left the namespace of the test.
    fn until_apart(&self) {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        while std::fs::read_link(self.file()).is_ok_and(|namespace| namespace == own) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn file(&self) -> String {
        format!("/proc/{}/ns/net", self.pid())
    }

    /// Runs `ip` with these words.
    pub(crate) fn ip(&self, words: &str) {
        let output = self.inside("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {output:?}");
    }

    /// A command that runs this program on this host.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.file())).arg(program);
        command
    }

    /// A `bowline` command that runs on this host.
    pub(crate) fn bowline(&self) -> Command {
        self.bowline_by(&[])
    }

    /// The same, started by these words.
    pub(crate) fn bowline_by(&self, words: &[&str]) -> Command {
        let plain = bowline();
        let program = plain.get_program().to_str().unwrap();
        let mut words = words.iter().copied().chain([program]);
        let mut command = self.inside(words.next().expect("there is the program"));
        command.args(words);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for name in PROXIES {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
    }

    /// Runs this on this host: sockets that it opens stay there.
    pub(crate) fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let file = File::open(self.file()).unwrap();
        let on_a_thread = move || {
            // A thread changes its own namespace only, and ends with it.
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        };
        std::thread::scope(|scope| scope.spawn(on_a_thread).join().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What this machine lacks, if it cannot do it.
pub(crate) fn missing() -> Option<&'static str> {
    let works = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !works("unshare", &["--net", "true"]) {
        return Some("root and network namespaces");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("/dev/net/tun");
    }
    if !works("ip", &["-V"]) || !works("nsenter", &["--version"]) {
        return Some("iproute2 and nsenter");
    }
    (!works("python3", &["--version"])).then_some("python3")
}
