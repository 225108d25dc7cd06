"""LiteLLM as a library."""

import json
from importlib.metadata import version

import litellm

from habits import Client, Habits
from openai_python import ADD, result

litellm.suppress_debug_info = True


class Conversation(Client):
    ERRORS = {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "APIError",
        404: "NotFoundError",
        429: "RateLimitError",
        "context_length_exceeded": "ContextWindowExceededError",
    }

    # The code is only in the text of the message.
    UNTOLD = ("code",)

    def __init__(self, url, *, key, model, system, retries, timeout, sbp):
        extra = {"extra_body": {"sbp": sbp}} if sbp else {}
        self.options = {"api_base": url, "api_key": key, "max_retries": retries, "timeout": timeout, **extra}
        self.model = model
        self.history = [{"role": "system", "content": system}] if system else []

    def create(self, content, model=None, **options):
        asked = [*self.history, {"role": "user", "content": content}] if content else self.history
        # `openai/` says which protocol is spoken; the rest is the model's name.
        name = f"openai/{model or self.model}"
        made = litellm.completion(model=name, messages=asked, **self.options, **options)
        self.history = asked
        return made

    def ask(self, content, model=None, **options):
        message = self.create(content, model, **options).choices[0].message
        self.history.append(message)
        return message.content

    def stream(self, text, model=None):
        answer = ""
        stream = self.create(text, model, stream=True)
        try:
            for chunk in stream:
                piece = chunk.choices[0].delta.content
                if piece:
                    answer += piece
                    yield piece
        finally:
            # It has no way to close a stream: leaving the loop and forgetting it does.
            if stream.completion_stream is not None:
                stream.completion_stream.close()
        self.history.append({"role": "assistant", "content": answer})

    def ask_image(self, text, url):
        return self.ask([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}])

    def ask_tools(self, text, model):
        message = self.create(text, model, tools=[ADD]).choices[0].message
        self.history += [message, *map(result, message.tool_calls)]
        return self.ask(None, model, tools=[ADD])

    def stream_tools(self, text, model):
        message = self.streamed(text, model)
        self.history += [message, *map(result, message.tool_calls)]
        message = self.streamed(None, model)
        self.history.append(message)
        return message.content

    def streamed(self, text, model):
        chunks = list(self.create(text, model, tools=[ADD], stream=True))
        return litellm.stream_chunk_builder(chunks).choices[0].message

    def ask_json(self, text):
        return json.loads(self.ask(text, response_format={"type": "json_object"}))

    @staticmethod
    def problem(error):
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "retry_after": (getattr(error, "litellm_response_headers", None) or {}).get("retry-after"),
        }


if __name__ == "__main__":
    Habits(Conversation, "litellm", version("litellm")).run()
