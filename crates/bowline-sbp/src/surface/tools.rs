//! Tools that a device offers (SBP-L5-01).
//!
//! Their names, descriptions and schemas go into a model's tool list. They are untrusted: bounded
//! in length, and control and invisible characters are removed (prompt injection).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most tools of one device.
const MOST: usize = 64;
/// The longest name, in characters. Upstreams allow fewer characters and shorter names, so the name
/// that a model sees may differ from the device's.
const LONGEST_NAME: usize = 128;
const LONGEST_DESCRIPTION: usize = 1024;
/// The largest schema, in bytes of JSON.
const LARGEST_SCHEMA: usize = 8 << 10;

/// A tool on a device: a name, or a name with description and input schema (ours).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Declared", into = "Declared")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceTool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema of its input.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub input_schema: Option<Map<String, Value>>,
    /// The device itself asks its user before it runs the tool (ours).
    pub asks: bool,
}

impl SurfaceTool {
    /// A tool that is only a name.
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), description: None, input_schema: None, asks: false }
    }

    /// What is said of it besides its name, as JSON text. A permission that was given for good holds
    /// for this definition.
    pub fn definition(&self) -> String {
        json!({ "description": self.description, "input_schema": self.input_schema }).to_string()
    }
}

/// Both wire forms of a tool.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Declared {
    Name(String),
    Typed {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_schema: Option<Map<String, Value>>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks: bool,
    },
}

impl From<Declared> for SurfaceTool {
    fn from(said: Declared) -> Self {
        match said {
            Declared::Name(name) => Self::named(&name),
            Declared::Typed { name, description, input_schema, asks } => {
                Self { name, description, input_schema, asks }
            }
        }
    }
}

impl From<SurfaceTool> for Declared {
    fn from(tool: SurfaceTool) -> Self {
        match tool {
            SurfaceTool { name, description: None, input_schema: None, asks: false } => {
                Declared::Name(name)
            }
            SurfaceTool { name, description, input_schema, asks } => {
                Declared::Typed { name, description, input_schema, asks }
            }
        }
    }
}

/// The valid tools of a list; of two with the same name the first counts.
pub(super) fn declared(list: Option<&Value>) -> Vec<SurfaceTool> {
    let mut tools: Vec<SurfaceTool> = Vec::new();
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        let Some(tool) = tool(item) else { continue };
        if tools.len() < MOST && !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool);
        }
    }
    tools
}

/// An untrusted description, cleaned and shortened for a model's tool list.
pub fn description(said: &str) -> String {
    said.chars().filter(|c| !is_unseen(*c)).take(LONGEST_DESCRIPTION).collect()
}

/// An untrusted schema, cleaned in the same way: models read all of its strings, too.
pub fn schema(said: &Map<String, Value>) -> Map<String, Value> {
    said.iter().map(|(name, value)| (description(name), seen(value))).collect()
}

fn seen(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(description(text)),
        Value::Array(items) => items.iter().map(seen).collect(),
        Value::Object(fields) => Value::Object(schema(fields)),
        other => other.clone(),
    }
}

/// Whether a character is invisible or changes the display order. Models read what people do not
/// see: tag characters and variation selectors can encode whole sentences, and bidirectional marks
/// show a text in another order than it has. Joiners are kept: scripts and emoji need them.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn tool(item: &Value) -> Option<SurfaceTool> {
    let name = item.as_str().or_else(|| item.get("name")?.as_str())?;
    let fits = name.chars().count() <= LONGEST_NAME && !name.chars().any(is_unseen);
    if !fits || name.trim().is_empty() {
        return None;
    }
    let said = item.get("description").and_then(Value::as_str).map(description);
    let given = item.get("input_schema").and_then(Value::as_object);
    let given = given.filter(|schema| {
        serde_json::to_string(schema).is_ok_and(|text| text.len() <= LARGEST_SCHEMA)
    });
    let input_schema = given.map(schema);
    let asks = item.get("asks") == Some(&Value::Bool(true));
    Some(SurfaceTool { name: name.to_owned(), description: said, input_schema, asks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sbp_l5_01_tools_are_names_or_typed_and_nonsense_is_passed_over() {
        let said = json!([
            "camera", { "name": "gps", "description": "Where\u{7} am I", "input_schema": {"a": 1} },
            7, null, "", " ", {"name": "x".repeat(129)}, "camera", {"nam": "x"}, "hid\u{200b}den",
        ]);
        let tools = declared(Some(&said));
        assert_eq!(tools.len(), 2);
        assert_eq!(tools[1].description.as_deref(), Some("Where am I"));
        let again: Vec<SurfaceTool> =
            serde_json::from_value(serde_json::to_value(&tools).unwrap()).unwrap();
        assert_eq!(again, tools);
        assert!(declared(Some(&json!("camera"))).is_empty() && declared(None).is_empty());
    }

    #[test]
    fn sbp_l5_01_a_name_that_models_do_not_take_is_kept() {
        let said = json!(["media.capture", "two words", "x".repeat(128), "é/ü"]);
        let names: Vec<_> = declared(Some(&said)).into_iter().map(|tool| tool.name).collect();
        assert_eq!(json!(names), said);
    }

    #[test]
    fn sbp_l5_01_a_tool_says_nothing_that_a_person_would_not_see() {
        // Tag characters, bidirectional marks, line separators and control characters.
        let hidden =
            "Takes a photo\u{e0041}\u{e0049}\u{202e}\u{2066}\u{200b}\u{2028}\n\u{1b}\u{85}\u{fe0f}";
        let cleaned = "Takes a photo\u{fe0f}";
        let said = json!([{ "name": "t", "description": hidden, "input_schema": {
            "properties": { "zo\u{200b}om": { "description": hidden, "enum": [hidden, 1] } },
        } }]);
        let tool = declared(Some(&said)).pop().unwrap();
        assert_eq!(tool.description.as_deref(), Some(cleaned));
        let schema =
            json!({ "properties": { "zoom": { "description": cleaned, "enum": [cleaned, 1] } } });
        assert_eq!(Value::from(tool.input_schema.unwrap()), schema);
        let family = "\u{1f468}\u{200d}\u{1f469} \u{645}\u{6cc}\u{200c}\u{62e}";
        assert_eq!(description(family), family, "joiners mean something");
    }

    #[test]
    fn g11_what_a_device_says_of_its_tools_is_bounded() {
        let many: Vec<_> = (0..99).map(|n| format!("t{n}")).collect();
        assert_eq!(declared(Some(&json!(many))).len(), MOST);
        let large = json!([{ "name": "t", "description": "d".repeat(5000),
                             "input_schema": { "x": "y".repeat(9000) } }]);
        let tool = declared(Some(&large)).pop().unwrap();
        assert_eq!(tool.description.unwrap().len(), LONGEST_DESCRIPTION);
        assert_eq!(tool.input_schema, None);
    }
}
