// SPDX-License-Identifier: Apache-2.0

// Package policy holds the deterministic deciders of a negotiation and the code
// that narrows whatever any decider says.
//
// A vendor's policy file says, for each dataset, what may be granted; Narrow
// turns a draft, from whichever decider, into an offer that grants nothing but
// what was asked, drafted and allowed, all three, and explains each difference. Decide is
// Narrow with the buyer's ask as the draft. A buyer's needs file says what is
// wanted and what is the least that helps; DecideOffer accepts, asks for the
// next alternative or rejects.
//
// What it guarantees:
//
//   - granted ⊆ asked ∩ policy, always; the class "pii", any class the policy
//     lists under never, and columns without a class are never granted.
//   - An unknown column is named before anything else is looked at.
//   - A buyer accepts only an offer within its own ask, by the offer's digest.
//   - Negotiations end: a vendor makes at most max_offers offers, a buyer asks
//     once for its needs and once for each alternative.
//   - Both deciders are pure: same arguments, same answer. Nothing of a peer's
//     free text is interpreted.
//
// What it does not do: it does not check signatures, sequence or the last-offer
// rule, and it cannot see whether a row filter is narrower in meaning than
// another, only whether every condition is there.
//
// Policy files are YAML. An unknown key, a duplicate key, an alias or a value of
// another type is an error that names its line.
package policy
