//! `vectors/cid.json`: documents, their canonical form and their hash, made by CPython.

use bowline_pyjson::Value;
use bowline_sbp::cid::Cid;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    text: String,
    canonical: String,
    canonical_len: usize,
    sha256: String,
    bundle_with_cid_text: Option<String>,
}

#[derive(Deserialize)]
struct Invalid {
    id: String,
    text: Option<String>,
    text_recipe: Option<String>,
}

fn file() -> File {
    serde_json::from_str(include_str!("../vectors/cid.json")).unwrap()
}

#[test]
fn sbp_l3_04_every_vector_has_pythons_bytes_and_hash() {
    let vectors = file().vectors;
    assert_eq!(vectors.len(), 115);
    for Vector { id, text, canonical, canonical_len, sha256, .. } in vectors {
        let value = Value::parse(&text).unwrap_or_else(|error| panic!("{id}: {error}"));
        let written = value.to_canonical();
        assert_eq!(written, canonical, "{id}");
        assert_eq!(written.len(), canonical_len, "{id}");
        assert_eq!(Cid::of(&value).to_string(), sha256, "{id}");
        assert_eq!(Cid::of_bundle(&value).to_string(), sha256, "{id}");
        assert_eq!(Value::parse(&value.to_json()).unwrap().to_canonical(), canonical, "{id}");
    }
}

#[test]
fn sbp_l3_04_a_bundle_that_carries_its_cid_has_the_same_cid() {
    let bundles: Vec<_> = file().vectors.into_iter().filter_map(with_cid).collect();
    assert_eq!(bundles.len(), 2);
    for (bundle, sha256) in bundles {
        let bundle = Value::parse(&bundle).unwrap();
        assert_eq!(bundle.get("bundle_cid").and_then(Value::as_str), Some(&*sha256));
        assert_eq!(Cid::of_bundle(&bundle).to_string(), sha256);
    }
}

fn with_cid(vector: Vector) -> Option<(String, String)> {
    Some((vector.bundle_with_cid_text?, vector.sha256))
}

#[test]
fn sbp_l3_04_what_python_refuses_has_no_cid() {
    let invalid = file().invalid;
    assert_eq!(invalid.len(), 23);
    for Invalid { id, text, text_recipe } in invalid {
        let text = text.unwrap_or_else(|| match text_recipe.as_deref() {
            Some("'['*100000 + ']'*100000") => "[".repeat(100_000) + &"]".repeat(100_000),
            other => panic!("{id}: unknown recipe {other:?}"),
        });
        assert!(Value::parse(&text).is_err(), "{id}");
    }
}
