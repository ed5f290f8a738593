// SPDX-License-Identifier: Apache-2.0

// Package signer lets a node sign with keys that are in another process, such as one that holds a session with a PKCS#11
// token: the protocol between the two, its client and its server.
//
// The protocol is HTTP over a Unix socket, with two calls of strict JSON:
//
//	GET  /v1/keys  → {"keys": [{"kid", "role", "type", "publicKey"}]}
//	POST /v1/sign  {"kid", "message"} → {"signature"}
//
// Bytes are base64url without padding. Errors are {"code", "message"} with a status that fits.
//
// Guarantees
//
//   - The server signs a message only in one of the three forms that this project's protocols sign (see [FormOf]), and two
//     of them only when the message itself names the key.
//   - Every signature, and every refusal to sign, is one line of the audit log before the answer leaves: key, form and digest
//     of the message, never the message. When the line cannot be written, there is no signature.
//   - The client returns only signatures that verify under the public key it was made for, and [did.ErrSignerUnavailable]
//     when the signer does not answer: a node then signs nothing, and goes on when the signer is back.
//   - Requests are bounded in size, number and time on both sides. The socket is open to its owner alone, or to a group if
//     the operator says so, and the client refuses a socket that is open to everybody.
//
// What it does not do: whoever may open the socket gets signatures, so it keeps the key from being copied, not from being used.
// Digests of objects (form "object-proof") are opaque; what stands behind them the audit log's reader must ask the node's own
// log.
package signer
