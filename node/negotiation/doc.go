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
//   - The buyer proves first; the vendor proves and activates in one transaction, no later than acceptBy. A proof that does
//     not count any more (late, withdrawn from, past the deadline, not trusted) is always answered with a signed rejection,
//     also in a conversation that has ended. A buyer whose proof is out waits for the vendor's signed word, however late it
//     comes; refusals, HTTP statuses, its own withdrawal and the deadline settle nothing for it.
//   - An answer that is not the peer's signed next message changes nothing: the same bytes are sent again until the deadline.
//     A refusal for good of our own message, or a signed answer that does not hold, ends the conversation before the proof,
//     and the peer is told by a withdrawal.
//   - Turns alternate. Only a withdrawal may come out of turn, and the vendor's commit order decides what it overtakes.
//   - Two different messages by one sender for one place are kept as proof, once for each place, and end the conversation,
//     unless our proof is out.
//   - The agreement's end, our floor, the conversation's deadline and the trust policy are looked at again with every message.
//   - Final phases are final (invariant 13); every conversation has a deadline, every buyer a number of conversations it may
//     have open, and refused messages add a bounded number of events to the log (invariant 11).
//
// What it does not do: it gives up on no proof that was sent. When a vendor never answers one, the conversation stays in
// awaiting_activation, and says so. It dials nobody (a [Connector] does), verifies no HTTP signature (its caller is whoever
// the gateway verified), does not limit how fast a peer opens and ends conversations, and grants nothing by itself: what is
// offered is a [Decider]'s, narrowed by code.
package negotiation
