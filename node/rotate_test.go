// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/ledger"
)

// shifted is the machine's clock, some time ahead.
type shifted struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (s *shifted) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().UTC().Round(0).Add(s.ahead)
}

func (s *shifted) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

const week = 7 * 24 * time.Hour

func open(t *testing.T, dir string, c *shifted) *node.Node {
	t.Helper()
	n := must[*node.Node](t)(node.Open(t.Context(), dir, node.Options{Process: "treaty", Clock: c}))
	t.Cleanup(func() { _ = n.Close() }) // some tests have closed it
	return n
}

func rotate(t *testing.T, n *node.Node, kind string) httpapi.Rotation {
	t.Helper()
	r, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	if r.Note != "" {
		t.Fatal(r.Note)
	}
	return r
}

// keyOf is how the node lists one of its keys; the zero value when it does not.
func keyOf(t *testing.T, n *node.Node, kid string) httpapi.Key {
	t.Helper()
	for _, k := range must[[]httpapi.Key](t)(n.Keys(t.Context())) {
		if k.KID == kid {
			return k
		}
	}
	return httpapi.Key{}
}

func eventsOf(t *testing.T, n *node.Node, typ string) (list []ledger.Event) {
	t.Helper()
	for _, e := range must[[]ledger.Event](t)(n.Events(t.Context(), 0, 1000)) {
		if e.Type == typ {
			list = append(list, e)
		}
	}
	return list
}

func folderDocument(t *testing.T, dir string) *did.Document {
	t.Helper()
	return must[*did.Document](t)(did.ParseDocument(must[[]byte](t)(os.ReadFile(filepath.Join(dir, node.DocumentsDir, "agent.json")))))
}

func keyPath(dir, kid string) string {
	_, fragment, _ := did.SplitKeyID(kid)
	return filepath.Join(dir, node.KeysDir, fragment+".age")
}

// sealed is a message to one of the node's keys, and what opens it.
func sealed(t *testing.T, doc *did.Document, kid string) func(hpke.Opener) error {
	t.Helper()
	m, ok := doc.Method(kid)
	if !ok {
		t.Fatalf("the document has no %s", kid)
	}
	from := must[did.DID](t)(did.Parse("did:wba:peer.test"))
	c := hpke.Context{Protocol: "test", Version: 1, From: from, To: doc.ID(), SenderKID: from.String() + "#k", RecipientKID: kid}
	suite := hpke.SuiteX25519
	if m.Key.Type() == did.XWing {
		suite = hpke.SuiteXWing
	}
	s := must[hpke.Sealed](t)(hpke.Seal(suite, m.Key, c, nil, []byte("in flight")))
	return func(o hpke.Opener) error {
		_, err := o.Open(context.Background(), suite, s, c, nil)
		return err
	}
}

