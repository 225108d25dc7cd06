"""pydantic-ai with its OpenAI chat model."""

import base64
from importlib.metadata import version

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from habits import Client, Habits
from steps import run, steps
from world import same


class Person(BaseModel):
    name: str
    age: int


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Conversation(Client):
    ERRORS = {
        400: "ModelRequestRejectedError",
        401: "ModelAuthenticationError",
        403: "ModelAuthenticationError",
        404: "ModelNotFoundError",
        429: "ModelRateLimitError",
        "context_length_exceeded": "ModelContextWindowExceededError",
    }

    def __init__(self, url, *, key, model, system, retries, timeout, sbp):
        self.client = AsyncOpenAI(base_url=url, api_key=key, max_retries=retries, timeout=timeout)
        self.model, self.system, self.history = model, system, []
        self.settings = {"extra_body": {"sbp": sbp}} if sbp else None

    def agent(self, model=None, **options):
        provider = OpenAIProvider(openai_client=self.client)
        chat = OpenAIChatModel(model or self.model, provider=provider, settings=self.settings)
        return Agent(chat, instructions=self.system, retries=0, **options)

    def ask(self, content, model=None, **options):
        done = run(self.agent(model, **options).run(content, message_history=self.history))
        self.history = done.all_messages()
        return done.output

    def stream(self, text, model=None):
        return steps(self.pieces(text, model))

    async def pieces(self, text, model, **options):
        async with self.agent(model, **options).run_stream(text, message_history=self.history) as done:
            async for piece in done.stream_text(delta=True, debounce_by=None):
                if piece:
                    yield piece
            self.history = done.all_messages()

    def ask_image(self, text, url):
        data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
        return self.ask([text, BinaryContent(data, media_type="image/png")])

    def ask_tools(self, text, model):
        return self.ask(text, model, tools=[add])

    def stream_tools(self, text, model):
        return "".join(steps(self.pieces(text, model, tools=[add])))

    def ask_json(self, text):
        """By a tool, which is its default, and by a schema."""
        by_tool = self.ask(text, output_type=Person).model_dump()
        self.history = []
        by_schema = self.ask(text, output_type=NativeOutput(Person)).model_dump()
        same(by_tool, by_schema)
        return by_schema

    def close(self):
        run(self.client.close())

    @staticmethod
    def problem(error):
        wait = None if error.retry_after is None else f"{error.retry_after:g}"
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.body.get("code"),
            "retry_after": wait,
        }


if __name__ == "__main__":
    Habits(Conversation, "pydantic-ai", version("pydantic-ai-slim")).run()
