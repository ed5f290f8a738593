// SPDX-License-Identifier: Apache-2.0

package notice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// party is a company with a store of its own.
type party struct {
	id      did.DID
	doc     *did.Document
	binding did.Signer
	ring    *hpke.Keyring
	kexID   string
	kex     did.PrivateKey
	db      *sqlite.DB
	svc     *notice.Service
	taken   []string // data of the notices that the handler was given
	replies []notice.Answer
}

// world is two companies that know each other, a stranger, and a wire.
type world struct {
	*clock.Fake
	t               *testing.T
	mu              sync.Mutex
	alice, bob, eve *party
	resolved        int
	wire            func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error)
	perHour         int
	handle          notice.Handler
	admitted, sent  int
}

func (w *world) sealTo(id did.DID) *envelope.SealTo {
	for _, p := range []*party{w.alice, w.bob} {
		if p.id == id {
			return &envelope.SealTo{Suite: notice.Suite, RecipientKID: p.kexID, Key: p.kex.Public()}
		}
	}
	return &envelope.SealTo{Suite: notice.Suite, RecipientKID: w.eve.kexID, Key: w.eve.kex.Public()}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newParty(t *testing.T, name string) *party {
	t.Helper()
	key := func(typ did.KeyType, role string) did.PrivateKey {
		k, err := did.NewPrivateKey(typ, bytes.Repeat([]byte(name[:1]+role[:1]), 16))
		fatal(t, err)
		return k
	}
	signing, kex := key(did.Ed25519, "signing"), key(did.X25519, "kex")
	id, err := did.Parse("did:wba:" + name + ".test:agents:steward:e1_" + signing.Public().Thumbprint())
	fatal(t, err)
	unsigned, err := did.BuildDocument(did.DocumentSpec{ID: id, Binding: did.MethodSpec{Key: signing.Public()}, KeyAgreement: []did.MethodSpec{{Key: kex.Public()}}})
	fatal(t, err)
	binding, err := did.NewSigner(did.KeyID(id, "signing", signing.Public()), signing)
	fatal(t, err)
	raw, err := did.SignDocument(t.Context(), unsigned, binding, start.Add(-time.Hour), did.DialectSpec)
	fatal(t, err)
	doc, err := did.ParseDocument(raw)
	fatal(t, err)
	kexID := did.KeyID(id, "kex", kex.Public())
	return &party{id: id, doc: doc, binding: binding, kex: kex, kexID: kexID, ring: hpke.NewKeyring(map[string]did.PrivateKey{kexID: kex})}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Fake: clock.NewFake(start), alice: newParty(t, "alice"), bob: newParty(t, "bob"), eve: newParty(t, "eve")}
	for name, p := range map[string]*party{"alice": w.alice, "bob": w.bob} {
		var err error
		p.db, err = sqlite.Create(t.Context(), filepath.Join(t.TempDir(), name+".db"), sqlite.Options{Node: p.id.String(), Process: "node", Clock: w})
		fatal(t, err)
		t.Cleanup(func() { p.db.Close() })
		w.serve(p)
	}
	return w
}

type resolver struct{ w *world }

func (r resolver) Resolve(_ context.Context, id did.DID) (*did.Document, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.resolved++
	for _, p := range []*party{r.w.alice, r.w.bob, r.w.eve} {
		if p.id == id {
			return p.doc, nil
		}
	}
	return nil, errors.New("no such DID")
}

type route struct {
	w        *world
	from, to *party
}

func (r route) Deliver(ctx context.Context, _ string, env []byte) ([]byte, error) {
	r.w.sent++
	deliver := func(raw []byte) ([]byte, error) {
		res, err := r.to.svc.Receive(ctx, r.from.id, raw)
		var no *envelope.Refusal
		if errors.As(err, &no) {
			return nil, &envelope.Refusal{Code: no.Code, Reason: no.Reason} // what is left of it on the other side
		}
		return res.Reply, err
	}
	if r.w.wire != nil {
		return r.w.wire(env, deliver)
	}
	return deliver(env)
}

