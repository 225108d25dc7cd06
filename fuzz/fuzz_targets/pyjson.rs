#![no_main]

use bowline_pyjson::Value;

// The property that `cargo test` tries with inputs of its own stands in the crate's tests.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = Value::parse_bytes(bytes) else { return };
    let canonical = value.to_canonical();
    let again = Value::parse(&canonical).expect("the canonical form can be read");
    assert_eq!(again.to_canonical(), canonical);
    let stored = value.to_json();
    let again = Value::parse(&stored).expect("what is stored can be read");
    assert_eq!(again.to_canonical(), canonical);
});
