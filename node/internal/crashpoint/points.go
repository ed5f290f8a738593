// SPDX-License-Identifier: Apache-2.0

// Package crashpoint names the places where a crash is interesting, so that a test can kill a process at each of them and
// check that nothing is left in between (invariant 8).
//
// A binary built without the tag treaty_crash has none of this: [Hit] is an empty function that the compiler removes, and
// the environment is not read. With the tag,
//
//	TREATY_CRASH_AT=store.commit.before      kills the process at the first hit
//	TREATY_CRASH_AT=store.commit.before:3    at the third
//
// Killing is SIGKILL to the own process: no deferred function, no flush and no handler runs.
package crashpoint

// Env is the variable that arms a point in binaries built with the tag treaty_crash.
const Env = "TREATY_CRASH_AT"

// Point is the name of a place in the code.
type Point string

// The points. A new one is added here and nowhere else: All is what the crash test walks through.
const (
	// Every write transaction.
	StoreCommitBefore Point = "store.commit.before" // work done, not committed
	StoreCommitAfter  Point = "store.commit.after"  // committed, the caller does not know yet

	// A node's turn: either role.
	EnvelopeVerified Point = "envelope.verified" // message checked and opened, nothing stored
	EnvelopeStored   Point = "envelope.stored"   // message, new state and answer committed, nothing sent
	EnvelopeSending  Point = "envelope.sending"  // before the bytes go out
	EnvelopeAnswered Point = "envelope.answered" // the peer's answer arrived, nothing stored

	// The contract step.
	ContractProof     Point = "contract.proof"     // buyer: its proof is made, not stored
	ContractActivate  Point = "contract.activate"  // vendor: proof and activation made, in the transaction
	ContractActivated Point = "contract.activated" // vendor: committed, the buyer has not been told
	ContractReceived  Point = "contract.received"  // buyer: the sealed artifact is here, not stored

	// The data plane's call.
	CallReserved Point = "call.reserved" // budget taken
	CallExecuted Point = "call.executed" // query ran, no receipt yet
	CallReceipt  Point = "call.receipt"  // receipt committed, no byte of the result sent

	// The end of a contract and of the data received under it.
	RevocationStored Point = "revocation.stored" // committed with its notice in the outbox, nothing sent
	DeletionStored   Point = "deletion.stored"   // data gone and stated, nothing sent

	// A rotation of a key inside the DID.
	RotationKey       Point = "rotation.key"       // the new key's file is there, nothing says so
	RotationProved    Point = "rotation.proved"    // the next document is signed, not stored
	RotationCommitted Point = "rotation.committed" // stored; nobody has seen it, did/ has the old one
	RotationExported  Point = "rotation.exported"  // published, and in did/; a retired key's file is still there
)

// All returns every point.
func All() []Point {
	return []Point{
		StoreCommitBefore, StoreCommitAfter,
		EnvelopeVerified, EnvelopeStored, EnvelopeSending, EnvelopeAnswered,
		ContractProof, ContractActivate, ContractActivated, ContractReceived,
		CallReserved, CallExecuted, CallReceipt,
		RevocationStored, DeletionStored,
		RotationKey, RotationProved, RotationCommitted, RotationExported,
	}
}
