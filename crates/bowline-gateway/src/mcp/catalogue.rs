//! A server's tools as definitions for models.
//!
//! A server's descriptions go into a model's tool list, so they are cut to size and stripped of
//! control characters. Only tools that the configuration allows are listed.

use rmcp::model::Tool as LibraryPage;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{PREFIX, names};
use crate::config::mcp::McpServerConfig;

/// The most tools of one server.
pub(super) const MOST: usize = 256;
/// The largest input schema, in bytes of JSON; a larger one is replaced by an empty one.
const LARGEST_SCHEMA: usize = 32 << 10;
/// The gateway's own tools for a server's resources.
const LIST: &str = "list_resources";
const READ: &str = "read_resource";

/// A tool of an MCP server.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The name that models use.
    pub name: String,
    /// The name that its server uses.
    pub tool: String,
    pub description: String,
    /// The tool definition in OpenAI's format.
    pub definition: Box<RawValue>,
    /// Running it twice has the same effect as once.
    pub idempotent: bool,
    /// Its server says that it changes nothing.
    pub read_only: bool,
    /// All that is said of it, as JSON text. Made once: every round of a turn compares it.
    pub pinned: String,
    pub work: ToolAction,
}

/// What a tool does at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAction {
    /// The server's tool is called.
    Call,
    /// The gateway's own tools for the server's resources.
    ListResources,
    ReadResource,
}

/// The tools of a server's list that agents may call.
pub(super) fn allowed(
    server: &str,
    settings: &McpServerConfig,
    listed: &[LibraryPage],
) -> Vec<Tool> {
    let mut all: Vec<&LibraryPage> = Vec::new();
    for tool in listed.iter().filter(|tool| settings.allows(&tool.name)) {
        if all.len() < MOST && !all.iter().any(|known| known.name == tool.name) {
            all.push(tool);
        }
    }
    let names = names::named(&format!("{PREFIX}{server}"), all.iter().map(|tool| &*tool.name));
    std::iter::zip(names, all).map(|(name, listed)| tool(name, listed, settings)).collect()
}

/// The two tools with which models use a server's resources. A tool of the server with the same name
/// takes precedence.
pub(super) fn for_resources(server: &str, tools: &[Tool]) -> Vec<Tool> {
    let list = json!({"type": "object", "properties": {"cursor": {"type": "string",
        "description": "`next_cursor` of the page before"}}});
    let read = json!({"type": "object", "required": ["uri"], "properties": {"uri": {
        "type": "string", "description": "The resource's URI, from the list or a template"}}});
    let ours = [
        (LIST, ToolAction::ListResources, format!("Lists the resources of `{server}`."), list),
        (READ, ToolAction::ReadResource, format!("Reads a resource of `{server}`."), read),
    ];
    let tool = |(tool, work, description, schema): (&str, ToolAction, String, Value)| {
        let name = format!("{PREFIX}{server}_{tool}");
        let definition = definition(&name, &description, &schema);
        Tool {
            pinned: pinned(&description, &schema, true),
            name,
            tool: tool.into(),
            description,
            definition,
            idempotent: true,
            read_only: true,
            work,
        }
    };
    let ours = ours.into_iter().map(tool);
    ours.filter(|ours| !tools.iter().any(|tool| tool.name == ours.name)).collect()
}

fn pinned(description: &str, schema: &impl Serialize, read_only: bool) -> String {
    json!({ "description": description, "input_schema": schema, "read_only": read_only })
        .to_string()
}

fn definition(name: &str, description: &str, schema: &impl Serialize) -> Box<RawValue> {
    let definition = json!({"type": "function", "function": {
        "name": name, "description": description, "parameters": schema,
    }});
    to_raw_value(&definition).expect("JSON serialises")
}

