// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/ledger/evidence"
	"github.com/treaty-node/treaty/node/store"
)

func formerPath(dir string, id did.DID) string {
	path := id.Path()
	return filepath.Join(dir, node.DocumentsDir, "former", path[len(path)-1]+".json")
}

// served is a document as the node's public listener serves it.
func served(t *testing.T, n *node.Node, url string) (int, []byte) {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	w := httptest.NewRecorder()
	n.Public().ServeHTTP(w, req)
	return w.Code, must[[]byte](t)(io.ReadAll(w.Body))
}

// TestMove follows a binding key through its replacement: the DID, its documents, the keys of the old one until the end of their
// grace, and what the next start makes of it.
func TestMove(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	genesis := n.Status().DID
	before := n.Talking()
	inFlight := sealed(t, before.Document, before.KeyAgreementKID)
	r := rotate(t, n, httpapi.RotateBinding)

	now := n.Talking()
	old, current := before.Document.ID(), now.Document.ID()
	if r.DID != current.String() || r.PreviousDID != genesis || current == old || current.StableSubject() != old.StableSubject() || r.Assurance != "verified" {
		t.Fatalf("%+v", r)
	}
	if !now.Owns(old) || !now.Owns(current) || now.Owns(must[did.DID](t)(did.Parse("did:wba:peer.test"))) {
		t.Error("the node does not know its own DIDs")
	}
	// Both documents are there, and lead from one to the other.
	code, raw := served(t, n, old.DocumentURL())
	gone := must[*did.Document](t)(did.ParseDocument(raw))
	code2, raw2 := served(t, n, current.DocumentURL())
	next := must[*did.Document](t)(did.ParseDocument(raw2))
	if code != 200 || code2 != 200 || !gone.Deactivated() || gone.SuccessorDID() != current || next.PreviousDID() != old || next.Hash() != r.Document {
		t.Fatalf("served: %d %s, %d %s", code, raw, code2, raw2)
	}
	if a, err := did.VerifyHop(before.Document, gone, next, c.Now().Add(2*time.Second)); a != did.AssuranceVerified || err != nil {
		t.Errorf("%s %v", a, err)
	}
	for _, rel := range []did.Relationship{did.HumanAuthorization, did.Recovery} {
		if a, b := before.Document.Keys(rel), next.Keys(rel); len(a) != 1 || len(b) != 1 || !a[0].Key.Equal(b[0].Key) {
			t.Errorf("%s was not carried over", rel)
		}
	}
	for _, url := range []string{"https://buyercorp.test/.well-known/agent-card.json", "https://buyercorp.test/agents/steward/ad.json", "https://buyercorp.test/healthz"} {
		if _, body := served(t, n, url); !strings.Contains(string(body), current.String()) || strings.Contains(string(body), old.String()) {
			t.Errorf("%s does not follow: %.300s", url, body)
		}
	}
	if folderDocument(t, dir).Hash() != next.Hash() || string(must[[]byte](t)(os.ReadFile(formerPath(dir, old)))) != string(raw) {
		t.Error("the folder has other documents")
	}
	// The old signing key is gone; the old key-agreement key opens what is under way.
	if _, err := os.Stat(keyPath(dir, before.Binding.KeyID())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old binding key's file: %v", err)
	}
	if n.RequestSigner().KeyID() != r.KID || now.Binding.KeyID() != r.KID {
		t.Errorf("signs with %s", n.RequestSigner().KeyID())
	}
	for _, open := range []func(hpke.Opener) error{inFlight, sealed(t, next, now.KeyAgreementKID)} {
		if err := open(now.Opener); err != nil {
			t.Errorf("in grace: %v", err)
		}
	}
	if k := keyOf(t, n, before.KeyAgreementKID); k.State != httpapi.KeyRetiring || k.Expires != r.Until {
		t.Errorf("%+v", k)
	}
	if s := n.Status(); len(s.Former) != 1 || s.Former[0].DID != genesis || s.Former[0].Successor != r.DID || s.Former[0].Until != r.Until {
		t.Errorf("%+v", s)
	}
	// The next start knows all of it, and its log is the same one.
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, c)
	if n.Status().DID != r.DID || !n.Talking().Owns(old) {
		t.Fatalf("%+v", n.Status())
	}
	if err := inFlight(n.Talking().Opener); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	events := must[[]ledger.Event](t)(n.Events(t.Context(), 0, 1000))
	if _, err := ledger.VerifyChain(ledger.Genesis(genesis), events); err != nil {
		t.Error(err)
	}
	var moved ledger.Move
	if list := eventsOf(t, n, ledger.IdentityMoved); len(list) != 1 || list[0].Decode(&moved) != nil || moved.Old != genesis || moved.New != r.DID || moved.OldHash != gone.Hash() || moved.NewHash != next.Hash() {
		t.Errorf("%+v", moved)
	}
	c.advance(week)
	if err := inFlight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
		t.Errorf("after grace: %v", err)
	}
	if err := n.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keyPath(dir, before.KeyAgreementKID)); !errors.Is(err, os.ErrNotExist) || len(eventsOf(t, n, ledger.KeyRetired)) != 2 {
		t.Errorf("not retired: %v", err)
	}
	if err := inFlight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) || n.Status().Former[0].Until != "" {
		t.Errorf("retired: %v %+v", err, n.Status().Former)
	}
	if code, again := served(t, n, old.DocumentURL()); code != 200 || string(again) != string(raw) {
		t.Error("the old document is not what it was")
	}
	// It moves on, as often as anybody follows.
	for range 7 {
		rotate(t, n, httpapi.RotateBinding)
	}
	if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding}); httpapi.AsError(err).Code != "TOO_MANY_MOVES" {
		t.Errorf("a ninth move: %v", err)
	}
	if code, _ := served(t, n, old.DocumentURL()); code != 200 || len(n.Status().Former) != 8 {
		t.Error("the first document is gone")
	}
}

