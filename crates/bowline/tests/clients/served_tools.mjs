// The tools of both servers, which are the same as in served.py.

import { z } from "zod";

import { PICTURE } from "./habits.mjs";

const text = (text) => ({ type: "text", text });

export function addTools(server) {
  const numbers = z.object({ a: z.number(), b: z.number() });
  server.registerTool("add", { description: "Adds two numbers.", inputSchema: numbers }, ({ a, b }) => ({
    content: [text(String(a + b))],
  }));
  server.registerTool("picture", { description: "Text and an image." }, () => ({
    content: [text("one pixel"), { type: "image", data: PICTURE, mimeType: "image/png" }],
  }));
  server.registerTool("fail", { description: "Fails." }, () => ({
    content: [text("it cannot be done")],
    isError: true,
  }));
}
