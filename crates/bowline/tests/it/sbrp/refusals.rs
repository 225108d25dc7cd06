//! Refused access: revoked users and daemons, and the errors they get.

use std::os::unix::fs::PermissionsExt as _;

use super::world::{Program, World, echo, exchange, text};

#[test]
fn a_wrong_key_is_refused_by_every_command() {
    let world = World::start();
    let _daemon = world.daemon(echo());
    let data = world.home("stranger");
    let data = data.to_str().unwrap();
    for args in [
        &["daemons", "list"][..],
        &["connect", "home", "--ping", "--data", data],
        &["daemon", "run", "--data", data],
    ] {
        let output = world.owner(args).env("BOWLINE_CONTROL_KEY", "bck_wrong").output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b""[..]), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: the control plane refused: "), "{args:?}: {said}");
        assert!(said.contains("check the key"), "{args:?}: {said}");
        assert!(!said.contains("bck_wrong"), "{said}");
    }
}

#[test]
fn a_revoked_user_gets_nothing_new() {
    let mut world = World::start();
    let mut daemon = world.daemon(echo());
    let (mut connect, address) = world.connect("home");
    world.control(&["user", "revoke", "alice"]);
    let output = world.owner(&["daemons", "list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("the control plane refused"), "{output:?}");
    // An accepted connection lasts until it is lost; the reconnect is refused.
    assert_eq!(exchange(address, b"still").unwrap(), b"still");
    world.relay.kill();
    assert_eq!(connect.ended().code(), Some(3));
    let said = connect.said();
    assert!(said.contains("error: the control plane refused"), "{said}");
    // The daemon's token is still valid, so it keeps reconnecting.
    daemon.event("lost");
    daemon.kill();
    let mut command = world.owner(&["daemon", "run", "--json", "--data"]);
    command.arg(world.home("daemon"));
    let mut again = Program::start(command);
    assert_eq!(again.ended().code(), Some(3));
    assert!(again.said().contains("error: the control plane refused"), "{}", again.said());
}

#[test]
fn sbrp_daemon_01_an_identity_that_others_can_read_is_refused() {
    let world = World::start();
    let mut daemon = world.daemon(echo());
    daemon.kill();
    let identity = world.home("daemon/relay/identity");
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&identity), 0o600);
    std::fs::set_permissions(&identity, std::fs::Permissions::from_mode(0o640)).unwrap();
    let output =
        world.owner(&["daemon", "run", "--data"]).arg(world.home("daemon")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("others can read"), "{output:?}");
    let pins = world.home("client/relay/known.json");
    std::fs::set_permissions(&identity, std::fs::Permissions::from_mode(0o600)).unwrap();
    let _daemon = world.daemon(echo());
    assert!(world.ping("home", &[]).status.success());
    assert_eq!(mode(&pins), 0o600);
}
