//! The result of an MCP tool, in a form for models.

use bowline_sbp::tool_result::{self, size};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// The largest answer of a tool, in bytes.
const LARGEST: usize = 1 << 20;

/// The structured result if there is one, else its text. A result with images keeps the form of
/// MCP: its text and its images. Other content is only described.
pub(super) fn read(result: CallToolResult) -> Result<Value, String> {
    let failed = result.is_error == Some(true);
    let mut blocks: Vec<Value> = result.content.into_iter().map(block).collect();
    let structured = result.structured_content.filter(|value| !failed && !value.is_null());
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let length = match &structured {
        Some(structured) => structured.to_string().len(),
        // Each with the line break behind it.
        None => texts.map(|text| text.len() + 1).sum::<usize>().saturating_sub(1),
    };
    if length > LARGEST {
        return Err(too_large());
    }
    let has_images = blocks.iter().any(|block| block["type"] == "image");
    match structured {
        Some(structured) if has_images => {
            blocks.retain(|block| block["type"] == "image");
            blocks.insert(0, text(structured.to_string()));
            Ok(json!({ "content": blocks }))
        }
        Some(structured) => Ok(structured),
        None if has_images && !failed => Ok(json!({ "content": blocks })),
        None => {
            let lines: Vec<_> = blocks.iter().map(line).collect();
            match lines.join("\n") {
                why if failed && why.is_empty() => Err("the tool failed".into()),
                why if failed => Err(why),
                text => Ok(text.into()),
            }
        }
    }
}

/// The contents of a resource, in the form of a tool result.
pub(super) fn resource(contents: Vec<ResourceContents>) -> Result<Value, String> {
    let blocks = contents.into_iter().map(ContentBlock::resource);
    read(CallToolResult::success(blocks.collect()))
}

/// A result that is JSON, if it is not too large.
pub(super) fn sized(value: Value) -> Result<Value, String> {
    if value.to_string().len() > LARGEST { Err(too_large()) } else { Ok(value) }
}

fn too_large() -> String {
    format!("the tool's answer is over {LARGEST} bytes")
}

/// A block as text, or as an image.
fn block(block: ContentBlock) -> Value {
    match block {
        ContentBlock::Text(said) => text(said.text),
        ContentBlock::Image(image) => picture(image.mime_type, image.data),
        ContentBlock::Audio(audio) => {
            text(format!("[a recording: {}, {} bytes]", audio.mime_type, size(&audio.data)))
        }
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text: said, .. } => text(said),
            ResourceContents::BlobResourceContents { mime_type: Some(kind), blob, .. }
                if kind.starts_with("image/") =>
            {
                picture(kind, blob)
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                text(format!("[a file: {uri}, {} bytes]", size(&blob)))
            }
            _ => text("[a resource that cannot be shown]".into()),
        },
        ContentBlock::ResourceLink(link) => text(format!("[{}: {}]", link.name, link.uri)),
        _ => text("[content that cannot be shown]".into()),
    }
}

fn text(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

fn picture(mime_type: String, data: String) -> Value {
    json!({ "type": "image", "mimeType": mime_type, "data": data })
}

/// The text of a block; an image as one line.
fn line(block: &Value) -> String {
    let field = |name: &str| block[name].as_str().unwrap_or_default();
    match field("type") {
        "image" => tool_result::line(field("mimeType"), size(field("data"))),
        _ => field("text").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(said: Value) -> Result<Value, String> {
        read(serde_json::from_value(said).unwrap())
    }

    #[test]
    fn sbp_l5_06_text_is_joined_and_structure_is_preferred() {
        let parts = json!({"content": [
            {"type": "text", "text": "one"}, {"type": "text", "text": "two"},
            {"type": "audio", "data": "AAAAAAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "three"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]});
        let text = "one\ntwo\n[a recording: audio/wav, 6 bytes]\nthree\n\
                    [a file: file:///c, 3 bytes]\n[b: file:///b]";
        assert_eq!(result(parts), Ok(json!(text)));
        let both =
            json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"n": 1}});
        assert_eq!(result(both), Ok(json!({"n": 1})));
    }

    #[test]
    fn sbp_l5_06_images_are_kept_beside_the_text_or_the_structure() {
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let file = json!({"type": "resource", "resource":
            {"uri": "file:///a", "blob": "AAAA", "mimeType": "image/png"}});
        let one = json!({"type": "text", "text": "one"});
        let seen = result(json!({"content": [one, image, file]}));
        assert_eq!(seen, Ok(json!({"content": [one, image, image]})));
        let both = json!({"content": [one, image], "structuredContent": {"n": 1}});
        let structure = json!({"type": "text", "text": "{\"n\":1}"});
        assert_eq!(result(both), Ok(json!({"content": [structure, image]})));
        let failed = json!({"content": [one, image], "isError": true});
        assert_eq!(result(failed), Err("one\n[image: image/png, 3 bytes]".into()));
    }

    #[test]
    fn g9_errors_and_answers_over_a_mebibyte_are_errors() {
        let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true,
                            "structuredContent": {"n": 1}});
        assert_eq!(result(failed), Err("no".into()));
        assert!(result(json!({"content": [], "isError": true})).is_err());
        let large = json!({"content": [{"type": "text", "text": "x".repeat(LARGEST + 1)}]});
        assert_eq!(result(large), Err(format!("the tool's answer is over {LARGEST} bytes")));
    }
}
