"""A scripted OpenAI-compatible model server, as strict as OpenAI. It records every prompt.

The model's name says what it does:

echo              answers `said: ` and the last user message; of an image, its type and size
gate-NAME         says `begun`, waits until the gate is opened, then says ` done`
tool              calls the first tool with {"a": 2, "b": 3}; answers its result with `result: …`
call              calls the tool that the user message names: `NAME {…}`; answers its result the same way
json              answers {"name": "Anna", "age": 41} to whoever asks for JSON, or calls the tool that is required
status-NNN        refuses with that status, as OpenAI does
too-long          refuses with context_length_exceeded
flaky-N-NAME      refuses with 503 N times, then as echo
"""

import base64
import json
import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEADLINE = 60
PERSON = {"name": "Anna", "age": 41}
MODELS = ["echo", "tool", "json"]
REFUSALS = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", None),
}
# What no request and no message of OpenAI's has: these would be the gateway's own.
FOREIGN = {"sbp", "seq", "turn_id", "session_id", "status", "created_at"}


class Refused(Exception):
    def __init__(self, status, message, kind="invalid_request_error", code=None, param=None):
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": code}


class Upstream:
    def __init__(self):
        self.lock = threading.Condition()
        self.prompts = []
        self.opened = set()
        self.reached = {}
        self.flaky = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def record(self, body):
        with self.lock:
            prompt = {**body, "gone": False}
            self.prompts.append(prompt)
            self.lock.notify_all()
            return prompt

    def open(self, gate):
        with self.lock:
            self.opened.add(gate)
            self.lock.notify_all()

    def wait(self, condition):
        with self.lock:
            return self.lock.wait_for(condition, DEADLINE)

    def wait_at(self, gate, connection):
        """Waits until the gate is open; False if the caller went away."""
        with self.lock:
            self.reached[gate] = self.reached.get(gate, 0) + 1
            self.lock.notify_all()
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            if gate in self.opened:
                return True
            readable, _, _ = select.select([connection], [], [], 0.01)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return False
        raise Refused(500, f"the gate {gate} was never opened")

    def may_fail(self, model):
        _, times, _ = model.split("-", 2)
        with self.lock:
            seen = self.flaky.get(model, 0)
            self.flaky[model] = seen + 1
        if seen < int(times):
            raise refusal(503)


def handler_of(upstream):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            listed = [{"id": model, "object": "model", "created": 1, "owned_by": "test"} for model in MODELS]
            self.whole(200, {"object": "list", "data": listed})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = upstream.record(body)
            try:
                check(body)
                answer = self.answer(body)
                if body.get("stream"):
                    self.stream(body, answer)
                else:
                    self.whole(200, completion(body, answer))
            except Refused as refused:
                wait = {"retry-after": "7"} if refused.status == 429 else {}
                self.whole(refused.status, {"error": refused.error}, wait)
            except Gone:
                self.close_connection = True
                with upstream.lock:
                    prompt["gone"] = True
                    upstream.lock.notify_all()

        def answer(self, body):
            """A message, or a generator of its text."""
            model, last = body["model"], body["messages"][-1]
            if model.startswith("status-"):
                raise refusal(int(model.removeprefix("status-")))
            if model == "too-long":
                raise Refused(
                    400,
                    "This model's maximum context length is 10 tokens.",
                    code="context_length_exceeded",
                    param="messages",
                )
            if model.startswith("flaky-"):
                upstream.may_fail(model)
            if model.startswith("gate-"):
                return self.gated(model.removeprefix("gate-"))
            if model in ("tool", "call") and (result := last_result(body["messages"])):
                return text(f"result: {said(result)}")
            if model == "tool":
                return call(body["tools"][0]["function"]["name"], {"a": 2, "b": 3})
            if model == "call":
                name, arguments = said(last).split(" ", 1)
                return call(name, json.loads(arguments))
            if model == "json":
                return person(body)
            return text(f"said: {said(last)}")

        def gated(self, gate):
            yield "begun"
            if not upstream.wait_at(gate, self.connection):
                raise Gone
            yield " done"

        def whole(self, status, body, headers=()):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def stream(self, body, answer):
            self.close_connection = True
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for chunk in chunks(body, answer):
                    self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                raise Gone from None

    return Handler


class Gone(Exception):
    """The caller went away in the middle."""


