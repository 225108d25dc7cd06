// What every Node.js program of this folder shares: the gateway, the model server, and the report.

import { setTimeout as pause } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";

const DEADLINE = 60_000;

// Where everything is, and what the runner does on request.
export class World {
  constructor() {
    Object.assign(this, JSON.parse(process.env.WORLD));
    this.url = `${this.base}/v1`;
  }

  control(path, asked = {}) {
    return ask(`${this.control_url}/${path}`, asked);
  }

  async newSession() {
    const made = await ask(`${this.gateway}/v1/sessions`, {}, this.key);
    return [made.session_id, made.session_token];
  }

  session(id) {
    return ask(`${this.gateway}/v1/sessions/${id}`, null, this.key);
  }

  // The messages of a session, oldest first.
  async log(id) {
    const page = await ask(`${this.gateway}/v1/sessions/${id}/messages?limit=500`, null, this.key);
    return page.messages.map((entry) => entry.message);
  }

  async sessions() {
    return (await ask(`${this.gateway}/v1/sessions`, null, this.key)).sessions.length;
  }

  prompts() {
    return this.control("prompts");
  }

  // Waits until the session has that many messages and no turn runs.
  untilLog(id, length) {
    return until(async () => (await this.log(id)).length >= length && !(await this.session(id)).turn_running);
  }
}

export async function until(condition) {
  const deadline = Date.now() + DEADLINE;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Wrong("it never happened");
    await pause(10);
  }
}

export async function ask(url, body, key) {
  const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
  const request = body === null ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(url, { ...request, signal: AbortSignal.timeout(2 * DEADLINE) });
  const text = await answer.text();
  if (!answer.ok) throw new Wrong(`${url}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

// A message as `role: text`, to compare and to read.
export function brief({ role, content, tool_calls }) {
  const text = Array.isArray(content)
    ? content.map((part) => part.text ?? `[${part.type}]`).join(" ")
    : (content ?? "");
  return `${role}: ${text}${(tool_calls ?? []).map((call) => `[calls ${call.function.name}]`).join("")}`;
}

export class Wrong extends Error {}

export function same(got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Wrong(`\n    got    ${JSON.stringify(got)}\n    wanted ${JSON.stringify(wanted)}`);
  }
}

// One line for each habit: `ok`, `note: …` or `FAIL …`.
export class Report {
  constructor(client, version, world) {
    this.world = world;
    this.failed = 0;
    console.log(`client ${client} ${version}`);
  }

  async habit(mode, name, done) {
    await this.world.control("reset");
    const begun = Date.now();
    try {
      await done();
      console.log(`ok ${mode}: ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (error) {
      this.failed += 1;
      console.log(`FAIL ${mode}: ${name}: ${error instanceof Wrong ? error.message : (error?.stack ?? error)}`);
      const [asked, answered] = await this.world.control("exchange");
      console.log(`  request: ${short(asked)}\n  answer: ${short(answered)}`);
    }
  }

  note(mode, name, why) {
    console.log(`note: ${mode}: ${name}: ${why}`);
  }

  end() {
    console.log(`${this.failed} failed`);
    process.exit(this.failed ? 1 : 0);
  }
}

// Without the headers that say nothing here.
function short(text) {
  const [head, ...body] = text.split("\r\n\r\n");
  const [first, ...headers] = head.split("\r\n");
  const telling = /^(x-stainless-retry|retry-after|x-should-retry|idempotency|content-type)/i;
  return [first, ...headers.filter((header) => telling.test(header)), body.join("\r\n\r\n").slice(0, 700)].join(" | ");
}