// TestMove_Compromised: there is no grace, and the operator is told what to look at.
func TestMove_Compromised(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	inFlight := sealed(t, before.Document, before.KeyAgreementKID)
	since := c.Now().Add(-time.Hour).Truncate(time.Second)
	r := must[httpapi.Rotation](t)(n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding, Compromised: true, Since: since}))
	if err := inFlight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
		t.Errorf("%v", err)
	}
	for _, kid := range []string{before.KeyAgreementKID, before.Binding.KeyID()} {
		if _, err := os.Stat(keyPath(dir, kid)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", kid, err)
		}
	}
	var moved ledger.Move
	if list := eventsOf(t, n, ledger.IdentityMoved); len(list) != 1 || list[0].Decode(&moved) != nil || moved.CompromisedSince != since.Format(time.RFC3339) {
		t.Errorf("%+v", moved)
	}
	if r.Suspects == nil || r.Suspects.Since != moved.CompromisedSince || n.Status().Former[0].CompromisedSince != moved.CompromisedSince {
		t.Errorf("%+v", r)
	}
	for _, req := range []httpapi.RotateRequest{
		{Since: since}, {Compromised: true, Since: c.Now().Add(time.Hour)}, {Now: true}, {PublicKey: make([]byte, 32)}, {Successor: r.DID}, {Deactivated: []byte("x")}, {SignerKID: "x"},
		{Successor: r.DID, Deactivated: []byte("{}")},
	} {
		req.Kind = httpapi.RotateBinding
		if _, err := n.Rotate(t.Context(), req); err == nil || httpapi.AsError(err).Kind != httpapi.KindUsage || n.Status().DID != r.DID {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// offlineKey is the recovery key that initPair made.
func offlineKey(dir string) node.RecoveryKey {
	return node.RecoveryKey{File: filepath.Join(filepath.Dir(dir), "offline", "buyer-recovery.age"), Passphrase: "a passphrase for tests"}
}

// TestMove_Recovery: the binding key is lost, together with every other key of the node. The recovery key moves the identity
// without a node, and the node starts under its new DID.
func TestMove_Recovery(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for role, keys := range keyFiles(t, dir) {
		if role == keystore.Signing || role == keystore.Kex {
			for _, k := range keys {
				if err := os.Remove(filepath.Join(dir, node.KeysDir, k.FileName())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	o, req := node.Options{Process: "treaty", Clock: c}, httpapi.RotateRequest{Kind: httpapi.RotateBinding}
	if _, err := node.Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "--recovery-key") {
		t.Fatalf("opened without a binding key: %v", err)
	}
	files := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, node.KeysDir)))
	human := offlineKey(dir)
	human.File = strings.Replace(human.File, "recovery", "human", 1)
	wrong := offlineKey(dir)
	wrong.Passphrase = "another one"
	other := offlineKey(dir)
	other.File = strings.Replace(other.File, "buyer", "vendor", 1)
	future := offlineKey(dir)
	future.After = c.Now().Add(time.Hour)
	for what, k := range map[string]node.RecoveryKey{"human key": human, "passphrase": wrong, "another node's key": other, "an hour ahead": future} {
		if _, err := node.Recover(t.Context(), dir, o, req, k); err == nil {
			t.Errorf("%s moved the identity", what)
		}
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, node.KeysDir))); len(left) != len(files) || folderDocument(t, dir).Hash() != before.Document.Hash() {
		t.Fatalf("something is left of a move that was refused: %v", left)
	}
	// A thief's document is ten seconds ahead of this clock; this one is newer all the same.
	key := offlineKey(dir)
	key.After = c.Now().Add(10 * time.Second)
	r, err := node.Recover(t.Context(), dir, o, req, key)
	if err != nil || r.Assurance != "recovery_verified" || r.PreviousDID != before.Document.ID().String() {
		t.Fatalf("%+v %v", r, err)
	}
	n = open(t, dir, c)
	_, raw := served(t, n, before.Document.ID().DocumentURL())
	gone, next := must[*did.Document](t)(did.ParseDocument(raw)), n.Talking().Document
	if a, err := did.VerifyHop(before.Document, gone, next, c.Now().Add(time.Minute)); a != did.AssuranceRecoveryVerified || err != nil || !gone.ProofCreated().After(key.After.Truncate(time.Second)) {
		t.Errorf("%s %v, proof of %s", a, err, gone.ProofCreated())
	}
	if n.Status().DID != r.DID || next.ID().String() != r.DID {
		t.Errorf("%+v", n.Status())
	}
	rotate(t, n, httpapi.RotateKeyAgreement)
	rotate(t, n, httpapi.RotateBinding)
}

