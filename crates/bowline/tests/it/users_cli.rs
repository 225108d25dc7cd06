//! `bowline users`, `bowline keys` and `bowline approvals` with a running gateway.

use std::path::Path;

use serde_json::{Value, json};

use crate::process::{Process, bowline};

/// Runs a command that succeeds, and returns its output.
fn done(data: &Path, args: &[&str]) -> (String, String) {
    let output = bowline().args(args).arg("--data").arg(data).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out} {err}");
    (out, err)
}

fn json_of(data: &Path, args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let (out, err) = done(data, &args);
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{args:?}: {out} {err}"))
}

/// The exit code of a command that fails, and what it says.
fn failed(data: &Path, args: &[&str]) -> (i32, String) {
    let output = bowline().args(args).arg("--data").arg(data).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

async fn status(url: &str, key: Option<&str>) -> u16 {
    let request = reqwest::Client::new().get(format!("{url}/v1/sessions"));
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn g20_users_and_keys_are_made_listed_and_revoked_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gateway = Process::start(data);
    assert_eq!(status(&gateway.url, None).await, 200);
    let (_, said) = done(data, &["users", "add", "ada"]);
    assert!(said.contains("callers on this machine need a key"), "{said}");
    assert_eq!(status(&gateway.url, None).await, 401);
    let made = json_of(
        data,
        &[
            "keys",
            "new",
            "--user",
            "ada",
            "--name",
            "laptop",
            "--scopes",
            "turns,read",
            "--expires",
            "90d",
        ],
    );
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(key.starts_with(&format!("bk_{id}.")), "{made}");
    assert_eq!(made["scopes"], json!(["turns", "read"]));
    assert_eq!(status(&gateway.url, Some(key)).await, 200);
    let listed = json_of(data, &["keys", "list"]);
    assert_eq!(
        (&listed["keys"][0]["id"], &listed["keys"][0]["name"]),
        (&json!(id), &json!("laptop"))
    );
    let (table, _) = done(data, &["keys", "list", "--user", "ada"]);
    assert!(table.contains(id) && table.contains("turns,read") && !table.contains(key), "{table}");
    let users = json_of(data, &["users", "list"]);
    let names: Vec<_> = users["users"].as_array().unwrap().iter().map(|u| &u["name"]).collect();
    assert_eq!(names, ["owner", "ada"]);

    done(data, &["users", "disable", "ada"]);
    assert_eq!(status(&gateway.url, Some(key)).await, 403);
    assert_eq!(status(&gateway.url, None).await, 401, "it does not open again");
    done(data, &["users", "enable", "ada"]);
    assert_eq!(status(&gateway.url, Some(key)).await, 200);
    done(data, &["keys", "revoke", id]);
    assert_eq!(status(&gateway.url, Some(key)).await, 403);

    for (args, code, words) in [
        (&["keys", "revoke", id][..], 4, "no such key"),
        (&["users", "add", "ADA"], 3, "another user has that name"),
        (&["users", "disable", "nobody"], 4, "no user nobody"),
        (&["keys", "new", "--user", "nobody"], 4, "no user nobody"),
        (&["keys", "new", "--user", "ada", "--scopes", "root"], 2, "no scope `root`"),
        (&["approvals", "approve", "0191f2c0"], 4, "no call waits"),
    ] {
        let (got, said) = failed(data, args);
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(got, code, "{args:?}: {said}");
    }
    let (_, said) = done(data, &["approvals", "list"]);
    assert!(said.contains("no tool call waits"), "{said}");
}

#[tokio::test]
async fn g20_a_session_is_shared_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gateway = Process::start(data);
    done(data, &["users", "add", "ada"]);
    let made = json_of(data, &["keys", "new", "--user", "ada", "--name", "laptop"]);
    let key = made["key"].as_str().unwrap();
    done(data, &["chat", "--message", "echo hello"]);
    let seen = async || {
        let url = format!("{}/v1/sessions", gateway.url);
        let list = reqwest::Client::new().get(url).bearer_auth(key).send().await.unwrap();
        let list: Value = list.json().await.unwrap();
        list["sessions"].as_array().unwrap().len()
    };
    assert_eq!(seen().await, 0);
    done(data, &["users", "share", "last", "--with", "ada", "--scope", "talk"]);
    assert_eq!(seen().await, 1);
    done(data, &["users", "unshare", "last", "--with", "ada"]);
    assert_eq!(seen().await, 0);
}

#[tokio::test]
async fn limits_usage_and_audit_are_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gateway = Process::start(data);
    let added = json_of(data, &["users", "add", "ada", "--limit", "usd=5/d"]);
    assert_eq!(added["limits"], json!({ "usd_per_day": 5.0 }));
    let limited = ["users", "limit", "ada", "tokens=1/d", "usd=default", "turns=none"];
    let limited = json_of(data, &limited);
    assert_eq!(limited["limits"], json!({ "tokens_per_day": 1, "turns_at_once": "none" }));
    let (code, said) = failed(data, &["users", "limit", "ada", "words=5"]);
    assert!(code == 2 && said.contains("tokens=2M/d"), "{code} {said}");
    let made = ["keys", "new", "--user", "ada", "--limit", "requests=60/m", "--limit", "exports=0"];
    let made = json_of(data, &made);
    let (list, _) = done(data, &["keys", "list"]);
    assert!(list.contains("requests=60/m, exports=0/d"), "{list}");
    let (list, _) = done(data, &["users", "list"]);
    assert!(list.contains("turns=none, tokens=1/d"), "{list}");
    let ask = async || {
        let asked = json!({ "model": "m", "messages": [{ "role": "user", "content": "echo x" }] });
        let request = reqwest::Client::new().post(format!("{}/v1/chat/completions", gateway.url));
        let request = request.bearer_auth(made["key"].as_str().unwrap()).json(&asked);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((ask().await, ask().await), (200, 429));
    let usage = json_of(data, &["usage", "--user", "ada", "--days", "2"]);
    assert_eq!(usage["users"][0]["days"][0]["model_calls"], 1, "{usage}");
    let (table, said) = done(data, &["usage"]);
    assert!(
        table.contains("ada") && said.contains("limits: turns=none, tokens=1/d"),
        "{table}{said}"
    );
    let audit = json_of(data, &["audit", "--since", "1d", "--user", "owner"]);
    let actions: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|e| &e["action"]).collect();
    assert_eq!(actions, ["key.make", "user.limit", "user.add"], "{audit}");
    let (table, _) = done(data, &["audit"]);
    assert!(table.contains("gateway.start") && table.contains("127.0.0.1"), "{table}");
}
