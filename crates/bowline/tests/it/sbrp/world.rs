//! Test fixture: a control plane, a relay, a daemon and clients, all real processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bowline_servers::quiet_port;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, bowline};

/// A child process that prints lines of JSON.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
    /// Reads its stderr until it has ended.
    hearing: Option<JoinHandle<()>>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (give, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| {
                let _ = give.send(line);
            });
        });
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, hears) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&said));
        let hearing = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut said = hears.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self { child, lines, said, hearing: Some(hearing) }
    }

    pub(crate) fn line(&self) -> Value {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => serde_json::from_str(&line).expect("a line of JSON"),
            Err(error) => panic!("no line: {error}; it said: {}", self.said()),
        }
    }

    /// Writes a line to its standard input, which has to be piped.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it has said this on stderr.
    pub(crate) fn until_said(&self, words: &str) {
        let begun = Instant::now();
        while !self.said().contains(words) {
            assert!(begun.elapsed() < DEADLINE, "never `{words}`: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Waits for the next event with this name; skips others.
    pub(crate) fn event(&self, name: &str) -> Value {
        loop {
            let line = self.line();
            if line["event"] == name {
                return line;
            }
        }
    }

    /// The lines that it has printed and that nobody has read.
    pub(crate) fn unread(&self) -> Vec<Value> {
        self.lines.try_iter().filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.hear_out();
    }

    /// Waits until all that it said was read.
    fn hear_out(&mut self) {
        if let Some(hearing) = self.hearing.take() {
            hearing.join().unwrap();
        }
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        let (name, pid) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([&name, &pid]).status().unwrap().success());
    }

    /// Waits until it exits by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.hear_out();
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) control: Program,
    pub(crate) relay: Program,
    /// The API key of the only user.
    pub(crate) key: String,
    url: String,
    port: u16,
    log: Option<&'static str>,
}

impl World {
    pub(crate) fn start() -> Self {
        Self::logging(None)
    }

    /// Starts all programs with this log level.
    pub(crate) fn logging(log: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = quiet_port();
        let listen = format!("127.0.0.1:{}", quiet_port());
        let control = start_control(folder.path(), &listen, port, log);
        let url = control.line()["url"].as_str().unwrap().to_owned();
        let relay = start_relay(port, &url, &[], log);
        let mut world = Self { folder, control, relay, key: String::new(), url, port, log };
        let added = world.control(&["user", "add", "alice", "--json"]);
        let added: Value = serde_json::from_slice(&added.stdout).unwrap();
        world.key = added["api_key"].as_str().unwrap().to_owned();
        world
    }

