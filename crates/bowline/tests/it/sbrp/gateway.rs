//! A gateway at home, reached by paired devices through a relay: control plane, relay, gateway and two
//! devices, each its own process.

use std::process::Output;
use std::time::Instant;

use serde_json::{Value, json};

use super::world::{Program, World, promised, text};
use crate::process::DEADLINE;

/// A gateway that is online at the relay.
pub(crate) fn gateway(world: &World) -> Program {
    let mut command = world.owner(&["gateway", "run", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--relay", world.url()]).env("BOWLINE_RELAY_NAME", "home");
    command.env("BOWLINE_OFFLINE_PACE", "0ms");
    let gateway = Program::start(command_in(command, world));
    let ready = gateway.line();
    let relay = ready["relay"].as_str().unwrap_or_default();
    assert!(relay.starts_with("reachable through"), "{ready}");
    gateway
}

fn command_in(mut command: std::process::Command, world: &World) -> std::process::Command {
    command.arg("--data").arg(world.home("gateway"));
    command
}

fn ok(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn run(world: &World, device: &str, args: &[&str]) -> Output {
    world.device(device, args).output().unwrap()
}

/// A local port of the device that leads to the gateway.
pub(crate) fn port(world: &World, device: &str) -> (Program, String) {
    let args = ["connect", "home", "--json", "--listen", "127.0.0.1:0"];
    let connect = Program::start(world.device(device, &args));
    let established = connect.event("established");
    let url = format!("http://{}", established["listen"].as_str().unwrap());
    (connect, url)
}

#[test]
fn g22_a_paired_phone_talks_to_the_session_at_home() {
    let world = World::start();
    let _gateway = gateway(&world);
    let paired = ok(&world.pair("gateway", "phone", &[]));
    assert_eq!(paired["services"], json!(["http", "api"]));
    let chat = run(&world, "phone", &["chat", "--via", "home", "--message", "echo from the phone"]);
    assert!(text(&chat.stdout).contains("from the phone"), "{chat:?}");
    let sessions = ok(&run(&world, "phone", &["sessions", "list", "--via", "home", "--json"]));
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    // The same session from another device, which has a local port for any program.
    ok(&world.pair("gateway", "laptop", &[]));
    let (_connect, url) = port(&world, "laptop");
    let seen: Value = get(&format!("{url}/v1/sessions"));
    assert_eq!(seen["sessions"][0]["session_id"], sessions[0]["session_id"]);
    // Commands at home see what the phone said, too.
    let home = ok(&run(&world, "gateway", &["sessions", "list", "--json"]));
    assert_eq!(home.as_array().map(Vec::len), Some(1));
}

fn get(url: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { reqwest::get(url).await.unwrap().json().await.unwrap() })
}

fn status(url: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { reqwest::get(url).await.unwrap().status().as_u16() })
}

#[test]
fn g20_a_device_is_a_credential_of_its_user_with_its_scopes() {
    let world = World::start();
    let _gateway = gateway(&world);
    let at_home = |args: &[&str]| run(&world, "gateway", args);
    ok(&at_home(&["users", "add", "bob", "--json"]));
    assert!(at_home(&["chat", "--message", "echo mine"]).status.success());
    ok(&world.pair("gateway", "bobs", &["--user", "bob"]));
    ok(&world.pair("gateway", "reader", &["--scopes", "read"]));
    let bobs = ok(&run(&world, "bobs", &["sessions", "list", "--via", "home", "--json"]));
    assert_eq!(bobs, json!([]), "the owner's sessions are not bob's");
    let read = ok(&run(&world, "reader", &["sessions", "list", "--via", "home", "--json"]));
    assert_eq!(read.as_array().map(Vec::len), Some(1));
    let refused = run(&world, "reader", &["chat", "--via", "home", "--message", "echo no"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    // Neither may manage users, and a local port may not even with every scope.
    let refused = run(&world, "bobs", &["users", "list", "--via", "home"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    ok(&world.pair("gateway", "admin", &["--scopes", "turns,read,approve,tools,export,admin"]));
    assert!(run(&world, "admin", &["users", "list", "--via", "home"]).status.success());
    let (_connect, url) = port(&world, "admin");
    assert_eq!(status(&format!("{url}/v1/users")), 403);
    assert_eq!(status(&format!("{url}/v1/sessions")), 200);
    let whole = ["connect", "home", "--listen", "127.0.0.1:0", "--service", "http"];
    let refused = run(&world, "admin", &whole);
    assert_eq!(refused.status.code(), Some(2), "not for a local port: {refused:?}");
}

#[test]
fn sbrp_peer_01_a_revoked_device_of_a_gateway_is_cut_off_within_five_seconds() {
    let world = World::start();
    let _gateway = gateway(&world);
    ok(&world.pair("gateway", "phone", &[]));
    let (mut connect, url) = port(&world, "phone");
    assert_eq!(status(&format!("{url}/v1/sessions")), 200);
    ok(&run(&world, "gateway", &["devices", "revoke", "phone", "--json"]));
    let begun = Instant::now();
    assert_eq!(connect.ended().code(), Some(3), "{}", connect.said());
    assert!(begun.elapsed() < promised(5), "{:?}", begun.elapsed());
    let listed = ok(&run(&world, "gateway", &["devices", "list", "--json"]));
    assert_eq!(listed["devices"], json!([]));
}

#[test]
fn a_gateway_that_was_killed_is_reachable_again_with_its_devices_and_sessions() {
    let world = World::start();
    let mut at_home = gateway(&world);
    ok(&world.pair("gateway", "phone", &[]));
    let (connect, url) = port(&world, "phone");
    assert!(
        run(&world, "phone", &["chat", "--via", "home", "--message", "echo one"]).status.success()
    );
    at_home.kill();
    connect.event("paused");
    let _at_home = gateway(&world);
    connect.event("established");
    let begun = Instant::now();
    while status(&format!("{url}/v1/sessions")) != 200 {
        assert!(begun.elapsed() < DEADLINE);
    }
    let seen = get(&format!("{url}/v1/sessions"));
    assert_eq!(seen["sessions"].as_array().map(Vec::len), Some(1), "{seen}");
}

#[test]
fn a_login_is_stored_for_its_owner_alone_and_used_by_later_commands() {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::start();
    let login = |key: &str| {
        let mut command = world.device("gateway", &["login", world.url(), "--json"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let wrong = login("bck_wrong");
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    let file = world.home("gateway/relay/login.json");
    assert!(!file.exists(), "a key that is refused is not stored");
    ok(&login(&world.key));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // No key on the command line, nor in the environment.
    let args = ["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--relay", world.url()];
    let gateway = Program::start(world.device("gateway", &args));
    let ready = gateway.line();
    assert!(ready["relay"].as_str().unwrap().starts_with("reachable"), "{ready}");
    let pair = ok(&world.pair("gateway", "phone", &[]));
    assert_eq!(pair["name"], "home");
}

#[test]
fn g2_a_chat_through_a_relay_shows_what_happens_on_the_way_and_goes_on() {
    let mut world = World::start();
    let mut at_home = gateway(&world);
    ok(&world.pair("gateway", "phone", &[]));
    let mut command = world.device("phone", &["chat", "--via", "home", "--lines", "--json"]);
    command.stdin(std::process::Stdio::piped());
    let mut chat = Program::start(command);
    let answered = |chat: &Program, words: &str| {
        while !chat.line().to_string().contains(words) {}
    };
    chat.write("echo before it all");
    answered(&chat, "before it all");
    // The relay is killed and comes back; then the gateway.
    world.relay.kill();
    chat.until_said("lost: ");
    world.restart_relay();
    chat.write("echo after the relay");
    answered(&chat, "after the relay");
    at_home.kill();
    chat.until_said("paused: ");
    let _at_home = gateway(&world);
    chat.write("echo after the gateway");
    answered(&chat, "after the gateway");
}
