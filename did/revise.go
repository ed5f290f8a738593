// SPDX-License-Identifier: Apache-2.0

package did

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Revision is a change of a document's keys under which its DID stays what it is. The binding key cannot be changed so: see
// [DocumentSpec.Succeeding].
type Revision struct {
	Add []Addition
	// Expire gives keys, by their absolute ids, an end of life.
	Expire map[string]time.Time
	// Remove takes keys out, by their absolute ids.
	Remove []string
}

// Addition is a key to add.
type Addition struct {
	// Relationship is what the key is for: KeyAgreement, HumanAuthorization or Recovery, or Authentication for a secondary
	// signing key, which then signs requests and nothing else.
	Relationship Relationship
	Key          MethodSpec
}

// Revise returns the document with the change made and without a proof, in canonical form; sign it with [SignDocument], with a
// newer time than the document's proof has. Members that this package does not know stay. It checks what [BuildDocument]
// checks, and refuses ids that the document does not have, the binding key's, and the first key of a relationship that the
// document's context may not define.
func (d *Document) Revise(r Revision) ([]byte, error) {
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(d.raw, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	delete(doc, "proof")
	var methods []map[string]json.RawMessage
	if err := json.Unmarshal(doc["verificationMethod"], &methods); err != nil {
		return nil, fmt.Errorf("%w: verificationMethod: %w", ErrDocument, err)
	}
	if err := d.revisable(r); err != nil {
		return nil, err
	}
	kept := methods[:0]
	for _, m := range methods {
		id := memberID(d.id, m)
		if slices.Contains(r.Remove, id) {
			continue
		}
		if end, ok := r.Expire[id]; ok {
			m["expires"] = quoted(formatTime(end))
		}
		kept = append(kept, m)
	}
	added := &builder{spec: &DocumentSpec{ID: d.id}, doc: map[string]any{}}
	for _, a := range r.Add {
		role, rels := roleOf(a.Relationship)
		if role == "" || len(d.Keys(a.Relationship)) == 0 {
			return nil, fmt.Errorf("%w: no key to add to %q", ErrDocument, string(a.Relationship))
		}
		added.add([]MethodSpec{a.Key}, role, rels...)
	}
	if added.err != nil {
		return nil, added.err
	}
	list := make([]any, 0, len(kept)+len(r.Add))
	for _, m := range kept {
		list = append(list, m)
	}
	if more, ok := added.doc["verificationMethod"].([]map[string]any); ok {
		for _, m := range more {
			list = append(list, m)
		}
	}
	out := map[string]any{}
	for name, value := range doc {
		out[name] = value
	}
	out["verificationMethod"] = list
	for _, rel := range []Relationship{Authentication, AssertionMethod, KeyAgreement, HumanAuthorization, Recovery} {
		if err := revised(d.id, out, doc, rel, added, r.Remove); err != nil {
			return nil, err
		}
	}
	unsigned, err := canon.Marshal(out)
	if err != nil {
		return nil, err
	}
	return unsigned, checkBuilt(unsigned)
}

func (d *Document) revisable(r Revision) error {
	binding, err := d.BindingKeyID()
	if err != nil && d.id.Fingerprint() != "" {
		return err
	}
	check := func(kid string) error {
		if _, ok := d.Method(kid); !ok || kid == binding {
			return fmt.Errorf("%w: %s is not a key that can go", ErrDocument, kid)
		}
		return nil
	}
	for kid := range r.Expire {
		if err := check(kid); err != nil {
			return err
		}
	}
	for _, kid := range r.Remove {
		if err := check(kid); err != nil {
			return err
		}
	}
	return nil
}

// revised writes one relationship.
func revised(id DID, out map[string]any, doc map[string]json.RawMessage, rel Relationship, added *builder, remove []string) error {
	var entries []json.RawMessage
	if raw, ok := doc[string(rel)]; ok {
		if err := json.Unmarshal(raw, &entries); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDocument, rel, err)
		}
	}
	entries = slices.DeleteFunc(entries, func(raw json.RawMessage) bool {
		var ref string
		if json.Unmarshal(raw, &ref) == nil {
			return slices.Contains(remove, absolute(id, ref))
		}
		var m map[string]json.RawMessage
		return json.Unmarshal(raw, &m) == nil && slices.Contains(remove, memberID(id, m))
	})
	more, _ := added.doc[string(rel)].([]string)
	for _, kid := range more {
		entries = append(entries, quoted(kid))
	}
	delete(out, string(rel))
	if len(entries) > 0 {
		out[string(rel)] = entries
	}
	return nil
}

// roleOf is the role in the ids of keys that are added to a relationship, and where else they stand.
func roleOf(rel Relationship) (string, []Relationship) {
	switch rel {
	case KeyAgreement:
		return "kex", []Relationship{KeyAgreement}
	case HumanAuthorization:
		return "human", []Relationship{HumanAuthorization}
	case Recovery:
		return "recovery", []Relationship{AssertionMethod, Recovery}
	case Authentication:
		return "signing", []Relationship{Authentication}
	case AssertionMethod:
	}
	return "", nil
}

func memberID(id DID, m map[string]json.RawMessage) string {
	var s string
	_ = json.Unmarshal(m["id"], &s)
	return absolute(id, s)
}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}
