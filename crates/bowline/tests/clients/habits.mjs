// What people do with a chat client, done with each client in its own way. The same as habits.py.
//
// A client program has a class with these methods; a conversation keeps its history as that client's users do.
//
//   new Conversation({ url, key, model, system, retries, timeout, sbp })
//   ask(text, model)             the answer's text
//   stream(text, model)          an async generator of the answer's text; ending it closes the stream
//   askImage(text, url)          with an image as a data URL
//   askTools(text, model)        with a tool `add`, its result sent back; the last answer
//   streamTools(text, model)     the same, with streams
//   askJson(text)                structured output; an object
//   models()                     the names of the models
//   static problem(error)        { class, status, code, retry_after } of an exception
//
// `CANNOT` says which habits the client does not have, and why. `ERRORS` has its exception for each status, or code.

import { Report, World, Wrong, brief, same, until } from "./world.mjs";

const SYSTEM = "You are brief.";
// The smallest PNG: one pixel.
export const PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
const PICTURE_URL = `data:image/png;base64,${PICTURE}`;
const PICTURE_SEEN = `[image/png ${Buffer.from(PICTURE, "base64").length} bytes]`;

// Larger than any request without images may be.
const LARGE = Buffer.concat([Buffer.from(PICTURE, "base64"), Buffer.alloc(5 << 20)]);
const LARGE_URL = `data:image/png;base64,${LARGE.toString("base64")}`;
const LARGE_SEEN = `[image/png ${LARGE.length} bytes]`;

// What the model server lists.
const MODELS = ["echo", "tool", "json"];

const ERRORS = [
  ["status-400", 400, "invalid_value"],
  ["status-404", 404, "model_not_found"],
  ["status-429", 429, "rate_limit_exceeded"],
  ["too-long", 400, "context_length_exceeded"],
  ["status-401", 401, "invalid_api_key"],
  ["wrong key", 403, "SBP_FORBIDDEN"],
];

export class Habits {
  constructor(make, client, version) {
    this.world = new World();
    this.make = make;
    this.report = new Report(client, version, this.world);
    this.gates = 0;
  }

  async run() {
    for (this.mode of ["session", "pass-through"]) {
      for (const name of NAMES) await this.once(name);
    }
    this.mode = "sbp in the body";
    for (const name of ["plain", "stream", "history"]) await this.once(name);
    this.report.end();
  }

  async once(name) {
    const cannot = this.make.CANNOT ?? {};
    const why = cannot[name] ?? (this.mode === "sbp in the body" ? cannot.sbp : undefined);
    if (why) return this.report.note(this.mode, name, why);
    await this.report.habit(this.mode, name, async () => {
      [this.session, this.token] = this.mode === "pass-through" ? [] : await this.world.newSession();
      await this[name.replaceAll(" ", "_")]();
    });
  }

  begin(model = "echo", options = {}) {
    const key = this.mode === "session" ? this.token : this.world.key;
    const sbp = this.mode === "sbp in the body" ? { session_id: this.session } : undefined;
    return new this.make({ url: this.world.url, key, model, retries: 0, timeout: 60_000, sbp, ...options });
  }

  gate() {
    this.gates += 1;
    return `${this.mode}-${this.gates}`.replaceAll(" ", "-");
  }

  // In a session: its log is exactly this.
  async logged(...wanted) {
    if (!this.session) return;
    await this.world.untilLog(this.session, wanted.length);
    same((await this.world.log(this.session)).map(brief), wanted);
  }

  // The last prompt of the model server is exactly this.
  async prompted(...wanted) {
    same((await this.world.prompts()).at(-1).messages.map(brief), wanted);
  }

  async plain() {
    const before = await this.world.sessions();
    same(await this.begin().ask("one"), "said: one");
    await this.logged("user: one", "assistant: said: one");
    same(await this.world.sessions(), before);
  }

  async stream() {
    same(await whole(this.begin().stream("one two three")), "said: one two three");
    await this.logged("user: one two three", "assistant: said: one two three");
  }

  history() {
    return this.fourTurns();
  }