// TestRotate_KeyAgreement follows a key through its life: replaced, in its grace, refused, gone.
func TestRotate_KeyAgreement(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	old, flight := before.KeyAgreementKID, sealed(t, before.Document, before.KeyAgreementKID)
	r := rotate(t, n, httpapi.RotateKeyAgreement)

	doc := n.Talking().Document
	// The X-Wing key is replaced together with the X25519 key.
	hybrid := before.HybridKID
	if r.KID == old || hybrid == "" || !slices.Equal(r.Previous, []string{old, hybrid}) || r.Document != doc.Hash() || n.Status().Document != r.Document || !doc.ProofCreated().After(before.Document.ProofCreated()) {
		t.Fatalf("%+v", r)
	}
	if _, err := doc.Verify(c.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if doc.ID() != before.Document.ID() || folderDocument(t, dir).Hash() != doc.Hash() {
		t.Error("the folder has another document than the node")
	}
	if k := keyOf(t, n, old); k.State != httpapi.KeyRetiring || k.Expires != r.Until {
		t.Errorf("%+v", k)
	}
	if k := keyOf(t, n, r.KID); k.State != httpapi.KeyActive || k.Location != httpapi.KeyInFile {
		t.Errorf("%+v", k)
	}
	// A peer may have the old document in its cache: the old key is named for a while, the new one opens at once.
	if n.Talking().KeyAgreementKID != old {
		t.Error("the new key is named before peers can know it")
	}
	for _, open := range []func(hpke.Opener) error{flight, sealed(t, doc, old), sealed(t, doc, r.KID)} {
		if err := open(n.Talking().Opener); err != nil {
			t.Errorf("in grace: %v", err)
		}
	}
	c.advance(5 * time.Minute)
	if n.Talking().KeyAgreementKID != r.KID {
		t.Error("the new key is not named")
	}
	if kid := n.Talking().HybridKID; kid == hybrid || kid == "" || keyOf(t, n, kid).Type != string(did.XWing) {
		t.Errorf("the new X-Wing key is not named: %s", kid)
	}
	if kid, _, err := hpke.SelectKey(doc, hpke.SuiteX25519, c.Now()); err != nil || kid != r.KID {
		t.Errorf("peers seal to %s (%v)", kid, err)
	}
	c.advance(week - 6*time.Minute)
	if err := flight(n.Talking().Opener); err != nil {
		t.Errorf("at the end of grace: %v", err)
	}
	if err := n.Tend(t.Context()); err != nil || keyOf(t, n, old).State != httpapi.KeyRetiring {
		t.Errorf("retired early: %v", err)
	}
	c.advance(2 * time.Minute)
	if err := flight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
		t.Errorf("after grace: %v", err)
	}
	if err := n.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := flight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
		t.Errorf("retired: %v", err)
	}
	if k := keyOf(t, n, old); k.KID != "" {
		t.Errorf("%+v", k)
	}
	if _, err := os.Stat(keyPath(dir, old)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the retired key's file: %v", err)
	}
	if _, ok := folderDocument(t, dir).Method(old); ok {
		t.Error("the folder's document has the retired key")
	}
	if got := len(eventsOf(t, n, ledger.KeyRotated)) + 10*len(eventsOf(t, n, ledger.KeyRetired)); got != 21 {
		t.Errorf("events: %d", got)
	}
	// The next start remembers.
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again := must[*node.Node](t)(node.Open(t.Context(), dir, node.Options{Process: "treaty", Clock: c}))
	defer again.Close()
	if err := flight(again.Talking().Opener); !errors.Is(err, hpke.ErrRetired) || again.Talking().KeyAgreementKID != r.KID {
		t.Errorf("after a restart: %v, %s", err, again.Talking().KeyAgreementKID)
	}
}

// TestRotate_Now: a key that somebody else may have ends at once, with those that it replaced.
func TestRotate_Now(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	first := n.Talking().KeyAgreementKID
	second := rotate(t, n, httpapi.RotateKeyAgreement)
	doc := n.Talking().Document
	flights := []func(hpke.Opener) error{sealed(t, doc, first), sealed(t, doc, second.KID)}
	r := must[httpapi.Rotation](t)(n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement, Now: true}))
	if len(r.Previous) != 4 || n.Talking().KeyAgreementKID != r.KID {
		t.Errorf("%+v, named is %s", r, n.Talking().KeyAgreementKID)
	}
	for _, flight := range flights {
		if err := flight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
			t.Errorf("%v", err)
		}
	}
	for _, kid := range r.Previous {
		if _, err := hpke.NamedKey(n.Talking().Document, kid, hpke.SuiteX25519, c.Now()); err == nil {
			t.Errorf("peers still seal to %s", kid)
		}
	}
	if err := n.Tend(t.Context()); err != nil || len(keyFiles(t, dir)[keystore.Kex]) != 2 || len(n.Talking().Document.Keys(did.KeyAgreement)) != 2 {
		t.Errorf("not retired: %v", err)
	}
}

// BenchmarkRequestSigner is what looking for rotations by other processes adds to every request.
func BenchmarkRequestSigner(b *testing.B) {
	dir, _ := initPair(b, nil)
	n, err := node.Open(b.Context(), dir, node.Options{Process: "treaty"})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		if n.RequestSigner() == nil {
			b.Fatal("nobody signs")
		}
	}
}

