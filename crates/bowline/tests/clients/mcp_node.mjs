// The official MCP SDKs for TypeScript as hosts of the gateway: version 1, and version 2 in both handshakes, over HTTP
// and with `bowline mcp serve`.

import { readFileSync } from "node:fs";

import * as two from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioTwo } from "@modelcontextprotocol/client/stdio";
import { Client as One } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioOne } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as HttpOne } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { Report, World, Wrong, brief, same } from "./world.mjs";

const world = new World();
const ME = { name: "test", version: "1" };
const one = () => new One(ME);
const legacy = () => new two.Client(ME);
const auto = () => new two.Client(ME, { versionNegotiation: { mode: "auto" } });
const MODES = {
  "version 1": [one, http(HttpOne)],
  "version 2, legacy": [legacy, http(two.StreamableHTTPClientTransport)],
  "version 2, auto": [auto, http(two.StreamableHTTPClientTransport)],
  "version 1, mcp serve": [one, serve(StdioOne)],
  "version 2, legacy, mcp serve": [legacy, serve(StdioTwo)],
  "version 2, auto, mcp serve": [auto, serve(StdioTwo)],
};

function http(Transport) {
  return (bearer) => {
    const headers = { Authorization: `Bearer ${bearer}` };
    return new Transport(new URL(`${world.base}/mcp`), { requestInit: { headers } });
  };
}

// A host that starts programs, and shows what they write on stderr.
let complaints = "";
function serve(Transport) {
  return (bearer) => {
    const name = bearer.startsWith("sbt_") ? "BOWLINE_SESSION_TOKEN" : "BOWLINE_API_KEY";
    const args = ["mcp", "serve", "--url", world.base, "--data", world.folder];
    const transport = new Transport({ command: world.bowline, args, env: { [name]: bearer }, stderr: "pipe" });
    complaints = "";
    transport.stderr.on("data", (chunk) => (complaints += chunk));
    return transport;
  };
}

async function talk([make, transport], bearer, act) {
  const client = make();
  await client.connect(transport(bearer));
  try {
    await act((name, given = {}) => client.callTool({ name, arguments: given }), client);
  } finally {
    await client.close();
  }
}

function text(result) {
  if (result.isError) throw new Wrong(JSON.stringify(result));
  return result.content[0].text;
}

async function refused(act) {
  try {
    await act();
  } catch (error) {
    return error;
  }
  throw new Wrong("no error");
}

const ACTS = {
  async tools(_, client) {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    same(
      names.filter((name) => name.startsWith("session")),
      ["session_read", "session_send", "sessions_list"],
    );
  },

  async "a session"(call) {
    const first = await call("session_send", { text: "one", model: "echo" });
    same(text(first), "said: one");
    const { session_id } = first.structuredContent;
    same(text(await call("session_send", { text: "two", model: "echo", session_id })), "said: two");
    const wanted = ["user: one", "assistant: said: one", "user: two", "assistant: said: two"];
    same((await world.log(session_id)).map(brief), wanted);
    const read = JSON.stringify((await call("session_read", { session_id })).structuredContent);
    for (const word of ["said: one", "said: two"]) if (!read.includes(word)) throw new Wrong(read);
  },

  async mistakes(call) {
    const unknown = await call("session_read", { session_id: "no id" });
    same(unknown.isError, true);
    const error = await refused(() => call("no_such_tool"));
    if (!String(error).includes("no such tool")) throw error;
  },

  async "after kill 9"(call) {
    const { session_id } = (await call("session_send", { text: "one", model: "echo" })).structuredContent;
    await world.control("kill");
    const down = await call("sessions_list").catch(() => ({ isError: true }));
    await world.control("start");
    if (!down.isError) throw new Wrong(`an answer without a gateway: ${JSON.stringify(down)}`);
    same(text(await call("session_send", { text: "two", model: "echo", session_id })), "said: two");
    same((await world.log(session_id)).length, 4);
  },
};

const read = (name) => JSON.parse(readFileSync(`${process.env.NODE_ENV_FOLDER}/node_modules/${name}/package.json`));
const versions = ["sdk", "client"].map((name) => read(`@modelcontextprotocol/${name}`).version);
const report = new Report("MCP SDK for TypeScript", versions.join(", "), world);
for (const [mode, kind] of Object.entries(MODES)) {
  for (const [name, act] of Object.entries(ACTS)) {
    await report.habit(mode, name, () => talk(kind, world.key, act));
  }
  await report.habit(mode, "a session token", async () => {
    await world.newSession();
    const [, token] = await world.newSession();
    await talk(kind, token, async (call) => {
      same((await call("sessions_list")).structuredContent.sessions.length, 1);
    });
  });
  await report.habit(mode, "a wrong key", async () => {
    const error = await refused(() => talk(kind, "sk-wrong", ACTS.tools));
    // A program that cannot serve ends, and says why on stderr; that may come after the end.
    const told = () => `${error} ${error.status} ${error.code} ${complaints}`;
    const why = /403|SBP_FORBIDDEN|key or token|refuses the API key/;
    const deadline = Date.now() + 10_000;
    while (!why.test(told()) && Date.now() < deadline) await new Promise((done) => setTimeout(done, 20));
    if (!why.test(told())) throw new Wrong(`it does not say why: ${told()}`);
  });
}
report.end();
