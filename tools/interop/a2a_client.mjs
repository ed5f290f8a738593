// SPDX-License-Identifier: Apache-2.0

// The official A2A JavaScript SDK as a client, driven by a2a_test.go: one JSON command a line on
// standard input, one answer a line on standard output. Connections to names of the test lead to
// loopback; nothing else of the SDK or below it is changed.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import tls from 'node:tls';
import { pathToFileURL } from 'node:url';

// The modules stand in a cache of their own, so they are looked up from there.
const root = process.env.INTEROP_NODE_MODULES;
const require = createRequire(path.join(root, 'index.js'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const sdk = (await load('@a2a-js/sdk')).default;
const client = (await load('@a2a-js/sdk/client')).default;
const old = (await load('@a2a-js/sdk-0.3/client')).default; // as a client that never heard of 1.0
const version = JSON.parse(fs.readFileSync(path.join(root, '@a2a-js/sdk/package.json'))).version;
console.debug = () => {}; // the SDK's verifier reports there why a signature does not count

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const answer = (reply) => process.stdout.write(JSON.stringify(reply) + '\n');
const setup = JSON.parse((await lines.next()).value);

const connect = tls.connect;
tls.connect = (options, ...more) => {
  const name = options.servername || options.host;
  const target = setup.hosts[`${name}:${options.port || 443}`];
  if (!target) throw new Error(`${name}:${options.port} is not in this test`);
  const [host, port] = target.split(':');
  return connect({ ...options, host, port: Number(port), servername: name }, ...more);
};

const transports = {
  JSONRPC: client.JsonRpcTransportFactory,
  'HTTP+JSON': client.RestTransportFactory,
};

async function connected(c) {
  const factory = new client.ClientFactory({ transports: [new transports[c.binding]()] });
  return factory.createFromUrl(c.origin);
}

async function collect(stream, into) {
  const events = [];
  for await (const event of stream) events.push(into.toJSON(event));
  return events;
}

const commands = {
  async card(c) {
    const card = await client.AgentCardResolver.default.resolve(c.origin);
    if (c.verify) {
      const verify = sdk.verifyAgentCardSignature(async (kid) => setup.keys[kid]);
      const received = c.decoded ? card : await (await fetch(c.origin + '/.well-known/agent-card.json')).json();
      await verify(c.forge ? { ...received, description: 'Something else.' } : received);
    }
    return sdk.AgentCard.toJSON(card);
  },
  async sign(c) {
    const { kid, alg } = c.jwk;
    return sdk.generateAgentCardSignature(c.jwk, { kid, alg, typ: 'JOSE' })(c.card);
  },
  async send(c) {
    const part = c.mediaType
      ? { raw: Buffer.from(c.text).toString('base64'), mediaType: c.mediaType }
      : { text: c.text };
    const request = sdk.SendMessageRequest.fromJSON({
      message: {
        messageId: crypto.randomUUID(),
        role: 'ROLE_USER',
        parts: [part],
        extensions: c.extension ? [c.extension] : [],
      },
    });
    const options = c.extension
      ? { serviceParameters: client.ServiceParameters.create(client.withA2AExtensions(c.extension)) }
      : undefined;
    const agent = await connected(c);
    if (c.streaming) return collect(agent.sendMessageStream(request, options), sdk.StreamResponse);
    const result = await agent.sendMessage(request, options);
    return [result.messageId ? { message: sdk.Message.toJSON(result) } : { task: sdk.Task.toJSON(result) }];
  },
  async get(c) {
    const agent = await connected(c);
    return sdk.Task.toJSON(await agent.getTask({ id: c.id, historyLength: c.history, tenant: '' }));
  },
  async cancel(c) {
    const agent = await connected(c);
    return sdk.Task.toJSON(await agent.cancelTask(sdk.CancelTaskRequest.fromJSON({ id: c.id })));
  },
  async subscribe(c) {
    const agent = await connected(c);
    return collect(agent.resubscribeTask(sdk.SubscribeToTaskRequest.fromJSON({ id: c.id })), sdk.StreamResponse);
  },
  async list(c) {
    const agent = await connected(c);
    const request = sdk.ListTasksRequest.fromJSON({ pageSize: 10, includeArtifacts: true });
    return sdk.ListTasksResponse.toJSON(await agent.listTasks(request));
  },
  async push(c) {
    const agent = await connected(c);
    const config = sdk.TaskPushNotificationConfig.fromJSON({ taskId: c.id, url: 'https://hook.test/' });
    return sdk.TaskPushNotificationConfig.toJSON(await agent.createTaskPushNotificationConfig(config));
  },
  async extended(c) {
    const agent = await connected(c);
    return sdk.AgentCard.toJSON(await agent.getAgentCard());
  },
  async old(c) {
    const agent = await old.A2AClient.fromCardUrl(c.origin + '/.well-known/agent.json');
    const parts = [{ kind: 'text', text: c.text }];
    const message = { kind: 'message', messageId: crypto.randomUUID(), role: 'user', parts };
    const reply = await agent.sendMessage({ message });
    if (reply.error) throw new Error(reply.error.message);
    const again = await agent.getTask({ id: reply.result.id });
    return again.result;
  },
};

answer({ version });
for await (const line of lines) {
  const command = JSON.parse(line);
  try {
    answer({ result: await commands[command.op](command) });
  } catch (error) {
    // The other side judges what the SDK says.
    answer({ error: `${error.name}: ${error.message}` });
  }
}
