//! `bowline chat` and `bowline sessions` against a real gateway.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::process::{Process, bowline, session_of};

fn chat(gateway: &Process, args: &[&str]) -> Command {
    let mut command = bowline();
    command.args(["chat", "--data"]).arg(&gateway.data).args(args);
    command
}

fn output(mut command: Command) -> (String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// A running `bowline chat --json`.
pub(crate) struct Open {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Open {
    pub(crate) fn start(gateway: &Process, args: &[&str]) -> Self {
        let mut command = chat(gateway, args);
        command.args(["--json", "--lines"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn until(&mut self, event: &str) -> Value {
        loop {
            let line = self.lines.next().expect("the chat ended").unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["event"] == event {
                return value;
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_message_is_answered_and_the_session_can_be_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let (said, notes) = output(chat(&gateway, &["--message", "count to 3"]));
    assert_eq!(said, "1\n2\n3\n");
    let id = notes.trim().rsplit(' ').next().unwrap().to_owned();
    let (said, _) = output(chat(&gateway, &["--session", &id, "--message", "echo back again"]));
    assert_eq!(said, "back again\n");
    assert_eq!(gateway.log(&id).await.len(), 4);
}

#[tokio::test]
async fn turns_that_came_while_away_are_announced_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let first = gateway.say(None, "echo one").await;
    gateway.say(Some(&session_of(&first)), "echo two").await;
    gateway.say(Some(&session_of(&first)), "echo three").await;
    let (said, notes) = output(chat(&gateway, &["--last", "--message", "echo four"]));
    assert!(notes.contains("3 turns arrived while you were away"), "{notes}");
    assert_eq!(said, "one\ntwo\nthree\nfour\n");
    let (said, notes) = output(chat(&gateway, &["--last", "--message", "echo five"]));
    assert_eq!((said.as_str(), notes.contains("arrived")), ("five\n", false));
}

#[tokio::test]
async fn a_chat_outlives_its_gateway_and_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut open = Open::start(&gateway, &[]);
    open.until("attached");
    open.type_line("echo before");
    open.until("complete");
    let gateway = gateway.crash_and_restart();
    open.until("lost");
    // Typed while the gateway is down, or just after its restart: either way it is answered.
    open.type_line("echo after");
    assert_eq!(open.until("attached")["reconnected"], true);
    let mut words = String::new();
    while words != "after" {
        words.push_str(open.until("chunk")["text"].as_str().unwrap());
    }
    open.until("complete");
    drop(gateway);
}

#[tokio::test]
async fn slash_commands_page_back_and_cancel() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "20ms");
    let mut open = Open::start(&gateway, &[]);
    open.type_line("count to 5000");
    open.until("chunk");
    open.type_line("/cancel");
    assert_eq!(open.until("complete")["turn"]["status"], "cancelled");
    open.type_line("/back");
    assert_eq!(open.until("earlier")["entry"]["message"]["content"], "count to 5000");
    open.type_line("/quit");
    assert!(open.child.wait().unwrap().success());
}

#[tokio::test]
async fn what_is_piped_is_one_message_and_with_lines_one_a_line_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let piped = |args: &[&str], text: &str| {
        let mut command = chat(&gateway, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    let (said, notes, code) = piped(&[], "echo one\n\n/quit is no command here\n");
    assert_eq!((said.as_str(), code), ("one\n\n/quit is no command here\n", Some(0)), "{notes}");
    let id = notes.trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(gateway.log(&id).await.len(), 2);
    let (said, ..) = piped(&["--lines"], "echo A\necho B\n\necho C\n");
    assert_eq!(said, "A\nB\nC\n");
    let mut command = chat(&gateway, &["--lines"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"echo one\n\xff\necho three\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "what cannot be read is not passed over");
    let (_, error, code) = piped(&[], " \n");
    assert!(error.contains("standard input is empty"), "{error}");
    assert_ne!(code, Some(0));
}

#[tokio::test]
async fn a_message_that_is_not_answered_makes_the_exit_code_not_0() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start_at(
        folder.path(),
        "127.0.0.1:0",
        &[("BOWLINE_UPSTREAM_URL", "http://127.0.0.1:1/v1")],
    );
    let asked = |args: &[&str]| {
        let output = chat(&gateway, args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (said, error) = asked(&["--model", "gpt", "--message", "hello"]);
    let reason = "the upstream `default` cannot be reached";
    assert!(error.contains("\nerror: ") && error.contains(reason), "{error}");
    assert!(said.ends_with("[failed]\n"), "{said}");
    let (events, _) = asked(&["--json", "--model", "gpt", "--message", "hello"]);
    assert!(events.contains(r#""status":"failed""#), "{events}");
}

#[tokio::test]
async fn a_watch_gets_whole_turns_in_its_own_form() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut open = Open::start(&gateway, &["--device", "watch"]);
    open.type_line("echo **Now** go. See [the map](https://example.com/m).");
    assert_eq!(
        open.until("turn")["turn"]["content"],
        "Now go. See the map (https://example.com/m)."
    );
}

#[tokio::test]
async fn sessions_are_listed_shown_ended_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let id = session_of(&gateway.say(None, "echo hello").await);
    let sessions = |args: &[&str]| {
        let mut command = bowline();
        command.arg("sessions").args(args).arg("--data").arg(&gateway.data);
        command.output().unwrap()
    };
    let listed = sessions(&["list", "--json"]).stdout;
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["session_id"]), (1, &json!(id)));
    let shown = String::from_utf8(sessions(&["show", &id]).stdout).unwrap();
    assert!(shown.contains("user: echo hello") && shown.contains("assistant: hello"), "{shown}");
    assert!(sessions(&["end", &id]).status.success());
    assert_eq!(gateway.get(&format!("/v1/sessions/{id}")).await["status"], "completed");
    assert!(sessions(&["rm", &id]).status.success());
    let gone = sessions(&["show", &id]);
    assert!(!gone.status.success());
    assert!(String::from_utf8(gone.stderr).unwrap().contains("no such session"));
    let empty = sessions(&["list"]);
    assert!(String::from_utf8(empty.stderr).unwrap().contains("no sessions yet"));
}
