//! The result of an MCP tool, in a form for models.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// The largest answer of a tool, in bytes.
const LARGEST: usize = 1 << 20;

/// The structured result if there is one, else its text. Other content is only described: a model
/// that reads text cannot use the bytes of an image.
pub(super) fn read(result: CallToolResult) -> Result<Value, String> {
    let failed = result.is_error == Some(true);
    let answer = match result.structured_content {
        Some(structured) if !failed && !structured.is_null() => structured,
        _ => Value::String(result.content.into_iter().map(text).collect::<Vec<_>>().join("\n")),
    };
    let length = match &answer {
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    };
    match answer {
        _ if length > LARGEST => Err(format!("the tool's answer is over {LARGEST} bytes")),
        Value::String(why) if failed && why.is_empty() => Err("the tool failed".into()),
        Value::String(why) if failed => Err(why),
        answer => Ok(answer),
    }
}

fn text(block: ContentBlock) -> String {
    let encoded = |data: &str| data.len() / 4 * 3;
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => {
            format!("[an image: {}, {} bytes]", image.mime_type, encoded(&image.data))
        }
        ContentBlock::Audio(audio) => {
            format!("[a recording: {}, {} bytes]", audio.mime_type, encoded(&audio.data))
        }
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                format!("[a file: {uri}, {} bytes]", encoded(&blob))
            }
            _ => "[a resource that cannot be shown]".into(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content that cannot be shown]".into(),
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
    fn sbp_l5_06_text_is_joined_structure_is_preferred_and_pictures_are_described() {
        let parts = json!({"content": [
            {"type": "text", "text": "one"}, {"type": "text", "text": "two"},
            {"type": "image", "data": "AAAAAAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "three"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]});
        let text = "one\ntwo\n[an image: image/png, 6 bytes]\nthree\n[b: file:///b]";
        assert_eq!(result(parts), Ok(json!(text)));
        let both =
            json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"n": 1}});
        assert_eq!(result(both), Ok(json!({"n": 1})));
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