  history_with_a_system_prompt() {
    return this.fourTurns(SYSTEM);
  }

  async fourTurns(system) {
    const conversation = this.begin("echo", { system });
    const said = system ? [`system: ${system}`] : [];
    for (const text of ["one", "two", "three", "four"]) {
      same(await conversation.ask(text), `said: ${text}`);
      said.push(`user: ${text}`);
      await this.prompted(...said);
      said.push(`assistant: said: ${text}`);
    }
    await this.logged(...said);
  }

  // Each kind of answer comes back as history: text, streamed text, a tool call.
  async mixed_history() {
    const conversation = this.begin();
    same(await conversation.ask("one"), "said: one");
    same(await whole(conversation.stream("two")), "said: two");
    same(await conversation.askTools("add 2 and 3", "tool"), "result: 5");
    same(await conversation.ask("four"), "said: four");
    const said = ["user: one", "assistant: said: one", "user: two", "assistant: said: two"];
    said.push("user: add 2 and 3", "assistant: [calls add]", "tool: 5", "assistant: result: 5", "user: four");
    await this.prompted(...said);
    await this.logged(...said, "assistant: said: four");
  }

  async tools() {
    same(await this.begin().askTools("add 2 and 3", "tool"), "result: 5");
    const said = ["user: add 2 and 3", "assistant: [calls add]", "tool: 5"];
    await this.prompted(...said);
    same((await this.world.prompts()).length, 2);
    await this.logged(...said, "assistant: result: 5");
  }

  async streamed_tools() {
    const conversation = this.begin();
    same(await conversation.streamTools("add 2 and 3", "tool"), "result: 5");
    same(await whole(conversation.stream("two")), "said: two");
    const said = ["user: add 2 and 3", "assistant: [calls add]", "tool: 5", "assistant: result: 5", "user: two"];
    await this.prompted(...said);
    await this.logged(...said, "assistant: said: two");
  }

  async vision() {
    const conversation = this.begin();
    same(await conversation.askImage("look", PICTURE_URL), `said: look ${PICTURE_SEEN}`);
    same(await conversation.askImage("closely", LARGE_URL), `said: closely ${LARGE_SEEN}`);
    same(await conversation.ask("again"), "said: again");
    const said = ["user: look [image_url]", `assistant: said: look ${PICTURE_SEEN}`];
    said.push("user: closely [image_url]", `assistant: said: closely ${LARGE_SEEN}`, "user: again");
    await this.prompted(...said);
    const prompt = (await this.world.prompts()).at(-1);
    const shown = prompt.messages.at(-3).content.find((part) => part.type === "image_url");
    same(shown.image_url.url.length, LARGE_URL.length);
    await this.logged(...said, "assistant: said: again");
  }

  async structured_output() {
    same(await this.begin("json").askJson("who"), { name: "Anna", age: 41 });
    const prompt = (await this.world.prompts()).at(-1);
    if (!prompt.response_format && !prompt.tools) throw new Wrong(JSON.stringify(prompt));
  }

  async models() {
    same((await this.begin().models()).filter((name) => MODELS.includes(name)), MODELS);
  }

  // The client's own exception, with the status and code of the model server or the gateway.
  async errors() {
    const told = [];
    const wanted = [];
    for (const [model, status, code] of ERRORS) {
      const wrong = model === "wrong key";
      const conversation = wrong ? this.begin("echo", { key: "sk-wrong", sbp: undefined }) : this.begin(model);
      told.push([model, await this.problem(() => conversation.ask("one"))]);
      wanted.push([model, this.expected(status, code)]);
    }
    same(told, wanted);
    await this.logged();
    same(await this.begin().ask("fine"), "said: fine");
    await this.logged("user: fine", "assistant: said: fine");
  }

  async errors_of_a_stream() {
    const told = await this.problem(() => whole(this.begin("too-long").stream("one")));
    same(told, this.expected(400, "context_length_exceeded"));
  }

  expected(status, code) {
    const name = this.make.ERRORS[code] ?? this.make.ERRORS[status];
    return { class: name, status, code, ...(status === 429 && { retry_after: "7" }) };
  }

