// SPDX-License-Identifier: Apache-2.0

package did

import "errors"

// Errors to branch on. What this package returns wraps one of them, or an error of package canon where the JSON
// itself is at fault.
var (
	// ErrSyntax: not a did:wba or did:web identifier as ANP-03 section 2.2 or did:web writes them, or not a key
	// id of one.
	ErrSyntax = errors.New("did: malformed identifier")
	// ErrMethod: a DID of a method other than wba and web.
	ErrMethod = errors.New("did: unsupported DID method")

	// ErrKey: key material that is malformed or in a form that has more than one spelling.
	ErrKey = errors.New("did: malformed key")
	// ErrWeakKey: a key of small order or in a non-canonical encoding.
	ErrWeakKey = errors.New("did: weak key")
	// ErrKeyType: the operation does not exist for this type of key.
	ErrKeyType = errors.New("did: wrong type of key")
	// ErrBadSignature: a signature that does not verify, or not in its one valid form.
	ErrBadSignature = errors.New("did: bad signature")

	// ErrDocument: a DID document that breaks DID Core or ANP-03.
	ErrDocument = errors.New("did: malformed document")
	// ErrKeyNotFound: the document has no such verification method, or it is of a kind that this package cannot
	// use.
	ErrKeyNotFound = errors.New("did: no such key")
	// ErrRelationship: the key exists, but not for this purpose.
	ErrRelationship = errors.New("did: key not authorised for this purpose")
	// ErrKeyExpired: the key has expired or was revoked.
	ErrKeyExpired = errors.New("did: key expired")
	// ErrBinding: no authentication key has the thumbprint that the DID carries.
	ErrBinding = errors.New("did: document not bound to the identifier")
	// ErrNoProof: a proof is required and there is none.
	ErrNoProof = errors.New("did: document has no proof")
	// ErrProof: a proof of the wrong form, by the wrong key, or that does not verify.
	ErrProof = errors.New("did: invalid proof")
	// ErrProofTime: a proof from the future, or expired.
	ErrProofTime = errors.New("did: proof outside its time")
	// ErrMixedRoles: one key serves more than one role.
	ErrMixedRoles = errors.New("did: key in more than one role")

	// ErrSignerUnavailable: the key lives elsewhere and cannot be used now. Nothing was signed; the same call may
	// succeed later.
	ErrSignerUnavailable = errors.New("did: signer unavailable")

	// ErrJWS: not a signature object in the one form that is accepted.
	ErrJWS = errors.New("did: malformed signature object")
)
