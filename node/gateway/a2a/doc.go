// SPDX-License-Identifier: Apache-2.0

// Package a2a is the A2A 1.0 gateway of a node: the server that receives negotiation envelopes and plain questions over
// JSON-RPC and HTTP+JSON, and the client that sends envelopes to a peer. The protocol itself is a2a-go's; this package closes
// what that library leaves open, and decides what an A2A message means here.
//
// # Guarantees
//
//   - Only envelopes move a negotiation. An envelope travels as bytes, in one raw part, and reaches the [Negotiator] exactly
//     as received; ids in the A2A message, A2A states and HTTP statuses are hints and decide nothing.
//   - A message that negotiates needs a verified caller (httpsig.CallerFrom) and the extension, declared by the client in
//     A2A-Extensions and named in message.extensions. Plain questions by stock clients need neither.
//   - Negotiation tasks are rendered from the negotiator's record each time and never stored a second time.
//   - A caller sees its own tasks only; another's does not exist for it. Answers to anonymous callers hold public facts only
//     (the question is not kept), live in a bounded memory and are shown to anonymous callers that name the task's id, which
//     is random; they are never listed.
//   - Terminal states are final.
//   - The body is at most 1 MiB of strict JSON: no duplicate members, no member that differs from one of A2A only by case,
//     no number that float64 cannot carry, no trailing data, bounded depth. This is checked before the library decodes.
//   - A refusal reaches the peer as an A2A error whose details carry the code (reason) and the extension (domain). The text of
//     any other error stays here; the peer sees the A2A error's name only.
//
// # What it does not do
//
// It verifies no HTTP signature (httpsig's middleware stands before it), limits no rates, offers no push notifications, no
// extended card and no gRPC. A message's stream is the task it led to, and ends; a subscription looks at its task once a second
// and reports what became of it, for the time of one request.
package a2a
