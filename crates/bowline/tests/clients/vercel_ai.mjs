// The Vercel AI SDK with its provider for OpenAI-compatible servers.

import { readFileSync } from "node:fs";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, RetryError, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { Habits } from "./habits.mjs";

const NO_RETRY = "its timeouts end the call; it does not try again after them";

const add = tool({
  description: "Adds two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: ({ a, b }) => a + b,
});

class Conversation {
  static CANNOT = {
    models: "it has no list of models",
    "retry after a timeout": NO_RETRY,
    "retry of a finished turn": NO_RETRY,
  };

  static ERRORS = Object.fromEntries([400, 401, 403, 404, 429].map((status) => [status, "AI_APICallError"]));

  constructor({ url, key, model, system, retries, sbp }) {
    this.provider = createOpenAICompatible({
      name: "bowline",
      baseURL: url,
      apiKey: key,
      supportsStructuredOutputs: true,
    });
    this.model = model;
    this.history = [];
    this.options = { system, maxRetries: retries, providerOptions: sbp && { bowline: { sbp } } };
  }

  asked(content, model, options) {
    this.history = [...this.history, { role: "user", content }];
    return { model: this.provider(model ?? this.model), messages: this.history, ...this.options, ...options };
  }

  async ask(content, model, options) {
    const done = await generateText(this.asked(content, model, options));
    this.history.push(...done.responseMessages);
    return done.text;
  }

  async *stream(text, model, options) {
    const abort = new AbortController();
    let failure;
    const onError = ({ error }) => (failure = error);
    const done = streamText(this.asked(text, model, { abortSignal: abort.signal, onError, ...options }));
    try {
      yield* done.textStream;
      if (failure) throw failure;
      this.history.push(...(await done.responseMessages));
    } finally {
      abort.abort();
    }
  }

  askImage(text, url) {
    return this.ask([
      { type: "text", text },
      { type: "file", mediaType: "image/png", data: url },
    ]);
  }

  askTools(text, model) {
    return this.ask(text, model, { tools: { add }, stopWhen: stepCountIs(3) });
  }

  async streamTools(text, model) {
    let answer = "";
    for await (const piece of this.stream(text, model, { tools: { add }, stopWhen: stepCountIs(3) })) answer += piece;
    return answer;
  }

  async askJson(text) {
    const schema = z.object({ name: z.string(), age: z.number() });
    return (await generateText(this.asked(text, null, { output: Output.object({ schema }) }))).output;
  }

  static problem(error) {
    const told = RetryError.isInstance(error) ? error.lastError : error;
    return {
      class: told.name,
      status: told.statusCode,
      code: told.data?.error?.code,
      retry_after: told.responseHeaders?.["retry-after"],
    };
  }
}

const read = (name) => JSON.parse(readFileSync(`${process.env.NODE_ENV_FOLDER}/node_modules/${name}/package.json`));
const version = `${read("ai").version}, @ai-sdk/openai-compatible ${read("@ai-sdk/openai-compatible").version}`;
await new Habits(Conversation, "ai", version).run();
