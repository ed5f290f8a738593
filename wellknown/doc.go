// SPDX-License-Identifier: Apache-2.0

// Package wellknown builds, serves, reads and verifies the public documents of a Treaty node:
//
//	/.well-known/did.json and <path>/did.json   DID documents (ANP-03), served byte for byte
//	/.well-known/agent-card.json                A2A 1.0 agent card, signed as A2A section 8.4 says
//	/.well-known/agent-descriptions             ANP-08 CollectionPage, paged
//	/agents/<name>/ad.json                      ANP-07 agent description, with an object proof
//
// Builders are pure functions: they take facts and a signer and return bytes. A [Site] serves such bytes exactly as they
// were signed, with a strong ETag and a Cache-Control age.
//
// # Guarantees
//
//   - What is verified is what was received. [VerifyCard] and [AgentDescription.Verify] work on the raw bytes; nothing that
//     was decoded into a struct and encoded again is ever signed, hashed or checked.
//   - Verification fails closed: no signature, an unknown or foreign key id, a key outside assertionMethod and
//     authentication, an expired key, a critical header that is not understood and a damaged signature are all refusals.
//   - Documents of others are read tolerantly (unknown members are ignored) and within bounds of size, depth and count.
//     Duplicate members and members that differ from a known one only by case are refused.
//   - The cards built here hold no empty string, list or object and no null. SDKs disagree on which of those a
//     signature covers (A2A #2122); in a card without any, every reading of section 8.4 gives the same bytes.
//   - The published schema holds names and types of columns, never a value.
//
// # What it does not do
//
// It dials nothing ([Discover] is handed a function that fetches), keeps no state, reads no clock and decides no trust: a
// verified card says what its agent claims about itself, not that the claims are true or that the agent may contract.
package wellknown
