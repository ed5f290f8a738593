// SPDX-License-Identifier: Apache-2.0

// Package negotiation runs both sides of a negotiation: a session machine that is a value function, and the service that
// feeds it with verified messages and stores what it says.
//
// What it guarantees:
//
//   - No state changes before signature, sender, sequence, prev, time window and agreement were checked (invariant 1).
//   - A message, its answer, the new state, the contract and the events that tell of them are one transaction (invariants 8
//     and 15). The same bytes again are answered from the record. After a crash anywhere the conversation goes on.
//   - Only exactly the vendor's last unexpired offer can be accepted (invariant 4), and each side signs only the contract that
//     it built itself from its own transcript.
//   - The buyer proves first; the vendor proves and activates in one transaction, no later than acceptBy. A late proof gets
//     a signed rejection. A buyer whose proof is out waits for the vendor's signed word, and decides nothing by itself.
//   - Two different messages by one sender for one place are kept as proof and end the conversation.
//   - Final phases are final (invariant 13); every conversation has a deadline (invariant 11).
//
// What it does not do: it dials nobody (a [Connector] does), verifies no HTTP signature (its caller is whoever the gateway
// verified), and grants nothing by itself: what is offered is a [Decider]'s, narrowed by code.
package negotiation
