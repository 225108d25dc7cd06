//! Networks where all goes through a proxy, and certificates of a private authority: HTTP requests and
//! WebSockets do the same, and what is on this machine never reaches the proxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::process::{Process, bowline};
use crate::sbrp::world::{Program, World, echo, text};

/// An HTTP proxy on loopback that records the head of every request. Tunnels lead to the same port of
/// this machine, whatever their host is called, and only with its user and password.
struct RecordingProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// `user:word` in base64.
const CREDENTIAL: &str = "Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n";

impl RecordingProxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let heads = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, &heads));
            }
        });
        Self { address, heads }
    }

    /// Sets every variable of a proxy, in this case of letters.
    fn given_to(&self, command: &mut Command, credential: &str, case: fn(&str) -> String) {
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(case(name), format!("http://{credential}{}", self.address));
        }
        for name in ["NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    heads.lock().unwrap().push(head.clone());
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let port = target.and_then(|target| target.rsplit(':').next()?.parse::<u16>().ok());
    // Names of headers are written in either case.
    let allowed = head.to_lowercase().contains(&CREDENTIAL.to_lowercase());
    let answer = match (port, allowed) {
        (Some(_), true) => "HTTP/1.1 200 Connection established\r\n\r\n",
        (_, false) => "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        (None, true) => "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n",
    };
    let _ = stream.write_all(answer.as_bytes());
    let (Some(port), true) = (port, allowed) else { return };
    let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let (near, back) = (stream.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || pump(back, near));
    pump(stream, far);
}

/// A certificate for this name, as files.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec![name.into()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key)
}

#[test]
fn no_proxy_ever_sees_requests_to_this_machine() {
    for case in [|name: &str| name.to_owned(), |name: &str| name.to_lowercase()] {
        let proxy = RecordingProxy::start();
        let here = |mut command: Command| {
            proxy.given_to(&mut command, "user:word@", case);
            command
        };
        // Relay, control plane, daemon and client: keys, registration, tokens, WebSockets.
        let mut world = World::start();
        let issuer = world.url().to_owned();
        let port = bowline_servers::quiet_port();
        let listen = format!("127.0.0.1:{port}");
        let mut relay = here(bowline());
        relay.args(["relay", "run", "--json", "--listen", &listen, "--issuer", &issuer]);
        world.relay.kill();
        let relay = Program::start(relay);
        relay.line();
        let mut control = here(bowline());
        let relay_url = format!("ws://localhost:{port}/relay");
        control.args(["control", "run", "--json", "--relay-url", &relay_url, "--listen"]);
        control.arg(issuer.trim_start_matches("http://")).arg("--data");
        world.control.kill();
        let control = Program::start({
            control.arg(world.folder.path().join("control"));
            control
        });
        control.line();
        let target = echo().to_string();
        let mut daemon = here(world.owner(&["daemon", "run", "--json", "--name", "home"]));
        daemon.args(["--allow-unpaired", "--tcp", &target, "--data"]).arg(world.home("daemon"));
        let daemon = Program::start(daemon);
        daemon.event("online");
        let mut ping = here(world.owner(&["connect", "home", "--ping", "--json", "--count", "1"]));
        let pinged = ping.arg("--data").arg(world.home("client")).output().unwrap();
        assert!(pinged.status.success(), "{pinged:?}");
        // A gateway with an upstream, and a chat with it: HTTP and WebSocket, and the model's server.
        let model = Process::start(&world.home("model"));
        let mut gateway = here(bowline());
        gateway.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--upstream"]);
        gateway.arg(format!("{}/v1", model.url)).arg("--data").arg(world.home("gateway"));
        let gateway = Process::spawned(gateway, &world.home("gateway"));
        for url in [gateway.url.clone(), gateway.url.replace("127.0.0.1", "localhost")] {
            let mut chat = here(bowline());
            let said = chat.args(["chat", "--message", "echo hi", "--url", &url]).output().unwrap();
            assert!(said.status.success(), "{said:?}");
        }
        assert_eq!(proxy.heads(), Vec::<String>::new());
    }
}

