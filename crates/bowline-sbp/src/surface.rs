//! The surface context: what a surface declares about itself when it attaches (SBP-L4-01).
//!
//! Parsed leniently, once: a field of the wrong type counts as absent, and one invalid field never
//! affects the others.

mod form;
mod tools;

pub(crate) use form::SHORT;
pub use tools::{SurfaceTool, description, is_unseen, schema};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest string of a surface context, in bytes; a longer one is dropped.
const LONGEST: usize = 256;
/// The most entries kept of a list in a surface context.
const MOST: usize = 64;

/// What a surface declares about itself, validated and bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceContext {
    /// Any string; the well-known ones are mobile, desktop, iot, browser, voice, unknown.
    pub device_type: DeviceType,
    /// The most tokens of one turn that the surface can display.
    pub max_output_tokens: Option<u32>,
    /// What it can display: markdown, tables, images, audio, streaming, …
    pub ui_capabilities: Vec<String>,
    /// BCP-47.
    pub locale: Option<String>,
    /// A stable id of the device.
    pub surface_id: Option<String>,
    /// Tools that run on the device.
    pub mcp_tools: Vec<SurfaceTool>,
}

/// The kind of device, as the surface declared it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct DeviceType(String);

impl DeviceType {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for DeviceType {
    fn default() -> Self {
        Self("unknown".into())
    }
}

impl From<&str> for DeviceType {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl SurfaceContext {
    /// Parses what a surface sent; any JSON is accepted.
    pub fn read(value: Option<&Value>) -> Self {
        let Some(Value::Object(fields)) = value else { return Self::default() };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).and_then(bounded);
        let list = |name: &str| -> Vec<String> {
            let items = fields.get(name).and_then(Value::as_array);
            items.into_iter().flatten().filter_map(named).take(MOST).collect()
        };
        Self {
            device_type: text("device_type").map(DeviceType).unwrap_or_default(),
            max_output_tokens: fields
                .get("max_output_tokens")
                .and_then(Value::as_u64)
                .filter(|tokens| *tokens > 0)
                .map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
            ui_capabilities: list("ui_capabilities"),
            locale: text("locale"),
            surface_id: text("surface_id"),
            mcp_tools: tools::declared(fields.get("mcp_tools")),
        }
    }

    /// Whether the text is a valid `surface_id`.
    pub fn is_name(text: &str) -> bool {
        bounded(text).is_some_and(|name| name == text)
    }

    /// The same, with absent fields taken from `before`. Except tools: they run on the surface that
    /// is attached now, so only those declared now count.
    pub fn or(self, before: Self) -> Self {
        let unknown = self.device_type == DeviceType::default();
        let silent = self.ui_capabilities.is_empty();
        Self {
            device_type: if unknown { before.device_type } else { self.device_type },
            max_output_tokens: self.max_output_tokens.or(before.max_output_tokens),
            ui_capabilities: if silent { before.ui_capabilities } else { self.ui_capabilities },
            locale: self.locale.or(before.locale),
            surface_id: self.surface_id,
            mcp_tools: self.mcp_tools,
        }
    }

    /// A description of the device for the model's prompt (SBP-L4-02).
    pub fn note(&self) -> Option<String> {
        let device = match self.device_type.as_str() {
            "unknown" => None,
            device => Some(format!("The answer is for this device: {}.", plain(device))),
        };
        let tokens = self.max_output_tokens;
        let length = tokens.map(|tokens| format!("It can show at most {tokens} tokens."));
        let language = self.locale.as_deref();
        let language = language.map(|locale| format!("The reader's locale is {}.", plain(locale)));
        let said: Vec<_> = [device, length, language].into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join(" "))
    }

    /// Whether the surface gets chunks. One that lists capabilities without `streaming` gets whole
    /// turns (SBP-L2-09); one that lists no capabilities gets chunks.
    pub fn streams(&self) -> bool {
        self.ui_capabilities.is_empty() || self.ui_capabilities.iter().any(|c| c == "streaming")
    }
}

/// Text from a device, made safe for a prompt: short, on one line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn bounded(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= LONGEST).then(|| text.to_owned())
}

fn named(item: &Value) -> Option<String> {
    item.as_str().and_then(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn sbp_l4_01_null_absent_and_wrong_types_become_the_default() {
        for said in [json!(null), json!(3), json!([]), json!("mobile"), json!({})] {
            assert_eq!(SurfaceContext::read(Some(&said)), SurfaceContext::default());
        }
        assert_eq!(SurfaceContext::read(None).device_type.as_str(), "unknown");
    }

    #[test]
    fn sbp_l4_01_one_bad_field_does_not_spoil_the_others() {
        let said = json!({
            "device_type": "smart-fridge", "locale": 7, "max_output_tokens": 300,
            "ui_capabilities": ["markdown", 5, null], "surface_id": ["x"], "mcp_tools": "camera",
        });
        let surface = SurfaceContext::read(Some(&said));
        assert_eq!(surface.device_type.as_str(), "smart-fridge");
        assert_eq!(surface.max_output_tokens, Some(300));
        assert_eq!(surface.ui_capabilities, ["markdown"]);
        assert_eq!((surface.locale, surface.surface_id), (None, None));
        assert!(surface.mcp_tools.is_empty());
    }

    #[test]
    fn sbp_l4_02_a_model_is_told_of_every_device_that_says_what_it_is() {
        let note = |said: Value| SurfaceContext::read(Some(&said)).note();
        for device in ["desktop", "browser", "mobile", "smart-fridge"] {
            let said = note(json!({ "device_type": device })).unwrap();
            assert_eq!(said, format!("The answer is for this device: {device}."));
        }
        assert_eq!(note(json!({})), None);
        assert_eq!(note(json!({ "device_type": "unknown" })), None);
        let watch =
            json!({ "device_type": "watch\nIgnore", "max_output_tokens": 60, "locale": "de" });
        assert_eq!(
            note(watch).unwrap(),
            "The answer is for this device: watchIgnore. It can show at most 60 tokens. The \
             reader's locale is de."
        );
    }

    #[test]
    fn sbp_l2_09_streaming_is_declined_only_by_a_list_without_it() {
        let with = |caps: Value| SurfaceContext::read(Some(&json!({ "ui_capabilities": caps })));
        assert!(with(json!([])).streams());
        assert!(with(json!(["markdown", "streaming"])).streams());
        assert!(!with(json!(["markdown"])).streams());
    }

    proptest! {
        #[test]
        fn any_json_is_tolerated(text in "\\PC{0,200}") {
            let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let surface = SurfaceContext::read(Some(&json!({
                "device_type": value, "locale": value, "max_output_tokens": value,
                "ui_capabilities": value, "mcp_tools": value, "surface_id": value,
            })));
            prop_assert!(surface.ui_capabilities.len() <= MOST);
        }
    }
}
