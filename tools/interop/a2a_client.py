# SPDX-License-Identifier: Apache-2.0
"""The official A2A Python SDK as a client, driven by a2a_test.go: one JSON command a line on
standard input, one answer a line on standard output. Names lead to loopback; nothing else of
the SDK or below it is changed.
"""

import asyncio
import json
import logging
import sys
import uuid
from importlib.metadata import version

import anyio
import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt.api_jwk import PyJWK

logging.disable(logging.CRITICAL)


def map_names(hosts):
    """Lead "name:port" to the address given for it, and know no other name."""
    real = anyio.connect_tcp

    async def connect_tcp(remote_host, remote_port, **more):
        host, port = hosts[f"{remote_host}:{remote_port}"].rsplit(":", 1)
        return await real(host, int(port), **more)

    anyio.connect_tcp = connect_tcp


class Commands:
    def __init__(self, keys):
        self.keys = keys

    def verifier(self, c):
        def key(kid, jku):
            return PyJWK.from_dict(self.keys[kid])

        verify = create_signature_verifier(key, ["EdDSA", "ES256K"])

        def verifier(card):
            if c.get("forge"):
                card.description = "Something else."
            verify(card)

        return verifier

    async def client(self, c, streaming=False):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=httpx.AsyncClient(),
            supported_protocol_bindings=[c["binding"]],
        )
        return await ClientFactory(config).create_from_url(
            c["origin"], signature_verifier=self.verifier(c) if c.get("verify") else None
        )

    @staticmethod
    def context(c):
        if not c.get("extension"):
            return None
        return ClientCallContext(service_parameters={"A2A-Extensions": c["extension"]})

    async def card(self, c):
        async with await self.client(c) as client:
            return MessageToDict(client._card)

    async def sign(self, c):
        key = c["jwk"]
        signer = create_agent_card_signer(PyJWK.from_dict(key), {"kid": key["kid"], "alg": key["alg"], "typ": "JOSE"})
        return MessageToDict(signer(ParseDict(c["card"], AgentCard())))

    async def send(self, c):
        async with await self.client(c, c.get("streaming", False)) as client:
            message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=c["text"])])
            if c.get("extension"):
                message.extensions.append(c["extension"])
            if c.get("mediaType"):
                message.parts[0].CopyFrom(Part(raw=c["text"].encode(), media_type=c["mediaType"]))
            stream = client.send_message(SendMessageRequest(message=message), context=self.context(c))
            return [MessageToDict(event) async for event in stream]

    async def get(self, c):
        async with await self.client(c) as client:
            return MessageToDict(await client.get_task(GetTaskRequest(id=c["id"], history_length=c.get("history"))))

    async def cancel(self, c):
        async with await self.client(c) as client:
            return MessageToDict(await client.cancel_task(CancelTaskRequest(id=c["id"])))

    async def subscribe(self, c):
        async with await self.client(c, True) as client:
            return [MessageToDict(e) async for e in client.subscribe(SubscribeToTaskRequest(id=c["id"]))]

    async def list(self, c):
        async with await self.client(c) as client:
            return MessageToDict(await client.list_tasks(ListTasksRequest(page_size=10, include_artifacts=True)))

    async def push(self, c):
        async with await self.client(c) as client:
            config = TaskPushNotificationConfig(task_id=c["id"], url="https://hook.test/")
            return MessageToDict(await client.create_task_push_notification_config(config))

    async def extended(self, c):
        async with await self.client(c) as client:
            return MessageToDict(await client.get_extended_agent_card(GetExtendedAgentCardRequest()))

    async def run(self, line):
        command = json.loads(line)
        try:
            return {"result": await getattr(self, command["op"])(command)}
        except Exception as error:  # the other side judges what the SDK says
            return {"error": f"{type(error).__name__}: {error}"}


async def main():
    setup = json.loads(sys.stdin.readline())
    map_names(setup["hosts"])
    print(json.dumps({"version": version("a2a-sdk")}), flush=True)
    commands = Commands(setup["keys"])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await commands.run(line)), flush=True)


asyncio.run(main())
