// SPDX-License-Identifier: Apache-2.0

package did

import (
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// MethodSpec describes a verification method to build.
type MethodSpec struct {
	// ID is the absolute id. Empty stands for <did>#<role>-<first 8 characters of the thumbprint>, see [KeyID].
	ID      string
	Key     PublicKey
	Expires time.Time // zero: none
}

// DocumentSpec describes a DID document to build. A key may stand in one place only.
type DocumentSpec struct {
	ID DID
	// Binding is the signing key, in authentication and assertionMethod. Its thumbprint must be the DID's
	// fingerprint, if it has one. Role "signing".
	Binding MethodSpec
	// Signing are further signing keys, such as a service's. Role "signing".
	Signing []MethodSpec
	// KeyAgreement keys are X25519 or X-Wing. Role "kex".
	KeyAgreement []MethodSpec
	// Human are keys in humanAuthorization only. Role "human".
	Human []MethodSpec
	// Recovery are keys in recovery and, for other implementations, in assertionMethod. Role "recovery".
	Recovery []MethodSpec

	Services     []Service // ids may be "#fragment"
	AlsoKnownAs  []string
	PreviousDID  DID
	Deactivated  bool
	SuccessorDID DID
	// Extra are members of other specifications, encoded as [canon.Marshal] does. They may not replace those
	// above.
	Extra map[string]any
}

// extensionNS is where the extension terms of our documents are defined, by this name only: nothing is fetched.
const extensionNS = "https://github.com/treaty-node/treaty/ext/identity/v1#"

// BuildDocument returns the unsigned document in canonical form; sign it with [SignDocument]. It checks what
// [Document.Verify] and [Document.CheckRoles] will ask for.
func BuildDocument(spec DocumentSpec) ([]byte, error) {
	if spec.ID.IsZero() {
		return nil, fmt.Errorf("%w: no id", ErrDocument)
	}
	b := &builder{spec: &spec, doc: map[string]any{"id": spec.ID}}
	signing := append([]MethodSpec{spec.Binding}, spec.Signing...)
	b.add(signing, "signing", Authentication, AssertionMethod)
	b.add(spec.KeyAgreement, "kex", KeyAgreement)
	b.add(spec.Human, "human", HumanAuthorization)
	b.add(spec.Recovery, "recovery", AssertionMethod, Recovery)
	if b.err != nil {
		return nil, b.err
	}
	b.doc["@context"] = b.contexts()
	if len(spec.Services) > 0 {
		services := slices.Clone(spec.Services)
		for i := range services {
			services[i].ID = absolute(spec.ID, services[i].ID)
		}
		b.doc["service"] = services
	}
	if len(spec.AlsoKnownAs) > 0 {
		b.doc["alsoKnownAs"] = spec.AlsoKnownAs
	}
	if !spec.PreviousDID.IsZero() {
		b.doc["previousDid"] = spec.PreviousDID
	}
	if spec.Deactivated {
		b.doc["deactivated"] = true
	}
	if !spec.SuccessorDID.IsZero() {
		b.doc["successorDid"] = spec.SuccessorDID
	}
	for name, value := range spec.Extra {
		if _, taken := b.doc[name]; taken || name == "proof" {
			return nil, fmt.Errorf("%w: extra member %q", ErrDocument, name)
		}
		b.doc[name] = value
	}
	out, err := canon.Marshal(b.doc)
	if err != nil {
		return nil, err
	}
	if err := checkBuilt(out); err != nil {
		return nil, err
	}
	return out, nil
}

// checkBuilt reads the document as a peer will.
func checkBuilt(unsigned []byte) error {
	d, err := ParseDocument(unsigned)
	if err != nil {
		return err
	}
	if d.id.Fingerprint() != "" {
		if _, err := d.BindingKeyID(); err != nil {
			return err
		}
	}
	return d.CheckRoles()
}

type builder struct {
	spec  *DocumentSpec
	doc   map[string]any
	types map[string]bool
	err   error
}

func (b *builder) add(specs []MethodSpec, role string, rels ...Relationship) {
	for _, m := range specs {
		if b.err != nil {
			return
		}
		if m.Key.IsZero() || m.Key.Type().Agreement() != (role == "kex") {
			b.err = fmt.Errorf("%w: %q for role %s", ErrKeyType, m.Key.Type(), role)
			return
		}
		id := absolute(b.spec.ID, m.ID)
		if id == "" {
			id = KeyID(b.spec.ID, role, m.Key)
		}
		b.method(id, m)
		for _, rel := range rels {
			ids, _ := b.doc[string(rel)].([]string)
			b.doc[string(rel)] = append(ids, id)
		}
	}
}

// method adds a verification method: Multikey, except where ANP names another type (ANP-03 section 2.5 for
// X25519, appendix A.4 for secp256k1). An X-Wing key, which has no multicodec, is a JsonWebKey of key type AKP:
// whoever does not know that type passes it over, and takes the X25519 key beside it.
func (b *builder) method(id string, m MethodSpec) {
	vm := map[string]any{"id": id, "controller": b.spec.ID}
	switch m.Key.Type() {
	case X25519:
		vm["type"], vm["publicKeyMultibase"] = TypeX25519v2019, m.Key.Multibase()
	case Secp256k1:
		vm["type"], vm["publicKeyJwk"] = TypeSecp256k1, m.Key.JWK()
	case XWing:
		vm["type"], vm["publicKeyJwk"] = TypeJSONWebKeyV1, m.Key.JWK()
	case Ed25519, P256:
		vm["type"], vm["publicKeyMultibase"] = TypeMultikey, m.Key.Multibase()
	}
	if !m.Expires.IsZero() {
		vm["expires"] = formatTime(m.Expires)
	}
	if b.types == nil {
		b.types = map[string]bool{}
	}
	b.types[vm["type"].(string)] = true //nolint:forcetypeassert // set above
	methods, _ := b.doc["verificationMethod"].([]map[string]any)
	b.doc["verificationMethod"] = append(methods, vm)
}

func (b *builder) contexts() []any {
	contexts := []any{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/data-integrity/v2", "https://w3id.org/security/multikey/v1"}
	if b.types[TypeX25519v2019] {
		contexts = append(contexts, "https://w3id.org/security/suites/x25519-2019/v1")
	}
	if b.types[TypeJSONWebKeyV1] {
		contexts = append(contexts, "https://w3id.org/security/jwk/v1")
	}
	if b.types[TypeSecp256k1] {
		contexts = append(contexts, "https://w3id.org/security/suites/secp256k1-2019/v1")
	}
	terms := map[string]any{}
	for _, rel := range []Relationship{HumanAuthorization, Recovery} {
		if _, used := b.doc[string(rel)]; used {
			terms[string(rel)] = map[string]string{"@id": extensionNS + string(rel), "@type": "@id", "@container": "@set"}
		}
	}
	for _, link := range []struct {
		name string
		used bool
	}{
		{"previousDid", !b.spec.PreviousDID.IsZero()},
		{"successorDid", !b.spec.SuccessorDID.IsZero()},
	} {
		if link.used {
			terms[link.name] = linkTerm(link.name)
		}
	}
	if len(terms) > 0 {
		contexts = append(contexts, terms)
	}
	return contexts
}

// linkTerm defines an extension term whose value is a DID.
func linkTerm(name string) map[string]string {
	return map[string]string{"@id": extensionNS + name, "@type": "@id"}
}
