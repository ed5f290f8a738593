// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/wellknown"
)

// rehearsalPath is where the identities of rehearsals stand under the node's domain.
const rehearsalPath = "agents:rehearsal"

// rehearsal is an identity that is made for one drill: keys in memory, documents published beside the node's own while the drill
// lasts, deactivated at its end. It signs no contract and nothing under the node's DID.
type rehearsal struct {
	n     *Node
	kind  drill.Kind
	grace time.Duration
	call  func(ctx context.Context, s did.Signer) error // a signed request of the counterparty

	notices *notice.Service

	mu       sync.Mutex
	docs     []*did.Document // oldest first; all but the last are deactivated
	keys     map[string]did.PrivateKey
	until    map[string]time.Time // ends of key-agreement keys
	old      []string             // key-agreement keys whose grace has not ended yet
	binding  did.Signer
	recovery did.Signer
	using    did.Signer // what signs requests
	before   did.Signer // the same before the rotation
	site     *wellknown.Site
}

// newRehearsal makes and publishes the identity.
func (n *Node) newRehearsal(ctx context.Context, kind drill.Kind, grace time.Duration) (*rehearsal, error) {
	r := &rehearsal{n: n, kind: kind, grace: grace, keys: map[string]did.PrivateKey{}, until: map[string]time.Time{}}
	binding, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		return nil, err
	}
	id, err := did.Parse("did:wba:" + n.cfg.Domain + ":" + rehearsalPath + ":e1_" + binding.Public().Thumbprint())
	if err != nil {
		return nil, err
	}
	kex, err := did.GenerateKey(did.X25519)
	if err != nil {
		return nil, err
	}
	recovery, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		return nil, err
	}
	spec := did.DocumentSpec{
		ID: id, Binding: did.MethodSpec{Key: binding.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}}, Recovery: []did.MethodSpec{{Key: recovery.Public()}},
	}
	if r.binding, err = did.NewSigner(did.KeyID(id, "signing", binding.Public()), binding); err != nil {
		return nil, err
	}
	if r.recovery, err = did.NewSigner(did.KeyID(id, "recovery", recovery.Public()), recovery); err != nil {
		return nil, err
	}
	r.using = r.binding
	if kind == drill.Signing {
		second, err := did.GenerateKey(did.Ed25519)
		if err != nil {
			return nil, err
		}
		spec.Signing = []did.MethodSpec{{Key: second.Public()}}
		if r.using, err = did.NewSigner(did.KeyID(id, "signing", second.Public()), second); err != nil {
			return nil, err
		}
	}
	r.before = r.using
	r.keys[did.KeyID(id, "kex", kex.Public())] = kex
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		return nil, err
	}
	doc, err := r.sign(ctx, unsigned, n.clock.Now())
	if err != nil {
		return nil, err
	}
	r.notices = n.noticesOf(func() notice.Keys {
		r.mu.Lock()
		defer r.mu.Unlock()
		return notice.Keys{Binding: r.binding, Opener: r, Document: r.docs[len(r.docs)-1], Owns: r.owns}
	}, nil)
	r.notices.Handle(drillProbe, n.drills.probed)
	return r, r.publish(doc)
}

func (r *rehearsal) sign(ctx context.Context, unsigned []byte, at time.Time) (*did.Document, error) {
	raw, err := did.SignDocument(ctx, unsigned, r.binding, at.Truncate(time.Second), did.Dialect(r.n.cfg.ProofDialect))
	if err != nil {
		return nil, err
	}
	return did.ParseDocument(raw)
}

// publish puts a document in the place of the one of its DID, or after the others.
func (r *rehearsal) publish(docs ...*did.Document) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, doc := range docs {
		if n := len(r.docs); n > 0 && r.docs[n-1].ID() == doc.ID() {
			r.docs[n-1] = doc
		} else {
			r.docs = append(r.docs, doc)
		}
	}
	var pages []wellknown.Document
	for _, doc := range r.docs {
		page, err := wellknown.DIDDocument(doc.Raw())
		if err != nil {
			return err
		}
		pages = append(pages, page)
	}
	site, err := wellknown.NewSite(documentAge, pages...)
	r.site = site
	return err
}

func (r *rehearsal) owns(id did.DID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, doc := range r.docs {
		if doc.ID() == id {
			return true
		}
	}
	return false
}

// serves answers for the rehearsal's documents, and says whether the path is one of theirs.
func (r *rehearsal) serves(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	site := r.site
	r.mu.Unlock()
	if !site.Has(req.URL.EscapedPath()) {
		return false
	}
	site.ServeHTTP(w, req)
	return true
}

// Open implements [hpke.Opener]: as the node's own keys do, to the end of the grace and no longer.
func (r *rehearsal) Open(ctx context.Context, suite hpke.Suite, s hpke.Sealed, c hpke.Context, aad []byte) ([]byte, error) {
	r.mu.Lock()
	key, known := r.keys[c.RecipientKID]
	until := r.until[c.RecipientKID]
	r.mu.Unlock()
	if known && !until.IsZero() && !r.n.clock.Now().Before(until) {
		return nil, fmt.Errorf("%w: %s, at %s", hpke.ErrRetired, c.RecipientKID, until.Format(time.RFC3339))
	}
	ring := map[string]did.PrivateKey{}
	if known {
		ring[c.RecipientKID] = key
	}
	return hpke.NewKeyring(ring).Open(ctx, suite, s, c, aad)
}

// Document implements [drill.Rotating].
func (r *rehearsal) Document() *did.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.docs[len(r.docs)-1]
}

