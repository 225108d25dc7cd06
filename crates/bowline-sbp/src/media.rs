//! Images, sounds and files in messages. A large one is taken out and stored once as a blob; the
//! message keeps a reference to it.
//!
//! Apart, because logs, frames, caches and resent histories must not carry megabytes, and a client
//! that sends its images again with every turn must not have them stored again.
//!
//! A reference stands where the base64 text was, so the part keeps its form:
//! `data:image/png;base64,blob:sha256:<64 hexadecimal digits>:<size in bytes>`. `:` is not in the
//! alphabet of base64, so one is never taken for the other.
//!
//! Invariants
//! - Taking out and putting back gives the same JSON value: only canonical base64 is taken out.
//! - Text is never taken out, however long: it is delivered, searched and shown.
//! - A reference opens nothing. The store returns only blobs that the session itself uses.
//! - The size in a reference is what its sender says. One with another size than its blob has names
//!   no blob, so sizes that were looked up can be added up.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::blob::{Blob, BlobRef, PREFIX};
use crate::message::Message;
use crate::tool_result;

/// Base64 text of this length is taken out of a message, in bytes.
pub const LEAST: usize = 64 << 10;

/// Takes large blobs out of a message. Instructions keep theirs: they are not log entries.
pub fn take_out(message: Message) -> (Message, Vec<Blob>) {
    let mut blobs = Vec::new();
    if !may_have_blobs(&message) {
        return (message, blobs);
    }
    match rewrite(message.as_json(), |part| part_without(part, &mut blobs)) {
        Some(json) => (message.with_json(json), blobs),
        None => (message, blobs),
    }
}

/// The bytes of a message that [`take_out`] would take out, as base64.
pub fn encoded_bytes(message: &Message) -> usize {
    let mut bytes = 0;
    if may_have_blobs(message) {
        rewrite(message.as_json(), |part| {
            let part = plain_slashes(part);
            bytes += encoded(&part).iter().map(Range::len).sum::<usize>();
            None
        });
    }
    bytes
}

fn may_have_blobs(message: &Message) -> bool {
    message.as_json().len() >= LEAST && !matches!(message.role(), "system" | "developer")
}

/// A part of a message's content, without its large blobs; none if it has none.
pub(crate) fn part_without(part: &str, blobs: &mut Vec<Blob>) -> Option<String> {
    let part = plain_slashes(part);
    let mut out = String::new();
    let mut done = 0;
    for range in encoded(&part) {
        let Ok(bytes) = STANDARD.decode(&part[range.clone()]) else { continue };
        let blob = Blob::new(bytes);
        out.push_str(&part[done..range.start]);
        out.push_str(&blob.reference().to_string());
        done = range.end;
        if blobs.iter().all(|known| known.cid != blob.cid) {
            blobs.push(blob);
        }
    }
    out.push_str(&part[done..]);
    (done > 0).then_some(out)
}

/// The blobs that a message refers to, in its order.
pub fn references(message: &Message) -> Vec<BlobRef> {
    let mut all = Vec::new();
    if message.may_refer() {
        rewrite(message.as_json(), |part| {
            all.extend(in_part(part).map(|(_, reference)| reference));
            None
        });
    }
    all
}

/// The message with its blobs inline. A reference that `find` does not know stays.
pub fn put_back(message: Message, find: impl Fn(BlobRef) -> Option<Arc<[u8]>>) -> Message {
    if !message.may_refer() {
        return message;
    }
    let inline = |part: &str| {
        let known = in_part(part).filter_map(|(range, blob)| Some((range, find(blob)?)));
        let known: Vec<_> = known.collect();
        (!known.is_empty()).then(|| part_with(part, known))
    };
    match rewrite(message.as_json(), inline) {
        Some(json) => message.with_json(json),
        None => message,
    }
}

/// The JSON text of a message for a model: with its blobs inline. A part whose blob `find` does not
/// know becomes a line of text. `find` is asked once for every reference, in their order.
pub fn for_model<'m>(
    message: &'m Message,
    mut find: impl FnMut(BlobRef) -> Option<Arc<[u8]>>,
) -> Cow<'m, str> {
    let json = message.for_servers();
    if !message.may_refer() {
        return json;
    }
    let shown = |part: &str| {
        let found: Vec<_> = in_part(part).map(|(range, blob)| (range, find(blob))).collect();
        let known: Option<Vec<_>> =
            found.iter().map(|(range, bytes)| Some((range.clone(), bytes.clone()?))).collect();
        match known {
            Some(known) if known.is_empty() => None,
            Some(known) => Some(part_with(part, known)),
            None => Some(json!({"type": "text", "text": line(part)}).to_string()),
        }
    };
    match rewrite(&json, shown) {
        Some(json) => Cow::Owned(json),
        None => json,
    }
}

