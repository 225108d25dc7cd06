//! Tool calls of an agent on the machine where `bowline chat` runs, and their permission prompts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::process::{Process, bowline};

/// A folder of shell scripts in place of `xdg-open` and others, which log their arguments to a
/// file.
fn desktop(folder: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let log = folder.join("log");
    for (name, does) in [
        ("xclip", "case \"$*\" in *-out) echo on the board;; *) cat >> LOG;; esac"),
        ("xdg-open", "echo \"open $*\" >> LOG"),
        ("notify-send", "echo \"notify $*\" >> LOG"),
    ] {
        let script = format!("#!/bin/sh\n{}\n", does.replace("LOG", log.to_str().unwrap()));
        std::fs::write(folder.join(name), script).unwrap();
        std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    format!("{}:/usr/bin:/bin", folder.display())
}

struct Chat {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Chat {
    fn start(gateway: &Process, path: &str, args: &[&str]) -> Self {
        let mut command: Command = bowline();
        command
            .args(["chat", "--json", "--lines", "--data"])
            .arg(&gateway.data)
            .args(args)
            .env("PATH", path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, lines }
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Reads events up to and including the first one with this name.
    fn until(&mut self, event: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.next().expect("the chat ended").unwrap();
            seen.push(serde_json::from_str(&line).unwrap());
            let last: &Value = seen.last().unwrap();
            if last["event"] == event {
                return seen;
            }
        }
    }

    /// Has the agent call a tool, and returns its answer after the call.
    fn use_tool(&mut self, tool: &str, input: &str) -> String {
        self.type_line(&format!("call surface tool {tool} with {input}"));
        self.answer()
    }

    /// The same for a tool that asks.
    fn use_after_yes(&mut self, tool: &str, input: &str) -> String {
        self.type_line(&format!("call surface tool {tool} with {input}"));
        self.until("tool_call");
        self.type_line("yes");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let seen = self.until("complete");
        let chunks = seen.iter().filter(|event| event["event"] == "chunk");
        chunks.map(|event| event["text"].as_str().unwrap()).collect()
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn sbp_l5_02_an_agent_uses_the_desktop_of_a_chat() {
    let (data, desk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = Process::start(data.path());
    let path = desktop(desk.path());
    std::fs::create_dir(desk.path().join("notes")).unwrap();
    std::fs::write(desk.path().join("notes/a.txt"), "buy milk").unwrap();
    let notes = desk.path().join("notes");
    let mut chat = Chat::start(&gateway, &path, &["--read-folder", notes.to_str().unwrap()]);
    assert!(chat.use_after_yes("clipboard", "{}").contains("on the board"));
    assert!(chat.use_after_yes("clipboard", r#"{"text":"copied this"}"#).contains("copied"));
    let page = r#"{"url":"https://example.com/x"}"#;
    assert!(chat.use_after_yes("open_url", page).contains("opened"));
    let file = r#"{"url":"file:///etc/passwd"}"#;
    assert!(chat.use_after_yes("open_url", file).contains("only http"));
    assert!(chat.use_tool("notify", r#"{"text":"tea is ready"}"#).contains("shown"));
    assert!(chat.use_tool("read_file", r#"{"path":"a.txt"}"#).contains("buy milk"));
    assert!(chat.use_tool("read_file", r#"{"path":"../log"}"#).contains("no such file"));
    let log = std::fs::read_to_string(desk.path().join("log")).unwrap();
    assert!(log.contains("copied this"), "{log}");
    assert!(log.contains("open https://example.com/x"), "{log}");
    assert!(log.contains("notify -- Bowline tea is ready"), "{log}");
}

#[tokio::test]
async fn sbp_l5_01_commands_run_only_by_flag_and_after_a_yes_to_each() {
    let (data, desk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = Process::start(data.path());
    let path = desktop(desk.path());
    let mut chat = Chat::start(&gateway, &path, &["--allow-run"]);
    for (answer, runs) in [("n", false), ("y", true), ("NO", false), ("always", true)] {
        chat.type_line(r#"call surface tool run with {"command":"echo $((6*7))"}"#);
        chat.until("tool_call");
        // An empty line is no answer.
        chat.type_line("");
        chat.type_line(answer);
        let said = chat.answer();
        assert_eq!(said.contains("42"), runs, "{answer:?}: {said}");
        assert_eq!(said.contains("does not allow"), !runs, "{answer:?}: {said}");
    }
    // "always" holds for the same command only.
    assert!(chat.use_tool("run", r#"{"command":"echo $((6*7))"}"#).contains("42"));
    chat.type_line(r#"call surface tool run with {"command":"echo $((6*8))"}"#);
    chat.until("tool_call");
    chat.type_line("no");
    assert!(chat.answer().contains("does not allow"));
    drop(chat);
    // With --message there is no user to answer the permission prompt.
    let mut command = bowline();
    let line = r#"call surface tool run with {"command":"echo $((6*7))"}"#;
    command.args(["chat", "--allow-run", "--message", line, "--data"]).arg(&gateway.data);
    let said = command.env("PATH", &path).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("no user is there") && !said.contains("42"), "{said}");
    // With --no-tools the agent cannot call any.
    let mut chat = Chat::start(&gateway, &path, &["--no-tools"]);
    assert!(!chat.use_tool("notify", r#"{"text":"x"}"#).contains("shown"));
}

#[tokio::test]
async fn sbp_l5_01_a_chat_answers_for_a_tool_that_asks_first() {
    let (data, desk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = desk.path().join("bowline.toml");
    std::fs::write(&config, "[tools.policy]\nnotify = \"ask\"\n").unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    command.arg("--data").arg(data.path()).env("BOWLINE_OFFLINE_PACE", "0ms");
    let gateway = Process::spawned(command, data.path());
    let path = desktop(desk.path());
    let mut chat = Chat::start(&gateway, &path, &[]);
    for (answer, said) in [("no", "does not allow"), ("yes", "shown")] {
        chat.type_line(r#"call surface tool notify with {"text":"hello"}"#);
        let asked = chat.until("approval_request").pop().unwrap();
        assert_eq!(asked["approval"]["tool_input"]["text"], "hello");
        chat.type_line(answer);
        assert!(chat.answer().contains(said), "{answer}");
    }
    let log = std::fs::read_to_string(desk.path().join("log")).unwrap();
    assert_eq!(log.matches("notify").count(), 1, "{log}");
}
