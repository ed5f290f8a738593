// SPDX-License-Identifier: Apache-2.0

// Package envelope is the signed and sealed message of a negotiation: its wire
// format, its checks and its place in the transcript. It is pure: no network,
// no clock, no storage.
//
// # The form
//
// An envelope is a JWS in flattened JSON whose protected header is exactly alg,
// kid and typ ([TokenType]) and whose payload is the canonical JSON of
//
//	{v, type, from, to, contextId, seq, messageId, createdAt, expiresAt,
//	 prev, agreement, bodyDigest, body | sealed}
//
// A body that travels in the clear is {salt, body}. A sealed one is
// {suite, recipientKid, enc, ciphertext} ([hpke.Sealed]) of the canonical JSON
// of {from, to, contextId, salt, body}; the associated data is the payload
// without the member sealed. bodyDigest covers salt and body alike in both, so
// that either can be disclosed to a third party who has no key ([BodyDigest]).
//
//	type                    body             agreement
//	metaproto               clear            absent
//	negotiation, contract   sealed           required
//	notice, moved           clear or sealed  required when sealed
//
// prev is the [Envelope.Digest] of the message before, of either side, and
// [FirstPrev] in the first one. Digests are over protected '.' payload, so the
// chain covers what was signed and who signed it.
//
// # What it guarantees
//
//   - [Parse] accepts one spelling of a payload and one form of JWS (white space
//     and the order of its members aside, which no digest covers), and refuses
//     every other before a signature is looked at; all sizes are bounded.
//   - [Envelope.Check] and [Open] refuse a message whose signature has not been
//     verified. Check applies the checks of invariant 1 in one fixed order and
//     changes nothing.
//   - The suite and the key that a body is opened with come from the caller.
//   - Every refusal is a [*Refusal] with a [Code] of one table.
//
// # What it does not do
//
// It keeps no state: duplicates are recognised by digest by whoever stores
// envelopes, before [Envelope.Check]. It does not read bodies; the strict
// structures are those of packages metaproto and negotiation. The clear header
// shows who talks to whom, when, and how long messages are.
package envelope
