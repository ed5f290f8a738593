// SPDX-License-Identifier: Apache-2.0

// Package httpsig signs and verifies HTTP requests between organisations:
// RFC 9421 HTTP Message Signatures and RFC 9530 digests, profiled as ANP-02
// (version 1.2) profiles them for callers that are named by a DID.
//
// # What a verified request guarantees
//
//   - The holder of a key that the caller's DID document lists under
//     authentication signed this method, this target and this body. The target
//     is compared with the origins this service is configured with, never with
//     what the Host header claims; Host only decides which configured origin is
//     tried first.
//   - The request was made within its own time window (created to expires, at
//     most [Options.MaxLifetime] long, [Options.Skew] of clock difference) and
//     is not a repetition: a nonce is recorded only after the signature was
//     found good, and is remembered for longer than the request can be valid.
//   - After a restart that lost the recorded nonces, requests that may have been
//     seen before ([Options.NotBefore]) are accepted only if they are bound to a
//     challenge which this process issued.
//   - Nothing was fetched for a request that is malformed, out of its time
//     window, or from a DID that [Options.Admit] refuses.
//
// # What it does not do
//
// It does not say what the caller may do: authorisation is the application's.
// It does not protect a request's confidentiality, nor header fields that the
// signature does not cover: handlers decide on the target and the body alone.
// It does not sign responses.
//
// # Bearer tokens and the legacy header
//
// A [Verifier] accepts neither. [Sessions], which has to be made on purpose and
// switched on scheme by scheme, does, for the sake of other implementations. What
// it lets in has a [Session] in its context and never a [Caller], so a handler
// that asks for the caller needs a signature whatever stands before it.
//
// # Deviations from ANP-02, all of them stricter
//
// The parameters expires and nonce are demanded (ANP-02: SHOULD and MAY; see
// [Options.NonceOptional] and [Verifier.VerifyOrigin]). Exactly one signature is accepted. Of a k1_
// document, whose proof is optional, only the key that the DID itself names may
// authenticate, since the host could have added any other.
package httpsig