// serve makes a new service over the party's store, as a restart does.
func (w *world) serve(p *party) {
	p.svc = notice.New(notice.Config{
		Keys:  func() notice.Keys { return notice.Keys{Binding: p.binding, Opener: p.ring, Document: p.doc} },
		Store: p.db, Resolver: resolver{w}, Now: w.Now, Skew: 30 * time.Second, Lifetime: 5 * time.Minute, PerHour: w.perHour,
		Admit: func(_ context.Context, from did.DID) error {
			if from == w.eve.id {
				return envelope.Refuse(envelope.CodeNotTrusted, "not known here")
			}
			w.admitted++
			return nil
		},
		Connect: func(_ context.Context, peer did.DID) (notice.Route, error) {
			if peer == w.bob.id {
				return route{w, w.alice, w.bob}, nil
			}
			return route{w, w.bob, w.alice}, nil
		},
	})
	p.svc.Handle("greeting", func(ctx context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
		p.taken = append(p.taken, string(data))
		if w.handle != nil {
			return w.handle(ctx, tx, from, data)
		}
		return map[string]any{"heard": string(data)}, nil
	})
	p.svc.Answered("greeting", func(_ context.Context, _ store.Tx, _ did.DID, _ []byte, a notice.Answer) error {
		p.replies = append(p.replies, a)
		return nil
	})
}

func (w *world) post(kind string) (id string) {
	w.t.Helper()
	fatal(w.t, w.alice.db.Update(w.t.Context(), func(tx store.Tx) (err error) {
		id, err = w.alice.svc.Post(w.t.Context(), tx, notice.Outgoing{Peer: w.bob.id, Kind: kind, Data: map[string]any{"hello": "bob"}})
		return err
	}))
	return id
}

func (w *world) deliver(id string) store.Notice {
	w.t.Helper()
	n, err := w.alice.svc.Deliver(w.t.Context(), id)
	fatal(w.t, err)
	return n
}

func (p *party) events(t *testing.T) (types string) {
	t.Helper()
	fatal(t, p.db.View(t.Context(), func(tx store.Tx) error {
		all, err := tx.Events(0, 100)
		for _, e := range all {
			types += e.Type + " "
		}
		return err
	}))
	return types
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNoticeIsAnswered(t *testing.T) {
	w := newWorld(t)
	gone := errors.New("changed its mind")
	err := w.alice.db.Update(t.Context(), func(tx store.Tx) error {
		if err := w.alice.svc.Send(t.Context(), tx, w.bob.id, "greeting", nil); err != nil {
			return err
		}
		return gone
	})
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	a, err := w.alice.svc.Ask(t.Context(), notice.Outgoing{Peer: w.bob.id, Kind: "greeting", Data: map[string]string{"hello": "bob"}})
	fatal(t, err)
	equal(t, string(a.Data), `{"heard":"{\"hello\":\"bob\"}"}`)
	equal(t, a.OK, true)
	equal(t, len(w.bob.taken), 1)
	equal(t, len(w.alice.replies), 1)
	equal(t, w.alice.events(t), ledger.NoticeSent+" "+ledger.NoticeAnswered+" ")
	equal(t, w.bob.events(t), ledger.NoticeReceived+" ")
}

func TestInvariant8_NoticeOnce(t *testing.T) {
	w := newWorld(t)
	id := w.post("greeting")
	drops := 3
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) ([]byte, error) {
		reply, err := deliver(raw)
		if drops--; drops >= 0 {
			return nil, errors.New("connection reset") // the answer is lost
		}
		return reply, err
	}
	first := w.deliver(id)
	equal(t, first.State, store.NoticePending)
	w.serve(w.alice) // both processes die and come back
	w.serve(w.bob)
	w.Advance(time.Hour) // and the envelope is too old by now; what was answered is answered again
	for w.deliver(id).State == store.NoticePending {
	}
	n := w.deliver(id)
	equal(t, n.State, store.NoticeAnswered)
	equal(t, bytes.Equal(n.Envelope, first.Envelope), true)
	equal(t, len(w.bob.taken), 1)
}