#[test]
fn relay_sockets_and_requests_go_through_the_same_proxy_and_trust_the_same_authority() {
    let proxy = RecordingProxy::start();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (cert, key) = certificate(folder, "relay.test");
    let (port, data) = (bowline_servers::quiet_port(), folder.join("control"));
    let url = format!("https://relay.test:{port}");
    let mut relay = bowline();
    relay.args(["relay", "run", "--with-control", "--json", "--url", &url, "--listen"]);
    relay.arg(format!("127.0.0.1:{port}")).arg("--data").arg(&data);
    let relay = Program::start({
        relay.arg("--tls-cert").arg(&cert).arg("--tls-key").arg(&key);
        relay
    });
    assert_eq!(relay.line()["control"], url);
    let mut add = bowline();
    let added = add.args(["control", "user", "add", "alice", "--json", "--data"]).arg(&data);
    let added: Value = serde_json::from_slice(&added.output().unwrap().stdout).unwrap();
    let owner = |args: &[&str], credential: &str| {
        let mut command = bowline();
        command.args(args).arg("--ca-file").arg(&cert);
        command.env("BOWLINE_CONTROL", &url);
        command.env("BOWLINE_CONTROL_KEY", added["api_key"].as_str().unwrap());
        proxy.given_to(&mut command, credential, str::to_owned);
        command
    };
    let target = echo().to_string();
    let mut daemon = owner(&["daemon", "run", "--json", "--name", "home"], "user:word@");
    daemon.args(["--allow-unpaired", "--tcp", &target, "--data"]).arg(folder.join("daemon"));
    let daemon = Program::start(daemon);
    daemon.event("online");
    let before = proxy.heads().len();
    assert!(before >= 2, "registration and the daemon's WebSocket: {:?}", proxy.heads());
    let mut ping = owner(&["connect", "home", "--ping", "--json"], "user:word@");
    let pinged = ping.arg("--data").arg(folder.join("client")).output().unwrap();
    assert!(pinged.status.success(), "{pinged:?}");
    assert!(proxy.heads().len() >= before + 2, "requests and the client's WebSocket");
    let tunnel = format!("CONNECT relay.test:{port} HTTP/1.1\r\n");
    for head in proxy.heads() {
        assert!(head.starts_with(&tunnel) && !head.contains("Bearer"), "{head}");
    }

    let mut wrong = owner(&["daemons", "list"], "");
    let refused = wrong.output().unwrap();
    insta::assert_snapshot!(text(&refused.stderr).replace(&port.to_string(), "[PORT]"), @r"
    error: the control plane at relay.test:[PORT] cannot be reached: the proxy refused (407) and wants a user and a password, as in HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT

    hint: check that it runs, and its address
    ");
}

#[test]
fn a_chat_goes_through_the_proxy_with_requests_and_socket_and_trusts_the_configured_authority() {
    let proxy = RecordingProxy::start();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path(), "gateway.test");
    let mut gateway = bowline();
    gateway.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--tls-cert"]).arg(&cert);
    gateway.arg("--tls-key").arg(&key).arg("--data").arg(folder.path());
    gateway.env("BOWLINE_HTTP_ALLOWED_HOSTS", "gateway.test");
    let gateway = Process::spawned(gateway, folder.path());
    let port = gateway.url.rsplit(':').next().unwrap();
    let url = format!("https://gateway.test:{port}");
    let chat = |arrange: &dyn Fn(&mut Command)| {
        let mut command = bowline();
        command.args(["chat", "--message", "echo hi", "--url", &url]);
        proxy.given_to(&mut command, "user:word@", str::to_owned);
        arrange(&mut command);
        command.output().unwrap()
    };
    let refused = chat(&|_| {});
    assert!(text(&refused.stderr).contains("is not trusted"), "{refused:?}");
    assert!(text(&refused.stderr).contains("--ca-file FILE"), "{refused:?}");
    let before = proxy.heads().len();
    let config = folder.path().join("bowline.toml");
    std::fs::write(&config, format!("ca_file = [{:?}]\n", cert.display().to_string())).unwrap();
    type Arrange<'a> = &'a dyn Fn(&mut Command);
    let ways: [Arrange<'_>; 3] = [
        &|command| {
            command.arg("--ca-file").arg(&cert);
        },
        &|command| {
            command.env("BOWLINE_CA_FILE", &cert);
        },
        &|command| {
            command.env("BOWLINE_CONFIG", &config);
        },
    ];
    for way in ways {
        let said = chat(way);
        assert!(said.status.success() && text(&said.stdout).contains("hi"), "{said:?}");
    }
    assert!(proxy.heads().len() >= before + 6, "requests and a WebSocket for each chat");
}

#[test]
fn a_wrong_ca_file_is_refused_with_what_is_wrong_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_, key) = certificate(folder.path(), "relay.test");
    let fails = |file: &Path| {
        let mut command = bowline();
        let output = command.args(["daemons", "list", "--ca-file"]).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr).replace(&folder.path().display().to_string(), "[FOLDER]")
    };
    insta::assert_snapshot!(fails(&key), @r"
    error: [FOLDER]/key.pem holds a private key and no certificate

    hint: give the certificate of the authority as a PEM file, which begins with -----BEGIN CERTIFICATE-----; a file in DER becomes one with `openssl x509 -inform der -in FILE`
    ");
    let missing = fails(&folder.path().join("none.pem"));
    let expected = "error: cannot read the certificates in [FOLDER]/none.pem: No such file";
    assert!(missing.starts_with(expected), "{missing}");
}