def last_result(messages):
    """The result of a tool that nobody has answered yet. An image of it may follow as a user message."""
    for message in reversed(messages):
        if message["role"] == "tool":
            return message
        if message["role"] == "assistant":
            return None
    return None


def refusal(status):
    kind, code = REFUSALS[status]
    return Refused(status, f"refused with {status}", kind, code)


def text(content):
    return {"role": "assistant", "content": content}


def call(name, arguments):
    # Spaces as no serialiser puts them: a client that writes the arguments anew sends other bytes back.
    function = {"name": name, "arguments": json.dumps(arguments, separators=(" , ", ":"))}
    made = {"id": f"call_{time.monotonic_ns():x}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def person(body):
    kind = (body.get("response_format") or {}).get("type")
    if kind in ("json_object", "json_schema"):
        return text(json.dumps(PERSON))
    if body.get("tools") and body.get("tool_choice", "auto") != "auto":
        return call(body["tools"][0]["function"]["name"], PERSON)
    raise Refused(400, "nobody asked for JSON", param="response_format")


def completion(body, answer):
    message = answer if isinstance(answer, dict) else text("".join(answer))
    choice = {"index": 0, "message": message, "finish_reason": finish(message), "logprobs": None}
    return {**head("chat.completion", body), "choices": [choice], "usage": USAGE}


def chunks(body, answer):
    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return {**head("chat.completion.chunk", body), "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    reason = "stop"
    if not isinstance(answer, dict):
        yield from (chunk({"content": piece}) for piece in answer)
    elif "tool_calls" in answer:
        reason = "tool_calls"
        made = answer["tool_calls"][0]
        name, arguments = made["function"]["name"], made["function"]["arguments"]
        begun = {"index": 0, **made, "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for piece in (arguments[:4], arguments[4:]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    else:
        words = answer["content"].split(" ")
        yield from (chunk({"content": word if n == 0 else f" {word}"}) for n, word in enumerate(words))
    yield chunk({}, reason)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head("chat.completion.chunk", body), "choices": [], "usage": USAGE}


USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def head(kind, body):
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body["model"]}


def finish(message):
    return "tool_calls" if "tool_calls" in message else "stop"


def said(message):
    """The text of a message; of an image, its type and size."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return " ".join(part["text"] if part["type"] == "text" else image(part) for part in content)


def image(part):
    kind, _, data = part["image_url"]["url"].removeprefix("data:").partition(";base64,")
    return f"[{kind} {len(base64.b64decode(data, validate=True))} bytes]"


def check(body):
    """Refuses what OpenAI refuses, and what only the gateway could have put in."""
    messages = body.get("messages")
    if not messages:
        raise Refused(400, "'messages' is missing or empty", param="messages")
    for name in FOREIGN & set(body):
        raise Refused(400, f"Unrecognized request argument supplied: {name}", param=name)
    open_calls = {}
    for n, message in enumerate(messages):
        at = f"messages.[{n}]"
        for name in FOREIGN & set(message):
            raise Refused(400, f"Additional properties are not allowed: {name}", param=f"{at}.{name}")
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise Refused(400, f"unknown role {role}", param=f"{at}.role")
        if role == "tool":
            if open_calls.pop(message.get("tool_call_id"), None) is None:
                raise Refused(400, "a 'tool' message must follow the call it answers", param=at)
        elif open_calls:
            raise Refused(400, f"no 'tool' message answers {sorted(open_calls)}", param=at)
        for made in message.get("tool_calls") or []:
            json.loads(made["function"]["arguments"])
            open_calls[made["id"]] = made
        check_content(message, role, at)
    if open_calls:
        raise Refused(400, f"no 'tool' message answers {sorted(open_calls)}", param="messages")


def check_content(message, role, at):
    content = message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            raise Refused(400, "expected a string, got null", param=f"{at}.content")
    elif isinstance(content, list):
        if not content:
            raise Refused(400, "expected a part, got none", param=f"{at}.content")
        allowed = ("text", "image_url") if role == "user" else ("text",)
        for part in content:
            if part.get("type") not in allowed:
                raise Refused(400, f"no {part.get('type')} here", param=f"{at}.content")
    elif not isinstance(content, str):
        raise Refused(400, "expected a string or parts", param=f"{at}.content")
