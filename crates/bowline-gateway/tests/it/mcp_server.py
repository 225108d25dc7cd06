"""An MCP server made with the official SDK, for the gateway to use.

usage: mcp_server.py stdio | mcp_server.py http PORT
"""

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("test-server", log_level="ERROR")


def note(file: str, text: str) -> None:
    with open(file, "a") as notes:
        notes.write(text + "\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds
    two numbers."""
    return a + b


@server.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool(name="odd.name/é")
def odd() -> str:
    return "odd"


@server.tool(structured_output=False)
def variables() -> str:
    return " ".join(sorted(os.environ))


@server.tool(structured_output=False)
def header(name: str, context: Context) -> str:
    return context.request_context.request.headers.get(name, "none")


@server.tool()
def fail() -> str:
    raise ToolError("it cannot be done")


@server.tool(structured_output=False)
def huge(size: int) -> str:
    return "x" * size


@server.tool()
async def slow(file: str) -> str:
    note(file, "begun")
    try:
        await asyncio.sleep(120)
    except asyncio.CancelledError:
        note(file, "cancelled")
        raise
    return "slept"


@server.tool()
def crash(file: str) -> str:
    note(file, f"crashed {os.getpid()}")
    os._exit(7)


@server.tool(structured_output=False)
def pid() -> str:
    return str(os.getpid())


@server.tool(structured_output=False)
def child() -> str:
    """Leaves a process behind."""
    import subprocess

    quiet = subprocess.DEVNULL
    left = subprocess.Popen(["sleep", "600"], stdin=quiet, stdout=quiet, stderr=quiet)
    return str(left.pid)


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def mark(file: str) -> str:
    note(file, "marked")
    return "marked"


@server.tool(
    structured_output=False,
    description=os.environ.get("LOOK_ABOUT", "Looks at the weather."),
    annotations=ToolAnnotations(read_only_hint=True),
)
def look() -> str:
    return "sunny"


@server.tool(structured_output=False)
def stamp(file: str) -> str:
    note(file, "stamped")
    return "stamped"


@server.tool(structured_output=False)
async def grow(context: Context) -> str:
    """Has one more tool from now on."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown, structured_output=False)
    await context.session.send_tool_list_changed()
    return "done"


PNG = b"\x89PNG\r\n\x1a\n"


@server.tool(structured_output=False)
def picture(size: int, format: str = "png") -> list:
    """Text and an image."""
    data = (PNG if format == "png" else b"<svg/>").ljust(size, b"\0")
    return ["a picture", Image(data=data, format=format)]


@server.tool(structured_output=False)
async def steps(count: int, pause: float, context: Context) -> str:
    """Takes long, and reports progress."""
    for step in range(count):
        await asyncio.sleep(pause)
        await context.report_progress(step + 1, count)
    return "all done"


class Answer(BaseModel):
    yes: bool


@server.tool(structured_output=False)
async def ask_person(context: Context) -> str:
    answer = await context.elicit("Really?", Answer)
    return answer.action


@server.tool(structured_output=False)
async def ask_model(context: Context) -> str:
    asked = [SamplingMessage(role="user", content=TextContent(type="text", text="hi"))]
    answer = await context.session.create_message(asked, max_tokens=9)
    return str(answer)


@server.tool(structured_output=False)
async def ask_if_possible(context: Context) -> str:
    """Does without an answer."""
    try:
        await context.elicit("Really?", Answer)
    except MCPError as error:
        return f"refused with {error.code}"
    return "answered"


@server.tool(structured_output=False)
def only_as_task() -> str:
    raise MCPError(-32601, "Method not found")


@server.prompt()
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Say hello to {name}."


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """Today's note."""
    return "Buy milk."


@server.resource("note://days/{day}")
def on(day: str) -> str:
    return f"Nothing on {day}."


@server.resource("note://photo", mime_type="image/png")
def photo() -> bytes:
    return PNG


print("noise on standard error", file=sys.stderr)
if sys.argv[1] == "http":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
else:
    server.run("stdio")
