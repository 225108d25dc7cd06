//! Tools that must run as tasks, found in a program's tool list: `execution.taskSupport` is
//! `required` (MCP 2025-11-25).
//!
//! Apart, because the SDK drops that field: what a program writes is read a second time, line by
//! line. Over HTTP such a tool is found when it is first called (`needs`).

use std::sync::Arc;

use memchr::memchr;
use memchr::memmem;
use serde::Deserialize;

use super::needs::{Need, Needs};

/// Reads along what a program writes.
pub(super) struct TaskTools {
    needs: Arc<Needs>,
    /// The line so far; nothing of a line that is too long.
    line: Vec<u8>,
    /// The longest line.
    most: usize,
    skips: bool,
}

#[derive(Deserialize)]
struct Response {
    result: ToolList,
}

#[derive(Deserialize)]
struct ToolList {
    tools: Vec<ListedTool>,
}

#[derive(Deserialize)]
struct ListedTool {
    name: String,
    #[serde(default)]
    execution: Option<Execution>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    #[serde(default)]
    task_support: Option<String>,
}

impl TaskTools {
    pub(super) fn new(needs: &Arc<Needs>, most: usize) -> Self {
        Self { needs: Arc::clone(needs), line: Vec::new(), most, skips: false }
    }

    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr(b'\n', bytes) {
            self.extend(&bytes[..end]);
            if !self.skips {
                self.note();
            }
            self.line.clear();
            self.skips = false;
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.skips || self.line.len() + bytes.len() > self.most {
            self.skips = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    /// Notes the tools of a list that must run as tasks.
    fn note(&self) {
        if memmem::find(&self.line, b"\"taskSupport\"").is_none() {
            return;
        }
        let Ok(response) = serde_json::from_slice::<Response>(&self.line) else { return };
        for tool in response.result.tools {
            let support = tool.execution.and_then(|execution| execution.task_support);
            if support.as_deref() == Some("required") {
                self.needs.found(&tool.name, Need::Tasks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"a","execution":{"taskSupport":"required"}},{"name":"b"},
        {"name":"c","execution":{"taskSupport":"optional"}},{"name":"d","execution":{}}]}}"#;

    fn found(written: &[&[u8]], most: usize) -> Vec<&'static str> {
        let needs = Arc::new(Needs::default());
        let mut tools = TaskTools::new(&needs, most);
        written.iter().for_each(|bytes| tools.read(bytes));
        ["a", "b", "c", "d"].into_iter().filter(|tool| needs.of(tool).is_some()).collect()
    }

    #[test]
    fn a_tool_that_must_run_as_a_task_is_found_however_the_bytes_come() {
        let line = LIST.replace('\n', " ") + "\n";
        assert_eq!(found(&[line.as_bytes()], 9999), ["a"]);
        let bytes: Vec<_> = line.as_bytes().chunks(7).collect();
        assert_eq!(found(&bytes, 9999), ["a"]);
        assert_eq!(found(&[b"no JSON \"taskSupport\"\n\n", line.as_bytes()], 9999), ["a"]);
        let call = line.replace("result", "params");
        assert_eq!(found(&[call.as_bytes()], 9999), [""; 0], "only results count");
    }

    #[test]
    fn g11_a_line_over_the_bound_is_not_kept_and_the_next_one_is_read() {
        let line = LIST.replace('\n', " ") + "\n";
        let long = vec![b'x'; line.len()];
        assert_eq!(found(&[&long, &long, b"\n", line.as_bytes()], line.len()), ["a"]);
        assert_eq!(found(&[line.as_bytes()], line.len() - 2), [""; 0]);
    }
}