// TestMove_RecoveryOfRunningNode: the command signs what the node has prepared; the node never sees the key.
func TestMove_RecoveryOfRunningNode(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Status()
	prepared := must[httpapi.Rotation](t)(n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding, Prepare: true}))
	if n.Status().Document != before.Document || len(eventsOf(t, n, ledger.IdentityMoved)) != 0 {
		t.Fatal("preparing changed something")
	}
	signed := must[[]byte](t)(node.SignMove(t.Context(), dir, prepared, offlineKey(dir)))
	// The log of what the node was told has no secret: it is the public document.
	if !json.Valid(signed) {
		t.Fatal("not a document")
	}
	r := must[httpapi.Rotation](t)(n.Rotate(t.Context(), httpapi.RotateRequest{
		Kind: httpapi.RotateBinding, Document: before.Document.String(), Successor: prepared.DID, Deactivated: signed, Compromised: true,
	}))
	if r.Assurance != "recovery_verified" || r.DID != prepared.DID || n.Status().DID != r.DID {
		t.Errorf("%+v", r)
	}
	// The same again is a move that has been made.
	if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding, Document: before.Document.String(), Successor: prepared.DID, Deactivated: signed}); httpapi.AsError(err).Code != "ROTATION_CONFLICT" {
		t.Errorf("%v", err)
	}
}

