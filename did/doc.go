// SPDX-License-Identifier: Apache-2.0

// Package did holds decentralized identifiers (did:wba of ANP-03, and did:web), their documents, keys and
// proofs, and the JOSE signatures made with those keys.
//
// What it guarantees:
//
//   - An identifier has one spelling ([Parse]) and one document URL.
//   - A [Document] is what was received: its bytes are kept, and its proof is checked
//     over all of it, members unknown to this package included.
//   - [Document.Verify] accepts an e1_ document only with a proof by the key whose
//     thumbprint the DID carries, over the whole document; a k1_ document only if it has such a key,
//     and with a valid proof if it has any.
//   - Keys of small order and keys in non-canonical encodings are refused where they enter
//     ([NewPublicKey], [ParseDocument]). ECDSA over secp256k1 makes and
//     takes low-S signatures only.
//   - A [PrivateKey] never prints its secret.
//   - Every parser bounds its input in size and depth.
//
// What it does not do: it opens no connection, reads no clock and keeps no state. Whether a document is fresh,
// whether an older one was pinned, and whom to trust are questions for its callers. It does not process
// JSON-LD: no context is ever fetched, and terms mean what ANP-03 and DID Core say. It does not erase keys from
// memory.
package did
