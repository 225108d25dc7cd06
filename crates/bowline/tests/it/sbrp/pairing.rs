//! Devices that are paired with `bowline daemon run`, and need no key of the control plane.

use std::io::{Read as _, Write as _};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::world::{Program, World, dial, echo, exchange, promised, text};

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn listen(world: &World, device: &str, more: &[&str]) -> (Program, std::net::SocketAddr) {
    let mut args = vec!["connect", "home", "--json", "--listen", "127.0.0.1:0"];
    args.extend(more);
    let connect = Program::start(world.device(device, &args));
    let address = connect.event("established")["listen"].as_str().unwrap().parse().unwrap();
    (connect, address)
}

#[test]
fn sbrp_peer_01_a_paired_device_gets_in_without_the_owners_key_and_nobody_else_does() {
    let world = World::start();
    let _daemon = world.daemon_with(&["--tcp", &echo().to_string()]);
    let paired = json(&world.pair("daemon", "phone", &[]));
    let known = &world.daemons()[0];
    assert_eq!((&paired["name"], &paired["fingerprint"]), (&"home".into(), &known["fingerprint"]));
    let (_connect, address) = listen(&world, "phone", &[]);
    assert_eq!(exchange(address, b"sealed").unwrap(), b"sealed");
    // The owner's key opens the relay, and no more.
    let refused = world.ping("home", &[]);
    assert_eq!(refused.status.code(), Some(3));
    insta::assert_snapshot!(text(&refused.stderr), @r"
    error: the daemon does not know this device

    hint: pair it: run `bowline pair` on the daemon's machine, and here `bowline pair --accept TEXT`
    ");
    let stranger = world.device("stranger", &["connect", "home", "--ping"]).output().unwrap();
    assert_eq!(stranger.status.code(), Some(4), "{stranger:?}");
}

#[test]
fn g7_a_pairing_code_is_for_one_device() {
    let world = World::start();
    let _daemon = world.daemon_with(&[]);
    let offered = world.device("daemon", &["pair", "--json"]).output().unwrap();
    let offered = json(&offered);
    let code = offered["text"].as_str().unwrap();
    let accept = |device: &str| {
        world.device(device, &["pair", "--accept", code, "--name", "home"]).output().unwrap()
    };
    assert!(accept("phone").status.success());
    let second = accept("tablet");
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    assert!(text(&second.stderr).contains("was used"), "{second:?}");
    let pinged = world.device("phone", &["connect", "home", "--ping", "--json"]).output().unwrap();
    assert_eq!(json(&pinged)["first_use"], false, "the key came with the code");
    for (wrong, said) in [("bowline-pair:AQ", "incomplete"), ("https://x", "not a pairing text")] {
        let refused = world.device("phone", &["pair", "--accept", wrong]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(said), "{refused:?}");
    }
}

#[test]
fn sbrp_peer_01_a_revoked_device_is_cut_off_within_five_seconds() {
    let world = World::start();
    let _daemon = world.daemon_with(&["--tcp", &echo().to_string()]);
    json(&world.pair("daemon", "phone", &[]));
    json(&world.pair("daemon", "tablet", &[]));
    let (mut phone, address) = listen(&world, "phone", &[]);
    let (_tablet, other) = listen(&world, "tablet", &[]);
    let mut open = dial(address);
    open.write_all(b"before").unwrap();
    open.read_exact(&mut [0; 6]).unwrap();
    let listed = json(&world.device("daemon", &["devices", "list", "--json"]).output().unwrap());
    let names: Vec<_> =
        listed["devices"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["phone", "tablet"]);
    json(&world.device("daemon", &["devices", "revoke", "phone", "--json"]).output().unwrap());
    let begun = Instant::now();
    assert!(open.read(&mut [0; 1]).is_err(), "its connection is reset");
    assert_eq!(phone.ended().code(), Some(3), "{}", phone.said());
    assert!(begun.elapsed() < promised(5), "{:?}", begun.elapsed());
    assert_eq!(exchange(other, b"still").unwrap(), b"still", "the other device goes on");
    assert_eq!(world.pairs(), 1, "and no session of the revoked one stays at the relay");
    // The control plane gives it no tokens any more either.
    let begun = Instant::now();
    loop {
        let refused = world.device("phone", &["connect", "home", "--ping"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        if text(&refused.stderr).contains("the control plane refused") {
            break;
        }
        assert!(begun.elapsed() < promised(5), "{refused:?}");
    }
}

#[test]
fn sbrp_peer_01_each_target_has_its_own_permission() {
    let world = World::start();
    let (ssh, web) = (format!("ssh={}", echo()), format!("web={}", echo()));
    let _daemon = world.daemon_with(&["--tcp", &ssh, "--tcp", &web]);
    json(&world.pair("daemon", "phone", &["--service", "web"]));
    json(&world.pair("daemon", "laptop", &[]));
    let refuse = |device: &str, more: &[&str]| {
        let mut args = vec!["connect", "home", "--stdio"];
        args.extend(more);
        let output = world.device(device, &args).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let said = refuse("phone", &["--service", "ssh"]);
    assert!(said.contains("no service `ssh`") && said.contains("it offers: web"), "{said}");
    let said = refuse("laptop", &[]);
    assert!(said.contains("choose one with --service: ssh, web"), "{said}");
    let (_phone, address) = listen(&world, "phone", &[]);
    assert_eq!(exchange(address, b"the only one").unwrap(), b"the only one");
    let (_laptop, address) = listen(&world, "laptop", &["--service", "ssh"]);
    assert_eq!(exchange(address, b"by name").unwrap(), b"by name");
}

#[test]
fn standard_input_and_output_lead_to_a_service() {
    let world = World::start();
    let _daemon = world.daemon_with(&["--tcp", &echo().to_string()]);
    json(&world.pair("daemon", "phone", &[]));
    let mut command = world.device("phone", &["connect", "home", "--stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let sent: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let writing = std::thread::spawn({
        let sent = sent.clone();
        move || input.write_all(&sent).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
}

#[test]
fn g22_what_a_daemon_calls_itself_takes_no_name_that_stands_for_another() {
    let world = World::start();
    let one = world.daemon_with(&["--tcp", &echo().to_string()]);
    let offer = |folder: &str| {
        let offered = json(&world.device(folder, &["pair", "--json"]).output().unwrap());
        offered["text"].as_str().unwrap().to_owned()
    };
    let accept = |text: &str, more: &[&str]| {
        let mut args = vec!["pair", "--json", "--accept", text];
        args.extend(more);
        world.device("phone", &args).output().unwrap()
    };
    assert_eq!(json(&accept(&offer("daemon"), &[]))["name"], "home");
    // Another machine that calls itself the same, as far as the person knows by accident.
    let mut other = world.owner(&["daemon", "run", "--json", "--name", "home", "--data"]);
    other.arg(world.home("other"));
    let other = Program::start(other);
    other.event("online");
    assert_eq!(json(&accept(&offer("other"), &[]))["name"], "home-2");
    let refused = accept(&offer("other"), &["--name", "home"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("stands for another daemon"), "{refused:?}");
    let pinged =
        || json(&world.device("phone", &["connect", "home", "--ping", "--json"]).output().unwrap());
    let before = pinged()["daemon"].clone();
    let replaced = accept(&offer("other"), &["--name", "home", "--replace"]);
    assert_eq!(json(&replaced)["name"], "home");
    assert_ne!(pinged()["daemon"], before, "the person said so");
    for bad in ["--name=", "--name=-x", "--name=a\u{1b}b"] {
        assert_eq!(accept("bowline-pair:", &[bad]).status.code(), Some(2), "{bad}");
    }
    drop((one, other));
}

#[test]
fn a_code_is_not_used_up_by_a_device_that_cannot_keep_its_key() {
    let world = World::start();
    let _daemon = world.daemon_with(&[]);
    let offered = json(&world.device("daemon", &["pair", "--json"]).output().unwrap());
    let code = offered["text"].as_str().unwrap();
    let accept = || world.device("phone", &["pair", "--accept", code]).output().unwrap();
    let lock = world.home("phone/relay/known.json.lock");
    std::fs::create_dir_all(&lock).unwrap();
    assert_eq!(accept().status.code(), Some(1));
    std::fs::remove_dir(&lock).unwrap();
    let paired = accept();
    assert!(paired.status.success(), "{paired:?}");
    let listed = json(&world.device("daemon", &["devices", "list", "--json"]).output().unwrap());
    assert_eq!(listed["devices"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn a_code_that_nobody_could_use_is_not_made() {
    let world = World::start();
    let mut daemon = world.daemon_with(&["--tcp", &format!("web={}", echo())]);
    let unknown = world.device("daemon", &["pair", "--service", "ssh"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(text(&unknown.stderr).contains("its targets are: web"), "{unknown:?}");
    daemon.kill();
    let stopped = world.device("daemon", &["pair"]).output().unwrap();
    assert_eq!(stopped.status.code(), Some(5), "{stopped:?}");
    assert!(text(&stopped.stderr).contains("the daemon does not run"), "{stopped:?}");
}

#[test]
fn a_connection_over_standard_input_ends_with_its_command() {
    let world = World::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let _daemon = world.daemon_with(&["--tcp", &target]);
    json(&world.pair("daemon", "phone", &[]));
    let mut command = world.device("phone", &["connect", "home", "--stdio"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (mut open, _) = listener.accept().unwrap();
    open.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(matches!(open.read(&mut [0; 1]), Err(_) | Ok(0)), "it ends at the target, too");
}

#[test]
fn g2_what_was_piped_in_arrives_although_the_command_has_ended() {
    let world = World::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let _daemon = world.daemon_with(&["--tcp", &target]);
    json(&world.pair("daemon", "phone", &[]));
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    let mut command = world.device("phone", &["connect", "home", "--stdio"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn({
        let sent = sent.clone();
        move || input.write_all(&sent).unwrap()
    });
    let (mut open, _) = listener.accept().unwrap();
    open.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Nothing comes back, so the command is done when all of it is at the daemon.
    open.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = vec![0; 300_000];
    open.read_exact(&mut heard).unwrap();
    let ended = child.wait().unwrap();
    writing.join().unwrap();
    open.read_to_end(&mut heard).unwrap();
    assert!(ended.success() && heard == sent, "{ended}: {} bytes", heard.len());
}
