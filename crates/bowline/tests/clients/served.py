"""An MCP server made with the official SDK for Python."""

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from habits import PICTURE

server = MCPServer("test", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(structured_output=False)
def picture() -> list:
    """Text and an image."""
    return ["one pixel", Image(data=PICTURE, format="png")]


@server.tool()
def fail() -> str:
    raise ToolError("it cannot be done")


server.run("stdio")