func TestEnvelopeNeverTaken(t *testing.T) {
	w := newWorld(t)
	id := w.post("greeting")
	w.wire = func([]byte, func([]byte) ([]byte, error)) ([]byte, error) { return nil, errors.New("offline") }
	first := w.deliver(id)
	w.wire = nil
	w.Advance(24 * time.Hour)
	equal(t, w.deliver(id).State, store.NoticePending) // EXPIRED, says the peer
	n := w.deliver(id)
	equal(t, n.State, store.NoticeAnswered)
	equal(t, n.ContextID != first.ContextID, true)
	equal(t, len(w.bob.taken), 1)
}

func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t)
	id := w.post("greeting")
	w.wire = func([]byte, func([]byte) ([]byte, error)) ([]byte, error) { return nil, errors.New("offline") }
	w.deliver(id)
	w.Advance(notice.Keep)
	n := w.deliver(id)
	equal(t, n.State, store.NoticeFailed)
	equal(t, n.Code, string(envelope.CodeExpired))
	sent := w.sent
	equal(t, w.deliver(id).State, store.NoticeFailed)
	equal(t, w.sent, sent)
	equal(t, w.alice.events(t), ledger.NoticeSent+" "+ledger.NoticeFailed+" ")
}

func TestHandlerSaysNo(t *testing.T) {
	w := newWorld(t)
	w.handle = func(context.Context, store.Tx, did.DID, []byte) (any, error) {
		return nil, &notice.Refused{Code: "NOT_NOW", Text: strings.Repeat("no ", 1000)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a, err := w.alice.svc.Ask(ctx, notice.Outgoing{Peer: w.bob.id, Kind: "greeting"})
	fatal(t, err)
	equal(t, a.Code, "NOT_NOW")
	equal(t, len(a.Text) <= notice.MaxText && strings.HasSuffix(a.Text, "…"), true)
	a, err = w.alice.svc.Ask(t.Context(), notice.Outgoing{Peer: w.bob.id, Kind: "unheard-of"})
	fatal(t, err)
	equal(t, a.Code, notice.CodeUnknownKind)
	// What fails in here is no answer, and leaves nothing.
	id := w.post("greeting")
	w.handle = func(context.Context, store.Tx, did.DID, []byte) (any, error) { return nil, errors.New("disk on fire") }
	equal(t, w.deliver(id).State, store.NoticePending)
	w.handle = nil
	equal(t, w.deliver(id).State, store.NoticeAnswered)
}

// An answer that the peer has not signed for this notice is none.
func TestInvariant2_ForgedAnswers(t *testing.T) {
	w := newWorld(t)
	other := w.post("greeting")
	var foreign []byte
	w.wire = func(raw []byte, deliver func([]byte) ([]byte, error)) (_ []byte, err error) {
		foreign, err = deliver(raw)
		return foreign, err
	}
	w.deliver(other)
	id := w.post("greeting")
	answer := func(signer did.Signer, change func(*envelope.Draft)) func([]byte) []byte {
		return func(raw []byte) []byte {
			q, err := envelope.Parse(raw, 0)
			fatal(t, err)
			d := envelope.Draft{
				Type: envelope.TypeNotice, To: w.alice.id, ContextID: q.ContextID, Seq: 2, Prev: q.Digest(), CreatedAt: w.Now(),
				Body: []byte(`{"type":"TreatyNoticeAnswer","kind":"greeting","ok":true,"code":"","text":"","data":{}}`),
			}
			change(&d)
			env, _, err := envelope.Build(t.Context(), d, signer, w.sealTo(d.To))
			fatal(t, err)
			return env.Raw()
		}
	}
	for name, forge := range map[string]func([]byte) []byte{
		"the notice itself":        func(raw []byte) []byte { return raw },
		"nothing":                  func([]byte) []byte { return nil },
		"answer to another notice": func([]byte) []byte { return foreign },
		"by a stranger":            answer(w.eve.binding, func(*envelope.Draft) {}),
		"to a stranger":            answer(w.bob.binding, func(d *envelope.Draft) { d.To = w.eve.id }),
		"another prev":             answer(w.bob.binding, func(d *envelope.Draft) { d.Prev = envelope.FirstPrev(w.bob.id, w.alice.id, d.ContextID) }),
		"another place":            answer(w.bob.binding, func(d *envelope.Draft) { d.Seq = 3 }),
		"another kind":             answer(w.bob.binding, func(d *envelope.Draft) { d.Body = bytes.Replace(d.Body, []byte("greeting"), []byte("farewell"), 1) }),
		"another type":             answer(w.bob.binding, func(d *envelope.Draft) { d.Body = bytes.Replace(d.Body, []byte("Answer"), nil, 1) }),
	} {
		w.wire = func(raw []byte, _ func([]byte) ([]byte, error)) ([]byte, error) { return forge(raw), nil }
		if n := w.deliver(id); n.State != store.NoticePending {
			t.Errorf("%s: %s", name, n.State)
		}
	}
	w.wire = func(raw []byte, _ func([]byte) ([]byte, error)) ([]byte, error) {
		return answer(w.bob.binding, func(*envelope.Draft) {})(raw), nil
	}
	equal(t, w.deliver(id).State, store.NoticeAnswered)
}

// What is not a notice of a peer with whom there is something changes nothing and reaches no handler.
func TestInvariant1_NoticeRefused(t *testing.T) {
	w := newWorld(t)
	build := func(from *party, clear bool, change func(*envelope.Draft)) []byte {
		d := envelope.Draft{
			Type: envelope.TypeNotice, To: w.bob.id, ContextID: envelope.NewID(), Seq: 1, CreatedAt: w.Now(), Lifetime: time.Minute,
			Body: []byte(`{"type":"TreatyNotice","kind":"greeting","data":{}}`),
		}
		d.Prev = envelope.FirstPrev(from.id, d.To, d.ContextID)
		change(&d)
		seal := w.sealTo(d.To)
		if clear {
			seal = nil
		}
		env, _, err := envelope.Build(t.Context(), d, from.binding, seal)
		fatal(t, err)
		return env.Raw()
	}
	same := func(*envelope.Draft) {}
	replaced := build(w.alice, false, same)
	if _, err := w.bob.svc.Receive(t.Context(), w.alice.id, replaced); err != nil {
		t.Fatal(err)
	}
	first, err := envelope.Parse(replaced, 0)
	fatal(t, err)
	fatal(t, w.bob.db.Update(t.Context(), func(tx store.Tx) error {
		return tx.PutConversation(store.Conversation{Own: w.bob.id.String(), Peer: w.alice.id.String(), ContextID: "AAECAwQFBgcICQoLDA0ODw", Role: "vendor", Created: start, Updated: start}, 0)
	}))
	taken := len(w.bob.taken)
	for name, c := range map[string]struct {
		raw    []byte
		caller *party
		want   envelope.Code
	}{
		"garbage":              {[]byte("{"), w.alice, envelope.CodeMalformed},
		"another caller":       {build(w.alice, false, same), w.eve, envelope.CodeWrongSender},
		"in the clear":         {build(w.alice, true, same), w.alice, envelope.CodeMalformed},
		"with an agreement":    {build(w.alice, false, func(d *envelope.Draft) { d.Agreement = d.Prev }), w.alice, envelope.CodeMalformed},
		"for somebody else":    {build(w.alice, false, func(d *envelope.Draft) { d.To = w.eve.id }), w.alice, envelope.CodeWrongRecipient},
		"later in the context": {build(w.alice, false, func(d *envelope.Draft) { d.Seq = 2 }), w.alice, envelope.CodeOutOfOrder},
		"another prev":         {build(w.alice, false, func(d *envelope.Draft) { d.Prev = first.Digest() }), w.alice, envelope.CodeOutOfOrder},
		"old":                  {build(w.alice, false, func(d *envelope.Draft) { d.CreatedAt = d.CreatedAt.Add(-time.Hour) }), w.alice, envelope.CodeExpired},
		"from the future":      {build(w.alice, false, func(d *envelope.Draft) { d.CreatedAt = d.CreatedAt.Add(time.Hour) }), w.alice, envelope.CodeNotYetValid},
		"not a notice's body":  {build(w.alice, false, func(d *envelope.Draft) { d.Body = []byte(`{"kind":"greeting"}`) }), w.alice, envelope.CodeMalformed},
		"in a taken place": {build(w.alice, false, func(d *envelope.Draft) {
			d.ContextID = first.ContextID
			d.Prev = envelope.FirstPrev(w.alice.id, w.bob.id, d.ContextID)
		}), w.alice, envelope.CodeReplayed},
		"in a negotiation": {build(w.alice, false, func(d *envelope.Draft) {
			d.ContextID = "AAECAwQFBgcICQoLDA0ODw"
			d.Prev = envelope.FirstPrev(w.alice.id, w.bob.id, d.ContextID)
		}), w.alice, envelope.CodeMalformed},
		"of another type": {build(w.alice, true, func(d *envelope.Draft) { d.Type = envelope.TypeMetaproto }), w.alice, envelope.CodeUnexpectedType},
	} {
		if _, err := w.bob.svc.Receive(t.Context(), c.caller.id, c.raw); envelope.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	resolved := w.resolved
	if _, err := w.bob.svc.Receive(t.Context(), w.eve.id, build(w.eve, false, same)); envelope.CodeOf(err) != envelope.CodeNotTrusted || w.resolved != resolved {
		t.Errorf("a stranger: %v, %d look-ups", err, w.resolved-resolved)
	}
	equal(t, len(w.bob.taken), taken)
}

func TestInvariant11_NoticesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.perHour = 8
	w.serve(w.bob)
	answered := 0
	for range 20 {
		if w.deliver(w.post("greeting")).State == store.NoticeAnswered {
			answered++
		}
	}
	equal(t, answered, 2) // a quarter of an hour's at once
}

func TestRunDelivers(t *testing.T) {
	w := newWorld(t)
	id := w.post("greeting")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.alice.svc.Run(ctx) }()
	for {
		var n store.Notice
		fatal(t, w.alice.db.View(t.Context(), func(tx store.Tx) (err error) { n, err = tx.GetNotice(id); return err }))
		if n.State == store.NoticeAnswered {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	fatal(t, <-done)
}

// A probe goes to the key that it names, once, and gets the answer or the refusal as it is.
func TestProbe(t *testing.T) {
	w := newWorld(t)
	id := envelope.NewID()
	p, err := w.alice.svc.NewProbe(t.Context(), w.bob.doc, w.bob.kexID, id, "greeting", map[string]string{"a": "b"})
	fatal(t, err)
	for range 2 { // the same bytes, the same answer
		a, err := w.alice.svc.SendProbe(t.Context(), p, w.bob.id)
		fatal(t, err)
		equal(t, a.OK, true)
	}
	equal(t, len(w.bob.taken), 1)
	if _, err := w.alice.svc.NewProbe(t.Context(), w.bob.doc, w.alice.kexID, id, "greeting", nil); err == nil {
		t.Error("sealed to a key that is not the document's")
	}
	w.bob.ring = hpke.NewKeyring(nil)
	p, err = w.alice.svc.NewProbe(t.Context(), w.bob.doc, w.bob.kexID, envelope.NewID(), "greeting", nil)
	fatal(t, err)
	var r *envelope.Refusal
	if _, err := w.alice.svc.SendProbe(t.Context(), p, w.bob.id); !errors.As(err, &r) {
		t.Errorf("%v", err)
	}
}

func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"data":{},"kind":"successor","type":"TreatyNotice"}`))
	f.Add([]byte(`{"code":"","data":{"a":[1]},"kind":"drill.propose","ok":true,"text":"","type":"TreatyNoticeAnswer"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n, err := notice.ParseNotice(body); err == nil {
			if len(n.Kind) > 40 || len(n.Data) > notice.MaxData || !json.Valid(n.Data) {
				t.Fatalf("%q", body)
			}
		}
		if a, err := notice.ParseAnswer(body); err == nil {
			if len(a.Text) > notice.MaxText || len(a.Code) > notice.MaxCode || a.OK == (a.Code != "") {
				t.Fatalf("%q", body)
			}
		}
	})
}
