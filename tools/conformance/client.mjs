// SPDX-License-Identifier: Apache-2.0
// Drives the official MCP TypeScript SDK client. Takes the folder with its node_modules as argument and on standard input
// {url, token} or {command, args}, and calls: [{name, arguments}]; prints {server, instructions, tools, results}, where a result is what
// the client returned or {thrown: {code, message}}.
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';

const require = createRequire(process.argv[2] + '/package.json');
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

const plan = JSON.parse(await text(process.stdin));
const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.token ? { Authorization: `Bearer ${plan.token}` } : {} } })
  : new StdioClientTransport({ command: plan.command, args: plan.args, stderr: 'inherit' });
const client = new Client({ name: 'stock', version: '1' });
const out = { results: [] };
try {
  await client.connect(transport);
  out.server = client.getServerVersion();
  out.instructions = client.getInstructions();
  out.tools = (await client.listTools()).tools;
  for (const call of plan.calls) {
    try {
      out.results.push(await client.callTool(call));
    } catch (e) {
      out.results.push({ thrown: { code: e.code, message: String(e.message) } });
    }
  }
} catch (e) {
  out.thrown = { code: e.code, message: String(e.message) };
}
await client.close();
console.log(JSON.stringify(out));
