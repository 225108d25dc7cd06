"""What every Python program of this folder shares: the gateway, the model server, and the report."""

import contextlib
import json
import os
import time
import traceback
import urllib.error
import urllib.request

DEADLINE = 60


class World:
    """Where everything is, and what the runner does on request."""

    def __init__(self):
        self.__dict__.update(json.loads(os.environ["WORLD"]))
        self.url = self.base + "/v1"

    def control(self, path, **asked):
        return fetch(f"{self.control_url}/{path}", asked)

    def new_session(self):
        made = fetch(f"{self.gateway}/v1/sessions", {}, self.key)
        return made["session_id"], made["session_token"]

    def session(self, session):
        return fetch(f"{self.gateway}/v1/sessions/{session}", None, self.key)

    def log(self, session):
        """The messages of a session, oldest first."""
        page = fetch(f"{self.gateway}/v1/sessions/{session}/messages?limit=500", None, self.key)
        return [entry["message"] for entry in page["messages"]]

    def sessions(self):
        return len(fetch(f"{self.gateway}/v1/sessions", None, self.key)["sessions"])

    def prompts(self):
        return self.control("prompts")

    def until_log(self, session, length):
        """Waits until the session has that many messages and no turn runs."""
        until(lambda: len(self.log(session)) >= length and not self.session(session)["turn_running"])


def until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def fetch(url, body=None, key=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, headers), timeout=2 * DEADLINE) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from None


def brief(message):
    """A message as `role: text`, to compare and to read."""
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(part.get("text", f"[{part['type']}]") for part in content)
    calls = "".join(f"[calls {call['function']['name']}]" for call in message.get("tool_calls") or [])
    return f"{message['role']}: {content or ''}{calls}"


def same(got, wanted):
    assert got == wanted, f"\n    got    {got!r}\n    wanted {wanted!r}"


class Report:
    """One line for each habit: `ok`, `note: …` or `FAIL …`."""

    def __init__(self, client, version, world):
        self.world, self.failed = world, 0
        print(f"client {client} {version}", flush=True)

    @contextlib.contextmanager
    def habit(self, mode, name):
        self.world.control("reset")
        begun = time.monotonic()
        try:
            yield
            print(f"ok {mode}: {name} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Exception as error:
            self.failed += 1
            print(f"FAIL {mode}: {name}: {type(error).__name__}: {error}")
            if not isinstance(error, AssertionError):
                print("".join(traceback.format_exception(error, limit=-3, chain=False)))
            asked, answered = self.world.control("exchange")
            print(f"  request: {short(asked)}\n  answer: {short(answered)}", flush=True)

    def note(self, mode, name, why):
        print(f"note: {mode}: {name}: {why}", flush=True)

    def end(self):
        print(f"{self.failed} failed", flush=True)
        # Not sys.exit: some clients leave threads behind that would hold it up.
        os._exit(1 if self.failed else 0)


def short(text):
    """Without the headers that say nothing here."""
    head, _, body = text.partition("\r\n\r\n")
    first, *headers = head.split("\r\n")
    telling = ("x-stainless-retry", "retry-after", "x-should-retry", "idempotency", "content-type")
    headers = [header for header in headers if header.lower().startswith(telling)]
    return " | ".join([first, *headers, body[:700]])
