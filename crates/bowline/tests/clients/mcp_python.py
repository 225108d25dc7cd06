"""The official MCP SDK for Python as a host of the gateway's /mcp, in both handshakes."""

import asyncio
import json
from importlib.metadata import version

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from world import Report, World, brief, same

WORLD = World()


async def talk(mode, bearer, act):
    headers = {"Authorization": f"Bearer {bearer}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        target = streamable_http_client(f"{WORLD.base}/mcp", http_client=http)
        async with Client(target, mode=mode, cache=None) as client:
            return await act(client)


def text(result):
    assert not result.is_error, result
    return result.content[0].text


async def tools(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    same([name for name in names if name.startswith("session")], ["session_read", "session_send", "sessions_list"])


async def a_session(client):
    said = await client.call_tool("session_send", {"text": "one", "model": "echo"})
    same(text(said), "said: one")
    session = said.structured_content["session_id"]
    said = await client.call_tool("session_send", {"text": "two", "model": "echo", "session_id": session})
    same(text(said), "said: two")
    wanted = ["user: one", "assistant: said: one", "user: two", "assistant: said: two"]
    same([brief(message) for message in WORLD.log(session)], wanted)
    read = json.dumps((await client.call_tool("session_read", {"session_id": session})).structured_content)
    assert all(word in read for word in ("said: one", "said: two")), read


async def mistakes(client):
    unknown = await client.call_tool("session_read", {"session_id": "no id"})
    assert unknown.is_error, unknown
    try:
        await client.call_tool("no_such_tool", {})
    except Exception as error:
        assert "no such tool" in str(error), error
    else:
        raise AssertionError("no error")


def kill_9(mode):
    sessions = []

    async def first(client):
        said = await client.call_tool("session_send", {"text": "one", "model": "echo"})
        sessions.append(said.structured_content["session_id"])
        WORLD.control("kill")
        # A lost connection ends this SDK's client: the error comes out of `talk`.
        await client.call_tool("sessions_list", {})
        raise AssertionError("an answer without a gateway")

    async def second(client):
        given = {"text": "two", "model": "echo", "session_id": sessions[0]}
        same(text(await client.call_tool("session_send", given)), "said: two")

    try:
        asyncio.run(talk(mode, WORLD.key, first))
    except* AssertionError:
        raise
    except* Exception:
        pass
    finally:
        WORLD.control("start")
    asyncio.run(talk(mode, WORLD.key, second))
    same(len(WORLD.log(sessions[0])), 4)


async def only_its_own(client):
    listed = (await client.call_tool("sessions_list", {})).structured_content["sessions"]
    same(len(listed), 1)


def main():
    report = Report("mcp (Python)", version("mcp"), WORLD)
    acts = {"tools": tools, "a session": a_session, "mistakes": mistakes}
    for mode in ("legacy", "auto"):
        for name, act in acts.items():
            with report.habit(mode, name):
                asyncio.run(talk(mode, WORLD.key, act))
        with report.habit(mode, "a session token"):
            WORLD.new_session()
            _, token = WORLD.new_session()
            asyncio.run(talk(mode, token, only_its_own))
        with report.habit(mode, "after kill 9"):
            kill_9(mode)
        report.note(mode, "after kill 9", "this SDK's client ends with its connection; a new one goes on")
        with report.habit(mode, "a wrong key"):
            # The SDK says no more than this.
            try:
                asyncio.run(talk(mode, "sk-wrong", tools))
            except* MCPError as errors:
                same([str(error) for error in leaves(errors)], ["Server returned an error response"])
            else:
                raise AssertionError("a wrong key was let in")
    report.end()


def leaves(error):
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


main()