  async problem(act) {
    let answer;
    try {
      answer = await act();
    } catch (error) {
      const { retry_after, ...told } = this.make.problem(error);
      return { ...told, ...(told.status === 429 && { retry_after }) };
    }
    throw new Wrong(`no error, but ${JSON.stringify(answer)}`);
  }

  async cancel() {
    const gate = this.gate();
    const stream = this.begin(`gate-${gate}`).stream("one");
    same((await stream.next()).value, "begun");
    if (!(await this.world.control("reached", { gate }))) throw new Wrong("the gate was not reached");
    await stream.return();
    if (!this.session) {
      // Nobody waits for the answer: the model server is told so.
      if (!(await this.world.control("gone"))) throw new Wrong("the model server was not told");
      return;
    }
    await this.world.control("open", { gate });
    await this.logged("user: one", "assistant: begun done");
    same(await this.begin().ask("two"), "said: two");
    await this.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two");
  }

  async retry_after_503() {
    const conversation = this.begin(`flaky-1-${this.gate()}`, { retries: 2 });
    same(await conversation.ask("one"), "said: one");
    same((await this.world.prompts()).length, 2);
    await this.logged("user: one", "assistant: said: one");
    await this.prompted("user: one");
    same(await conversation.ask("two"), "said: two");
    await this.logged("user: one", "assistant: said: one", "user: two", "assistant: said: two");
  }

  // The gate opens when the client has asked again: one turn, and the second request gets its answer.
  retry_after_a_timeout() {
    return this.asksAgain("requests", { times: 2 });
  }

  // The gate opens when the client has gone: the turn may be over before it asks again.
  retry_of_a_finished_turn() {
    return this.asksAgain("left");
  }

  async asksAgain(condition, asked) {
    const gate = this.gate();
    const conversation = this.begin(`gate-${gate}`, { retries: 5, timeout: 1000 });
    const opened = this.world.control(condition, asked).then(() => this.world.control("open", { gate }));
    same(await conversation.ask("one"), "begun done");
    await opened;
    await this.logged("user: one", "assistant: begun done");
    if (this.session) same((await this.world.prompts()).length, 1);
    same(await conversation.ask("two", "echo"), "said: two");
    await this.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two");
  }

  async after_a_device_left() {
    if (!this.session) return this.plain();
    const conversation = this.begin();
    same(await conversation.ask("one"), "said: one");
    await this.deviceLeaves();
    same(await conversation.ask("two"), "said: two");
    await this.deviceLeaves();
    same(await whole(conversation.stream("three")), "said: three");
    await this.logged(...["one", "two", "three"].flatMap((text) => [`user: ${text}`, `assistant: said: ${text}`]));
  }

  async deviceLeaves() {
    await this.world.control("visit", { session: this.session, token: this.token });
    await until(async () => (await this.world.session(this.session)).status === "suspended");
  }

  async after_kill_9() {
    const gate = this.gate();
    const stream = this.begin(`gate-${gate}`).stream("one");
    same((await stream.next()).value, "begun");
    if (!(await this.world.control("reached", { gate }))) throw new Wrong("the gate was not reached");
    await this.world.control("kill");
    const rest = await whole(stream).catch(() => undefined);
    await this.world.control("open", { gate });
    await this.world.control("start");
    if (rest !== undefined) throw new Wrong(`the end of a cut stream looks like a good one: ${JSON.stringify(rest)}`);
    same(await this.begin().ask("two"), "said: two");
    await this.logged("user: one", "assistant: begun done", "user: two", "assistant: said: two");
  }
}

async function whole(stream) {
  let text = "";
  for await (const piece of stream) text += piece;
  return text;
}

const NAMES = [
  "plain",
  "stream",
  "history",
  "history with a system prompt",
  "mixed history",
  "tools",
  "streamed tools",
  "vision",
  "structured output",
  "models",
  "errors",
  "errors of a stream",
  "cancel",
  "retry after 503",
  "retry after a timeout",
  "retry of a finished turn",
  "after a device left",
  "after kill 9",
];
