//! The result of a tool call as the content of a tool message, and the images in it.
//!
//! Apart, because upstreams accept images only in user messages: a tool message is stored with its
//! text and its images, and only what is sent to a model is arranged for that model
//! (`conversation`).
//!
//! Invariants
//! - The text of a stored result has a line for every image, so whoever reads only text knows of it.
//! - Only images that models accept are stored: an upstream would refuse every later request of a
//!   session that has another one.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::blob::BlobRef;
use crate::completion::ToolCall;
use crate::message::Message;

/// An image of a tool result, in the form of MCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    #[serde(rename = "mimeType")]
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

impl Image {
    /// Its size in bytes.
    pub fn size(&self) -> usize {
        size(&self.data)
    }

    /// The image as a part of a user message.
    pub fn part(&self) -> Value {
        let url = format!("data:{};base64,{}", self.mime_type, self.data);
        json!({"type": "image_url", "image_url": {"url": url}})
    }

    /// The image with the type that its bytes have, if models accept that type.
    fn checked(self) -> Option<Self> {
        let bytes = STANDARD.decode(&self.data).ok()?;
        Some(Self { mime_type: kind(&bytes)?.to_owned(), ..self })
    }
}

/// The size of data in base64, in bytes.
pub fn size(encoded: &str) -> usize {
    match BlobRef::read(encoded) {
        Some(blob) => usize::try_from(blob.size).unwrap_or(usize::MAX),
        None => encoded.trim_end_matches('=').len() * 3 / 4,
    }
}

/// The line that stands for an image, a sound or a file in a text.
pub fn line(mime_type: &str, size: usize) -> String {
    // The type is what a server says: it must stay one short line.
    let kind: String = mime_type.chars().filter(|c| !c.is_control()).take(64).collect();
    let what = match kind.split_once('/') {
        Some((what @ ("image" | "audio" | "video"), _)) => what,
        _ => "file",
    };
    let size = match size {
        0..1024 => format!("{size} bytes"),
        1024..0x10_0000 => format!("{} KB", size / 1024),
        _ => format!("{:.1} MB", size as f64 / f64::from(1 << 20)),
    };
    match kind.is_empty() {
        true => format!("[{what}: {size}]"),
        false => format!("[{what}: {kind}, {size}]"),
    }
}

/// The content of a tool message: strings as they are, the rest as JSON. A result in the form of
/// MCP with images (`{"content": [{"type": "image", …}]}`) becomes its text and its images, of
/// which at most `most` bytes are kept.
pub(crate) fn content(result: Result<Value, String>, most: usize) -> Value {
    match result {
        Ok(Value::String(text)) => Value::String(text),
        Ok(value) => with_images(&value, most).unwrap_or_else(|| value.to_string().into()),
        Err(why) => json!({ "error": why }).to_string().into(),
    }
}

/// One block of a result in the form of MCP.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Block {
    Text { text: String },
    Image(Image),
}

fn with_images(result: &Value, most: usize) -> Option<Value> {
    let blocks = result.get("content")?.as_array()?;
    let is_image = |block: &Value| matches!(Block::deserialize(block), Ok(Block::Image(_)));
    if !blocks.iter().any(is_image) {
        return None;
    }
    let (mut lines, mut images, mut left) = (Vec::new(), Vec::new(), most);
    for block in blocks {
        match Block::deserialize(block) {
            Ok(Block::Text { text }) => lines.push(text),
            Ok(Block::Image(image)) => {
                let size = image.size();
                let kept = if size <= left { image.clone().checked() } else { None };
                let kind = kept.as_ref().map_or(&image.mime_type, |kept| &kept.mime_type);
                lines.push(line(kind, size));
                if let Some(kept) = kept {
                    left -= size;
                    images.push(kept);
                }
            }
            Err(_) => lines.push(block.to_string()),
        }
    }
    let text = lines.join("\n");
    if images.is_empty() {
        return Some(text.into());
    }
    let mut parts = vec![json!({"type": "text", "text": text})];
    parts.extend(images.iter().map(
        |Image { mime_type, data }| json!({"type": "image", "mimeType": mime_type, "data": data}),
    ));
    Some(parts.into())
}

