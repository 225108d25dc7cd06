//! The worked example in `docs/federation.md`: made by Python, and the same as ours.

use bowline_sbp::federation::{Endpoints, Manifest, Pin, PreviousKey, Role, Trust};
use bowline_sbp::gateway_key::GatewayIdentity;
use jiff::Timestamp;

fn example() -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/federation.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let after = docs.split("```json\n").nth(1).unwrap();
    after.split("```").next().unwrap().to_owned()
}

#[test]
fn sbp_l6_01_the_manifest_of_the_documentation_is_ours_to_the_byte() {
    let (new, old) = (GatewayIdentity::from_seed(&[7; 32]), GatewayIdentity::from_seed(&[8; 32]));
    let url = "https://home.example".parse().unwrap();
    let at = |second| Timestamp::from_second(second).unwrap();
    let gateway_id = "home".parse().unwrap();
    let until = at(1_792_592_000);
    let manifest = Manifest {
        previous: vec![PreviousKey::sign(&old, &gateway_id, &new.public(), until)],
        gateway_id,
        gateway_name: "At home".into(),
        role: Role::Gateway,
        key: new.public(),
        endpoints: Endpoints::of_gateway(&url),
        url,
        issued_at: 1_790_000_000,
    };
    let read = Manifest::read(example().as_bytes()).unwrap();
    assert_eq!(read, manifest);
    let ours: serde_json::Value = serde_json::from_str(&manifest.sign(&new)).unwrap();
    let theirs: serde_json::Value = serde_json::from_str(&example()).unwrap();
    assert_eq!(ours, theirs, "the signature, too");
    let pin = Pin { key: old.public(), issued_at: 0 };
    assert_eq!(read.trust(None, Some(&pin), at(1_790_000_000)), Ok(Trust::Rotated));
    let changed = example().replace("At home", "Elsewhere");
    assert!(Manifest::read(changed.as_bytes()).is_err());
}
