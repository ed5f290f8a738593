// SPDX-License-Identifier: Apache-2.0

// Package drill says what a rotation promises, checks it against a real counterparty, and writes down what was seen.
//
// A drill is between two nodes: the subject, whose keys rotate, and the counterparty. It has three phases: before the rotation,
// during the grace of the old keys, and after it. [Plan] lists, as a pure function of the drill's terms, which promises are
// checked in which phase and by whom; a [Runner] goes through them over interfaces; what both sides saw is a [Report], which
// both sign.
//
// What it guarantees: a report has exactly the checks of its plan, each once, in order; a promise that was not seen to hold is
// broken, and one that was not looked at says so; the counts are those of the checks. A report that verifies was signed by both
// nodes, with the keys that their DIDs are bound to.
//
// What it does not do: it talks to nobody and rotates nothing by itself, and it does not believe more than its sides say. Two
// nodes that agree to lie can sign anything.
package drill