// TestMove_TwoProcesses: the other process signs as the new DID from its next signature on, and serves both documents at once.
func TestMove_TwoProcesses(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	a, b := open(t, dir, c), open(t, dir, c)
	old := a.Talking()
	r := rotate(t, a, httpapi.RotateBinding)
	if code, _ := served(t, b, must[did.DID](t)(did.Parse(r.DID)).DocumentURL()); code != 200 {
		t.Errorf("b answers %d for the new document", code)
	}
	// What b was about to sign under the old DID in a transaction of its own is not stored.
	speaks := func(n *node.Node, id did.DID) error {
		return n.Store().Update(t.Context(), func(tx store.Tx) error { return n.SpeaksAs(tx, id) })
	}
	third := rotate(t, a, httpapi.RotateBinding)
	for _, id := range []string{r.PreviousDID, r.DID} {
		if err := speaks(b, must[did.DID](t)(did.Parse(id))); !errors.Is(err, store.ErrConflict) {
			t.Errorf("b may sign as %s: %v", id, err)
		}
	}
	if k := b.Talking(); k.Document.ID().String() != third.DID || speaks(b, k.Document.ID()) != nil {
		t.Errorf("b speaks as %s", k.Document.ID())
	}
	r = third
	if kid := b.RequestSigner().KeyID(); kid != r.KID {
		t.Errorf("b signs with %s", kid)
	}
	if err := sealed(t, old.Document, old.KeyAgreementKID)(b.Talking().Opener); err != nil {
		t.Errorf("b in grace: %v", err)
	}
	// Two operators: one wins, the other is told.
	doc := a.Status().Document.String()
	errs := make(chan error, 2)
	for _, n := range []*node.Node{a, b} {
		go func() {
			_, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding, Document: doc})
			errs <- err
		}()
	}
	lost := 0
	for range 2 {
		if err := <-errs; err != nil {
			lost++
			if e := httpapi.AsError(err); e.Kind != httpapi.KindRefused || !strings.HasPrefix(e.Code, "ROTATION_") {
				t.Errorf("told %v", err)
			}
		}
	}
	if signing := keyFiles(t, dir)[keystore.Signing]; lost != 1 || len(signing) != 1 || len(eventsOf(t, a, ledger.IdentityMoved)) != 3 {
		t.Errorf("%d lost, %d signing keys are left", lost, len(signing))
	}
}

