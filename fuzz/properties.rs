//! What must hold for any bytes at all. The fuzzer looks for bytes for which it does not; the
//! gateway's tests try some thousands with the stable compiler. Each says whether its bytes were
//! taken: a run in which all are refused has shown little.

use bowline_gateway::http::fuzz::Body;
use bowline_sbp::frame::ClientFrame;
use bowline_sbp::surface::SurfaceContext;
use serde_json::{Map, Value};

/// A surface's frame is refused, or written as it was read.
pub(super) fn frames(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(frame) = ClientFrame::read(text) else { return false };
    let written = frame.to_json();
    assert_eq!(ClientFrame::read(&written).as_ref(), Ok(&frame), "{written}");
    true
}

/// Whatever a surface says about itself becomes something small, and that is kept as it is.
pub(super) fn surface_context(bytes: &[u8]) -> bool {
    let Ok(said) = serde_json::from_slice::<Value>(bytes) else { return false };
    let surface = SurfaceContext::read(Some(&said));
    let texts =
        surface.ui_capabilities.iter().chain(surface.mcp_tools.iter().map(|tool| &tool.name));
    let texts = texts.chain(&surface.locale).chain(&surface.surface_id).map(String::as_str);
    for text in texts.chain([surface.device_type.as_str()]) {
        assert!((1..=256).contains(&text.len()), "{text}");
    }
    assert!(surface.ui_capabilities.len() <= 64 && surface.mcp_tools.len() <= 64);
    let written = serde_json::to_value(&surface).expect("it has only texts and a number");
    assert_eq!(SurfaceContext::read(Some(&written)), surface);
    assert_eq!(serde_json::from_value::<SurfaceContext>(written).ok(), Some(surface));
    true
}

/// A request's body is refused, or goes to the model without `sbp` and otherwise as it came.
pub(super) fn request_body(bytes: &[u8]) -> bool {
    let Some(body) = Body::read(bytes) else { return false };
    let came: Map<String, Value> = match serde_json::from_slice(bytes) {
        Ok(came) => came,
        Err(_) if bytes.is_empty() => Map::new(),
        // Raw values are kept unread: a number too large for us may be none for the model.
        Err(_) => return true,
    };
    let mut left: Map<String, Value> =
        serde_json::from_slice(&body.upstream).unwrap_or_else(|error| {
            assert!(bytes.is_empty(), "{error}");
            Map::new()
        });
    if came.contains_key("sbp") {
        let mut expected = came.clone();
        expected.shift_remove("sbp");
        assert_eq!(left, expected);
    } else {
        assert_eq!(body.upstream, bytes, "byte for byte");
    }
    for name in ["sbp", "messages", "prompt", "stream"] {
        left.shift_remove(name);
    }
    let params: Result<Map<String, Value>, _> = body
        .params
        .into_iter()
        .map(|(name, text)| Ok((name, serde_json::from_str(&text)?)))
        .collect();
    let params = params.map_err(|error: serde_json::Error| error.to_string());
    assert_eq!(params, Ok(left), "what else was asked for goes to the model");
    for message in body.messages.iter().flatten() {
        let said: Value = serde_json::from_str(message).expect("messages are JSON");
        assert!(said["role"].is_string(), "{message}");
    }
    true
}
