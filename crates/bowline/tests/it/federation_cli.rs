//! SBP L6 on the command line: flags, the configuration, and `bowline identity`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use bowline_sbp::federation::{Manifest, Trust};
use jiff::Timestamp;
use serde_json::Value;

use crate::process::{Process, bowline};

fn started(data: &Path, args: &[&str]) -> Process {
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.args(args);
    Process::spawned(command, data)
}

fn identity(data: &Path, args: &[&str]) -> Output {
    bowline().arg("identity").args(args).arg("--data").arg(data).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

async fn manifest(gateway: &Process) -> Manifest {
    let seen = gateway.get("/.well-known/sbp").await;
    Manifest::read(seen.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn sbp_l6_01_flags_and_the_configuration_make_a_gateway_known_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--federation", "--gateway-id", "home", "--peer", "work=http://127.0.0.1:9"];
    let gateway = started(folder.path(), &flags);
    let seen = manifest(&gateway).await;
    assert_eq!((seen.gateway_id.as_str(), seen.url.as_str()), ("home", gateway.url.as_str()));
    drop(gateway);

    let file = folder.path().join("bowline.toml");
    std::fs::write(
        &file,
        "[federation]\nenabled = true\ngateway_id = \"office\"\nurl = \"https://office.example\"\n\
         [federation.peers.work]\nurl = \"https://work.example\"\nallow = \"none\"\n",
    )
    .unwrap();
    let gateway = started(folder.path(), &["--config", file.to_str().unwrap()]);
    let seen = manifest(&gateway).await;
    assert_eq!(seen.gateway_id.as_str(), "office");
    assert_eq!(
        seen.endpoints.bundle.unwrap(),
        "https://office.example/v1/sbp/bundles/{bundle_cid}"
    );
}

#[test]
fn sbp_l6_01_a_federation_without_an_id_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--listen", "127.0.0.1:0", "--federation", "--data"]);
    let output = command.arg(folder.path()).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("federation.gateway_id") && said.contains("hint:"), "{said}");
}

#[tokio::test]
async fn sbp_l6_01_an_identity_is_shown_and_replaced_and_the_manifest_leads_from_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let none = identity(folder.path(), &["show"]);
    assert!(!none.status.success(), "there is none before the first start");
    let flags = ["--federation", "--gateway-id", "home"];
    let gateway = started(folder.path(), &flags);
    let before = manifest(&gateway).await;
    drop(gateway);
    let shown = json_of(&identity(folder.path(), &["show", "--json"]));
    assert_eq!(shown["key"], before.key.to_string());
    assert_eq!(shown["spki"], before.key.to_spki());
    let unnamed = identity(folder.path(), &["rotate"]);
    assert!(String::from_utf8_lossy(&unnamed.stderr).contains("--gateway-id"));
    let rotated = identity(folder.path(), &["rotate", "--gateway-id", "home", "--json"]);
    let rotated = json_of(&rotated);
    assert_eq!(rotated["old"], shown["fingerprint"]);
    let shown = json_of(&identity(folder.path(), &["show", "--json"]));
    assert_eq!(shown["key"], rotated["key"]);
    assert_eq!(shown["previous"][0]["fingerprint"], rotated["old"]);
    for file in ["identity.key", "identity.previous"] {
        let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let gateway = started(folder.path(), &flags);
    let after = manifest(&gateway).await;
    assert_eq!(after.key.to_string(), rotated["key"].as_str().unwrap());
    let pin = before.pin();
    assert_eq!(after.trust(None, Some(&pin), Timestamp::now()), Ok(Trust::Rotated));
}

#[tokio::test]
async fn sbp_l6_07_a_gateway_says_of_itself_at_most_l6() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = started(folder.path(), &["--federation", "--gateway-id", "home"]);
    for path in ["/.well-known/sbp", "/openapi.json", "/readyz"] {
        let said = gateway.get(path).await.to_string();
        assert!(!said.contains("\"L7\"") && !said.to_lowercase().contains("webrtc"), "{path}");
    }
}
