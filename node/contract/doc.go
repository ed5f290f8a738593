// SPDX-License-Identifier: Apache-2.0

// Package contract holds the terms two companies agree on and the one function
// that decides under them.
//
// The documents are Schema (what a dataset publishes), Scope (what is asked or
// granted), Offer (a vendor's terms with a time limit), Contract (version 1),
// Activation (the vendor's statement that a contract is in force), Receipt (the
// data plane's statement about one call) and Revocation.
//
// What it guarantees:
//
//   - A document has one encoding. Parse functions refuse unknown, missing,
//     duplicate and case-variant members, wrong types, and anything that does
//     not come back as the same canonical bytes (RFC 8785) when encoded again.
//     Every string, list and number is bounded.
//   - Build is deterministic: from the same offer, parties, agreement and
//     transcript both sides get the same bytes. A contract's digest excludes
//     its proofs, so it does not change while they are added.
//   - A contract carries exactly two proofs, the buyer's first, each by the
//     party's binding key. Every signed document has an exact type, so that no
//     signature of one kind can stand for another.
//   - Evaluate is pure and the only place that says yes. The zero Decision and
//     the zero Usage deny. Its refusals repeat only bounded, escaped pieces of
//     the caller's words, and tell a stranger nothing about a contract.
//
// What it does not do: it reads no clock, no store and no network, and it knows
// nothing about trust policy. Whether a DID document is current, whether a
// contract is revoked and how many calls were made are facts the caller brings.
// Purpose and retention bind the other party by its signature; after release,
// no code here enforces them.
package contract
