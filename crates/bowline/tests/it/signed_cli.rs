//! `export`, `inspect` and `import` with signatures (SBP-L3-16) and memory (G20).

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::process::{Process, bowline, session_of};

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

struct World {
    gateway: Process,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { gateway: Process::start(folder.path()), folder }
    }

    fn run(&self, args: &[&str]) -> Output {
        run(args, &self.gateway.url, self.folder.path())
    }

    /// A file with a session's bundle.
    async fn exported(&self, name: &str) -> PathBuf {
        let session = session_of(&self.gateway.say(None, "echo 1").await);
        let path = self.folder.path().join(name);
        let output = self.run(&["export", &session, "--out", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", said(&output));
        path
    }

    async fn memories(&self, agent: &str) -> usize {
        let seen = self.gateway.get(&format!("/v1/agents/{agent}/memory")).await;
        seen["memories"].as_array().unwrap().len()
    }
}

fn run(args: &[&str], url: &str, data: &Path) -> Output {
    let mut command = bowline();
    command.args(args).args(["--url", url, "--data"]).arg(data);
    command.stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn shown(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)))
}

/// The bundle with another label, or without its signature; sealed again.
fn edited(file: &Path, edit: impl FnOnce(&mut bowline_pyjson::Object<'_>)) -> PathBuf {
    let text = std::fs::read_to_string(file).unwrap();
    let mut bundle = bowline_pyjson::Value::parse(&text).unwrap();
    edit(bundle.as_object_mut().unwrap());
    let cid = bowline_sbp::cid::Cid::of_bundle(&bundle);
    bundle.as_object_mut().unwrap().insert("bundle_cid", cid.to_string());
    let path = file.with_extension("edited");
    std::fs::write(&path, bundle.to_json()).unwrap();
    path
}

#[tokio::test]
async fn sbp_l3_16_inspect_says_who_signed_a_file_without_a_gateway() {
    let world = World::new();
    let file = world.exported("trip.sbp.json").await;
    let fingerprint = shown(&world.run(&["keys", "identity"])).trim().to_owned();
    assert!(fingerprint.starts_with("SHA256:") && fingerprint.len() == 102, "{fingerprint}");
    let inspect =
        |file: &Path, data: &Path| run(&["inspect", file.to_str().unwrap()], NOWHERE, data);
    let elsewhere = tempfile::tempdir().unwrap();
    for (data, expected) in [
        (world.folder.path(), format!("signed by this gateway, {fingerprint}")),
        (elsewhere.path(), format!("signed by {fingerprint}")),
    ] {
        let output = inspect(&file, data);
        assert!(output.status.success(), "{}", said(&output));
        let line = format!("signature      {expected}\n");
        assert!(shown(&output).contains(&line), "{}", shown(&output));
    }
    let changed = edited(&file, |bundle| drop(bundle.insert("label", "another")));
    let output = inspect(&changed, world.folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(shown(&output).contains("signature      broken: "), "{}", shown(&output));
    let bare = edited(&file, |bundle| {
        bundle.get_mut("metadata").unwrap().as_object_mut().unwrap().remove("bowline");
    });
    let output = run(&["inspect", bare.to_str().unwrap(), "--json"], NOWHERE, elsewhere.path());
    assert!(output.status.success(), "{}", said(&output));
    let expected = json!({ "state": "unsigned", "key": null, "fingerprint": null, "known": false });
    assert_eq!(json_of(&output)["signature"], expected);
    assert!(elsewhere.path().read_dir().unwrap().next().is_none(), "looking makes no identity");
}

#[tokio::test]
async fn sbp_l3_16_an_import_says_who_signed_and_refuses_what_is_not_as_required() {
    let (world, other) = (World::new(), World::new());
    let file = world.exported("trip.sbp.json").await;
    let fingerprint = |world: &World| shown(&world.run(&["keys", "identity"])).trim().to_owned();
    let (ours, theirs) = (fingerprint(&world), fingerprint(&other));
    let require = |fingerprint: &str| format!("--require-signature={fingerprint}");
    let path = file.to_str().unwrap();
    for args in [&["import", path][..], &["import", path, "--require-signature"]] {
        let output = other.run(args);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains(&format!("  signed by {ours}\n")), "{}", said(&output));
    }
    assert!(other.run(&["import", path, &require(&ours)]).status.success());
    let output = world.run(&["import", path, "--json"]);
    assert_eq!(json_of(&output)["signature"]["known"], true);
    let refused = other.run(&["import", path, &require(&theirs)]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("signed by another gateway"), "{}", said(&refused));
    let refused = other.run(&["import", path, "--require-signature=SHA256:00"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let changed = edited(&file, |bundle| drop(bundle.insert("label", "another")));
    let refused = other.run(&["import", changed.to_str().unwrap()]);
    let said_text = said(&refused);
    insta::assert_snapshot!(said_text, @r"
    error: the bundle's signature is broken: it was changed after its gateway signed it

    hint: ask the sender for the file again
    ");
    let bare = edited(&file, |bundle| {
        bundle.get_mut("metadata").unwrap().as_object_mut().unwrap().remove("bowline");
    });
    let bare = bare.to_str().unwrap();
    let refused = other.run(&["import", bare, "--require-signature"]);
    assert!(said(&refused).contains("is not signed"), "{}", said(&refused));
    let taken = other.run(&["import", bare]);
    assert!(said(&taken).contains("  unsigned\n"), "{}", said(&taken));
    // Of another product nothing is signed.
    let chat = other.folder.path().join("chat.json");
    std::fs::write(&chat, r#"[{"role":"user","content":"hi"}]"#).unwrap();
    let refused = other.run(&["import", chat.to_str().unwrap(), "--require-signature"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[tokio::test]
async fn g20_an_import_adds_memory_only_with_its_flag() {
    let world = World::new();
    let memories = json!({ "memories": [{ "text": "tea" }, { "text": "no milk" }] });
    world.gateway.post("/v1/agents/default/memory", memories).await;
    let file = world.exported("trip.sbp.json").await;
    let trip = file.to_str().unwrap();
    let letta = concat!(env!("CARGO_MANIFEST_DIR"), "/../bowline-import/tests/data/agent.af");
    let other = World::new();
    for (file, agent) in [(trip, "default"), (letta, "knotty")] {
        let would = other.run(&["import", file, "--dry-run"]);
        let told = "2 memories would travel with the session(s); --with-memory would add them";
        assert!(shown(&would).contains(told), "{}", shown(&would));
        let would = other.run(&["import", file, "--dry-run", "--json"]);
        assert_eq!(json_of(&would)["would_import"][0]["memories"], 2);
        let output = other.run(&["import", file]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("2 memories travel with the session"), "{}", said(&output));
        assert_eq!(other.memories(agent).await, 0, "{file}");
        let output = other.run(&["import", file, "--with-memory"]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("2 memories added"), "{}", said(&output));
        assert_eq!(other.memories(agent).await, 2, "{file}");
    }
    // And an export can leave it out.
    let session = session_of(&world.gateway.say(None, "echo 2").await);
    for (flag, has) in [(None, true), (Some("--without-memory"), false)] {
        let args = ["export", &session, "--json", "--out", trip];
        let output = world.run(&args.into_iter().chain(flag).collect::<Vec<_>>());
        assert_eq!(json_of(&output)["with_memory"], has, "{}", said(&output));
        let seen = json_of(&world.run(&["inspect", trip, "--json"]));
        assert_eq!((&seen["with_memory"], seen["memories"].is_null()), (&json!(has), !has));
    }
}
