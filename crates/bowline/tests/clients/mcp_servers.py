"""MCP servers behind the gateway: one made with each official SDK, and public ones. A model calls their tools."""

import json
import pathlib
from importlib.metadata import version

import openai

from habits import PICTURE_URL
from world import Report, World, brief, fetch, same, until

WORLD = World()
SDKS = ("python", "node1", "node2")
SERVERS = (*SDKS, "everything", "everything-http", "files", "time")
HERE = pathlib.Path(__file__).resolve().parent


def servers():
    return {server["name"]: server for server in fetch(f"{WORLD.gateway}/v1/mcp/servers", None, WORLD.key)["servers"]}


def all_up():
    found = servers()
    return all(found[name]["status"] == "up" for name in SERVERS)


class Turn:
    """One call of a tool by the model, in a session of its own."""

    def __init__(self, tool, **given):
        self.session, token = WORLD.new_session()
        WORLD.control("reset")
        client = openai.OpenAI(base_url=WORLD.url, api_key=token, max_retries=0, timeout=60)
        asked = [{"role": "user", "content": f"mcp_{tool} {json.dumps(given)}"}]
        answer = client.chat.completions.create(model="call", messages=asked)
        self.answer = answer.choices[0].message.content
        self.prompt = WORLD.prompts()[-1]["messages"]

    def has(self, *words):
        for word in words:
            assert word in self.answer, f"{word!r} is not in {self.answer!r}"
        roles = [message["role"] for message in WORLD.log(self.session)]
        same(roles, ["user", "assistant", "tool", "assistant"])

    def images(self):
        parts = [part for message in self.prompt if isinstance(message["content"], list) for part in message["content"]]
        return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def every_server(report, name):
    with report.habit(name, "a tool"):
        Turn(f"{name}_add", a=2, b=3).has("5")
    with report.habit(name, "an image reaches the model"):
        turn = Turn(f"{name}_picture")
        turn.has("one pixel")
        same(turn.images(), [PICTURE_URL])
    with report.habit(name, "an error is told to the model"):
        Turn(f"{name}_fail").has("it cannot be done")


def public_servers(report):
    for name in ("everything", "everything-http"):
        with report.habit(f"server-{name}", "tools"):
            Turn(f"{name}_echo", message="hello").has("Echo: hello")
            Turn(f"{name}_get-sum", a=2, b=3).has("5")
            Turn(f"{name}_get-structured-content", location="New York").has("temperature", "conditions")
        with report.habit(f"server-{name}", "an image reaches the model"):
            turn = Turn(f"{name}_get-tiny-image")
            turn.has("The image above is the MCP logo.")
            same([url[:22] for url in turn.images()], ["data:image/png;base64,"])
        with report.habit(f"server-{name}", "progress, and a result after it"):
            Turn(f"{name}_trigger-long-running-operation", duration=0.2, steps=2).has("completed")
    with report.habit("server-filesystem", "tools"):
        Turn("files_read_text_file", path=str(HERE / "served.py")).has("Adds two numbers.")
        Turn("files_list_directory", path=str(HERE)).has("[FILE] served.py")
    with report.habit("server-filesystem", "an error is told to the model"):
        Turn("files_read_text_file", path="/etc/passwd").has("Access denied")
    with report.habit("mcp-server-time", "tools"):
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        Turn("time_convert_time", **asked).has("T21:00:00", "+9")


def main():
    report = Report("MCP servers", f"mcp {version('mcp')}, mcp-server-time {version('mcp-server-time')}", WORLD)
    with report.habit("all", "they start and list their tools"):
        until(all_up)
        counts = {name: len(server["tools"]) for name, server in servers().items()}
        same({name: counts[name] for name in SDKS}, dict.fromkeys(SDKS, 3))
        assert all(counts.values()), counts
    for name in SDKS:
        every_server(report, name)
    public_servers(report)
    with report.habit("all", "they are there again after kill 9"):
        WORLD.control("kill")
        WORLD.control("start")
        until(all_up)
        for name in SDKS:
            Turn(f"{name}_add", a=2, b=3).has("5")
    with report.habit("all", "calls that pass through are not touched"):
        client = openai.OpenAI(base_url=WORLD.url, api_key=WORLD.key, max_retries=0)
        client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "one"}])
        (prompt,) = WORLD.prompts()
        same(([brief(message) for message in prompt["messages"]], prompt.get("tools")), (["user: one"], None))
    report.end()


main()
