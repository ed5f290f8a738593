// SPDX-License-Identifier: Apache-2.0

// Package notice carries one-shot messages between nodes, outside of any conversation, and their answers: that a key was
// rotated, a contract revoked, a drill proposed. Notice and answer are envelopes of type notice: signed by the binding key,
// sealed with the suite that every node has, seq 1 and 2 of a context of their own.
//
// What it guarantees:
//
//   - [Service.Post] puts a notice into the outbox in the caller's transaction: it is sent exactly if what it tells of has
//     happened. It is delivered until the peer's signed answer is here or its time is over, across restarts, less and less
//     often. Only the peer's own signed answer counts as one.
//   - A notice gets the checks that every envelope gets, before anything changes: form, from = signer = HTTP caller, who may
//     send notices at all, signature, to, whether these bytes were answered before, time, prev; then it is opened.
//   - Handler, answer and events are one transaction, and byte-identical repetition gets the stored answer: one envelope has
//     one effect. Where the peer says that it never took an envelope in its time, the notice goes into a new one.
//   - Everything from the peer is bounded, also how many notices it may send in an hour.
//
// What it does not do: notices are not ordered, and one that was put into a new envelope, after its sender was given a wrong
// refusal or another DID, can reach the handler twice. Handlers have to be idempotent.
package notice
