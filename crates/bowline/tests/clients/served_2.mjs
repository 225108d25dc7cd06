// An MCP server made with version 2 of the official SDK for TypeScript.

import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

import { addTools } from "./served_tools.mjs";

serveStdio(() => {
  const server = new McpServer({ name: "test", version: "2" });
  addTools(server);
  return server;
});
