// The OpenAI SDK for Node.js.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { VERSION } from "openai/version";
import { z } from "zod";

import { Habits } from "./habits.mjs";
import { same } from "./world.mjs";

const ADD = {
  type: "function",
  function: {
    name: "add",
    description: "Adds two numbers.",
    parameters: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      required: ["a", "b"],
      additionalProperties: false,
    },
    strict: true,
  },
};

function result(call) {
  const { a, b } = JSON.parse(call.function.arguments);
  return { role: "tool", tool_call_id: call.id, content: String(a + b) };
}

class Conversation {
  static ERRORS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
  };

  constructor({ url, key, model, system, retries, timeout, sbp }) {
    this.client = new OpenAI({ baseURL: url, apiKey: key, maxRetries: retries, timeout });
    this.model = model;
    this.history = system ? [{ role: "system", content: system }] : [];
    this.extra = sbp ? { sbp } : {};
  }

  async create(content, model, options) {
    const messages = content ? [...this.history, { role: "user", content }] : this.history;
    const made = await this.client.chat.completions.create({
      model: model ?? this.model,
      messages,
      ...this.extra,
      ...options,
    });
    // A call that failed leaves nothing in the history.
    this.history = messages;
    return made;
  }

  async ask(content, model, options) {
    const { message } = (await this.create(content, model, options)).choices[0];
    this.history.push(message);
    return message.content;
  }

  async *stream(text, model) {
    let answer = "";
    for await (const chunk of await this.create(text, model, { stream: true })) {
      const piece = chunk.choices[0]?.delta.content;
      if (piece) {
        answer += piece;
        yield piece;
      }
    }
    this.history.push({ role: "assistant", content: answer });
  }

  askImage(text, url) {
    return this.ask([
      { type: "text", text },
      { type: "image_url", image_url: { url } },
    ]);
  }

  async askTools(text, model) {
    const { message } = (await this.create(text, model, { tools: [ADD] })).choices[0];
    this.history.push(message, ...message.tool_calls.map(result));
    return this.ask(null, model, { tools: [ADD] });
  }

  async streamTools(text, model) {
    this.history.push({ role: "user", content: text });
    const called = await this.streamed(model);
    this.history.push(called, ...called.tool_calls.map(result));
    const answered = await this.streamed(model);
    this.history.push(answered);
    return answered.content;
  }

  // With the SDK's own helper that puts the pieces together.
  async streamed(model) {
    const asked = { model, messages: this.history, tools: [ADD], ...this.extra };
    return (await this.client.chat.completions.stream(asked).finalChatCompletion()).choices[0].message;
  }

  // JSON mode, and structured output by a schema.
  async askJson(text) {
    const plain = JSON.parse(await this.ask(text, null, { response_format: { type: "json_object" } }));
    const parsed = await this.client.chat.completions.parse({
      model: this.model,
      messages: [{ role: "user", content: text }],
      response_format: zodResponseFormat(z.object({ name: z.string(), age: z.number() }), "person"),
    });
    same(parsed.choices[0].message.parsed, plain);
    return plain;
  }

  async models() {
    const names = [];
    for await (const { id } of this.client.models.list()) names.push(id);
    return names;
  }

  static problem(error) {
    return {
      class: error.constructor.name,
      status: error.status,
      code: error.code,
      retry_after: error.headers?.get("retry-after"),
    };
  }
}

await new Habits(Conversation, "openai (Node.js)", VERSION).run();
