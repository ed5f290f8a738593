// SPDX-License-Identifier: Apache-2.0

// Package canon is the one strict JSON decoder and the one JSON canonicaliser (RFC 8785) of this module.
//
// Everything that is signed, hashed or decided upon passes through it, so that two readers of the same bytes
// cannot come to two opinions. It guarantees that input which it accepts
//
//   - is one JSON value (RFC 8259) in valid UTF-8, without a byte order mark and
//     with nothing after it but white space;
//   - has no duplicate member names, compared after unescaping, and no lone
//     surrogates (RFC 7493, sections 2.1 and 2.3);
//   - is no larger and no deeper than the caller's [Limits]: both are found out
//     before anything is allocated in proportion to the input;
//   - has only numbers that survive the trip through an IEEE 754 double which
//     RFC 8785 prescribes (see below).
//
// Numbers. An integer is accepted only if its canonical form denotes the same integer: 9007199254740993
// (2^53+1) and 12345678901234567890 are refused, 1E30 is not. A fraction is accepted with up to 17 significant
// digits, the number that identifies a double, if it neither overflows, vanishes nor becomes an integer: 1e400,
// 1e-400 and 3.0000000000000001 are refused. Negative zero is refused in every spelling, because RFC 8785 would
// drop its sign.
//
// [Unmarshal] is for closed objects: an unknown member is an error. [UnmarshalOpen] ignores unknown members, as
// documents that others extend need, but refuses one that differs from a known member only in case: some JSON
// libraries would read it as that member. Member names match by exact case in both.
//
// What it does not do: it does not check that members are present (a missing member leaves the zero value), it
// does not preserve the spelling of numbers, and it does not decode decimals: quantities that a double cannot
// hold belong into strings.
package canon
