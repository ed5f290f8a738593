# SPDX-License-Identifier: Apache-2.0
"""The official ANP Python SDK as a peer, driven by interop_test.go.

It publishes DID documents that the SDK made, serves HTTPS endpoints behind the SDK's
verifier, and carries out commands: one JSON object a line on standard input, one answer a
line on standard output. The SDK is used as its own client and documentation use it. What
is changed, and nothing else:

  - names under interop.test lead to loopback, and count as public addresses;
  - where a command asks for it, an ECDSA signature is drawn again until its S is in the
    lower (or upper) half, since the SDK leaves that to chance.
"""

import asyncio
import base64
import json
import logging
import secrets
import socket
import ssl
import sys
import tempfile
from pathlib import Path

import jcs
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import anp
from anp import ANPClient
from anp.authentication import (
    DidWbaVerifier,
    DidWbaVerifierConfig,
    DidWbaVerifierError,
    create_did_wba_document,
    did_web,
    resolve_did_document,
)
from anp.proof.im import (
    build_im_content_digest,
    build_im_signature_input,
    generate_im_proof,
    parse_im_signature_input,
    verify_im_proof,
)
from anp.proof.rfc9421_origin import (
    Rfc9421OriginProofGenerationOptions,
    generate_rfc9421_origin_proof,
    verify_rfc9421_origin_proof,
)

logging.disable(logging.CRITICAL)

HALF_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 // 2


def map_names(hosts):
    """Lead "name:port" to the address given for it, and know no other name."""
    real = socket.getaddrinfo

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        target = hosts.get(f"{host}:{port}")
        if target is None:
            if host in ("127.0.0.1", None):
                return real(host, port, family, type, proto, flags)
            raise socket.gaierror(socket.EAI_NONAME, f"{host}:{port} is not in this test")
        address, mapped = target.rsplit(":", 1)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(mapped)))]

    socket.getaddrinfo = getaddrinfo
    did_web._is_public_address = lambda value: True


def is_low(signature):
    return utils.decode_dss_signature(signature)[1] <= HALF_ORDER


class Identity:
    """A DID that the SDK made, with its key."""

    def __init__(self, document, pem, folder):
        self.document = document
        self.did = document["id"]
        self.key = load_pem_private_key(pem, None)
        self.document_path = folder / f"{secrets.token_hex(8)}.json"
        self.key_path = folder / f"{secrets.token_hex(8)}.pem"
        self.document_path.write_text(json.dumps(document))
        self.key_path.write_bytes(pem)
        self.keyid = document["authentication"][0]

    def client(self, mode, s):
        client = ANPClient(str(self.document_path), str(self.key_path))
        auth = client.auth_client
        auth.auth_mode = mode
        if s and isinstance(self.key, ec.EllipticCurvePrivateKey):
            draw = auth._sign_callback

            def until(content, fragment):
                while is_low(signature := draw(content, fragment)) != (s == "low"):
                    pass
                return signature

            auth._sign_callback = until
        return client


def make_identities(folder):
    path = ["agents", "py"]

    def made(host, path, profile, port=None):
        return create_did_wba_document(host, port=port, path_segments=path, did_profile=profile)

    def proof_is_low(document):
        value = document["proof"]["proofValue"]
        raw = base64.urlsafe_b64decode(value + "==")
        return int.from_bytes(raw[32:], "big") <= HALF_ORDER

    def k1(low):
        while proof_is_low((pair := made("peer.interop.test", path, "k1"))[0]) != low:
            pass
        return pair

    def without_proof(pair):
        return {k: v for k, v in pair[0].items() if k != "proof"}, pair[1]

    def as_web(pair):
        document, keys = without_proof(pair)
        return json.loads(json.dumps(document).replace("did:wba:", "did:web:")), keys

    pairs = {
        "e1": made("peer.interop.test", path, "e1"),
        "e1 port": made("peer.interop.test", path, "e1", 8443),
        "k1": k1(True),
        "k1 high-S": k1(False),
        "bare": made("bare.interop.test", None, "e1"),
        "bare secp256k1": without_proof(made("old.interop.test", None, "plain_legacy")),
        "bare 2019 proof": made("older.interop.test", None, "plain_legacy"),
        "did:web": as_web(made("web.interop.test", path, "plain_legacy")),
    }
    return {name: Identity(d, keys["key-1"][0], folder) for name, (d, keys) in pairs.items()}


def document_paths(identities):
    paths = {}
    for identity in identities.values():
        _, _, host, *rest = identity.did.split(":")
        path = "/" + "/".join(rest) + "/did.json" if rest else "/.well-known/did.json"
        paths[host.split("%")[0], path] = identity.document
    return paths