fn tool(name: String, listed: &LibraryPage, settings: &McpServerConfig) -> Tool {
    // A space instead of a control character, because a line break separates words.
    let said = listed.description.as_deref().unwrap_or_default().replace(char::is_control, " ");
    let description = bowline_sbp::surface::description(said.trim());
    let said = serde_json::to_string(&*listed.input_schema).unwrap_or_default();
    let fits = said.len() <= LARGEST_SCHEMA && !listed.input_schema.is_empty();
    let schema = bowline_sbp::surface::schema(&listed.input_schema);
    let schema = serde_json::to_string(&schema).unwrap_or_default();
    let schema = RawValue::from_string(schema).ok().filter(|_| fits);
    let any = || to_raw_value(&json!({"type": "object", "properties": {}}));
    let schema = schema.map_or_else(any, Ok).expect("JSON serialises");
    let hints = listed.annotations.as_ref();
    let harmless = hints.is_some_and(|hints| {
        hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)
    });
    let read_only = hints.is_some_and(|hints| hints.read_only_hint == Some(true));
    Tool {
        read_only,
        pinned: pinned(&description, &schema, read_only),
        idempotent: harmless || settings.is_idempotent(&listed.name),
        tool: listed.name.to_string(),
        definition: definition(&name, &description, &schema),
        description,
        name,
        work: ToolAction::Call,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{JsonObject, ToolAnnotations};

    fn listed(name: &'static str, description: &'static str, schema: Value) -> LibraryPage {
        let schema: JsonObject = serde_json::from_value(schema).unwrap();
        LibraryPage::new(name, description, schema)
    }

    #[test]
    fn sbp_l5_06_only_allowed_tools_are_told_of_and_in_a_models_words() {
        let settings =
            McpServerConfig { tools: vec!["read*".into()], ..McpServerConfig::default() };
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let all = [
            listed("read.file", "Reads\na\u{7} file", schema.clone()),
            listed("write", "Writes", json!({})),
            listed("read.file", "A second one of that name", json!({})),
            listed("read_all", "", json!({})),
        ];
        let tools = allowed("fs", &settings, &all);
        assert_eq!(tools.len(), 2);
        let said: Value = serde_json::from_str(tools[0].definition.get()).unwrap();
        assert_eq!(said["function"]["name"], "mcp_fs_read_file");
        assert_eq!(said["function"]["description"], "Reads a  file");
        assert_eq!(said["function"]["parameters"], schema);
        let said: Value = serde_json::from_str(tools[1].definition.get()).unwrap();
        assert_eq!(said["function"]["parameters"]["type"], "object");
    }

    #[test]
    fn a_tool_runs_twice_only_if_its_server_or_the_configuration_says_so() {
        let hinted = |hints| listed("t", "", json!({})).with_annotations(hints);
        let settings = McpServerConfig::default();
        let is = |tool: LibraryPage, settings: &McpServerConfig| {
            allowed("s", settings, &[tool])[0].idempotent
        };
        assert!(!is(listed("t", "", json!({})), &settings));
        assert!(is(hinted(ToolAnnotations::new().read_only(true)), &settings));
        assert!(is(hinted(ToolAnnotations::new().idempotent(true)), &settings));
        assert!(!is(hinted(ToolAnnotations::new().destructive(false)), &settings));
        let settings = McpServerConfig { idempotent: vec!["t*".into()], ..settings };
        assert!(is(listed("t", "", json!({})), &settings));
    }

    #[test]
    fn g11_what_a_server_says_of_its_tools_is_bounded() {
        let large = json!({"x": "y".repeat(LARGEST_SCHEMA)});
        let many: Vec<_> = (0..MOST + 9)
            .map(|n| {
                let schema: JsonObject = serde_json::from_value(large.clone()).unwrap();
                LibraryPage::new(format!("t{n}"), "d".repeat(5000), schema)
            })
            .collect();
        let tools = allowed("s", &McpServerConfig::default(), &many);
        assert_eq!(tools.len(), MOST);
        assert!(tools[0].definition.get().len() < 2000);
    }

    #[test]
    fn resources_have_two_tools_unless_the_server_has_tools_of_that_name() {
        let ours = for_resources("fs", &[]);
        let names: Vec<_> = ours.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["mcp_fs_list_resources", "mcp_fs_read_resource"]);
        assert!(ours.iter().all(|tool| tool.idempotent));
        let settings = McpServerConfig::default();
        let theirs = allowed("fs", &settings, &[listed("read_resource", "Theirs", json!({}))]);
        assert_eq!(for_resources("fs", &theirs).len(), 1);
    }
}
