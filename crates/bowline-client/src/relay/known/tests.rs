use std::os::unix::fs::PermissionsExt as _;

use bowline_sbrp::frame::Frame;
use bowline_sbrp::handshake::{AwaitAccept, Ephemeral, answer};
use bowline_sbrp::id::SessionId;

use super::*;

/// Only a handshake produces a verified identity.
fn proven(seed: u8, daemon: &DaemonId) -> VerifiedIdentity {
    let session = SessionId::from_wire(1).unwrap();
    let ephemeral = |byte| Ephemeral::from_random(Zeroizing::new([byte; 32]));
    let (waiting, init) = AwaitAccept::start(session, daemon.clone(), ephemeral(1));
    let Frame::HandshakeInit { payload, .. } = init else { panic!("{init:?}") };
    let secret = IdentitySecret::from_seed(&[seed; 32]);
    let done = answer(session, &payload, daemon, &secret, ephemeral(2)).unwrap();
    let Frame::HandshakeAccept { payload, .. } = done.accept else { panic!() };
    waiting.accept(&payload, &Trust::FirstUse).unwrap().identity
}

fn daemon(n: usize) -> DaemonId {
    DaemonId::new(format!("daemon {n} \"ü\""))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("known.json")
    }

    fn known(&self) -> KnownDaemons {
        KnownDaemons::file(self.path())
    }
}

#[test]
fn sbrp_client_01_pins_outlive_the_program_and_are_its_owners_alone() {
    let folder = Folder::new();
    let known = folder.known();
    assert_eq!(known.trust("home", &daemon(1)), Ok(Trust::FirstUse));
    let one = proven(1, &daemon(1));
    known.keep("home", &daemon(1), &one, false).unwrap();
    assert_eq!(folder.known().trust("home", &daemon(1)), Ok(Trust::Key(*one.key())));
    assert_eq!(folder.known().trust("work", &daemon(1)), Ok(Trust::FirstUse));
    let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn g22_a_name_that_leads_to_another_id_is_refused_whatever_its_key() {
    let folder = Folder::new();
    let known = folder.known();
    known.keep("home", &daemon(1), &proven(1, &daemon(1)), false).unwrap();
    for seed in [1, 2] {
        let refused = known.trust("home", &daemon(2)).unwrap_err();
        let KnownError::OtherDaemon(other) = refused else { panic!("{refused:?}") };
        assert_eq!((other.pinned, other.offered), (daemon(1), daemon(2)));
        let kept = known.keep("home", &daemon(2), &proven(seed, &daemon(2)), false);
        assert!(matches!(kept, Err(KnownError::OtherDaemon(_))));
    }
    let pinned = *proven(1, &daemon(1)).key();
    assert_eq!(known.trust("home", &daemon(1)), Ok(Trust::Key(pinned)), "nothing was changed");
    // A person who compared the fingerprints decides.
    known.keep("home", &daemon(2), &proven(2, &daemon(2)), true).unwrap();
    let new = *proven(2, &daemon(2)).key();
    assert_eq!(known.trust("home", &daemon(2)), Ok(Trust::Key(new)));
}

#[test]
fn sbrp_client_01_of_two_first_uses_at_once_one_counts() {
    let folder = Folder::new();
    let [one, two] = [1, 2].map(|seed| proven(seed, &daemon(1)));
    // Both looked while there was no pin.
    let (first, second) = (folder.known(), folder.known());
    first.keep("home", &daemon(1), &one, false).unwrap();
    let refused = second.keep("home", &daemon(1), &two, false).unwrap_err();
    let KnownError::OtherDaemon(other) = refused else { panic!("{refused:?}") };
    assert_eq!(other.pinned_key, one.key().fingerprint());
    assert_eq!(other.offered_key, Some(two.key().fingerprint()));
}

#[test]
fn sbrp_client_01_pins_kept_at_once_are_all_kept() {
    let folder = Folder::new();
    let name = |n: usize| format!("name {n}");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let known = folder.known();
            let keep = move || known.keep(&name(n), &daemon(n), &proven(1, &daemon(n)), false);
            scope.spawn(move || keep().unwrap());
        }
    });
    for n in 0..8 {
        let trust = folder.known().trust(&name(n), &daemon(n));
        assert!(matches!(trust, Ok(Trust::Key(_))), "{n}");
    }
}

