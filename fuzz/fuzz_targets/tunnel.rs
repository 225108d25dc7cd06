#![no_main]

#[path = "../tunnel_properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::tunnel(bytes);
});
