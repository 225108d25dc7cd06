// An MCP server made with version 1 of the official SDK for TypeScript.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";

import { addTools } from "./served_tools.mjs";

const server = new McpServer({ name: "test", version: "1" });
addTools(server);
await server.connect(new StdioServerTransport());
