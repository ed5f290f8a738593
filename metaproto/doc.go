// SPDX-License-Identifier: Apache-2.0

// Package metaproto agrees on how two parties will talk: ANP's
// protocolNegotiation rounds as a pure state machine.
//
// The initiator opens with its candidates, each side answers the other in
// turn, and the rounds end in an [Agreement] or in a refusal. [Step] is a value
// function: it takes a [State], an [Event], the [Policy] of its own side and
// the time, and returns the next state and the message to send. It reads no
// clock, no network and no storage; a State is plain JSON.
//
// # What it guarantees
//
//   - It ends: after at most [MaxRounds] messages, or at the deadline, or when
//     the peer repeats itself.
//   - Nothing below a side's own floor is ever accepted by it, whatever the
//     peer sends and however the policy changed since the last round.
//   - Only what was offered can be accepted: an acceptance names one candidate
//     of the list that it answers, member by member.
//   - Where both sides have agreed they hold the same [Agreement], byte for
//     byte: it covers both DIDs, all key ids, the candidate, and the digest of
//     every round. Whatever was altered on the way shows in its digest.
//   - If for every term there is a value that both floors allow, the rounds
//     find an agreement (two sides of this package; see [Policy]).
//   - A repeated message has no second effect; it gets the same answer again.
//     Messages out of order change nothing.
//   - Terminal phases are final.
//
// # What it does not do
//
// It verifies no signature and resolves no DID. The caller hands it messages
// whose signer it has verified, and checks that the key-agreement key id which
// the peer names is in the peer's document (hpke.NamedKey). Text in
// candidateProtocols and modificationSummary is for people and models; no
// decision here reads it. What a reader of the text made of it ([Interpreted])
// changes only which of our own values a counter-proposal names first; what is
// agreed is still a structured candidate that the peer accepts.
//
// # Wire format
//
// A round is ANP's object {action, sequenceId, candidateProtocols,
// modificationSummary, status} and beside it what code compares: candidates,
// keyAgreementKid, and on acceptance acceptedAt and agreement. ANP-06 1.2
// replaced these rounds by one request and one answer; here they travel in
// signed envelopes, without the old binary header. A peer that sends text
// alone is answered with a structured counter-proposal.
package metaproto