// TestMove_DiskFull: no room in the store, or none for the exported documents.
func TestMove_DiskFull(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Status()
	if err := n.Bound(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding}); err == nil {
		t.Fatal("moved without room for it")
	}
	if n.Status().Document != before.Document || len(keyFiles(t, dir)[keystore.Signing]) != 1 || len(keyFiles(t, dir)[keystore.Kex]) != 2 {
		t.Error("something of the move is left")
	}
	if err := n.Bound(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	obstacle := obstruct(t, dir)
	old := n.Talking().Binding.KeyID()
	r, err := n.Rotate(t.Context(), httpapi.RotateRequest{Kind: httpapi.RotateBinding})
	if err != nil || r.Note == "" || n.Status().DID != r.DID {
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
	if _, err := os.Stat(keyPath(dir, old)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old binding key: %v", err)
	}
}

// TestMove_RestoredBackup: the store is from before the move; with did/ and keys/ of now it catches up, without them nothing
// starts.
func TestMove_RestoredBackup(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	inFlight := sealed(t, before.Document, before.KeyAgreementKID)
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := n.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	oldAgent := must[[]byte](t)(os.ReadFile(filepath.Join(dir, node.DocumentsDir, "agent.json")))
	rotate(t, n, httpapi.RotateBinding)
	r := rotate(t, n, httpapi.RotateBinding)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(filepath.Join(dir, node.StoreFile+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		must[uint64](t)(node.Restore(t.Context(), dir, backup))
	}
	restore()
	n = open(t, dir, c)
	if n.Status().DID != r.DID || len(n.Status().Former) != 2 || !n.Talking().Owns(before.Document.ID()) || len(eventsOf(t, n, ledger.IdentityMoved)) != 2 {
		t.Fatalf("%+v", n.Status())
	}
	if err := inFlight(n.Talking().Opener); !errors.Is(err, hpke.ErrRetired) {
		t.Errorf("nothing says that nobody else has the old key: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	// The way is not all there.
	restore()
	first := formerPath(dir, before.Document.ID())
	kept := must[[]byte](t)(os.ReadFile(first))
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	o := node.Options{Process: "treaty", Clock: c}
	if _, err := node.Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "nothing in did/former leads") {
		t.Errorf("%v", err)
	}
	// It leads there by a document that nobody signed.
	if err := os.WriteFile(first, []byte(strings.Replace(string(kept), "AgentDescription", "AgentDescriptioN", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "the step from") {
		t.Errorf("%v", err)
	}
	// Store and documents are from before.
	if err := os.WriteFile(filepath.Join(dir, node.DocumentsDir, "agent.json"), oldAgent, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), "are from before") {
		t.Errorf("%v", err)
	}
}

// TestMove_ClockStepsBack: the proofs are newer than those that peers have seen, whatever the clock says.
func TestMove_ClockStepsBack(t *testing.T) {
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	rotate(t, n, httpapi.RotateKeyAgreement)
	c.advance(-10 * time.Minute)
	last := n.Talking().Document
	r := rotate(t, n, httpapi.RotateBinding)
	_, raw := served(t, n, last.ID().DocumentURL())
	gone := must[*did.Document](t)(did.ParseDocument(raw))
	if !gone.ProofCreated().After(last.ProofCreated()) || n.Status().DID != r.DID {
		t.Errorf("%s, before %s", gone.ProofCreated(), last.ProofCreated())
	}
}

// copyFolder copies a node's folder, as somebody who restores all of it from a backup does.
func copyFolder(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(must[string](t)(os.MkdirTemp("", "treaty")), "copy")
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(to)) })
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestMove_OldCopy: everything of a node is from before the move, keys and all. Where its domain serves the later document, it
// does not start; where it speaks all the same, whoever it speaks to says that the DID is superseded.
func TestMove_OldCopy(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	c := &shifted{}
	n := open(t, buyerDir, c)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	oldDir := copyFolder(t, buyerDir)
	vendor, buyer := startAt(t, vendorDir, c), startAt(t, buyerDir, c)
	contract := conclude(t, buyer, vendor)
	r := rotate(t, buyer.Node, httpapi.RotateBinding)
	if len(r.Told) != 1 || r.Told[0] != vendor.Status().DID {
		t.Errorf("told %v", r.Told)
	}
	if kept := must[httpapi.Contract](t)(buyer.Contract(t.Context(), contract)); kept.State != "in_force" {
		t.Errorf("%+v", kept)
	}
	if list := must[[]httpapi.Negotiation](t)(buyer.Negotiations(t.Context())); len(list) != 1 || list[0].ContractID != contract {
		t.Errorf("%+v", list)
	}
	old := must[*node.Node](t)(node.Open(t.Context(), oldDir, node.Options{Process: "treaty", Clock: c}))
	c.advance(6 * time.Minute) // the vendor has the old document in its cache till then
	// What it signs is signed by a DID that has a successor: a hint, and a true one here.
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://vendorcorp.test/a2a", strings.NewReader("{}")))
	req.Header.Set("Content-Type", "application/json")
	resp := must[*http.Response](t)(old.Signed().Do(req))
	body := must[[]byte](t)(io.ReadAll(resp.Body))
	resp.Body.Close()
	if err := did.CheckSuperseded(body, must[did.DID](t)(did.Parse(r.PreviousDID))); resp.StatusCode != http.StatusConflict || err != nil || !strings.Contains(string(body), r.DID) {
		t.Errorf("%d %s: %v", resp.StatusCode, body, err)
	}
	if err := old.Run(t.Context(), func() { t.Error("it listens") }); err == nil || httpapi.AsError(err).Code != "IDENTITY_OUTDATED" || !strings.Contains(err.Error(), r.DID) {
		t.Errorf("%v", err)
	}
	for _, check := range must[httpapi.Diagnosis](t)(buyer.Doctor(t.Context(), httpapi.DoctorRequest{})).Checks {
		if check.Status == httpapi.CheckFail && check.Name != "data plane" {
			t.Errorf("%+v", check)
		}
	}
	// Under its new DID it goes on as before.
	if id := conclude(t, buyer, vendor); id == contract {
		t.Error("the same contract again")
	}
	if v := must[httpapi.Contract](t)(vendor.Contract(t.Context(), contract)); v.Peer == "" {
		t.Errorf("%+v", v)
	}
	bundle := must[[]byte](t)(buyer.Evidence(t.Context(), contract))
	if report := must[evidence.Report](t)(evidence.VerifyBundle(bundle)); !report.OK() {
		t.Errorf("the bundle of a node that has moved: %+v", report)
	}
	// The same bundle without the way from the DID of the log to the signer's is nobody's word.
	if report, err := evidence.VerifyBundle([]byte(strings.Replace(string(bundle), `\"successorDid\":`, `\"successorDiD\":`, 1))); err == nil && report.OK() {
		t.Error("a signature by a DID that nothing leads to")
	}
}

// conclude negotiates a contract.
func conclude(t *testing.T, buyer, vendor *company) string {
	t.Helper()
	n := must[httpapi.Negotiation](t)(buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"}))
	if n = buyer.wait(t, n.ContextID); n.Phase != "in_force" {
		buyer.dump(t)
		vendor.dump(t)
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	return n.ContractID
}
