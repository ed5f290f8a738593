// SPDX-License-Identifier: Apache-2.0

// Package hpke seals a message from one DID to another with RFC 9180 hybrid
// public key encryption in Base mode.
//
// # What it guarantees
//
//   - Confidentiality towards everyone but the holder of the recipient's
//     key-agreement key, and integrity of plaintext, aad and [Context]: a
//     sealed payload opens only under the suite, the two DIDs, the two key ids
//     and the associated data it was sealed with.
//   - The suite and the key ids come from the caller, who has them from an
//     agreement. Those that a payload names are compared with it and never
//     obeyed.
//   - A payload has exactly one encoding: base64url without padding, fixed
//     sizes, canonical and full-order encapsulated keys. Anything else is
//     refused before a private key is touched.
//   - Every size is bounded before anything is decoded ([MaxPlaintext]).
//
// # What it does not do
//
//   - It does not authenticate the sender: in Base mode anybody can seal to a
//     public key. The signature around a sealed payload does that.
//   - It gives no forward secrecy by itself: whoever learns the recipient's
//     private key opens everything that was ever sealed to it. Sealing to a key
//     made for one conversation and destroyed after it does ([SessionKeyID]).
//   - X-Wing protects what is confidential against a later quantum computer.
//     Who signed a message rests on classical signatures alone.
//   - It does not hide the length of the plaintext.
//   - It keeps no nonce and no state: every [Seal] encapsulates anew.
//
// # The profile
//
// The suite that everybody must have is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// ChaCha20-Poly1305 (RFC 9180 section 7: 0x0020, 0x0001, 0x0003). The preferred
// one has X-Wing as KEM (draft-connolly-cfrg-xwing-kem, in IANA's registry of
// HPKE KEMs as 0x647a; keys of 1216 bytes, encapsulations of 1120). Both are used
// single-shot (section 6.1). info is [Context.Info]. The folder testdata holds vectors of the profile.
package hpke
