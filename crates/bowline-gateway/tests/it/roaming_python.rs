//! SBP L3: Python, with the program in docs/roaming.md, agrees with us about signed bundles
//! (SBP-L3-04, SBP-L3-16).

use std::path::PathBuf;

use bowline_pyjson::{Object, Value};
use bowline_sbp::bundle::Contents;
use bowline_sbp::gateway_key::GatewayIdentity;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::bench::Bench;
use crate::python::{place, python};
use crate::roaming::{STRANGER, carried, made, parsed, sealed, text};
use crate::roaming_import::ODD;
use crate::roaming_signed::{edited, identity};

/// The program in the documentation.
fn program() -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roaming.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (_, rest) = docs.split_once("```python\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Runs the program with each bundle; what it printed, or the last error.
async fn run_program(bundles: &[String]) -> Result<Vec<String>, String> {
    let _place = place().await;
    let folder = tempfile::tempdir().unwrap();
    let file = |(number, bundle): (usize, &String)| -> PathBuf {
        let path = folder.path().join(format!("{number}.sbp.json"));
        std::fs::write(&path, bundle).unwrap();
        path
    };
    let files: Vec<_> = bundles.iter().enumerate().map(file).collect();
    let each = "import sys\nprogram, files = sys.argv[1], sys.argv[2:]\n\
                for file in files:\n    sys.argv[1] = file\n    exec(program)\n";
    let mut run = tokio::process::Command::new(python());
    let done = run.args(["-c", each, &program()]).args(files).output().await.unwrap();
    let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    match done.status.success() {
        true => Ok(said(done.stdout).lines().map(str::to_owned).collect()),
        false => Err(said(done.stderr)),
    }
}

#[tokio::test]
async fn sbp_l3_16_python_agrees_on_the_content_id_and_the_signature_of_a_signed_file() {
    let bench = Bench::start().await;
    let fingerprint = text(&identity(&bench).await["fingerprint"]);
    let odd = made(&bench.import_bytes(carried(&sealed(ODD)).into_bytes()).await);
    let memory = json!({ "memories": [{ "text": "Käse \u{1f9c0} \"and\" \\ more" }] });
    bench.post("/v1/agents/default/memory", memory).await;
    let plain = bench.session_with(1).await;
    bench.say(&plain, "echo \u{2028} \u{7f} é").await;
    for session in [&odd, &plain] {
        let bundle = bench.bundle_of(session).await;
        // It takes no file that we would refuse.
        let refused = run_program(&[edited(&bundle)]).await.unwrap_err();
        assert!(refused.ends_with("InvalidSignature"), "{refused}");
        let changed = bundle.replace(r#""sbp_version":"1.0""#, r#""sbp_version":"1.1""#);
        let refused = run_program(&[changed]).await.unwrap_err();
        assert!(refused.ends_with("AssertionError"), "{refused}");
        assert_eq!(run_program(&[bundle]).await, Ok(vec![fingerprint.clone()]));
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/examples/bundle.json");
    let shown = run_program(&[std::fs::read_to_string(example).unwrap()]).await.unwrap();
    assert!(shown[0].starts_with("SHA256:FE:81:2C:12:"), "{shown:?}");
}

/// A string of any UTF-16 units, so that pairs and halves of them occur.
fn string() -> impl Strategy<Value = Value<'static>> {
    let unit = prop_oneof![0x20u16..0x7f, 0xd7f0u16..0xe010, any::<u16>()];
    prop::collection::vec(unit, 0..12).prop_map(|units| {
        let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        Value::parse(&format!("\"{escapes}\"")).unwrap().into_owned()
    })
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let integer = "-?[1-9][0-9]{18,60}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        integer.prop_map(|digits| Value::parse(&digits).unwrap().into_owned()),
        any::<u64>().prop_map(|bits| Value::from(f64::from_bits(bits))),
        string(),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let members = prop::collection::vec((string(), inner.clone()), 0..5);
        let object = members.prop_map(|members| {
            let named =
                |(name, value): (Value<'static>, _)| (name.as_text().cloned().unwrap(), value);
            Value::from(members.into_iter().map(named).collect::<Object>())
        });
        prop_oneof![prop::collection::vec(inner, 0..5).prop_map(Value::from), object]
    })
}

#[tokio::test]
async fn sbp_l3_16_python_agrees_whatever_a_signed_bundle_holds() {
    let signer = GatewayIdentity::from_seed(&[3; 32]);
    let mut runner = TestRunner::deterministic();
    let mut any_value = || value().new_tree(&mut runner).unwrap().current();
    let bundles: Vec<_> = (0..300)
        .map(|_| {
            let mut bundle = parsed(STRANGER).into_owned();
            let top = bundle.as_object_mut().unwrap();
            for name in ["future", "memory", "state_snapshot"] {
                top.insert(name, any_value());
            }
            for place in ["metadata", "session"] {
                let part = top.get_mut(place).and_then(Value::as_object_mut).unwrap();
                part.insert("more", any_value());
            }
            let messages = top.get_mut("messages").and_then(Value::as_array_mut).unwrap();
            messages[0].as_object_mut().unwrap().insert("more", any_value());
            // Signed by us after it was imported.
            let (contents, _) = Contents::open(&sealed(&bundle.to_json())).unwrap();
            contents.seal_signed(&signer).text
        })
        .collect();
    let fingerprint = signer.public().fingerprint().to_string();
    assert_eq!(run_program(&bundles).await, Ok(vec![fingerprint; bundles.len()]));
}
