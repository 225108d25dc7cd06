//! Memory that travels with a session.

use bowline_pyjson::Value;

use super::{at, contents};
use crate::bundle::{Contents, MemoryPart};

fn part(kind: &str, text: &str) -> MemoryPart {
    let created_at = at("2026-03-01T00:00:00Z");
    MemoryPart { kind: kind.into(), text: text.into(), created_at }
}

fn reopened(contents: &Contents) -> Contents {
    Contents::open(&contents.seal().text).unwrap().0
}

#[test]
fn sbp_l3_08_memory_that_is_carried_is_exported_again() {
    let mut carried = contents();
    carried.carry_memory();
    assert_eq!(carried.memory, None);
    assert_eq!(carried.seal(), contents().seal());
    // Of an agent that remembers something itself, with it; and each once.
    carried.memory = Some(vec![part("semantic", "own"), part("episodic", "we met")]);
    let expected = vec![part("semantic", "own"), part("episodic", "we met")];
    assert_eq!(reopened(&carried).memory, Some(expected));
    carried.memory = Some(vec![part("procedural", "own")]);
    let expected = vec![part("episodic", "we met"), part("procedural", "own")];
    assert_eq!(reopened(&carried).memory, Some(expected.clone()));
    // However often it travels.
    let mut again = reopened(&carried);
    for _ in 0..40 {
        again.carry_memory();
        again.memory = Some(vec![part("procedural", "own")]);
        again = reopened(&again);
    }
    assert_eq!(again.memory, Some(expected));
}

#[test]
fn sbp_l3_08_memory_of_another_make_stays_beside_what_is_carried() {
    let stranger = r#"{"memory":{"schema_id":"theirs","payload":[1]}}"#;
    let mut both = Contents { carried: Some(stranger.into()), ..contents() };
    both.carry_memory();
    both.memory = Some(vec![part("semantic", "own")]);
    let mut again = reopened(&both);
    assert_eq!(again.carried.as_deref(), Some(stranger));
    assert_eq!(again.memory.as_ref().map(Vec::len), Some(2));
    again.carry_memory();
    let text = again.seal().text;
    let bundle = Value::parse(&text).unwrap();
    let inside = bundle.get("memory").and_then(|memory| memory.get("bowline")?.get("carried"));
    assert_eq!(inside.unwrap().get("schema_id").unwrap().as_str(), Some("theirs"));
}

#[test]
fn g20_an_export_without_memory_has_none_in_any_format() {
    let stranger = r#"{"memory":{"schema_id":"theirs"},"metadata":{"trace":true}}"#;
    let mut all = Contents { carried: Some(stranger.into()), ..contents() };
    assert!(all.seal().with_memory);
    assert!(Contents { memory: None, ..all.clone() }.seal().with_memory);
    all.drop_memory();
    assert!(!all.seal().with_memory);
    assert_eq!(all.carried.as_deref(), Some(r#"{"metadata":{"trace":true}}"#));
    let mut own = contents();
    own.drop_memory();
    assert_eq!((own.memory.as_ref(), own.carried.as_ref()), (None, None));
    assert!(own.seal().text.contains(r#""memory":null"#));
}