class Server:
    """What a service built on the SDK's verifier looks like."""

    def __init__(self, paths):
        self.paths = paths
        secret = secrets.token_hex(32)
        config = dict(jwt_private_key=secret, jwt_public_key=secret, jwt_algorithm="HS256")
        self.verifier = DidWbaVerifier(DidWbaVerifierConfig(**config))
        # The SDK checks nonces through a callback, but issues none: that is left to the service.
        self.nonces = set()
        self.challenger = DidWbaVerifier(DidWbaVerifierConfig(external_nonce_validator=self.take, **config))

    def take(self, _did, nonce):
        if nonce not in self.nonces:
            return False
        self.nonces.remove(nonce)
        return True

    async def handle(self, request):
        host = request.host.split(":")[0]
        document = self.paths.get((host, request.path))
        if document is not None:
            return web.json_response(document)
        verifier = {"/verify": self.verifier, "/challenged": self.challenger}.get(request.path)
        if verifier is None:
            return web.json_response({"error": "not found"}, status=404)
        try:
            result = await verifier.verify_request(
                method=request.method,
                url=f"https://{request.host}{request.raw_path}",
                headers=dict(request.headers),
                body=await request.read(),
                domain=host,
            )
        except DidWbaVerifierError as error:
            headers = dict(error.headers)
            if verifier is self.challenger and "WWW-Authenticate" in headers:
                self.nonces.add(nonce := secrets.token_urlsafe(16))
                headers["WWW-Authenticate"] += f', nonce="{nonce}"'
            return web.json_response({"error": str(error)}, status=error.status_code, headers=headers)
        reply = {"did": result["did"], "scheme": result["auth_scheme"]}
        return web.json_response(reply, headers=result["response_headers"])


class Commands:
    def __init__(self, identities):
        self.identities = identities
        self.clients = {}

    def client(self, c):
        name = (c["as"], c.get("mode", "http_signatures"), c.get("s", ""))
        if name not in self.clients or c.get("fresh"):
            self.clients[name] = self.identities[c["as"]].client(*name[1:])
        return self.clients[name]

    async def fetch(self, c):
        """A request with the SDK's whole client, retries and tokens included."""
        result = await self.client(c).fetch_url(c["url"], method=c["method"], body=c.get("body"))
        return {"status": result["status_code"], "text": result["text"]}

    async def headers(self, c):
        """What the SDK's client would send, for the other side to send it as it likes."""
        body = c.get("body")
        auth = self.client({**c, "fresh": True}).auth_client
        headers = auth.get_auth_header(c["url"], method=c["method"], body=body.encode() if body else None)
        return {"headers": headers}

    async def carriage(self, c):
        """JSON carriage: the SDK has its parts, not the whole."""
        identity = self.identities[c["as"]]
        payload = jcs.canonicalize(c["payload"])
        params = dict(created=c["created"], expires=c["created"] + 60, nonce=secrets.token_urlsafe(12))
        field = build_im_signature_input(identity.keyid, **params)
        base = self.base(c["method"], c["url"], payload, field)
        proof = generate_im_proof(payload, base, identity.key, identity.keyid, **params)
        return {"auth": proof}

    async def verify_carriage(self, c):
        payload = jcs.canonicalize(c["payload"])
        document = await resolve_did_document(c["did"])
        base = self.base(c["method"], c["url"], payload, c["auth"]["signatureInput"])
        verify_im_proof(c["auth"], payload, base, did_document=document, expected_signer_did=c["did"])
        return {}

    @staticmethod
    def base(method, url, payload, field):
        digest = build_im_content_digest(payload)
        params = parse_im_signature_input(field).signature_params
        return f'"@method": {method}\n"@target-uri": {url}\n"content-digest": {digest}\n"@signature-params": {params}'

    async def origin(self, c):
        identity = self.identities[c["as"]]
        options = None
        if c["explicit"]:
            expires = c["created"] + 60 if c["expires"] else None
            options = Rfc9421OriginProofGenerationOptions(
                created=c["created"], expires=expires, nonce=secrets.token_urlsafe(12)
            )
        request = c["request"]
        proof = generate_rfc9421_origin_proof(
            request["method"], request["meta"], request["body"], identity.key, identity.keyid, options=options
        )
        return {"auth": proof}

    async def verify_origin(self, c):
        request = c["request"]
        sender = request["meta"]["sender_did"]
        own = [i.document for i in self.identities.values() if i.did == sender]
        document = own[0] if own else await resolve_did_document(sender)
        verify_rfc9421_origin_proof(c["auth"], request["method"], request["meta"], request["body"], did_document=document)
        return {}

    async def resolve(self, c):
        document = await resolve_did_document(c["did"], verify_proof=True)
        return {"id": document["id"]}

    async def run(self, line):
        command = json.loads(line)
        try:
            return await getattr(self, command["op"])(command)
        except Exception as error:  # the other side judges what the SDK says
            return {"error": f"{type(error).__name__}: {error}"}


async def main():
    setup = json.loads(sys.stdin.readline())
    map_names(setup["hosts"])
    with tempfile.TemporaryDirectory() as folder:
        identities = make_identities(Path(folder))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(setup["cert"], setup["key"])
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Server(document_paths(identities)).handle)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        await web.SockSite(runner, listener, ssl_context=tls).start()

        def answer(reply):
            print(json.dumps(reply), flush=True)

        answer({
            "version": anp.__version__,
            "address": "127.0.0.1:%d" % listener.getsockname()[1],
            "dids": {name: i.did for name, i in identities.items()},
        })
        commands = Commands(identities)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            answer(await commands.run(line))
        await runner.cleanup()


asyncio.run(main())
