#![no_main]

#[path = "../sbrp_properties.rs"]
#[allow(dead_code, reason = "each target has one of them")]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::sbrp_frame(bytes);
});
