// SPDX-License-Identifier: Apache-2.0

package wellknown

import "errors"

var (
	// ErrSpec: a builder was given facts from which no valid document can be made.
	ErrSpec = errors.New("wellknown: invalid document specification")
	// ErrEmptyMember: a card would hold an empty string, list or object, or a null, which SDKs canonicalize differently.
	ErrEmptyMember = errors.New("wellknown: empty member in a signed document")
	// ErrMalformed: a received document is not what its specification asks for.
	ErrMalformed = errors.New("wellknown: malformed document")
	// ErrTooMany: a received document holds more items than are read.
	ErrTooMany = errors.New("wellknown: too many items")
	// ErrNotSigned: a received document carries no signature or proof by the agent.
	ErrNotSigned = errors.New("wellknown: no signature by the agent")
	// ErrBadSignature: a signature or proof does not verify, or its key may not make it.
	ErrBadSignature = errors.New("wellknown: signature does not verify")
	// ErrWrongAgent: the document speaks for another DID than the one whose key signed it.
	ErrWrongAgent = errors.New("wellknown: document speaks for another agent")
	// ErrNoExtension: the card does not declare the negotiation extension.
	ErrNoExtension = errors.New("wellknown: negotiation extension not declared")
	// ErrNoInterface: the card lists no usable interface with the wanted binding.
	ErrNoInterface = errors.New("wellknown: no usable interface")
)
