// SPDX-License-Identifier: Apache-2.0

package did

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
)

// MaxDocumentBytes is the largest document that [ParseDocument] takes.
const MaxDocumentBytes = 64 << 10

const (
	maxMethods  = 64
	maxServices = 64
	maxAliases  = 64
)

// Relationship is what a key is authorised for.
type Relationship string

// The relationships of DID Core section 5.3 that are used here, and two extensions that our documents define in
// an inline context.
const (
	Authentication  Relationship = "authentication"
	AssertionMethod Relationship = "assertionMethod"
	KeyAgreement    Relationship = "keyAgreement"
	// HumanAuthorization keys approve in a person's name.
	HumanAuthorization Relationship = "humanAuthorization"
	// Recovery keys sign the succession of the DID when the binding key is lost.
	Recovery Relationship = "recovery"
)

// Service is an entry of the document's "service". Services whose endpoint is not a string have an empty
// Endpoint.
type Service struct {
	ID         string `json:"id"` // absolute
	Type       string `json:"type"`
	Endpoint   string `json:"serviceEndpoint"`
	ServiceDID string `json:"serviceDid,omitzero"`
}

// Document is a parsed DID document. It is immutable. Parsing checks form only; nothing in it is to be trusted
// before [Document.Verify] has accepted it.
type Document struct {
	id        DID
	raw       []byte
	canonical []byte
	hash      canon.Digest
	parts     proofParts

	methods   []VerificationMethod
	relations map[Relationship][]string // absolute ids
	embedded  map[string]Relationship   // methods that serve one relationship only

	services    []Service
	alsoKnownAs []string
	deactivated bool
	successor   DID
	previous    DID
}

// documentJSON are the members that mean something here. Lists stay raw: an element may stand without the array
// around it, as JSON-LD allows.
type documentJSON struct {
	ID                 string         `json:"id"`
	VerificationMethod jsontext.Value `json:"verificationMethod"`
	Authentication     jsontext.Value `json:"authentication"`
	AssertionMethod    jsontext.Value `json:"assertionMethod"`
	KeyAgreement       jsontext.Value `json:"keyAgreement"`
	HumanAuthorization jsontext.Value `json:"humanAuthorization"`
	Recovery           jsontext.Value `json:"recovery"`
	Service            jsontext.Value `json:"service"`
	AlsoKnownAs        jsontext.Value `json:"alsoKnownAs"`
	Deactivated        bool           `json:"deactivated"`
	SuccessorDID       string         `json:"successorDid"`
	PreviousDID        string         `json:"previousDid"`
	Context            jsontext.Value `json:"@context"`
	Controller         jsontext.Value `json:"controller"`
	Proof              jsontext.Value `json:"proof"`
}

type serviceJSON struct {
	ID         string         `json:"id"`
	Type       jsontext.Value `json:"type"`
	Endpoint   jsontext.Value `json:"serviceEndpoint"`
	ServiceDID string         `json:"serviceDid"`
}

// elements returns the elements of a list in canonical form, which is absent, an array, or one element.
func elements(list jsontext.Value, name string, limit int) ([]jsontext.Value, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if list.Kind() != '[' {
		return []jsontext.Value{list}, nil
	}
	var all []jsontext.Value
	for body := list[1 : len(list)-1]; len(body) > 0; {
		if len(all) == limit {
			return nil, fmt.Errorf("%w: more than %d in %s", ErrDocument, limit, name)
		}
		end := valueEnd(body, 0)
		all = append(all, body[:end])
		body = body[min(end+1, len(body)):] // past the comma
	}
	return all, nil
}

// text decodes a JSON string in canonical form.
func text(v jsontext.Value, name string) (string, error) {
	if v.Kind() != '"' {
		return "", fmt.Errorf("%w: %s is not a string", ErrDocument, name)
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrDocument, name)
	}
	return string(unquoted), nil
}