    /// The control plane's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Runs a subcommand of `bowline control` to its end.
    pub(crate) fn control(&self, args: &[&str]) -> Output {
        let mut command = bowline();
        command.arg("control").args(args).arg("--data").arg(self.folder.path().join("control"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    /// Starts the control plane again, with the same data and address.
    pub(crate) fn restart_control(&mut self) {
        let listen = self.url.trim_start_matches("http://");
        self.control = start_control(self.folder.path(), listen, self.port, self.log);
        assert_eq!(self.control.line()["url"], self.url);
    }

    /// Starts the relay again, on the same port.
    pub(crate) fn restart_relay(&mut self) {
        self.relay = start_relay(self.port, &self.url, &[], self.log);
    }

    /// Starts another relay with these flags; returns it with its port.
    pub(crate) fn another_relay(&self, flags: &[&str]) -> (Program, u16) {
        let port = quiet_port();
        (start_relay(port, &self.url, flags, self.log), port)
    }

    /// How many sessions the relay has.
    pub(crate) fn pairs(&self) -> u64 {
        let mut stream = dial(SocketAddr::from(([127, 0, 0, 1], self.port)));
        let request = "GET /metrics HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let pairs = page.lines().filter(|line| line.starts_with("bowline_relay_pairs{"));
        pairs.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    }

    /// The data folder of the daemon or client with this name.
    pub(crate) fn home(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A `bowline` command with the owner's API key.
    pub(crate) fn owner(&self, args: &[&str]) -> Command {
        let mut command = bowline();
        command.env("BOWLINE_CONTROL", &self.url).env("BOWLINE_CONTROL_KEY", &self.key).args(args);
        with_log(command, self.log)
    }

    /// Starts a daemon that forwards to `target` for plain SBRP clients, too, and waits until it is
    /// online.
    pub(crate) fn daemon(&self, target: SocketAddr) -> Program {
        self.daemon_with(&["--allow-unpaired", "--tcp", &target.to_string()])
    }

    pub(crate) fn daemon_with(&self, args: &[&str]) -> Program {
        let mut command = self.owner(&["daemon", "run", "--json", "--name", "home"]);
        command.args(args).arg("--data").arg(self.home("daemon"));
        let daemon = Program::start(command);
        daemon.event("online");
        daemon
    }

    /// A command of a device, which has no key of the control plane.
    pub(crate) fn device(&self, name: &str, args: &[&str]) -> Command {
        let mut command = bowline();
        command.args(args).arg("--data").arg(self.home(name));
        with_log(command, self.log)
    }

    /// Pairs a device with the daemon or gateway whose data is in the folder `with`.
    pub(crate) fn pair(&self, with: &str, device: &str, grant: &[&str]) -> Output {
        let mut command = bowline();
        command.args(["pair", "--json"]).args(grant).arg("--data").arg(self.home(with));
        let offered = command.output().unwrap();
        assert!(offered.status.success(), "{offered:?}");
        let offered: Value = serde_json::from_slice(&offered.stdout).unwrap();
        let text = offered["text"].as_str().unwrap();
        let args = ["pair", "--accept", text, "--name", "home", "--device-name", device, "--json"];
        self.device(device, &args).output().unwrap()
    }

    /// Starts `bowline connect`; returns it with the local address it listens on.
    pub(crate) fn connect(&self, named: &str) -> (Program, SocketAddr) {
        let mut command = self.owner(&["connect", named, "--json", "--listen", "127.0.0.1:0"]);
        command.arg("--data").arg(self.home("client"));
        let connect = Program::start(command);
        let established = connect.event("established");
        let address = established["listen"].as_str().unwrap().parse().unwrap();
        (connect, address)
    }

    pub(crate) fn ping(&self, named: &str, more: &[&str]) -> Output {
        let mut command = self.owner(&["connect", named, "--ping", "--json", "--count", "5"]);
        command.args(more).arg("--data").arg(self.home("client")).output().unwrap()
    }

    pub(crate) fn daemons(&self) -> Value {
        let output = self.owner(&["daemons", "list", "--json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until `bowline daemons list` reports this status for the first daemon.
    pub(crate) fn until_status(&self, status: &str) {
        let begun = Instant::now();
        loop {
            let seen = self.daemons();
            if seen[0]["status"] == status {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "never {status}: {seen}");
        }
    }
}

fn start_control(folder: &Path, listen: &str, relay: u16, log: Option<&'static str>) -> Program {
    let mut command = bowline();
    command.args(["control", "run", "--json", "--listen", listen, "--relay-url"]);
    command.arg(format!("ws://127.0.0.1:{relay}/relay")).arg("--data").arg(folder.join("control"));
    Program::start(with_log(command, log))
}

fn start_relay(port: u16, issuer: &str, flags: &[&str], log: Option<&'static str>) -> Program {
    let mut command = bowline();
    let listen = format!("127.0.0.1:{port}");
    command.args(["relay", "run", "--json", "--listen", &listen, "--issuer", issuer]).args(flags);
    let relay = Program::start(with_log(command, log));
    assert_eq!(relay.line()["url"], format!("ws://{listen}/relay"));
    relay
}

fn with_log(mut command: Command, log: Option<&str>) -> Command {
    if let Some(level) = log {
        command.env("BOWLINE_LOG_LEVEL", level);
    }
    command
}

/// What is promised to take so many seconds at most. Asserted in a soak: the other tests beside this one keep
/// a small machine busy.
pub(crate) fn promised(seconds: u64) -> Duration {
    match std::env::var_os("BOWLINE_SOAK") {
        Some(_) => Duration::from_secs(seconds),
        None => DEADLINE,
    }
}

/// A TCP server that echoes until end of file.
pub(crate) fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut from = stream.try_clone().unwrap();
                let mut to = stream;
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

pub(crate) fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Sends everything, shuts down the write side, and reads until end of file.
pub(crate) fn exchange(address: SocketAddr, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = dial(address);
    let mut writer = stream.try_clone()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            writer.write_all(sent)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard)?;
        writing.join().unwrap()?;
        Ok(heard)
    })
}

/// Pseudo-random bytes, so that lost or reordered ones are noticed.
pub(crate) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
