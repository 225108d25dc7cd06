#![no_main]

use bowline_sbp::bundle::Contents;
use jiff::Timestamp;

// A file from elsewhere is not understood, or each of its conversations seals into a bundle that
// opens again as the same.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(found) = bowline_import::read(text, Timestamp::UNIX_EPOCH) else { return };
    for conversation in &found.sessions {
        let sealed = conversation.contents.seal();
        let (opened, _) = Contents::open(&sealed.text).expect("what was sealed opens");
        assert_eq!(opened.seal(), sealed);
    }
});
