//! `bowline chat` on a terminal: what a person types, and what the screen shows.

use std::path::Path;
use std::process::Command;

use crate::process::{Process, bowline, turn};
use crate::terminal::Terminal;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";

/// A chat on a terminal; its history is in the gateway's data folder.
fn chat(gateway: &Process, args: &[&str]) -> Command {
    let mut command = bowline();
    command.args(["chat", "--no-tools", "--data"]).arg(&gateway.data).args(args);
    command.env("XDG_STATE_HOME", &gateway.data);
    command
}

fn open(gateway: &Process, args: &[&str]) -> Terminal {
    let mut terminal = Terminal::start(&chat(gateway, args), 24, 80);
    terminal.until_shows("\n>");
    terminal
}

/// The screen without the line that names the session.
fn talk(screen: &str) -> String {
    let lines = screen.lines().skip_while(|line| !line.starts_with("  /help lists")).skip(1);
    lines.collect::<Vec<_>>().join("\n")
}

async fn newest(gateway: &Process) -> String {
    let list = gateway.get("/v1/sessions?limit=1").await;
    list["sessions"][0]["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn typing_while_an_answer_streams_stays_apart_and_is_sent_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "30ms");
    let mut terminal = open(&gateway, &[]);
    terminal.types("count to 8\r");
    terminal.until_shows("\n2\n");
    terminal.types("echo typed");
    let screen = terminal.until_shows("> echo typed");
    assert!(screen.ends_with("> echo typed"), "{screen}");
    terminal.types(" meanwhile\r");
    let screen = terminal.until("both answers", |text| text.ends_with("\ntyped meanwhile\n\n>"));
    assert_eq!(
        talk(&screen),
        "> count to 8\n1\n2\n3\n4\n5\n6\n7\n8\n\n> echo typed meanwhile\ntyped meanwhile\n\n>"
    );
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), 0);
    assert!(terminal.text().contains("continue with: bowline chat --data "));
}

#[tokio::test]
async fn a_paste_is_one_message_and_ctrl_j_begins_a_new_line() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut terminal = open(&gateway, &[]);
    terminal.pastes("echo first\nsecond\n\nthird");
    terminal.until_shows("> echo first\n  second\n\n  third");
    terminal.types("\nfourth\r");
    let screen = terminal.until("the answer", |text| text.ends_with("\nfourth\n\n>"));
    let question = "> echo first\n  second\n\n  third\n  fourth\n";
    assert_eq!(talk(&screen), format!("{question}first\nsecond\n\nthird\nfourth\n\n>"));
    assert_eq!(gateway.log(&newest(&gateway).await).await.len(), 2);
}

#[tokio::test]
async fn the_first_ctrl_c_stops_the_answer_and_the_second_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "20ms");
    let mut terminal = open(&gateway, &[]);
    terminal.types("count to 5000\r");
    terminal.until_shows("\n3\n");
    terminal.types(CTRL_C);
    terminal.until_shows("[stopped]");
    // A key in between: the next Ctrl-C is the first again.
    terminal.types("half a line");
    terminal.until_shows("> half a line");
    terminal.types(CTRL_C);
    terminal.until("an empty prompt", |text| text.ends_with("\n>"));
    terminal.types(CTRL_C);
    assert_eq!(terminal.ends(), 0);
    let session = gateway.get(&format!("/v1/sessions/{}", newest(&gateway).await)).await;
    assert_ne!(session["status"], "completed", "the session goes on");
}

#[tokio::test]
async fn an_answer_cut_by_kill_9_of_the_gateway_is_replaced_by_its_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "30ms");
    let mut terminal = open(&gateway, &[]);
    terminal.types("count to 12\r");
    terminal.until_shows("\n4\n");
    let gateway = gateway.crash_and_restart();
    let screen = terminal.until("the answer", |text| text.ends_with("\n12\n\n>"));
    let numbers: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    assert_eq!(talk(&screen), format!("> count to 12\n{}\n\n>", numbers.join("\n")));
    drop(gateway);
}

#[tokio::test]
async fn two_terminals_at_once_see_each_other_and_all_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut first = open(&gateway, &[]);
    // Answered: so it is attached, and knows that it is alone.
    first.types("echo alone\r");
    first.until_shows("\nalone\n\n>");
    let mut second = open(&gateway, &["--last"]);
    first.until_shows("is here, too");
    second.types("echo from **two**\r");
    second.until("the answer", |text| text.ends_with("> echo from **two**\nfrom two\n\n>"));
    let screen = first.until("the answer", |text| text.ends_with("\nfrom two\n\n>"));
    let asked = screen.lines().find(|line| line.ends_with("> echo from **two**")).unwrap();
    assert!(asked.len() > "> echo from **two**".len(), "whose it is: {asked}");
    first.types("/who\r");
    let screen = first.until_shows("this terminal");
    assert_eq!(screen.matches("(desktop)").count(), 3, "{screen}");
    second.types("/quit\r");
    assert_eq!(second.ends(), 0);
    first.until_shows(" left");
    // A third takes over: the first is told why it ends.
    let _third = open(&gateway, &["--last", "--take-over"]);
    first.until_shows("another surface took the session over");
    assert_ne!(first.ends(), 0);
}