// KeyAgreement implements [drill.Rotating].
func (r *rehearsal) KeyAgreement() string {
	kid, _, _ := hpke.SelectKey(r.Document(), notice.Suite, r.n.clock.Now())
	return kid
}

// Call implements [drill.Rotating].
func (r *rehearsal) Call(ctx context.Context, old bool) error {
	r.mu.Lock()
	s := r.using
	if old {
		s = r.before
	}
	r.mu.Unlock()
	return r.call(ctx, s)
}

// Rotate implements [drill.Rotating].
func (r *rehearsal) Rotate(ctx context.Context) error {
	doc := r.Document()
	// Documents are dated to the second, and a newer one has a later date.
	at, err := r.after(ctx, doc)
	if err != nil {
		return err
	}
	switch {
	case r.kind.Moves():
		return r.move(ctx, doc, at)
	case r.kind == drill.Signing:
		key, err := did.GenerateKey(did.Ed25519)
		if err != nil {
			return err
		}
		rev := did.Revision{
			Add: []did.Addition{{Relationship: did.Authentication, Key: did.MethodSpec{Key: key.Public()}}}, Expire: map[string]time.Time{r.before.KeyID(): r.latest(at)},
		}
		if err := r.revise(ctx, doc, rev, at); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.using, err = did.NewSigner(did.KeyID(doc.ID(), "signing", key.Public()), key)
		return err
	}
	key, err := did.GenerateKey(did.X25519)
	if err != nil {
		return err
	}
	old := r.KeyAgreement()
	r.mu.Lock()
	r.keys[did.KeyID(doc.ID(), "kex", key.Public())] = key
	r.old = append(r.old, old)
	r.mu.Unlock()
	return r.revise(ctx, doc, did.Revision{
		Add: []did.Addition{{Relationship: did.KeyAgreement, Key: did.MethodSpec{Key: key.Public()}}}, Expire: map[string]time.Time{old: r.latest(at)},
	}, at)
}

// after waits for a second that is later than the document's.
func (r *rehearsal) after(ctx context.Context, doc *did.Document) (time.Time, error) {
	for {
		now := r.n.clock.Now().Truncate(time.Second)
		if now.After(doc.ProofCreated()) {
			return now, nil
		}
		if err := clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
}

func (r *rehearsal) revise(ctx context.Context, doc *did.Document, rev did.Revision, at time.Time) error {
	unsigned, err := doc.Revise(rev)
	if err != nil {
		return err
	}
	next, err := r.sign(ctx, unsigned, at)
	if err != nil {
		return err
	}
	return r.publish(next)
}

// move goes on under another DID, as a rotation of the binding key does.
func (r *rehearsal) move(ctx context.Context, doc *did.Document, at time.Time) error {
	binding, err := did.GenerateKey(did.Ed25519)
	if err != nil {
		return err
	}
	kex, err := did.GenerateKey(did.X25519)
	if err != nil {
		return err
	}
	id, err := did.SuccessorID(doc.ID(), binding.Public())
	if err != nil {
		return err
	}
	spec, err := did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: binding.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}}}.Succeeding(doc.ID())
	if err != nil {
		return err
	}
	by := r.binding
	if r.kind == drill.Recovery {
		by = r.recovery // the binding key is lost
	}
	raw, err := did.Deactivate(ctx, doc.Raw(), id, by, at, did.Dialect(r.n.cfg.ProofDialect))
	if err != nil {
		return err
	}
	gone, err := did.ParseDocument(raw)
	if err != nil {
		return err
	}
	unsigned, err := did.BuildDocument(spec)
	if err != nil {
		return err
	}
	next, err := did.NewSigner(did.KeyID(id, "signing", binding.Public()), binding)
	if err != nil {
		return err
	}
	r.mu.Lock()
	for kid := range r.keys {
		if r.kind == drill.Compromise {
			r.until[kid] = at
		} else {
			r.old = append(r.old, kid)
		}
	}
	r.keys[did.KeyID(id, "kex", kex.Public())] = kex
	r.binding, r.using = next, next
	r.mu.Unlock()
	successor, err := r.sign(ctx, unsigned, at)
	if err != nil {
		return err
	}
	return r.publish(gone, successor)
}

// latest is the end of life that old keys get in the document. They are taken out before, when the grace ends; a slow machine must
// not end it while the other side still looks at it.
func (r *rehearsal) latest(at time.Time) time.Time { return at.Add(r.grace + drillMargin) }

// EndGrace implements [drill.Rotating]: the agreed time has passed, old keys open nothing any more and leave the document.
func (r *rehearsal) EndGrace(ctx context.Context) error {
	r.mu.Lock()
	for _, kid := range r.old {
		r.until[kid] = r.n.clock.Now()
	}
	r.old = nil
	r.mu.Unlock()
	doc := r.Document()
	var rev did.Revision
	for _, m := range doc.Methods() {
		if !m.Expires.IsZero() {
			rev.Remove = append(rev.Remove, m.ID)
		}
	}
	if len(rev.Remove) == 0 {
		return nil
	}
	at, err := r.after(ctx, doc)
	if err != nil {
		return err
	}
	return r.revise(ctx, doc, rev, at)
}

// end deactivates the identity. Its documents stay published until the next rehearsal or the node's end.
func (r *rehearsal) end(ctx context.Context) error {
	doc := r.Document()
	at, err := r.after(ctx, doc)
	if err != nil {
		return err
	}
	raw, err := did.Deactivate(ctx, doc.Raw(), did.DID{}, r.binding, at, did.Dialect(r.n.cfg.ProofDialect))
	if err != nil {
		return err
	}
	gone, err := did.ParseDocument(raw)
	if err != nil {
		return err
	}
	return r.publish(gone)
}