// TestRotate_Signing: requests are signed by the newest secondary key that peers know, everything else by the binding key.
func TestRotate_Signing(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	binding := n.Talking().Binding.KeyID()
	first := rotate(t, n, httpapi.RotateSigning)
	if len(first.Previous) != 0 || first.Until != "" || n.RequestSigner().KeyID() != binding {
		t.Errorf("%+v, requests by %s", first, n.RequestSigner().KeyID())
	}
	c.advance(5 * time.Minute)
	if n.RequestSigner().KeyID() != first.KID || n.Talking().Binding.KeyID() != binding {
		t.Errorf("requests by %s", n.RequestSigner().KeyID())
	}
	doc := n.Talking().Document
	if doc.In(first.KID, did.AssertionMethod) || !doc.In(first.KID, did.Authentication) {
		t.Error("a secondary key may sign requests and nothing else")
	}
	second := rotate(t, n, httpapi.RotateSigning)
	if !slices.Equal(second.Previous, []string{first.KID}) || n.RequestSigner().KeyID() != binding {
		t.Errorf("%+v, requests by %s", second, n.RequestSigner().KeyID())
	}
	if k := keyOf(t, n, binding); k.State != httpapi.KeyActive {
		t.Errorf("the binding key: %+v", k)
	}
	c.advance(week)
	if err := n.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.RequestSigner().KeyID() != second.KID || keyOf(t, n, first.KID).KID != "" {
		t.Errorf("requests by %s", n.RequestSigner().KeyID())
	}
}

// TestRotate_SignatureOutlivesItsKey: what a secondary key has signed is verified with the version of the document that a peer pinned
// then, after the key was retired and is in no document any more.
func TestRotate_SignatureOutlivesItsKey(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	c := &shifted{}
	vendor, buyer := startAt(t, vendorDir, c), startAt(t, buyerDir, c)
	id := must[did.DID](t)(did.Parse(vendor.Status().DID))
	look := func() { // after what is in the cache has gone
		t.Helper()
		c.advance(6 * time.Minute)
		must[[]httpapi.ResolveResult](t)(buyer.Resolve(t.Context(), id.String()))
	}
	first := rotate(t, vendor.Node, httpapi.RotateSigning)
	look()
	signer := vendor.RequestSigner()
	sig := must[[]byte](t)(signer.Sign(t.Context(), []byte("a request")))
	if signer.KeyID() != first.KID {
		t.Fatalf("signed by %s", signer.KeyID())
	}
	rotate(t, vendor.Node, httpapi.RotateSigning)
	c.advance(week)
	if err := vendor.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	look()
	var verified, gone int
	for _, p := range must[[]resolver.Pin](t)(buyer.Store().(resolver.Pins).History(t.Context(), id)) {
		doc := must[*did.Document](t)(did.ParseDocument(p.Raw))
		key, err := doc.KeyFor(first.KID, did.Authentication, c.Now())
		if err != nil {
			gone++
			continue
		}
		if err := key.Verify([]byte("a request"), sig); err != nil {
			t.Error(err)
		}
		verified++
	}
	now := must[[]httpapi.ResolveResult](t)(buyer.Resolve(t.Context(), id.String()))
	if doc := must[*did.Document](t)(did.ParseDocument(now[0].Document)); verified == 0 || gone == 0 || doc.In(first.KID, did.Authentication) {
		t.Errorf("%d versions verify it, %d do not list the key; today's is %s", verified, gone, doc.Raw())
	}
}

