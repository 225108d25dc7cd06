"""An MCP host made with the official SDK: does what it is told and prints what it got, as JSON.

usage: mcp_client.py http URL BEARER MODE STEPS | mcp_client.py stdio COMMAND MODE STEPS
BEARER may be empty; COMMAND is a JSON list. STEPS is a JSON list of ["list"], ["resources"], ["templates"],
["read", URI], ["instructions"], [TOOL, ARGUMENTS], and ["meet", A, B]: make file A, wait for B.
"""

import asyncio
import json
import pathlib
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def pages(list_page, name):
    items, cursor = [], None
    while True:
        page = await list_page(cursor=cursor)
        items += getattr(page, name)
        cursor = page.next_cursor
        if not cursor:
            return [item.model_dump(mode="json", by_alias=True) for item in items]


async def run(target, mode, steps):
    got = []
    async with Client(target, mode=mode, cache=None) as client:
        for step in steps:
            if step[0] == "meet":
                pathlib.Path(step[1]).touch()
                while not pathlib.Path(step[2]).exists():
                    await asyncio.sleep(0.01)
                continue
            if step == ["list"]:
                got.append(await pages(client.list_tools, "tools"))
                continue
            if step == ["resources"]:
                got.append(await pages(client.list_resources, "resources"))
                continue
            if step == ["templates"]:
                got.append(await pages(client.list_resource_templates, "resource_templates"))
                continue
            if step == ["instructions"]:
                got.append(client.instructions)
                continue
            try:
                if step[0] == "read":
                    result = await client.read_resource(step[1])
                else:
                    result = await client.call_tool(step[0], step[1])
                got.append(result.model_dump(mode="json", by_alias=True))
            except Exception as error:
                got.append({"refused": str(error)})
    return got


async def main():
    kind, *rest = sys.argv[1:]
    if kind == "http":
        url, bearer, mode, steps = rest
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            target = streamable_http_client(url, http_client=http)
            return await run(target, mode, json.loads(steps))
    command, mode, steps = rest
    command = json.loads(command)
    target = StdioServerParameters(command=command[0], args=command[1:])
    return await run(target, mode, json.loads(steps))


def leaves(error):
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


try:
    print(json.dumps(asyncio.run(main())))
except BaseException as error:
    print(json.dumps({"failed": [repr(leaf) for leaf in leaves(error)]}))