/// The images of a stored tool message.
pub(crate) fn images(message: &Message) -> Vec<Image> {
    #[derive(Deserialize)]
    struct Stored {
        content: Vec<Value>,
    }
    if !message.may_have_images() {
        return Vec::new();
    }
    let stored = serde_json::from_str::<Stored>(message.as_json());
    let parts = stored.map(|stored| stored.content).unwrap_or_default().into_iter();
    let blocks = parts.filter_map(|part| serde_json::from_value(part).ok());
    blocks
        .filter_map(|block| match block {
            Block::Image(image) => Some(image),
            Block::Text { .. } => None,
        })
        .collect()
}

/// The message with only the text of a tool result, which names its images.
pub fn without_images(message: &Message) -> Cow<'_, Message> {
    if images(message).is_empty() {
        return Cow::Borrowed(message);
    }
    let id = ToolCall::answered_by(message).unwrap_or_default();
    let call = ToolCall { id, name: String::new(), arguments: String::new() };
    Cow::Owned(call.result(&message.content()))
}

/// The type of an image that models accept, by its first bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(more: usize) -> String {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.resize(bytes.len() + more, 0);
        STANDARD.encode(bytes)
    }

    fn image(data: &str, kind: &str) -> Value {
        json!({"type": "image", "mimeType": kind, "data": data})
    }

    fn stored(blocks: Value, most: usize) -> Message {
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: String::new() };
        call.result_of(content(Ok(json!({ "content": blocks })), most))
    }

    #[test]
    fn sbp_l5_06_an_image_is_stored_beside_the_text_that_names_it() {
        let data = png(12 * 1024);
        let message =
            stored(json!([{"type": "text", "text": "a chart"}, image(&data, "image/PNG")]), 99999);
        assert_eq!(message.content(), "a chart\n[image: image/png, 12 KB]");
        let kept = Image { mime_type: "image/png".into(), data };
        assert_eq!(images(&message), [kept]);
        let text =
            r#"{"content":"a chart\n[image: image/png, 12 KB]","role":"tool","tool_call_id":"c"}"#;
        let bare: Value = serde_json::from_str(without_images(&message).as_json()).unwrap();
        assert_eq!(bare, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn g11_images_over_the_bound_and_of_other_types_are_only_named() {
        let fits = png(30);
        let blocks = json!([
            image(&fits, "image/png"),
            image(&fits, "image/png"),
            image("PHN2Zz48L3N2Zz4=", "image/svg+xml\nignore"),
            image("no base64!", "image/png"),
        ]);
        let message = stored(blocks, 60);
        assert_eq!(images(&message).len(), 1, "the second one is over the bound");
        let lines = message.content();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[2], "[image: image/svg+xmlignore, 11 bytes]");
        assert_eq!(lines[1], lines[0]);
    }

    #[test]
    fn results_without_images_are_text_or_json() {
        assert_eq!(content(Ok(json!("text")), 9), json!("text"));
        assert_eq!(content(Ok(json!({"n": 1})), 9), json!("{\"n\":1}"));
        let mcp = json!({"content": [{"type": "text", "text": "x"}]});
        assert_eq!(content(Ok(mcp.clone()), 9), json!(mcp.to_string()));
        assert_eq!(content(Err("no".into()), 9), json!("{\"error\":\"no\"}"));
        assert!(images(&Message::text("tool", "[image: image/png, 1 KB]")).is_empty());
    }

    #[test]
    fn a_line_says_how_large_an_image_is() {
        assert_eq!(line("image/png", 1023), "[image: image/png, 1023 bytes]");
        assert_eq!(line("image/png", 5 << 20), "[image: image/png, 5.0 MB]");
    }
}