// TestRotate_TwoProcesses: what one process rotates and retires, another one over the same store uses from its next signature
// on.
func TestRotate_TwoProcesses(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	a, b := open(t, dir, c), open(t, dir, c)
	first := rotate(t, a, httpapi.RotateSigning)
	c.advance(5 * time.Minute)
	if kid := b.RequestSigner().KeyID(); kid != first.KID {
		t.Errorf("b signs with %s", kid)
	}
	second := rotate(t, b, httpapi.RotateSigning)
	c.advance(week)
	if err := a.Tend(t.Context()); err != nil { // retires the first
		t.Fatal(err)
	}
	for _, n := range []*node.Node{a, b} {
		if kid := n.RequestSigner().KeyID(); kid != second.KID {
			t.Errorf("signs with %s", kid)
		}
	}
	kex := rotate(t, a, httpapi.RotateKeyAgreement)
	if err := b.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sealed(t, a.Talking().Document, kex.KID)(b.Talking().Opener); err != nil {
		t.Errorf("b does not open what is sealed to a's new key: %v", err)
	}
	if len(eventsOf(t, a, ledger.KeyRetired)) != 1 {
		t.Error("retired more than once")
	}
	// A process that cannot take over the new keys signs nothing.
	third := rotate(t, a, httpapi.RotateKeyAgreement)
	if err := os.Rename(keyPath(dir, third.KID), filepath.Join(t.TempDir(), "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.RequestSigner().Sign(t.Context(), []byte("x")); err == nil {
		t.Error("b signs though it does not know the keys in force")
	}
}

// TestRotate_TwoOperators: both mean the same document; one wins, the other is told.
func TestRotate_TwoOperators(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	nodes := []*node.Node{open(t, dir, c), open(t, dir, c)}
	doc := nodes[0].Status().Document.String()
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = nodes[i%2].Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement, Document: doc})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		if e := httpapi.AsError(err); e.Kind != httpapi.KindRefused || e.Kind.ExitCode() != 3 || !strings.HasPrefix(e.Code, "ROTATION_") {
			t.Errorf("told %v", err)
		}
	}
	if won != 1 || len(eventsOf(t, nodes[0], ledger.KeyRotated)) != 1 {
		t.Errorf("%d won", won)
	}
	if files := keyFiles(t, dir)[keystore.Kex]; len(files) != 4 {
		t.Errorf("%d key-agreement keys are left", len(files))
	}
}

// TestRotate_Usage: what cannot be rotated so changes nothing.
func TestRotate_Usage(t *testing.T) {
	dir, _ := initPair(t, nil)
	n := open(t, dir, &shifted{})
	before := n.Status().Document
	for _, req := range []httpapi.RotateRequest{
		{Kind: "service"}, {Kind: httpapi.RotateHuman}, {Kind: httpapi.RotateKeyAgreement, PublicKey: make([]byte, 32)},
		{Kind: httpapi.RotateRecovery, PublicKey: make([]byte, 32)}, {Kind: httpapi.RotateHuman, PublicKey: []byte("short")},
	} {
		if _, err := n.Rotate(t.Context(), req); err == nil || httpapi.AsError(err).Kind != httpapi.KindUsage {
			t.Errorf("%+v: %v", req, err)
		}
	}
	for range 8 {
		rotate(t, n, httpapi.RotateKeyAgreement)
	}
	files := len(keyFiles(t, dir)[keystore.Kex])
	if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement}); err == nil || httpapi.AsError(err).Kind != httpapi.KindRefused {
		t.Errorf("the ninth in one grace period: %v", err)
	}
	if len(keyFiles(t, dir)[keystore.Kex]) != files || n.Status().Document == before {
		t.Error("a refused rotation left something")
	}
}

