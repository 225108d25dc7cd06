"""Async clients in a program that is not: one event loop for the whole program."""

import asyncio

LOOP = asyncio.new_event_loop()
run = LOOP.run_until_complete


def steps(generator):
    """An async generator as a plain one. Closing it closes the other."""
    asked, given = asyncio.Queue(), asyncio.Queue()

    # All of it in one task, as its own program would have it.
    async def drive():
        try:
            while await asked.get():
                given.put_nowait((await anext(generator), None))
        except Exception as error:
            given.put_nowait((None, error))
        finally:
            await generator.aclose()

    task = LOOP.create_task(drive())
    try:
        while True:
            asked.put_nowait(True)
            piece, error = run(given.get())
            if isinstance(error, StopAsyncIteration):
                return
            if error:
                raise error
            yield piece
    finally:
        asked.put_nowait(False)
        run(task)
