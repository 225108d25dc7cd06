"""The OpenAI Agents SDK on chat completions."""

from importlib.metadata import version

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

from habits import Client, Habits
from openai_python import Conversation as OpenAI
from steps import run, steps

set_tracing_disabled(True)


class Person(BaseModel):
    name: str
    age: int


@function_tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Conversation(Client):
    ERRORS = OpenAI.ERRORS

    def __init__(self, url, *, key, model, system, retries, timeout, sbp):
        self.client = AsyncOpenAI(base_url=url, api_key=key, max_retries=retries, timeout=timeout)
        self.model, self.system, self.history = model, system, []
        self.settings = ModelSettings(extra_body={"sbp": sbp} if sbp else None)

    def agent(self, model=None, **options):
        chat = OpenAIChatCompletionsModel(model=model or self.model, openai_client=self.client)
        return Agent(name="test", instructions=self.system, model=chat, model_settings=self.settings, **options)

    def ask(self, content, model=None, **options):
        asked = [*self.history, {"role": "user", "content": content}]
        done = run(Runner.run(self.agent(model, **options), asked))
        self.history = done.to_input_list()
        return done.final_output

    def stream(self, text, model=None):
        return steps(self.pieces(text, model))

    async def pieces(self, text, model, **options):
        asked = [*self.history, {"role": "user", "content": text}]
        done = Runner.run_streamed(self.agent(model, **options), asked)
        try:
            async for event in done.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta
        finally:
            done.cancel()
        self.history = done.to_input_list()

    def ask_image(self, text, url):
        return self.ask(
            [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url, "detail": "auto"}]
        )

    def ask_tools(self, text, model):
        return self.ask(text, model, tools=[add])

    def stream_tools(self, text, model):
        return "".join(steps(self.pieces(text, model, tools=[add])))

    def ask_json(self, text):
        return self.ask(text, output_type=Person).model_dump()

    def close(self):
        run(self.client.close())

    problem = staticmethod(OpenAI.problem)


if __name__ == "__main__":
    Habits(Conversation, "openai-agents", version("openai-agents")).run()
