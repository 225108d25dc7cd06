//! A daemon whose identity key differs from the pinned one.

use serde_json::Value;

use super::world::{World, echo, exchange, text, write_private};

/// A valid identity key that belongs to none of the daemons.
const ANOTHER: &str = "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w";

#[test]
fn sbrp_client_02_another_key_stops_everything_until_it_is_approved() {
    let world = World::start();
    let _daemon = world.daemon(echo());
    let first = world.ping("home", &[]);
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    let offered = first["fingerprint"].as_str().unwrap();
    assert_eq!(first["first_use"], true);
    let (pins, id) = (world.home("client/relay/known.json"), first["daemon"].as_str().unwrap());
    let other =
        format!(r#"{{"version":2,"names":{{"home":{{"daemon":"{id}","key":"{ANOTHER}"}}}}}}"#);
    write_private(&pins, &other);

    let refused = world.ping("home", &[]);
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(6), &b""[..]));
    let said = text(&refused.stderr);
    let pinned = said.lines().find_map(|line| line.strip_prefix("  pinned   ")).unwrap();
    assert!(pinned.starts_with("SHA256:") && pinned != offered, "{said}");
    let said = said.replace(pinned, "[PINNED]").replace(offered, "[OFFERED]");
    insta::assert_snapshot!(said, @r"
    error: the daemon shows another identity key than the pinned one

      pinned   [PINNED]
      offered  [OFFERED]

    hint: this may be a man-in-the-middle attack. If you know why the key changed, and the daemon itself
          prints the offered fingerprint, use --approve-new-key [OFFERED]
    ");
    assert_eq!(std::fs::read_to_string(&pins).unwrap(), other, "nothing was pinned");
    let mut listening = world.owner(&["connect", "home", "--listen", "127.0.0.1:0", "--data"]);
    let listening = listening.arg(world.home("client")).output().unwrap();
    assert_eq!(listening.status.code(), Some(6), "a tunnel is refused, too");

    let wrong = world.ping("home", &["--approve-new-key", pinned]);
    assert_eq!(wrong.status.code(), Some(6));
    assert!(text(&wrong.stderr).contains("does not have that fingerprint"), "{wrong:?}");
    assert_eq!(std::fs::read_to_string(&pins).unwrap(), other, "nothing was pinned");

    // Approving needs no other mode.
    let mut approve = world.owner(&["connect", "home", "--approve-new-key", offered, "--data"]);
    let approved = approve.arg(world.home("client")).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    assert_eq!(text(&approved.stdout), format!("`home` is pinned to {offered}\n"));
    assert!(world.ping("home", &[]).status.success(), "from now on it is the pinned one");
    let (_connect, address) = world.connect("home");
    assert_eq!(exchange(address, b"sealed").unwrap(), b"sealed");
}

#[test]
fn a_daemon_that_lost_its_identity_is_another_daemon() {
    let world = World::start();
    let mut daemon = world.daemon(echo());
    assert!(world.ping("home", &[]).status.success());
    let before = world.daemons()[0]["id"].as_str().unwrap().to_owned();
    daemon.kill();
    world.until_status("offline");
    std::fs::remove_file(world.home("daemon/relay/identity")).unwrap();
    let _daemon = world.daemon(echo());
    let daemons = world.daemons();
    assert_eq!(daemons.as_array().unwrap().len(), 2, "the old one is still there: {daemons}");
    // A daemon with the same name but a new key is a new daemon, so the name is ambiguous.
    let said = world.ping("home", &[]);
    assert_eq!(said.status.code(), Some(2));
    insta::assert_snapshot!(text(&said.stderr), @r"
    error: 2 daemons are called home

    hint: use an id; `bowline daemons list` shows them
    ");
    let said = world.ping(&before, &[]);
    assert_eq!(said.status.code(), Some(5));
    insta::assert_snapshot!(text(&said.stderr), @r"
    error: the daemon is offline

    hint: start it on its machine with `bowline up --relay URL` or `bowline daemon run`
    ");
    // With the old one out of the way, the name leads to the new one: the person has to decide.
    world.control(&["daemon", "revoke", &before]);
    let refused = world.ping("home", &[]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let now = world.daemons()[0].clone();
    let (id, offered) = (now["id"].as_str().unwrap(), now["fingerprint"].as_str().unwrap());
    let said = text(&refused.stderr);
    let pinned = said.split_whitespace().find(|word| word.starts_with("SHA256:")).unwrap();
    let said = said.replace(pinned, "[PINNED]").replace(offered, "[OFFERED]");
    insta::assert_snapshot!(said.replace(&before, "[BEFORE]").replace(id, "[NOW]"), @r"
    error: this name leads to another daemon than before

      pinned   [PINNED]  daemon [BEFORE]
      offered  [OFFERED]  daemon [NOW]

    hint: this may be a man-in-the-middle attack. If you know why the key changed, and the daemon itself
          prints the offered fingerprint, use --approve-new-key [OFFERED]
    ");
    assert!(world.ping("home", &["--approve-new-key", offered]).status.success());
    assert!(world.ping("home", &[]).status.success());
}

#[test]
fn sbrp_client_01_a_pin_of_an_earlier_version_counts_for_the_name() {
    let world = World::start();
    let _daemon = world.daemon(echo());
    let id = world.daemons()[0]["id"].as_str().unwrap().to_owned();
    let pins = world.home("client/relay/pins.json");
    std::fs::create_dir_all(pins.parent().unwrap()).unwrap();
    write_private(&pins, &format!(r#"{{"version":1,"daemons":{{"{id}":"{ANOTHER}"}}}}"#));
    assert_eq!(world.ping("home", &[]).status.code(), Some(6));
    let right = world.daemons()[0]["identity_public_key"].as_str().unwrap().to_owned();
    write_private(&pins, &format!(r#"{{"version":1,"daemons":{{"{id}":"{right}"}}}}"#));
    let taken_over = world.ping("home", &[]);
    let ping: Value = serde_json::from_slice(&taken_over.stdout).unwrap();
    assert_eq!(ping["first_use"], false);
}
