//! `bowline sessions`: titles, names, search, and what a list says; whole outputs.

use serde_json::{Value, json};

use crate::chat::Open;
use crate::process::{Process, bowline, session_of};

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

fn run(gateway: &Process, args: &[&str]) -> Outcome {
    let output = bowline().args(args).arg("--data").arg(&gateway.data).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    Outcome { code, out: text(output.stdout), err: text(output.stderr) }
}

/// The same for a command that succeeds.
fn runs(gateway: &Process, args: &[&str]) -> Outcome {
    let outcome = run(gateway, args);
    assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.err);
    outcome
}

/// A table with one space beside each column's edge, and ids replaced by names.
fn table(text: &str, ids: &[(&str, &str)]) -> String {
    let line = |line: &str| {
        let mut cells: Vec<_> = line.split("  ").map(str::trim).collect();
        cells.retain(|cell| !cell.is_empty());
        // A short id is the beginning of exactly one.
        let named: Vec<_> = ids.iter().filter(|(_, id)| id.starts_with(cells[0])).collect();
        if let [(name, _)] = named[..] {
            cells[0] = name;
        }
        cells.join(" | ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn named(text: &str, ids: &[(&str, &str)]) -> String {
    ids.iter().fold(text.to_owned(), |text, (name, id)| text.replace(id, name))
}

#[tokio::test]
async fn a_list_says_what_each_session_does_now() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::paced(folder.path(), "20ms");
    assert_eq!(runs(&gateway, &["sessions", "list"]).out, "");
    let new = gateway.post("/v1/sessions", json!({})).await["session_id"].clone();
    let done = session_of(&gateway.say(None, "echo done with this").await);
    runs(&gateway, &["sessions", "end", &done]);
    let waits = session_of(&gateway.say(None, "echo nobody has read this yet, so it waits").await);
    let mut idle = Open::start(&gateway, &["--session", &waits, "--device", "phone"]);
    idle.until("attached");
    gateway.until(&waits, |seen| seen["tether_turns_pending"] == 0).await;
    let busy = session_of(&gateway.say(None, "echo start").await);
    let mut working = Open::start(&gateway, &["--session", &busy]);
    working.until("attached");
    working.type_line("count to 5000");
    gateway.until(&busy, |seen| seen["turn_running"] == true).await;
    let away = session_of(&gateway.say(None, "echo left").await);
    let mut leaves = Open::start(&gateway, &["--session", &away]);
    leaves.until("attached");
    gateway.until(&away, |seen| seen["tether_turns_pending"] == 0).await;
    drop(leaves);
    gateway.until(&away, |seen| seen["status"] == "suspended").await;
    gateway.say(Some(&away), "echo one more").await;
    let path = format!("/v1/sessions/{away}/status");
    gateway.patch(&path, json!({ "status": "suspended" })).await;

    let ids = [
        ("[NEW]", new.as_str().unwrap()),
        ("[DONE]", &done),
        ("[IDLE]", &waits),
        ("[BUSY]", &busy),
        ("[AWAY]", &away),
    ];
    let listed = runs(&gateway, &["sessions", "list"]).out;
    insta::assert_snapshot!(table(&listed, &ids), @r"
    SESSION | TITLE | STATE | AGE | WAITING | ATTACHED
    [AWAY] | echo left | away | just now | 1 turn | -
    [BUSY] | echo start | working | just now | - | desktop
    [IDLE] | echo nobody has read this yet, so it wa… | idle | just now | - | mobile
    [DONE] | echo done with this | done | just now | 1 turn | -
    [NEW] | - | idle | just now | - | -
    ");
    let one = runs(&gateway, &["sessions", "list", "--limit", "1", "--json"]).out;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!((one.as_array().unwrap().len(), &one[0]["session_id"]), (1, &json!(away)));
    let away_alone = runs(&gateway, &["sessions", "list", "--status", "suspended"]).out;
    assert_eq!(table(&away_alone, &ids).lines().count(), 2, "{away_alone}");
    let none = runs(&gateway, &["sessions", "list", "--status", "failed"]).err;
    assert_eq!(none, "no session is failed\n");
    // What the list shows names the session.
    for line in listed.lines().skip(1) {
        runs(&gateway, &["sessions", "show", line.split("  ").next().unwrap()]);
    }
    let shown = runs(&gateway, &["sessions", "show", "echo nobody"]).out;
    // The rest are times.
    let told: Vec<_> = shown.lines().take(8).collect();
    insta::assert_snapshot!(named(&told.join("\n"), &ids), @r"
    session   [IDLE]
    title     echo nobody has read this yet, so it waits
    state     idle
    agent     default
    steps     1
    pending   0 turns wait for a surface
    approvals 0 wait for you
    attached  mobile
    ");
}

#[tokio::test]
async fn a_session_is_named_by_title_prefix_or_last_wherever_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let apples = session_of(&gateway.say(None, "echo apples").await);
    let pears = session_of(&gateway.say(None, "echo pears").await);
    let ids = [("[APPLES]", apples.as_str()), ("[PEARS]", pears.as_str())];

    let renamed = runs(&gateway, &["sessions", "rename", "last", "Trip", "to", "Kyoto"]).err;
    assert_eq!(named(&renamed, &ids), "session [PEARS] is called `Trip to Kyoto`\n");
    for name in [pears.as_str(), &pears[..30], "trip to kyoto", "TRIP", "last"] {
        let shown = runs(&gateway, &["sessions", "show", name, "--json"]).out;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["session"]["session_id"], json!(pears), "{name}");
    }
    let back = runs(&gateway, &["sessions", "rename", "trip", ""]).err;
    assert_eq!(named(&back, &ids), "session [PEARS] is called `echo pears`\n");

    let chat = runs(&gateway, &["chat", "--session", "echo ap", "--message", "echo hi"]);
    assert!(chat.out.ends_with("hi\n"), "{}", chat.out);
    assert_eq!(gateway.log(&apples).await.len(), 4);
    let forked = runs(&gateway, &["fork", "echo apples", "--label", "plan B", "--json"]).out;
    let forked: Value = serde_json::from_str(&forked).unwrap();
    assert_eq!(forked["origin_session_id"], json!(apples));
    assert!(runs(&gateway, &["lineage", "plan b"]).out.contains(&apples));
    let exported = runs(&gateway, &["export", "plan", "--json"]).out;
    assert!(exported.contains("\"label\":\"plan B\""), "{exported}");
    let handed = runs(&gateway, &["handoff", "plan b", "--to", "booking", "--json"]).out;
    let handed: Value = serde_json::from_str(&handed).unwrap();
    assert_eq!(handed["from_session_id"], forked["fork_session_id"]);

    let several = run(&gateway, &["sessions", "end", "echo"]);
    insta::assert_snapshot!(named(&several.err, &ids), @r"
    error: `echo` names 2 sessions:
      [PEARS]  echo pears
      [APPLES]  echo apples

    hint: name one of them by more of its id or title
    ");
    let nothing = run(&gateway, &["sessions", "show", "plums"]);
    insta::assert_snapshot!(nothing.err, @r"
    error: no session is called `plums`

    hint: name it by its id, the first 4 or more characters of its id, its title, or `last`; `bowline sessions list` shows them
    ");
    assert_eq!((several.code, nothing.code), (2, 4));

    // One name that names nothing: nothing is deleted.
    assert_eq!(run(&gateway, &["sessions", "rm", "echo pears", "plums"]).code, 4);
    assert_eq!(gateway.log(&pears).await.len(), 2);
    let removed = runs(&gateway, &["sessions", "rm", "echo pears", &pears, "echo apples"]).err;
    let told =
        "session [PEARS] (echo pears) is removed\nsession [APPLES] (echo apples) is removed\n";
    assert_eq!(named(&removed, &ids), told);
}

#[tokio::test]
async fn a_search_shows_where_the_words_were_said() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let first = session_of(&gateway.say(None, "echo the rabbit comes out of the hole").await);
    let second = session_of(&gateway.say(None, "where is the rabbit?").await);
    gateway.say(Some(&second), "echo round the tree").await;
    let ids = [("[FIRST]", first.as_str()), ("[SECOND]", second.as_str())];
    let found = runs(&gateway, &["sessions", "search", "Rabbit", "the", "--limit", "3"]);
    let found: Vec<_> = found.out.lines().map(|line| table(line, &ids)).collect();
    assert_eq!(found[0], "[SECOND] | where is the rabbit?");
    assert!(found.contains(&"[FIRST] | echo the rabbit comes out of the hole".into()), "{found:?}");
    let last = found.last().unwrap();
    assert_eq!(last, "2 assistant, just now: the rabbit comes out of the hole");
    let json = runs(&gateway, &["sessions", "search", "round*", "tree", "--json"]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["complete"], &json["hits"][0]["seq"]), (&json!(true), &json!(4)));
    let nothing = runs(&gateway, &["sessions", "search", "\"hedgehog", "AND"]);
    assert_eq!((nothing.out.as_str(), nothing.err.as_str()), ("", "nothing found\n"));
    runs(&gateway, &["sessions", "rm", &first]);
    assert!(!runs(&gateway, &["sessions", "search", "hole"]).out.contains("hole"));
}
