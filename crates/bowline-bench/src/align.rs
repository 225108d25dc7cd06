//! Aligning a resent history of 10,000 messages with the log (SBP-L1-11), beside reading the same
//! request as JSON, which has to be done in any case.

use std::time::{Duration, Instant};

use bowline_sbp::context::{Asked, CallerTag, ContextEntry, SessionLog, plan};
use bowline_sbp::id::TurnId;
use bowline_sbp::message::Message;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::load;
use crate::report::Report;

const MESSAGES: usize = 10_000;
const ROUNDS: usize = 21;
const CALLER: CallerTag = CallerTag(1);

pub(crate) fn run(report: &mut Report) {
    report.doing("aligning a resent history of 10,000 messages");
    let entry = |n: usize| {
        let turn = TurnId(Uuid::from_u128(n as u128 / 2));
        ContextEntry::new(n as u64 + 1, turn, Some(CALLER), None, Message::text(role(n), &text(n)))
    };
    let entries: Vec<_> = (0..MESSAGES).map(entry).collect();
    let log = SessionLog { instruction: None, entries };
    let whole = request(0, |n, text| json!({ "role": role(n), "content": text }));
    // As an SDK writes them: other order of fields, text as parts.
    let parts = request(
        0,
        |n, text| json!({ "content": [{ "type": "text", "text": text }], "role": role(n), "name": null }),
    );
    // Every answer is rewritten, and the first half is cut off.
    let edited = request(MESSAGES / 2, |n, text| match n % 2 {
        0 => json!({ "role": "user", "content": text }),
        _ => json!({ "role": "assistant", "content": format!("Edited: {}", &text[..40]) }),
    });
    let mut slowest = Duration::ZERO;
    for (name, request) in [("whole", &whole), ("parts", &parts), ("edited", &edited)] {
        let took = timed(|| {
            let asked = Asked { messages: request, caller: Some(CALLER), mode: None };
            assert_eq!(plan(&log, asked, None).new.len(), 1, "only the question is new");
        });
        report.figure(&format!("align_10000_{name}_ms"), took.as_secs_f64() * 1e3);
        slowest = slowest.max(took);
    }
    let json = serde_json::to_string(&whole).expect("messages serialise");
    let read = timed(|| {
        let read: Vec<Message> = serde_json::from_str(&json).expect("it was just written");
        std::hint::black_box(read);
    });
    report.figure("align_10000_ms", slowest.as_secs_f64() * 1e3);
    report.figure("align_10000_per_reading", slowest.as_secs_f64() / read.as_secs_f64());
}

fn role(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "user" } else { "assistant" }
}

/// Some 200 bytes.
fn text(n: usize) -> String {
    format!("Message {n}: ")
        + &format!("some words about the matter {} at hand, ", n % 97).repeat(5)
}

/// The messages from `from` on in the client's form, and a question.
fn request(from: usize, form: impl Fn(usize, &str) -> serde_json::Value) -> Vec<Message> {
    let raw = |value: serde_json::Value| {
        let raw = RawValue::from_string(value.to_string()).expect("a value is JSON");
        Message::read(raw).expect("it has a role")
    };
    let known = (from..MESSAGES).map(|n| raw(form(n, &text(n))));
    known.chain([Message::text("user", "And now?")]).collect()
}

fn timed(mut once: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            once();
            begun.elapsed()
        })
        .collect();
    load::median(&mut times)
}
