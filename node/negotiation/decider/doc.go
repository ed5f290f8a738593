// SPDX-License-Identifier: Apache-2.0

// Package decider lets a model at an OpenAI-compatible endpoint wish what a negotiation should come to.
//
// What it guarantees:
//
//   - The model only wishes. What it returns is a [negotiation.Wish] or a [policy.Advice], which code narrows to policy and
//     needs. Its words become no identifier, no filter, no purpose and no text for the peer.
//   - An answer is one JSON object of exactly the schema, or it is none: an unknown, missing or doubled key, a value of another
//     type or out of bounds, text around it, a refusal, a tool call, an empty or a cut-off answer. The model is told once what
//     was wrong; after a second such answer the error is [ErrAnswer], and the run fails.
//   - Everything is bounded: prompts, answers, tokens, the time of one question, calls at a time, calls about one peer in an
//     hour. A busy endpoint (429, 5xx, a broken connection) is asked again up to three times, no later than it asks for and
//     never past the time limit.
//   - The key goes to the configured endpoint and nowhere else: over TLS, or to this machine. No redirect is followed. Neither
//     key nor the endpoint's own error texts appear in errors or events.
//   - Each question and each answer is an event, with digests; prompt and answer themselves only when the operator wants it.
//
// What the model is shown is in prompt.go: the published schema, what was asked, offered and needed, what policy would offer at
// most, and the peer's words marked as such. No values of a dataset, no classes, no policy file, no keys.
//
// What it does not do: it cannot tell whether a model was talked into something. That a model which does whatever the peer
// writes can widen nothing is a property of the code behind it, and tested there.
package decider
