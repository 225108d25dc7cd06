"""The OpenAI SDK for Python."""

import json

import openai
from pydantic import BaseModel

from habits import Client, Habits
from world import same

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Person(BaseModel):
    name: str
    age: int


def result(call):
    given = json.loads(call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])}


class Conversation(Client):
    CANNOT = {}
    ERRORS = {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        429: "RateLimitError",
    }

    def __init__(self, url, *, key, model, system, retries, timeout, sbp):
        self.client = openai.OpenAI(base_url=url, api_key=key, max_retries=retries, timeout=timeout)
        self.model = model
        self.history = [{"role": "system", "content": system}] if system else []
        self.extra = {"extra_body": {"sbp": sbp}} if sbp else {}

    def create(self, content, model=None, **options):
        asked = [*self.history, {"role": "user", "content": content}] if content else self.history
        made = self.client.chat.completions.create(model=model or self.model, messages=asked, **self.extra, **options)
        # A call that failed leaves nothing in the history.
        self.history = asked
        return made

    def ask(self, text, model=None):
        message = self.create(text, model).choices[0].message
        self.history.append(message)
        return message.content

    def stream(self, text, model=None):
        answer = ""
        with self.create(text, model, stream=True) as stream:
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    answer += chunk.choices[0].delta.content
                    yield chunk.choices[0].delta.content
        self.history.append({"role": "assistant", "content": answer})

    def ask_image(self, text, url):
        return self.ask([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}])

    def ask_tools(self, text, model):
        message = self.create(text, model, tools=[ADD]).choices[0].message
        self.history += [message, *map(result, message.tool_calls)]
        message = self.create(None, model, tools=[ADD]).choices[0].message
        self.history.append(message)
        return message.content

    def stream_tools(self, text, model):
        self.history.append({"role": "user", "content": text})
        message = self.streamed(model)
        self.history += [message, *map(result, message.tool_calls)]
        message = self.streamed(model)
        self.history.append(message)
        return message.content

    def streamed(self, model):
        """With the SDK's own helper that puts the pieces together."""
        completions = self.client.chat.completions
        with completions.stream(model=model, messages=self.history, tools=[ADD], **self.extra) as stream:
            return stream.get_final_completion().choices[0].message

    def ask_json(self, text):
        """JSON mode, and structured output by a schema."""
        plain = json.loads(self.create(text, response_format={"type": "json_object"}).choices[0].message.content)
        asked = [{"role": "user", "content": text}]
        parsed = self.client.chat.completions.parse(model=self.model, messages=asked, response_format=Person)
        same(parsed.choices[0].message.parsed.model_dump(), plain)
        return plain

    def models(self):
        return [model.id for model in self.client.models.list()]

    def close(self):
        self.client.close()

    @staticmethod
    def problem(error):
        wait = error.response.headers.get("retry-after")
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "retry_after": wait,
        }


if __name__ == "__main__":
    Habits(Conversation, "openai (Python)", openai.__version__).run()
