#![no_main]

#[path = "../relay_properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::control_body(bytes);
});
