//! The official OpenAI Python SDK, unchanged but for `base_url`.

use std::process::Command;

use crate::clients::python;
use crate::process::Process;

/// A typical user's program: plain calls, a stream read as in tutorials, a session token as the
/// SDK's API key, tools, errors.
const PROGRAM: &str = r#"
import sys, openai
from openai import OpenAI

base = sys.argv[1] + "/v1"
client = OpenAI(base_url=base, api_key="anything", max_retries=0)

plain = client.chat.completions.create(
    model="bowline/offline", messages=[{"role": "user", "content": "echo plain"}])
assert plain.choices[0].message.content == "plain", plain
assert plain.usage.total_tokens > 0
assert not hasattr(plain, "sbp"), "a plain call stays plain"

first = client.chat.completions.create(
    model="bowline/offline", messages=[{"role": "user", "content": "echo one"}],
    extra_body={"sbp": {}})
session, token = first.sbp["session_id"], first.sbp["session_token"]
assert first.sbp["step_count"] == 1

mine = OpenAI(base_url=base, api_key=token, max_retries=0)
history = [{"role": "user", "content": "echo one"}, first.choices[0].message,
           {"role": "user", "content": "count to 5"}]
text, last = "", None
for chunk in mine.chat.completions.create(model="bowline/offline", messages=history, stream=True):
    text += chunk.choices[0].delta.content or ""
    last = chunk
assert text == "1\n2\n3\n4\n5\n", repr(text)
assert last.sbp["session_id"] == session and last.sbp["step_count"] == 2, last

called = mine.chat.completions.create(
    model="bowline/offline",
    messages=[{"role": "user", "content": 'call surface tool camera with {"mode": "photo"}'}])
assert called.choices[0].message.tool_calls[0].function.name == "surface_camera", called

raw = mine.chat.completions.with_raw_response.create(
    model="bowline/offline", messages=[{"role": "user", "content": "echo raw"}])
assert raw.headers["x-session-token"] == token

legacy = client.completions.create(
    model="bowline/offline", prompt="echo legacy", extra_body={"sbp": {}})
assert legacy.choices[0].text == "legacy", legacy

assert "bowline/offline" in [model.id for model in client.models.list()]

try:
    client.chat.completions.create(model="bowline/offline", messages=[], extra_body={"sbp": {}})
    raise SystemExit("an empty request went through")
except openai.UnprocessableEntityError as error:
    assert error.code == "SBP_INVALID_REQUEST" and error.param == "messages", error.body
try:
    client.chat.completions.create(
        model="x", messages=[{"role": "user", "content": "x"}],
        extra_body={"sbp": {"session_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f"}})
    raise SystemExit("an unknown session went through")
except openai.NotFoundError as error:
    assert error.code == "SBP_SESSION_NOT_FOUND", error.body
print("all good", openai.__version__)
"#;

#[tokio::test]
async fn sbp_l1_02_the_official_python_sdk_works_with_nothing_but_another_base_url() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let output = Command::new(python()).args(["-c", PROGRAM, &gateway.url]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