// obstruct leaves something behind that keeps the exported document from being replaced.
func obstruct(t *testing.T, dir string) string {
	t.Helper()
	obstacle := filepath.Join(dir, node.DocumentsDir, "agent.json.new-left")
	if err := os.MkdirAll(filepath.Join(obstacle, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(obstacle, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	return obstacle
}

// TestRotate_DiskFull: no room for the key, for the record, or for the exported document.
func TestRotate_DiskFull(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Status().Document

	if err := n.Bound(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement}); err == nil {
		t.Fatal("rotated without room for it")
	}
	if n.Status().Document != before || folderDocument(t, dir).Hash() != before || len(keyFiles(t, dir)[keystore.Kex]) != 2 {
		t.Error("something of the rotation is left")
	}
	if err := n.Bound(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	// What replaces the exported document cannot be written.
	obstacle := obstruct(t, dir)
	r, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement})
	if err != nil || r.Note == "" || n.Status().Document != r.Document || folderDocument(t, dir).Hash() != before {
		t.Fatalf("%+v %v", r, err)
	}
	if err := n.Tend(t.Context()); err == nil {
		t.Error("the fault is not reported")
	}
	if err := os.RemoveAll(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := n.Tend(t.Context()); err != nil || folderDocument(t, dir).Hash() != r.Document {
		t.Errorf("not made good: %v", err)
	}
}

// TestRotate_RestoredBackup: the store is from before the rotation, and peers have seen the document from after it.
func TestRotate_RestoredBackup(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := n.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	old := n.Talking().KeyAgreementKID
	r := rotate(t, n, httpapi.RotateKeyAgreement)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, node.StoreFile+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	must[uint64](t)(node.Restore(t.Context(), dir, backup))
	again := must[*node.Node](t)(node.Open(t.Context(), dir, node.Options{Process: "treaty", Clock: c}))
	defer again.Close()
	if again.Status().Document != r.Document || keyOf(t, again, old).State != httpapi.KeyRetiring {
		t.Fatal("the restored store brought the old document back")
	}
	c.advance(week)
	if err := again.Tend(t.Context()); err != nil || keyOf(t, again, old).KID != "" || keyOf(t, again, r.KID).State != httpapi.KeyActive {
		t.Errorf("not retired: %v", err)
	}
}

// TestRotate_Offline: keys of people and recovery keys are replaced by public keys; the private ones never come near the node.
func TestRotate_Offline(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	for _, kind := range []string{httpapi.RotateHuman, httpapi.RotateRecovery} {
		o := node.OfflineKey{Kind: kind, DID: n.Status().DID, Dir: dir, Out: filepath.Join(dir, "key.age"), Passphrase: "a passphrase", WorkFactor: 10}
		if _, err := node.NewOfflineKey(o); err == nil {
			t.Fatal("made in the node's folder")
		}
		o.Out = filepath.Join(t.TempDir(), "offline", kind+".age")
		public := must[[]byte](t)(node.NewOfflineKey(o))
		r := must[httpapi.Rotation](t)(n.Rotate(t.Context(), httpapi.RotateRequest{Kind: kind, PublicKey: public}))
		rel := map[string]did.Relationship{httpapi.RotateHuman: did.HumanAuthorization, httpapi.RotateRecovery: did.Recovery}[kind]
		unseal := must[age.Identity](t)(keystore.PassphraseIdentity("a passphrase"))
		key := must[keystore.Key](t)(keystore.Load(o.Out, unseal))
		doc := n.Talking().Document
		if key.KID != r.KID || !doc.In(r.KID, rel) || doc.In(r.KID, did.Authentication) || len(r.Previous) != 1 {
			t.Errorf("%s: %+v", kind, r)
		}
		if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: kind, PublicKey: public}); err == nil {
			t.Error("the same key again")
		}
		c.advance(week)
		if err := n.Tend(t.Context()); err != nil || len(n.Talking().Document.Keys(rel)) != 1 {
			t.Errorf("%s: not retired: %v", kind, err)
		}
	}
}

// TestRotate_UnderNegotiation rotates both companies' keys while they negotiate, and again when caches have run out.
func TestRotate_UnderNegotiation(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	c := &shifted{}
	vendor, buyer := startAt(t, vendorDir, c), startAt(t, buyerDir, c)
	conclude := func(what string, meanwhile func()) {
		t.Helper()
		n := must[httpapi.Negotiation](t)(buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"}))
		meanwhile()
		if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
			buyer.dump(t)
			vendor.dump(t)
			t.Fatalf("%s: phase %s: %s %s", what, n.Phase, n.Code, n.Reason)
		}
	}
	conclude("during", func() {
		rotate(t, vendor.Node, httpapi.RotateKeyAgreement)
		rotate(t, buyer.Node, httpapi.RotateKeyAgreement)
		rotate(t, buyer.Node, httpapi.RotateSigning)
	})
	conclude("cached", func() {})
	c.advance(6 * time.Minute)
	conclude("settled", func() {})
	if r := must[[]httpapi.ResolveResult](t)(buyer.Resolve(t.Context(), "vendorcorp.test")); r[0].Hash != vendor.Status().Document {
		t.Error("the peer sees another document")
	}
	c.advance(week)
	for _, n := range []*company{vendor, buyer} {
		if err := n.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	conclude("retired", func() {})
	for _, check := range must[httpapi.Diagnosis](t)(buyer.Doctor(t.Context(), httpapi.DoctorRequest{})).Checks {
		if check.Status == httpapi.CheckFail {
			t.Errorf("%+v", check)
		}
	}
}