/// A part with these ranges replaced by blobs.
fn part_with(part: &str, blobs: Vec<(Range<usize>, Arc<[u8]>)>) -> String {
    let bytes: usize = blobs.iter().map(|(_, bytes)| bytes.len() / 3 * 4 + 4).sum();
    let mut out = String::with_capacity(part.len() + bytes);
    let mut done = 0;
    for (range, bytes) in blobs {
        out.push_str(&part[done..range.start]);
        STANDARD.encode_string(bytes, &mut out);
        done = range.end;
    }
    out.push_str(&part[done..]);
    out
}

/// The line of text for a part whose first blob is not sent.
fn line(part: &str) -> String {
    let Some((range, blob)) = in_part(part).next() else { return String::new() };
    let before = &part[..range.start];
    let url = before.rfind("data:").map(|at| &before[at + "data:".len()..]);
    let kind = url.and_then(|url| url.split_once(';')).map_or("", |(kind, _)| kind);
    tool_result::line(kind, usize::try_from(blob.size).unwrap_or(usize::MAX))
}

#[derive(Deserialize)]
struct ContentField<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PartText<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

/// The JSON text of a message, with the parts of its content changed that are not text; none if
/// nothing was changed.
fn rewrite(json: &str, mut change: impl FnMut(&str) -> Option<String>) -> Option<String> {
    let Ok(ContentField { content: Some(content) }) = serde_json::from_str(json) else {
        return None;
    };
    if !content.get().starts_with('[') {
        return None;
    }
    let parts: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let mut out = String::new();
    let mut done = 0;
    for part in parts {
        let part = part.get();
        // Cheap enough to parse again only what may be changed.
        if !part.starts_with('{')
            || matches!(serde_json::from_str(part), Ok(PartText { text: Some(_) }) | Err(_))
        {
            continue;
        }
        let Some(changed) = change(part) else { continue };
        // A raw value borrows from the text that it was parsed from.
        let at = part.as_ptr() as usize - json.as_ptr() as usize;
        out.push_str(&json[done..at]);
        out.push_str(&changed);
        done = at + part.len();
    }
    out.push_str(&json[done..]);
    (done > 0).then_some(out)
}

/// The strings in a part, or their ends after `base64,`, that are canonical base64 and long enough.
fn encoded(part: &str) -> Vec<Range<usize>> {
    let bytes = part.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') {
            continue;
        }
        let padding = bytes[at..].iter().take(2).take_while(|byte| **byte == b'=').count();
        let end = at + padding;
        if end - start >= LEAST
            && start > 0
            && matches!(bytes[start - 1], b'"' | b',')
            && bytes.get(end) == Some(&b'"')
            && is_canonical(&part[start..end])
        {
            found.push(start..end);
        }
        start = at + 1;
    }
    found
}

/// Whether text in the alphabet of base64 can be decoded: only its length and its end decide.
fn is_canonical(text: &str) -> bool {
    text.len().is_multiple_of(4)
        && text.len().checked_sub(4).is_some_and(|end| STANDARD.decode(&text[end..]).is_ok())
}

/// The references in a part, each as the end of a string.
fn in_part(part: &str) -> impl Iterator<Item = (Range<usize>, BlobRef)> {
    part.match_indices(PREFIX).filter_map(|(at, _)| {
        let before = part.as_bytes()[..at].last()?;
        let length = memchr(b'"', &part.as_bytes()[at..])?;
        let reference = BlobRef::read(&part[at..at + length])?;
        matches!(before, b'"' | b',').then_some((at..at + length, reference))
    })
}

