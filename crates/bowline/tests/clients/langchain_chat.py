"""LangChain's ChatOpenAI."""

import operator
from functools import reduce
from importlib.metadata import version

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from habits import Client, Habits


class Person(BaseModel):
    name: str
    age: int


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Conversation(Client):
    # It looks for context_length_exceeded in the SDK's message, which has no code in it: OpenAI's own refusal is an
    # OpenAIInvalidRequestError with that code, too.
    ERRORS = {
        400: "OpenAIInvalidRequestError",
        401: "OpenAIAuthenticationError",
        403: "OpenAIPermissionDeniedError",
        404: "OpenAIModelNotFoundError",
        429: "OpenAIRateLimitError",
    }

    def __init__(self, url, *, key, model, system, retries, timeout, sbp):
        extra = {"extra_body": {"sbp": sbp}} if sbp else {}
        self.options = {"base_url": url, "api_key": key, "max_retries": retries, "timeout": timeout, **extra}
        self.model = model
        self.history = [SystemMessage(system)] if system else []

    def llm(self, model=None):
        return ChatOpenAI(model=model or self.model, **self.options)

    def ask(self, content, model=None):
        asked = [*self.history, HumanMessage(content)]
        answer = self.llm(model).invoke(asked)
        self.history = [*asked, answer]
        return answer.text

    def stream(self, text, model=None):
        asked = [*self.history, HumanMessage(text)]
        answer = None
        for chunk in self.llm(model).stream(asked):
            answer = chunk if answer is None else answer + chunk
            if chunk.text:
                yield chunk.text
        self.history = [*asked, answer]

    def ask_image(self, text, url):
        data = url.removeprefix("data:image/png;base64,")
        return self.ask([{"type": "text", "text": text}, {"type": "image", "base64": data, "mime_type": "image/png"}])

    def ask_tools(self, text, model):
        llm = self.llm(model).bind_tools([add])
        return self.with_tools(text, llm.invoke)

    def stream_tools(self, text, model):
        llm = self.llm(model).bind_tools([add])
        return self.with_tools(text, lambda asked: reduce(operator.add, llm.stream(asked)))

    def with_tools(self, text, answer_to):
        asked = [*self.history, HumanMessage(text)]
        answer = answer_to(asked)
        asked += [answer, *(add.invoke(call) for call in answer.tool_calls)]
        answer = answer_to(asked)
        self.history = [*asked, answer]
        return answer.text

    def ask_json(self, text):
        return self.llm().with_structured_output(Person).invoke([HumanMessage(text)]).model_dump()

    @staticmethod
    def problem(error):
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "retry_after": error.response.headers.get("retry-after"),
        }


if __name__ == "__main__":
    Habits(Conversation, "langchain-openai", version("langchain-openai")).run()
