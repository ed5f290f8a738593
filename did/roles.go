// SPDX-License-Identifier: Apache-2.0

package did

import "fmt"

// BindingKeyID returns the id of the key that the DID is bound to: an authentication key under the document's
// own control whose RFC 7638 thumbprint is the fingerprint (ANP-03 sections 2.2.2 and A.4). It fails with
// [ErrBinding] if there is none, and for DIDs that carry no fingerprint.
func (d *Document) BindingKeyID() (string, error) {
	m, err := d.binding()
	return m.ID, err
}

func (d *Document) binding() (VerificationMethod, error) {
	var want KeyType
	switch d.id.Profile() {
	case ProfileE1:
		want = Ed25519
	case ProfileK1:
		want = Secp256k1
	case ProfileBare, ProfilePath, ProfileWeb:
		return VerificationMethod{}, fmt.Errorf("%w: %s carries no fingerprint", ErrBinding, d.id)
	}
	for _, m := range d.Keys(Authentication) {
		if m.Key.Type() == want && m.Key.Thumbprint() == d.id.Fingerprint() {
			return m, nil
		}
	}
	return VerificationMethod{}, fmt.Errorf("%w: %s", ErrBinding, d.id)
}

// Bound reports whether the key that the DID carries vouches for the whole of a document that [Document.Verify] has accepted.
// Without a fingerprint in the DID nothing does; nor in a k1_ document without proof, whose host can have added any key.
func (d *Document) Bound() bool {
	profile := d.id.Profile()
	return (profile == ProfileE1 || profile == ProfileK1) && d.parts.present
}

// role is what a key serves for, by the relationships it is in.
type role string

const (
	roleSigning      role = "signing"
	roleKeyAgreement role = "key agreement"
	roleHuman        role = "human authorisation"
	roleRecovery     role = "recovery"
)

// CheckRoles returns [ErrMixedRoles] if a key serves in more than one of these roles, under one id or several:
// signing (authentication, assertionMethod), key agreement, human authorisation, recovery. A recovery key is in
// assertionMethod as well, as ANP-03 wants it; that does not make it a signing key, being in authentication
// does. Keys of kinds unknown to this package are told apart by their ids.
func (d *Document) CheckRoles() error {
	seen := map[string]role{}
	mark := func(id string, r role) error {
		name := id
		if m, ok := d.Method(id); ok && !m.Key.IsZero() {
			name = m.Key.String()
		}
		if other, ok := seen[name]; ok && other != r {
			return fmt.Errorf("%w: %s serves for %s and %s", ErrMixedRoles, id, other, r)
		}
		seen[name] = r
		return nil
	}
	for _, rule := range []struct {
		rel  Relationship
		role role
	}{
		{Recovery, roleRecovery},
		{HumanAuthorization, roleHuman},
		{KeyAgreement, roleKeyAgreement},
		{Authentication, roleSigning},
		{AssertionMethod, roleSigning},
	} {
		for _, id := range d.relations[rule.rel] {
			r := rule.role
			if rule.rel == AssertionMethod && d.isRecovery(id) {
				r = roleRecovery
			}
			if err := mark(id, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// isRecovery reports whether the key, under any id, is in the recovery relationship.
func (d *Document) isRecovery(id string) bool {
	m, ok := d.Method(id)
	for _, other := range d.relations[Recovery] {
		if o, found := d.Method(other); other == id || ok && found && o.Key.Equal(m.Key) {
			return true
		}
	}
	return false
}