/// The JSON text with `\/` written as `/`: some clients escape every slash.
fn plain_slashes(json: &str) -> Cow<'_, str> {
    if !json.contains("\\/") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        // The character after a backslash belongs to it, also another backslash.
        let length = escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at);
        out.push_str(if escape.starts_with("\\/") { "/" } else { &escape[..length] });
        rest = &escape[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cid::Cid;

    fn message(json: &str) -> Message {
        Message::read(RawValue::from_string(json.into()).unwrap()).unwrap()
    }

    fn bytes(size: usize, seed: u8) -> Vec<u8> {
        (0..size).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    fn image(size: usize, seed: u8) -> String {
        let data = STANDARD.encode(bytes(size, seed));
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#)
    }

    fn asked(parts: &[String]) -> Message {
        message(&format!(r#"{{"role":"user", "content":[{}],"x":1.50}}"#, parts.join(" , ")))
    }

    fn all<'b>(blobs: &'b [Blob]) -> impl Fn(BlobRef) -> Option<Arc<[u8]>> + 'b {
        |wanted| Some(Arc::clone(&blobs.iter().find(|blob| blob.reference() == wanted)?.bytes))
    }

    const TEXT: &str = r#"{"type":"text","text":"what is this?"}"#;

    #[test]
    fn sbp_l1_08_large_parts_leave_and_come_back_byte_for_byte() {
        let sound = format!(
            r#"{{"type":"input_audio","input_audio":{{"data":"{}","format":"wav"}}}}"#,
            STANDARD.encode(bytes(100_001, 7))
        );
        let parts = [TEXT.into(), image(70_000, 1), image(10, 2), sound, image(70_000, 1)];
        let sent = asked(&parts);
        let (kept, blobs) = take_out(sent.clone());
        assert_eq!(blobs.len(), 2, "the same image once");
        assert_eq!(&*blobs[0].bytes, &bytes(70_000, 1)[..]);
        assert!(kept.as_json().len() < 1000, "{}", kept.as_json());
        assert!(kept.as_json().contains("data:image/png;base64,blob:sha256:"));
        assert_eq!(kept.content(), "what is this?");
        let sizes: Vec<_> = references(&kept).iter().map(|blob| blob.size).collect();
        assert_eq!(sizes, [70_000, 100_001, 70_000]);
        assert_eq!(put_back(kept.clone(), all(&blobs)), sent);
        assert_eq!(for_model(&kept, all(&blobs)), sent.as_json());
        assert_eq!(take_out(kept.clone()), (kept, Vec::new()), "once is enough");
    }

    #[test]
    fn text_instructions_and_other_encodings_stay() {
        let long = "a".repeat(2 * LEAST);
        for json in [
            format!(r#"{{"role":"user","content":"{long}"}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{long}"}}]}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"x","y":"{long}-_"}}]}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"x","y":"{long}a"}}]}}"#),
            format!(r#"{{"role":"user","content":[{{"type":"x","y":"{long}b=="}}]}}"#),
            format!(r#"{{"role":"system","content":[{{"type":"x","y":"{long}"}}]}}"#),
            format!(r#"{{"role":"user","name":"{long}"}}"#),
            format!(r#"{{"role":"user","content":["{long}"]}}"#),
        ] {
            assert_eq!(encoded_bytes(&message(&json)), 0, "{}", &json[..60]);
            let (kept, blobs) = take_out(message(&json));
            assert!(blobs.is_empty() && kept.as_json() == json, "{}", &json[..60]);
        }
    }

    #[test]
    fn escaped_slashes_are_the_same_image() {
        let plain = asked(&[image(70_001, 3)]);
        let url = |escaped: &str| plain.as_json().replace('/', escaped);
        assert_eq!(take_out(message(&url("\\/"))), take_out(plain.clone()));
        // A backslash before a slash is another text: what is around the blob does not change.
        let named = plain.as_json().replacen("\"url\"", r#""name":"a\\/b\/c","url""#, 1);
        let (kept, blobs) = take_out(message(&named));
        let value: Value = serde_json::from_str(put_back(kept, all(&blobs)).as_json()).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(&named).unwrap());
    }

    #[test]
    fn a_blob_that_is_not_known_is_a_line_for_models_and_a_reference_for_bundles() {
        let sent = asked(&[TEXT.into(), image(70_000, 1), image(80_000, 2)]);
        let (kept, blobs) = take_out(sent);
        let shown: Value = serde_json::from_str(&for_model(&kept, all(&blobs[..1]))).unwrap();
        assert_eq!(shown["content"][2]["text"], "[image: image/png, 78 KB]");
        assert!(shown["content"][1]["image_url"]["url"].as_str().unwrap().len() > 90_000);
        assert_eq!(put_back(kept.clone(), |_| None), kept);
    }

    #[test]
    fn what_only_looks_like_a_reference_is_none() {
        let cid = Cid::of_bytes(b"x");
        let good = format!("blob:sha256:{cid}:1");
        let parts =
            |url: &str| message(&format!(r#"{{"role":"user","content":[{{"u":"{url}"}}]}}"#));
        assert_eq!(references(&parts(&good)).len(), 1);
        assert_eq!(references(&parts(&format!("data:,{good}"))).len(), 1);
        for wrong in [
            format!("see {good}"),
            format!("{good} "),
            format!("{good}x"),
            good.replace(":1", ":01"),
            good.replace(":1", ":"),
            good.replace(&cid.to_string(), "00"),
            good.replace(":1", ":99999999999999999999999"),
        ] {
            assert!(references(&parts(&wrong)).is_empty(), "{wrong}");
        }
        let text = format!(r#"{{"role":"user","content":[{{"type":"text","text":"{good}"}}]}}"#);
        assert!(references(&message(&text)).is_empty(), "text is text");
    }

    #[test]
    fn the_length_that_is_taken_out_is_known_before() {
        let sent = asked(&[image(70_000, 1), image(90_000, 1)]);
        let (_, blobs) = take_out(sent.clone());
        let known: u64 = blobs.iter().map(|blob| blob.reference().encoded()).sum();
        assert_eq!(encoded_bytes(&sent) as u64, known);
    }
}