#[test]
fn sbrp_client_02_a_list_that_cannot_be_read_is_not_an_empty_one() {
    let folder = Folder::new();
    let (path, known) = (folder.path(), folder.known());
    let malformed = || KnownError::Malformed { path: path.clone() };
    let weak = "A".repeat(43);
    let weak = format!(r#"{{"version":2,"names":{{"n":{{"daemon":"d","key":"{weak}"}}}}}}"#);
    for text in ["", "{", "[]", r#"{"version":3,"names":{}}"#, &weak] {
        private_file::replace(&path, text.as_bytes()).unwrap();
        assert_eq!(known.trust("n", &DaemonId::new("d")), Err(malformed()), "{text}");
    }
    private_file::replace(&path, b"{").unwrap();
    let kept = known.keep("n", &daemon(1), &proven(1, &daemon(1)), true);
    assert_eq!(kept, Err(malformed()));
    assert_eq!(std::fs::read(&path).unwrap(), b"{", "and it is left alone");
}

#[test]
fn sbrp_client_01_pins_of_earlier_versions_are_taken_over() {
    let folder = Folder::new();
    let (known, old) = (folder.known(), proven(1, &daemon(1)));
    let earlier = folder.0.path().join(EARLIER);
    let key = encode(old.key().as_bytes());
    let json = serde_json::json!({ "version": 1, "daemons": { daemon(1).as_str(): key } });
    private_file::replace(&earlier, json.to_string().as_bytes()).unwrap();
    assert_eq!(known.trust("home", &daemon(1)), Ok(Trust::Key(*old.key())));
    let refused = known.keep("home", &daemon(1), &proven(2, &daemon(1)), false);
    assert!(matches!(refused, Err(KnownError::OtherDaemon(_))));
    known.keep("home", &daemon(1), &old, false).unwrap();
    private_file::replace(&earlier, b"{").unwrap();
    assert!(known.trust("work", &daemon(1)).is_err());
    assert_eq!(known.trust("home", &daemon(1)), Ok(Trust::Key(*old.key())), "under its name now");
}

#[test]
fn a_pairing_is_kept_with_its_key_and_forgotten_with_its_name() {
    let folder = Folder::new();
    let (known, identity) = (folder.known(), proven(1, &daemon(1)));
    let control: Url = "https://control.example/".parse().unwrap();
    let pairing = NewPairing { control: control.clone(), seed: Zeroizing::new([5; 32]) };
    known.keep_pairing("home", &daemon(1), &identity, &pairing).unwrap();
    let found = known.look_up("home").unwrap().unwrap();
    let kept = found.pairing.unwrap();
    assert_eq!((found.key, kept.control), (*identity.key(), control));
    assert_eq!(kept.device.public(), IdentitySecret::from_seed(&[5; 32]).public());
    // It stays with the daemon, whatever its key; another daemon is none that it is paired with.
    known.keep("home", &daemon(1), &identity, false).unwrap();
    known.keep("home", &daemon(1), &proven(2, &daemon(1)), true).unwrap();
    assert!(known.look_up("home").unwrap().unwrap().pairing.is_some());
    known.keep("home", &daemon(2), &proven(2, &daemon(2)), true).unwrap();
    assert!(known.look_up("home").unwrap().unwrap().pairing.is_none());
    assert_eq!(known.names().unwrap(), ["home"]);
    assert!(known.forget("home").unwrap() && !known.forget("home").unwrap());
    assert!(known.look_up("home").unwrap().is_none());
}

#[test]
fn a_pairing_that_was_interrupted_goes_on_with_the_same_key() {
    let folder = Folder::new();
    let first = folder.known().begin_pairing(&daemon(1)).unwrap();
    let again = folder.known().begin_pairing(&daemon(1)).unwrap();
    assert_eq!((first.was_begun, again.was_begun), (false, true));
    assert_eq!(first.seed, again.seed);
    assert_ne!(folder.known().begin_pairing(&daemon(2)).unwrap().seed, first.seed);
    let pairing =
        NewPairing { control: "https://c.example/".parse().unwrap(), seed: first.seed.clone() };
    let identity = proven(1, &daemon(1));
    folder.known().keep_pairing("home", &daemon(1), &identity, &pairing).unwrap();
    let next = folder.known().begin_pairing(&daemon(1)).unwrap();
    assert!(!next.was_begun && next.seed != first.seed, "it is done");
}

#[test]
fn each_daemon_gets_a_device_key_of_its_own() {
    let folder = Folder::new();
    let known = folder.known();
    let control: Url = "https://control.example/".parse().unwrap();
    for n in [1, 2] {
        let seed = known.begin_pairing(&daemon(n.into())).unwrap().seed;
        let pairing = NewPairing { control: control.clone(), seed };
        let identity = proven(n, &daemon(n.into()));
        known.keep_pairing(&n.to_string(), &daemon(n.into()), &identity, &pairing).unwrap();
    }
    let device = |name| known.look_up(name).unwrap().unwrap().pairing.unwrap().device.public();
    assert_ne!(device("1"), device("2"));
}

#[test]
fn sbrp_client_08_without_a_file_nothing_is_said_to_be_kept() {
    let kept = KnownDaemons::nowhere().keep("n", &daemon(1), &proven(1, &daemon(1)), false);
    assert_eq!(kept, Err(KnownError::NowhereToKeep));
}
