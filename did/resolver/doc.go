// SPDX-License-Identifier: Apache-2.0

// Package resolver turns a DID into a document that can be relied on, or into a
// reason why not. It is the only DID code that dials.
//
// What a successful [Resolver.Resolve] guarantees:
//
//   - The trust policy admitted the DID, before anything was fetched and again
//     now if the answer came from the cache.
//   - The document came over HTTPS from the DID's own domain through the guarded
//     client of package fetch, no longer ago than [MaxAge], or less if the
//     server said so.
//   - It is strict JSON of at most 64 KiB, its id is the DID, and
//     did.Document.Verify accepted its binding and proof.
//   - It does not go back behind what this node has seen: no older proof, no
//     other document with the same proof time, no return from deactivation, no
//     silent change of keys where nothing but the web server vouches for them
//     (did:web, bare domains, paths without a fingerprint, and k1_ documents
//     without a proof). Every accepted version is kept ([Pins]).
//
// [Resolver.Walk] goes from a DID to the one that its subject uses now. Each DID on
// the way is resolved under the rules above; at most [MaxHops] steps, all under one
// stable subject, none of them in a circle. Only [did.Assurance.Moves] lets
// anything follow, only such chains are remembered, and only as a whole. A
// successor once pinned is not rewritten: see did.Conflict and [Resolver.Confirm].
//
// Anything else is an [*Error] with a [Code]. When in doubt the answer is no.
//
// What the package does for others' sake: concurrent look-ups of one DID make
// one request; failures are remembered briefly; look-ups of DIDs never seen
// before have a budget for each source that asks ([WithSource]) and for each
// host that is asked, so that a stranger who names DIDs cannot turn the node
// against a third party.
//
// What it does not do: Resolve does not follow successions (a deactivated document
// is an error that carries the document and its successor's DID), nobody's hint of
// a successor is an input anywhere, no JSON-LD context is loaded, and who may
// contract is not decided here.
//
// Error texts name addresses and internals of this node. Give peers the Code at
// most.
package resolver