#[tokio::test]
async fn a_resize_keeps_the_prompt_and_wraps_to_the_new_width() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut terminal = open(&gateway, &[]);
    terminal.types("echo the quick brown fox jumps over it");
    terminal.until_shows("> echo the quick brown fox jumps over it");
    terminal.resize(20, 24);
    terminal.until_shows("> echo the quick brown\n   fox jumps over it");
    terminal.types("\r");
    terminal
        .until("the answer", |text| text.ends_with("\nthe quick brown fox\njumps over it\n\n>"));
}

#[tokio::test]
async fn the_history_outlives_the_chat_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut terminal = open(&gateway, &[]);
    terminal.types("echo remember me\r");
    terminal.until_shows("\nremember me\n\n>");
    terminal.types(CTRL_D);
    terminal.ends();
    let file = folder.path().join("bowline/chat_history");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut terminal = open(&gateway, &[]);
    terminal.types(UP);
    terminal.until("the entry", |text| text.ends_with("\n> echo remember me"));
}

#[tokio::test]
async fn markdown_is_rendered_with_colour_and_left_as_it_is_without() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut terminal = open(&gateway, &[]);
    terminal.pastes("echo # Title\n- **one**\n- `two`");
    terminal.types("\r");
    let screen = terminal.until("the answer", |text| text.ends_with("\nTitle\n• one\n• two\n\n>"));
    assert!(terminal.is_bold("Title"), "{screen}");
    let mut command = chat(&gateway, &[]);
    let mut plain = Terminal::start(command.env("NO_COLOR", "1"), 24, 60);
    plain.until_shows("\n>");
    plain.pastes("echo # Title\n- **one**");
    plain.types("\r");
    plain.until("the answer", |text| text.ends_with("\n# Title\n- **one**\n\n>"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_prompt_takes_yes_no_or_always_and_keeps_the_draft() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway_that_asks(folder.path());
    let mut command = bowline();
    command.args(["chat", "--data"]).arg(&gateway.data).env("XDG_STATE_HOME", folder.path());
    let mut terminal = Terminal::start(&command, 40, 76);
    terminal.until_shows("\n>");
    terminal.types("call surface tool notify with {\"text\":\"one\"}\r");
    terminal.until_shows("yes/no/always>");
    terminal.types("sure\r");
    terminal.until("the question again", |text| text.matches("allow it?").count() == 2);
    terminal.types("no\r");
    terminal.until_shows("does not allow");
    // Somebody else asks while a message is being written.
    terminal.types("draft of a mess");
    terminal.until("the draft", |text| text.ends_with("\n> draft of a mess"));
    let call =
        turn(Some(&newest(&gateway).await), "call surface tool notify with {\"text\":\"two\"}");
    let post = reqwest::Client::new().post(format!("{}/v1/chat/completions", gateway.url));
    let asked = tokio::spawn(post.json(&call).send());
    terminal.until_shows("yes/no/always>");
    terminal.types("always\r");
    let screen = terminal.until("the draft", |text| text.ends_with("\n> draft of a mess"));
    assert_eq!(screen.matches("the agent wants to use").count(), 3, "{screen}");
    asked.await.unwrap().unwrap();
    // Ctrl-U, then a third call that nobody is asked about.
    terminal.types("\x15call surface tool notify with {\"text\":\"three\"}\r");
    let screen = terminal.until_shows("three");
    terminal.until("the third answer", |text| text.matches("shown").count() >= 2);
    assert_eq!(screen.matches("the agent wants to use").count(), 3, "{screen}");
}

/// A gateway where a tool of a device needs an approval.
fn gateway_that_asks(data: &Path) -> Process {
    let config = data.join("bowline.toml");
    std::fs::write(&config, "[tools.policy]\nnotify = \"ask\"\n").unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    command.arg("--data").arg(data).env("BOWLINE_OFFLINE_PACE", "0ms");
    Process::spawned(command, data)
}

#[tokio::test]
async fn commands_are_answered_and_a_mistake_does_not_end_the_chat() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut terminal = open(&gateway, &[]);
    for (line, expected) in [
        ("/hlep", "there is no /hlep; try /help"),
        ("/help", "/export [FILE]"),
        ("/model", "the gateway's default model answers"),
        ("/model bowline/offline", "the next answers come from bowline/offline"),
        ("echo hello", "\nhello\n\n>"),
        ("/fork plan B", "forked; talk to it with: bowline chat --data "),
        ("/export", "anyone who has this token"),
        ("/export /no/such/folder/x", "there is no folder /no/such/folder"),
        ("/back", "> echo hello\nhello\n\n>"),
    ] {
        terminal.types(&format!("{line}\r"));
        terminal.until_shows(expected);
        terminal.types("\x0c");
        terminal.until("a clear screen", |text| text == ">");
    }
    terminal.types("/quit\r");
    assert_eq!(terminal.ends(), 0);
}