func texts(list jsontext.Value, name string, limit int) ([]string, error) {
	all, err := elements(list, name, limit)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(all))
	for i, v := range all {
		if out[i], err = text(v, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ParseDocument parses a DID document strictly (see package canon; at most [MaxDocumentBytes]). Unknown members
// are kept and covered by the proof. Verification methods may have relative ids and stand inside of
// relationships; ids are unique. A malformed or weak key makes the whole document invalid; a kind of key that
// is unknown does not.
func ParseDocument(raw []byte) (*Document, error) {
	canonical, err := canon.Canonicalize(raw, documentLimits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	var j documentJSON
	if err := canon.UnmarshalOpen(canonical, &j, canon.Limits{MaxBytes: len(canonical), MaxDepth: documentLimits.MaxDepth}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	d := &Document{
		raw:         canonical,
		canonical:   canonical,
		hash:        canon.Sum(canonical),
		deactivated: j.Deactivated,
	}
	if !bytes.Equal(raw, canonical) { // our own documents are published in canonical form and kept once
		d.raw = slices.Clone(raw)
	}
	if d.id, err = Parse(j.ID); err != nil {
		return nil, fmt.Errorf("%w: id: %w", ErrDocument, err)
	}
	if d.alsoKnownAs, err = texts(j.AlsoKnownAs, "alsoKnownAs", maxAliases); err != nil {
		return nil, err
	}
	if d.successor, err = parseOptional(j.SuccessorDID); err != nil {
		return nil, fmt.Errorf("%w: successorDid: %w", ErrDocument, err)
	}
	if d.previous, err = parseOptional(j.PreviousDID); err != nil {
		return nil, fmt.Errorf("%w: previousDid: %w", ErrDocument, err)
	}
	if err := d.readMethods(&j); err != nil {
		return nil, err
	}
	if err := d.readServices(j.Service); err != nil {
		return nil, err
	}
	if d.parts, err = splitProof(canonical); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return d, nil
}

func parseOptional(s string) (DID, error) {
	if s == "" {
		return DID{}, nil
	}
	return Parse(s)
}

func (d *Document) readMethods(j *documentJSON) error {
	methods, err := elements(j.VerificationMethod, "verificationMethod", maxMethods)
	if err != nil {
		return err
	}
	for _, m := range methods {
		if _, err := d.addMethod(m); err != nil {
			return err
		}
	}
	d.relations = make(map[Relationship][]string, 5)
	d.embedded = map[string]Relationship{}
	for _, r := range []struct {
		name Relationship
		list jsontext.Value
	}{
		{Authentication, j.Authentication},
		{AssertionMethod, j.AssertionMethod},
		{KeyAgreement, j.KeyAgreement},
		{HumanAuthorization, j.HumanAuthorization},
		{Recovery, j.Recovery},
	} {
		refs, err := elements(r.list, string(r.name), maxMethods)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			id, err := d.reference(ref, r.name)
			if err != nil {
				return err
			}
			d.relations[r.name] = append(d.relations[r.name], id)
		}
	}
	return nil
}

// reference returns the id of a method that a relationship names or contains.
func (d *Document) reference(ref jsontext.Value, rel Relationship) (string, error) {
	if ref.Kind() == '{' {
		id, err := d.addMethod(ref)
		if err == nil {
			d.embedded[id] = rel
		}
		return id, err
	}
	id, err := text(ref, string(rel))
	if err == nil && id == "" {
		err = fmt.Errorf("%w: empty reference in %s", ErrDocument, rel)
	}
	return absolute(d.id, id), err
}

func (d *Document) addMethod(object jsontext.Value) (string, error) {
	var j methodJSON
	if err := canon.UnmarshalOpen(object, &j, documentLimits); err != nil {
		return "", fmt.Errorf("%w: verification method: %w", ErrDocument, err)
	}
	m, err := j.method(d.id)
	if err != nil {
		return "", err
	}
	if _, ok := d.Method(m.ID); ok {
		return "", fmt.Errorf("%w: verification method %s occurs twice", ErrDocument, m.ID)
	}
	if len(d.methods) == maxMethods {
		return "", fmt.Errorf("%w: more than %d verification methods", ErrDocument, maxMethods)
	}
	d.methods = append(d.methods, m)
	return m.ID, nil
}

func (d *Document) readServices(list jsontext.Value) error {
	services, err := elements(list, "service", maxServices)
	if err != nil {
		return err
	}
	for _, object := range services {
		var s serviceJSON
		if err := canon.UnmarshalOpen(object, &s, documentLimits); err != nil {
			return fmt.Errorf("%w: service: %w", ErrDocument, err)
		}
		types, err := texts(s.Type, "service type", maxServices)
		if err != nil {
			return err
		}
		endpoint := ""
		if s.Endpoint.Kind() == '"' {
			if endpoint, err = text(s.Endpoint, "serviceEndpoint"); err != nil {
				return err
			}
		}
		for _, t := range types {
			d.services = append(d.services, Service{
				ID: absolute(d.id, s.ID), Type: t, Endpoint: endpoint, ServiceDID: s.ServiceDID,
			})
		}
	}
	return nil
}

// ID returns the document's DID.
func (d *Document) ID() DID { return d.id }

// Raw returns a copy of the bytes as received.
func (d *Document) Raw() []byte { return slices.Clone(d.raw) }

// Hash returns the digest of the document's canonical form (RFC 8785), proof included.
func (d *Document) Hash() canon.Digest { return d.hash }

// Methods returns the verification methods in document order, embedded ones last.
func (d *Document) Methods() []VerificationMethod { return slices.Clone(d.methods) }

// Method returns the verification method with that id, absolute or "#fragment".
func (d *Document) Method(kid string) (VerificationMethod, bool) {
	kid = absolute(d.id, kid)
	for _, m := range d.methods {
		if m.ID == kid {
			return m, true
		}
	}
	return VerificationMethod{}, false
}

// In reports whether the relationship names the key id, absolute or "#fragment".
func (d *Document) In(kid string, rel Relationship) bool {
	kid = absolute(d.id, kid)
	if only, ok := d.embedded[kid]; ok && only != rel {
		return false
	}
	return slices.Contains(d.relations[rel], kid)
}

// KeyFor returns the key with that id if the document itself controls it, authorises it for the relationship
// and it has not expired at the time. A recovery key is never given for [AssertionMethod]. Errors:
// [ErrKeyNotFound], [ErrRelationship], [ErrKeyExpired].
func (d *Document) KeyFor(kid string, rel Relationship, at time.Time) (PublicKey, error) {
	m, ok := d.Method(kid)
	if !ok || m.Key.IsZero() {
		return PublicKey{}, fmt.Errorf("%w: %s", ErrKeyNotFound, clip(kid))
	}
	if !d.authorised(m, rel) {
		return PublicKey{}, fmt.Errorf("%w: %s for %s", ErrRelationship, m.ID, rel)
	}
	if err := m.usableAt(at); err != nil {
		return PublicKey{}, err
	}
	return m.Key, nil
}

// authorised reports whether the document itself controls the key and gives it the relationship. A recovery key
// stands in assertionMethod for other implementations; here it signs successions and nothing else.
func (d *Document) authorised(m VerificationMethod, rel Relationship) bool {
	return m.Controller == d.id.String() && d.In(m.ID, rel) && (rel != AssertionMethod || !d.isRecovery(m.ID))
}

// Keys returns the methods that [Document.KeyFor] would give for the relationship, in its order, expired ones
// included.
func (d *Document) Keys(rel Relationship) []VerificationMethod {
	var keys []VerificationMethod
	for _, id := range d.relations[rel] {
		m, ok := d.Method(id)
		if ok && !m.Key.IsZero() && d.authorised(m, rel) {
			keys = append(keys, m)
		}
	}
	return keys
}

// Services returns the services of the type, all of them if it is empty. A service with several types is there
// once for each.
func (d *Document) Services(typ string) []Service {
	var found []Service
	for _, s := range d.services {
		if typ == "" || s.Type == typ {
			found = append(found, s)
		}
	}
	return found
}

// AlsoKnownAs returns the other names that the subject claims.
func (d *Document) AlsoKnownAs() []string { return slices.Clone(d.alsoKnownAs) }

// Deactivated reports the member "deactivated".
func (d *Document) Deactivated() bool { return d.deactivated }

// SuccessorDID returns the DID that the document says follows this one, zero if it says none.
func (d *Document) SuccessorDID() DID { return d.successor }

// PreviousDID returns the DID that the document says went before this one, zero if it says none.
func (d *Document) PreviousDID() DID { return d.previous }

// ProofCreated returns when the proof says it was made, zero without one.
func (d *Document) ProofCreated() time.Time { return d.parts.created }
