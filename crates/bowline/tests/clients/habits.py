"""What people do with a chat client, done with each client in its own way.

A client program has a class with these methods; a conversation keeps its history as that client's users do.

    Conversation(url, *, key, model, system, retries, timeout, sbp)
    ask(text, model=None)             the answer's text
    stream(text, model=None)          a generator of the answer's text; closing it closes the stream
    ask_image(text, url)              with an image as a data URL
    ask_tools(text, model)            with a tool `add`, its result sent back; the last answer
    stream_tools(text, model)         the same, with streams
    ask_json(text)                    structured output; a dictionary
    models()                          the names of the models
    close()
    problem(error)                    {"class", "status", "code", "retry_after"} of an exception

It inherits from `Client`, and says there what its client cannot do.
"""

import base64
import struct
import threading
import zlib

from world import Report, World, brief, same, until

SYSTEM = "You are brief."


def picture():
    """The smallest PNG: one pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


PICTURE = picture()
PICTURE_URL = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
PICTURE_SEEN = f"[image/png {len(PICTURE)} bytes]"

# Larger than any request without images may be.
LARGE = PICTURE + bytes(5 << 20)
LARGE_URL = "data:image/png;base64," + base64.b64encode(LARGE).decode()
LARGE_SEEN = f"[image/png {len(LARGE)} bytes]"


class Client:
    # Habits that the client does not have, and why. `sbp`: it cannot add a field to the body.
    CANNOT = {"models": "it has no list of models"}
    # What its exceptions do not tell.
    UNTOLD = ()
    # Its exception for each status, or code.
    ERRORS = {}

    def models(self):
        raise NotImplementedError

    def close(self):
        pass


class Habits:
    def __init__(self, conversation, client, version):
        self.world = World()
        self.make = conversation
        self.report = Report(client, version, self.world)
        self.gates = 0

    def run(self):
        for mode in ("session", "pass-through"):
            self.mode = mode
            for name in NAMES:
                self.once(name)
        self.mode = "sbp in the body"
        for name in ("plain", "stream", "history"):
            self.once(name)
        self.report.end()

    def once(self, name):
        why = self.make.CANNOT.get(name)
        if self.mode == "sbp in the body":
            why = why or self.make.CANNOT.get("sbp")
        if why:
            return self.report.note(self.mode, name, why)
        with self.report.habit(self.mode, name):
            self.session = self.token = None
            if self.mode != "pass-through":
                self.session, self.token = self.world.new_session()
            getattr(self, name.replace(" ", "_"))()

    def begin(self, model="echo", **options):
        given = {"key": self.world.key, "system": None, "retries": 0, "timeout": 60, "sbp": None}
        if self.mode == "session":
            given["key"] = self.token
        if self.mode == "sbp in the body":
            given["sbp"] = {"session_id": self.session}
        return self.make(self.world.url, model=model, **{**given, **options})

    def gate(self):
        self.gates += 1
        return f"{self.mode}-{self.gates}".replace(" ", "-")

    def logged(self, *wanted):
        """In a session: its log is exactly this."""
        if self.session:
            self.world.until_log(self.session, len(wanted))
            same([brief(message) for message in self.world.log(self.session)], list(wanted))

    def prompted(self, *wanted):
        """The last prompt of the model server is exactly this."""
        same([brief(message) for message in self.world.prompts()[-1]["messages"]], list(wanted))

    # The habits.

    def plain(self):
        before = self.world.sessions()
        same(self.begin().ask("one"), "said: one")
        self.logged("user: one", "assistant: said: one")
        same(self.world.sessions(), before)

    def stream(self):
        same("".join(self.begin().stream("one two three")), "said: one two three")
        self.logged("user: one two three", "assistant: said: one two three")

    def history(self):
        self.four_turns(None)

    def history_with_a_system_prompt(self):
        self.four_turns(SYSTEM)

    def four_turns(self, system):
        conversation = self.begin(system=system)
        first = [f"system: {system}"] if system else []
        said = []
        for text in ("one", "two", "three", "four"):
            same(conversation.ask(text), f"said: {text}")
            said.append(f"user: {text}")
            self.prompted(*first, *said)
            said.append(f"assistant: said: {text}")
        self.logged(*first, *said)

    def mixed_history(self):
        """Each kind of answer comes back as history: text, streamed text, a tool call."""
        conversation = self.begin()
        same(conversation.ask("one"), "said: one")
        same("".join(conversation.stream("two")), "said: two")
        same(conversation.ask_tools("add 2 and 3", "tool"), "result: 5")
        same(conversation.ask("four"), "said: four")
        said = ["user: one", "assistant: said: one", "user: two", "assistant: said: two"]
        said += ["user: add 2 and 3", "assistant: [calls add]", "tool: 5", "assistant: result: 5", "user: four"]
        self.prompted(*said)
        self.logged(*said, "assistant: said: four")

    def tools(self):
        same(self.begin().ask_tools("add 2 and 3", "tool"), "result: 5")
        said = ["user: add 2 and 3", "assistant: [calls add]", "tool: 5"]
        self.prompted(*said)
        same(len(self.world.prompts()), 2)
        self.logged(*said, "assistant: result: 5")

    def streamed_tools(self):
        conversation = self.begin()
        same(conversation.stream_tools("add 2 and 3", "tool"), "result: 5")
        same("".join(conversation.stream("two")), "said: two")
        said = ["user: add 2 and 3", "assistant: [calls add]", "tool: 5", "assistant: result: 5", "user: two"]
        self.prompted(*said)
        self.logged(*said, "assistant: said: two")

    def vision(self):
        conversation = self.begin()
        same(conversation.ask_image("look", PICTURE_URL), f"said: look {PICTURE_SEEN}")
        same(conversation.ask_image("closely", LARGE_URL), f"said: closely {LARGE_SEEN}")
        same(conversation.ask("again"), "said: again")
        said = ["user: look [image_url]", f"assistant: said: look {PICTURE_SEEN}"]
        said += ["user: closely [image_url]", f"assistant: said: closely {LARGE_SEEN}", "user: again"]
        self.prompted(*said)
        shown = [part for part in self.world.prompts()[-1]["messages"][-3]["content"] if part["type"] != "text"]
        same(len(shown[0]["image_url"]["url"]), len(LARGE_URL))
        self.logged(*said, "assistant: said: again")

    def structured_output(self):
        same(self.begin("json").ask_json("who"), {"name": "Anna", "age": 41})
        said = self.world.prompts()[-1]
        assert said.get("response_format") or said.get("tools"), said

    def models(self):
        same([name for name in self.begin().models() if name in MODELS], MODELS)

    def errors(self):
        """The client's own exception, with the status and code of the model server or the gateway."""
        told, wanted = [], []
        for model, status, code in ERRORS:
            conversation = self.begin(model)
            if model == "wrong key":
                conversation = self.begin("echo", key="sk-wrong", sbp=None)
            told.append((model, self.problem(lambda: conversation.ask("one"))))
            wanted.append((model, self.expected(status, code)))
            conversation.close()
        same(told, wanted)
        self.logged()
        same(self.begin().ask("fine"), "said: fine")
        self.logged("user: fine", "assistant: said: fine")

    def errors_of_a_stream(self):
        told = self.problem(lambda: "".join(self.begin("too-long").stream("one")))
        same(told, self.expected(400, "context_length_exceeded"))

    def expected(self, status, code):
        wait = {"retry_after": "7"} if status == 429 else {}
        name = self.make.ERRORS.get(code) or self.make.ERRORS[status]
        expected = {"class": name, "status": status, "code": code, **wait}
        return {name: value for name, value in expected.items() if name not in self.make.UNTOLD}

    def problem(self, act):
        try:
            answer = act()
        except Exception as error:
            told = self.make.problem(error)
            untold = {*self.make.UNTOLD, *(() if told["status"] == 429 else ("retry_after",))}
            return {name: value for name, value in told.items() if name not in untold}
        raise AssertionError(f"no error, but {answer!r}")

    def cancel(self):
        gate = self.gate()
        conversation = self.begin(f"gate-{gate}")
        stream = conversation.stream("one")
        same(next(stream), "begun")
        assert self.world.control("reached", gate=gate)
        stream.close()
        conversation.close()
        if self.session is None:
            # Nobody waits for the answer: the model server is told so.
            assert self.world.control("gone"), "the model server was not told"
            return
        self.world.control("open", gate=gate)
        self.world.until_log(self.session, 2)
        self.logged("user: one", "assistant: begun done")
        same(self.begin().ask("two"), "said: two")
        self.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two")

    def retry_after_503(self):
        conversation = self.begin(f"flaky-1-{self.gate()}", retries=2)
        same(conversation.ask("one"), "said: one")
        same(len(self.world.prompts()), 2)
        self.logged("user: one", "assistant: said: one")
        self.prompted("user: one")
        same(conversation.ask("two"), "said: two")
        self.logged("user: one", "assistant: said: one", "user: two", "assistant: said: two")

    def retry_after_a_timeout(self):
        """The gate opens when the client has asked again: one turn, and the second request gets its answer."""
        self.asks_again("requests", times=2)

    def retry_of_a_finished_turn(self):
        """The gate opens when the client has gone: the turn may be over before it asks again."""
        self.asks_again("left")

    def asks_again(self, condition, **asked):
        gate = self.gate()
        conversation = self.begin(f"gate-{gate}", retries=5, timeout=1)
        opener = threading.Thread(
            target=lambda: self.world.control(condition, **asked) and self.world.control("open", gate=gate)
        )
        opener.start()
        same(conversation.ask("one"), "begun done")
        opener.join()
        self.logged("user: one", "assistant: begun done")
        if self.session:
            same(len(self.world.prompts()), 1)
        same(conversation.ask("two", "echo"), "said: two")
        self.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two")

    def after_a_device_left(self):
        if self.session is None:
            return self.plain()
        conversation = self.begin()
        same(conversation.ask("one"), "said: one")
        self.device_leaves()
        same(conversation.ask("two"), "said: two")
        self.device_leaves()
        same("".join(conversation.stream("three")), "said: three")
        said = [f"{who} {n}" for n in ("one", "two", "three") for who in ("user:", "assistant: said:")]
        self.logged(*said)

    def device_leaves(self):
        self.world.control("visit", session=self.session, token=self.token)
        until(lambda: self.world.session(self.session)["status"] == "suspended")

    def after_kill_9(self):
        gate = self.gate()
        conversation = self.begin(f"gate-{gate}")
        stream = conversation.stream("one")
        same(next(stream), "begun")
        assert self.world.control("reached", gate=gate)
        self.world.control("kill")
        try:
            rest = "".join(stream)
        except Exception:
            pass
        else:
            raise AssertionError(f"the end of a cut stream looks like a good one: {rest!r}")
        finally:
            self.world.control("open", gate=gate)
            self.world.control("start")
        same(self.begin().ask("two"), "said: two")
        self.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two")


# What the model server lists.
MODELS = ["echo", "tool", "json"]

ERRORS = [
    ("status-400", 400, "invalid_value"),
    ("status-404", 404, "model_not_found"),
    ("status-429", 429, "rate_limit_exceeded"),
    ("too-long", 400, "context_length_exceeded"),
    ("status-401", 401, "invalid_api_key"),
    ("wrong key", 403, "SBP_FORBIDDEN"),
]

NAMES = [
    "plain",
    "stream",
    "history",
    "history with a system prompt",
    "mixed history",
    "tools",
    "streamed tools",
    "vision",
    "structured output",
    "models",
    "errors",
    "errors of a stream",
    "cancel",
    "retry after 503",
    "retry after a timeout",
    "retry of a finished turn",
    "after a device left",
    "after kill 9",
]
