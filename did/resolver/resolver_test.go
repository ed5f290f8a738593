// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/internal/tlstest"
)

func TestResolveEveryProfile(t *testing.T) {
	e1, k1 := newE1(t), newK1(t)
	bare, path, web := named(t, "did:wba:"+domain), named(t, "did:wba:"+domain+":agents:old"), named(t, "did:web:"+domain+":agents:web")
	port := named(t, "did:wba:"+domain+"%3A8443")
	for _, c := range []struct {
		name string
		id   did.DID
		doc  []byte
		key  bool // a proof was checked
	}{
		{"e1", e1.id, e1.signed(t, start), true},
		{"k1", k1.id, k1.signed(t, start), true},
		{"k1 without proof", k1.id, k1.unsigned(t), false},
		{"bare", bare.id, bare.signed(t, start), true},
		{"bare without proof", bare.id, bare.unsigned(t), false},
		{"path without fingerprint", path.id, path.unsigned(t), false},
		{"did:web", web.id, web.unsigned(t), false},
		{"port", port.id, port.signed(t, start), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish(c.id, c.doc, "max-age=60")
			first, err := w.r.ResolveResult(t.Context(), c.id)
			if err != nil {
				t.Fatal(err)
			}
			if first.Cached || !first.New || !first.Previous.IsZero() || first.URL != c.id.DocumentURL() ||
				!first.Fetched.Equal(start) || !first.Expires.Equal(start.Add(time.Minute)) || !first.FirstSeen.Equal(start) ||
				first.Verification.Profile != c.id.Profile() || (first.Verification.ProofKeyID != "") != c.key {
				t.Errorf("first look-up: %+v", first)
			}
			if !bytes.Equal(first.Document.Raw(), c.doc) {
				t.Error("the document is not the one that was served")
			}
			second, err := w.r.ResolveResult(t.Context(), c.id)
			if err != nil || !second.Cached || second.New || second.Document != first.Document {
				t.Errorf("second look-up: %+v, %v", second, err)
			}
			w.fresh()
			third, err := w.r.ResolveResult(t.Context(), c.id)
			if err != nil || third.Cached || third.New || !third.FirstSeen.Equal(start) || !third.Fetched.Equal(w.clock.now()) {
				t.Errorf("third look-up: %+v, %v", third, err)
			}
			if n := w.fetches(c.id); n != 2 {
				t.Errorf("%d fetches, want 2", n)
			}
			accepted, held, err := w.r.History(t.Context(), c.id)
			if err != nil || len(accepted) != 1 || held != nil || accepted[0].Hash != hashOf(t, c.doc) {
				t.Errorf("History: %+v, %+v, %v", accepted, held, err)
			}
		})
	}
}

// Hostile forms of a DID do not exist: there is nothing to fetch.
func TestHostileDIDsDoNotParse(t *testing.T) {
	for _, s := range []string{
		"did:wba:bank.example%40evil.example", "did:wba:user@evil.example", "did:wba:evil.example:..:..:secret", "did:wba:evil.example:.",
		"did:wba:evil.example:%2e%2e:x", "did:wba:evil.example:a?b", "did:wba:evil.example%3Fx", "did:wba:evil.example:a%3Fb", "did:wba:evil.example:a#b",
		"did:wba:evil.example:a/b", "did:wba:evil.example:a%2fb", "did:wba:evil.example:a%5cb", "did:wba:evil.example%3A0", "did:wba:evil.example%3A99999",
		"did:wba:evil.example%3A443%3A443", "did:wba:127.0.0.1", "did:wba:2130706433", "did:wba:0x7f.1", "did:wba:[::1]", "did:wba:localhost",
		"did:wba:evil.example.", "did:wba:evil..example", "did:wba:EVIL.example", "did:wba:evil.example:", "did:wba:evil.example:a::b", "did:wba::a",
		"did:wba:evil.example:a\x00b", "did:wba:evil.example\n", "did:web:evil.example%2f..%2fx", "did:wba:évil.example",
	} {
		if id, err := did.Parse(s); err == nil {
			t.Errorf("%q would be fetched from %s", s, id.DocumentURL())
		}
	}
}

func TestRefusals(t *testing.T) {
	i := newE1(t)
	good := i.signed(t, start)
	stranger := newE1(t)
	id := i.id

	answer := func(body []byte) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(body) }
	}
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			_, _ = rw.Write(good)
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", to)
			rw.WriteHeader(http.StatusFound)
		}
	}
	replace := func(old, with string) []byte {
		out := bytes.Replace(good, []byte(old), []byte(with), 1)
		if bytes.Equal(out, good) {
			t.Fatalf("%q does not occur in the document", old)
		}
		return out
	}
	// padded fills the good document with insignificant white space.
	padded := func(size int) []byte { return append(bytes.Repeat([]byte{' '}, size-len(good)), good...) }
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(padded(4 << 20))
	_ = z.Close()
	silence := func(rw http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	drip := func(rw http.ResponseWriter, r *http.Request) {
		for tick := time.NewTicker(time.Millisecond); r.Context().Err() == nil; <-tick.C {
			_, _ = rw.Write([]byte{' '})
			rw.(http.Flusher).Flush()
		}
	}
	impatient := func(w *world) { w.fetch.Timeout = 100 * time.Millisecond }
	serving := func(edit func(*x509.Certificate)) func(*world) {
		return func(w *world) {
			w.fetch.Hosts[domain+":443"] = tlstest.Serve(w.t, w.ca.Cert(w.t, domain, edit), w)
		}
	}

	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		edit func(*world)
		want Code
	}{
		{name: "the good one", h: answer(good)},
		{name: "redirect within the origin", h: redirect("/moved")},
		{name: "exactly 64 KiB", h: answer(padded(64 << 10))},

		{name: "nothing there", h: nil, want: CodeNotFound},
		{name: "gone", h: status(410), want: CodeNotFound},
		{name: "unauthorised", h: status(401), want: CodeUnreachable},
		{name: "server error", h: status(500), want: CodeUnreachable},
		{name: "not modified", h: status(304), want: CodeUnreachable},
		{name: "another 2xx", h: status(203), want: CodeUnreachable},
		{name: "redirect to another origin", h: redirect("https://evil.test/did.json"), want: CodeRedirect},
		{name: "redirect to another port", h: redirect("https://" + domain + ":8443/moved"), want: CodeRedirect},
		{name: "redirect to http", h: redirect("http://" + domain + "/moved"), want: CodeRedirect},
		{name: "redirect to itself", h: redirect(id.DocumentURL()), want: CodeRedirect},

		{name: "64 KiB and a byte", h: answer(padded(64<<10 + 1)), want: CodeBadDocument},
		{name: "2 MiB", h: answer(padded(2 << 20)), want: CodeBadDocument},
		{name: "gzip bomb", h: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(zipped.Bytes())
		}, want: CodeBadDocument},
		{name: "empty", h: answer(nil), want: CodeBadDocument},
		{name: "HTML", h: answer([]byte("<html></html>")), want: CodeBadDocument},
		{name: "an array", h: answer([]byte("[" + string(good) + "]")), want: CodeBadDocument},
		{name: "two documents", h: answer(append(bytes.Clone(good), good...)), want: CodeBadDocument},
		{name: "cut short", h: answer(good[:len(good)-1]), want: CodeBadDocument},
		{name: "a byte order mark", h: answer(append([]byte("\xef\xbb\xbf"), good...)), want: CodeBadDocument},
		{name: "duplicate id", h: answer(replace(`{`, `{"id":"did:wba:evil.test",`)), want: CodeBadDocument},
		{name: "duplicate key in depth", h: answer(replace(`"proofPurpose"`, `"proofPurpose":"x","proofPurpose"`)), want: CodeBadDocument},
		{name: "a member that differs by case", h: answer(replace(`{`, `{"ID":"did:wba:evil.test",`)), want: CodeBadDocument},
		{name: "10 000 deep", h: answer(replace(`{`, `{"x":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`,`)), want: CodeBadDocument},

		{name: "of another DID", h: answer(stranger.signed(t, start)), want: CodeIDMismatch},
		{name: "of the bare domain", h: answer(named(t, "did:wba:"+domain).unsigned(t)), want: CodeIDMismatch},
		{name: "no proof", h: answer(i.unsigned(t)), want: CodeBadProof},
		{name: "something added", h: answer(replace(`{`, `{"extra":1,`)), want: CodeBadProof},
		{name: "proof by a key that the DID does not name", h: answer(
			sign(t, i.unsigned(t, signingToo(stranger.key)), id, stranger.key, "signing", start)), want: CodeBadProof},
		{name: "proof from the future", h: answer(i.signed(t, start.Add(31*time.Second))), want: CodeRollback},
		{name: "proof from the far future", h: answer(i.signed(t, start.AddDate(10, 0, 0))), want: CodeRollback},
		{name: "proof within the skew", h: answer(i.signed(t, start.Add(30*time.Second)))},

		{name: "silence", h: silence, edit: impatient, want: CodeTimeout},
		{name: "a byte now and then", h: drip, edit: impatient, want: CodeTimeout},
		{name: "the look-up's own limit", h: silence, edit: func(w *world) { w.o.Timeout = 100 * time.Millisecond }, want: CodeTimeout},
		{name: "common name only", h: answer(good), edit: serving(func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = domain, nil
		}), want: CodeCertificate},
		{name: "certificate for another name", h: answer(good), edit: serving(func(c *x509.Certificate) {
			c.DNSNames = []string{"evil.test"}
		}), want: CodeCertificate},
		{name: "certificate expired", h: answer(good), edit: serving(func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}), want: CodeCertificate},
		{name: "unknown authority", h: answer(good), edit: func(w *world) { w.fetch.RootCAs = tlstest.NewCA(w.t).Pool() }, want: CodeCertificate},
		{name: "loopback without mapping", h: answer(good), edit: func(w *world) {
			w.fetch.Hosts = nil
			w.fetch.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}, nil
			}
		}, want: CodeForbiddenAddress},
		{name: "no such name", h: answer(good), edit: func(w *world) {
			w.fetch.Hosts = nil
			w.fetch.Lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
		}, want: CodeUnreachable},
		{name: "nobody listens", h: answer(good), edit: func(w *world) { w.fetch.Hosts[domain+":443"] = "127.0.0.1:1" }, want: CodeUnreachable},
		{name: "port not allowed", h: answer(good), edit: func(w *world) { w.fetch.AllowedPorts = []int{8443} }, want: CodeForbiddenURL},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				if c.edit != nil {
					c.edit(w)
				}
			})
			w.serve(id, c.h)
			w.answers["https://"+domain+"/moved"] = answer(good)
			w.answers["https://"+domain+":8443/moved"] = answer(good)
			w.want(id, c.want)
			latest, err := w.pins.Latest(t.Context(), id)
			if err != nil || (latest != nil) != (c.want == "") {
				t.Errorf("pinned %v (%v)", latest, err)
			}
		})
	}
}

func TestPolicyComesBeforeTheFetch(t *testing.T) {
	refusal := errors.New("not on the list")
	var closed atomic.Bool
	w := newWorld(t, func(w *world) {
		w.o.Admit = func(did.DID) error {
			if closed.Load() {
				return refusal
			}
			return nil
		}
	})
	i := newE1(t)
	w.publish(i.id, i.signed(t, start))
	closed.Store(true)
	if e := w.want(i.id, CodeNotAdmitted); !errors.Is(e, refusal) || w.total.Load() != 0 {
		t.Errorf("%v after %d requests", e, w.total.Load())
	}
	closed.Store(false)
	w.want(i.id, "")
	closed.Store(true) // a change counts at once, whatever is in the cache
	w.want(i.id, CodeNotAdmitted)
}

func TestConcurrentLookupsAreMerged(t *testing.T) {
	const callers = 1000
	var asked atomic.Int64
	all := make(chan struct{})
	w := newWorld(t, func(w *world) {
		w.o.Admit = func(did.DID) error {
			if asked.Add(1) == callers {
				close(all)
			}
			return nil
		}
	})
	i := newE1(t)
	doc := i.signed(t, start)
	w.serve(i.id, func(rw http.ResponseWriter, _ *http.Request) {
		<-all // nobody is answered before everybody has asked
		_, _ = rw.Write(doc)
	})
	var wg sync.WaitGroup
	var failed atomic.Int64
	for n := range callers {
		wg.Go(func() {
			// More sources than one: the budget is charged for the fetch, not the caller.
			if _, err := w.r.Resolve(WithSource(t.Context(), fmt.Sprint(n%3)), i.id); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() != 0 || w.fetches(i.id) != 1 {
		t.Errorf("%d of %d failed, %d fetches", failed.Load(), callers, w.fetches(i.id))
	}
}

// Two callers who both found nothing, and ask the store at the same time whether
// the DID is known, still make one request.
func TestCallersWhoMeetInTheStoreAreMerged(t *testing.T) {
	f := &faulty{Pins: NewMemoryPins()}
	w := newWorld(t, func(w *world) { w.pins = f })
	i := newE1(t)
	doc := i.signed(t, start)
	var inStore sync.WaitGroup
	inStore.Add(2)
	var calls atomic.Int64
	f.beforeLatest = func() {
		if calls.Add(1) <= 2 { // the look-up itself asks again, later
			inStore.Done()
			inStore.Wait()
		}
	}
	w.serve(i.id, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(doc) })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.want(i.id, "") })
	}
	wg.Wait()
	if n := w.fetches(i.id); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}

	// One is so slow in the store that the other has its answer by then.
	w.fresh()
	calls.Store(0)
	f.beforeLatest = func() {
		if calls.Add(1) == 1 {
			w.want(i.id, "")
		}
	}
	w.want(i.id, "")
	if n := w.fetches(i.id); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

func TestOneCallerLeavingDoesNotEndTheOthers(t *testing.T) {
	w := newWorld(t)
	i := newE1(t)
	doc := i.signed(t, start)
	arrived, release := make(chan struct{}), make(chan struct{})
	w.serve(i.id, func(rw http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = rw.Write(doc)
	})
	first, leave := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	results := make(chan error, 2)
	go func() { _, err := w.r.Resolve(first, i.id); results <- err }()
	<-arrived
	leave(gone)
	if err := <-results; !errors.Is(err, CodeCanceled) || !errors.Is(err, gone) {
		t.Errorf("the caller who left: %v", err)
	}
	go func() { _, err := w.r.Resolve(t.Context(), i.id); results <- err }()
	close(release)
	if err := <-results; err != nil || w.fetches(i.id) != 1 {
		t.Errorf("the caller who stayed: %v after %d fetches", err, w.fetches(i.id))
	}
	w.wantCtx(first, newE1(t).id, CodeCanceled) // starts nothing
	if w.total.Load() != 1 {
		t.Errorf("%d requests", w.total.Load())
	}
}

func TestFailuresAreRememberedBriefly(t *testing.T) {
	w := newWorld(t)
	i := newE1(t)
	for range 3 {
		e := w.want(i.id, CodeNotFound)
		if len(e.Error()) > 1000 {
			t.Errorf("error of %d bytes", len(e.Error()))
		}
	}
	if n := w.fetches(i.id); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
	w.publish(i.id, i.signed(t, start))
	w.clock.advance(15*time.Second - 1)
	w.want(i.id, CodeNotFound)
	w.clock.advance(1)
	w.want(i.id, "")
	if n := w.fetches(i.id); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

func TestNeverServedPastItsTime(t *testing.T) {
	for control, life := range map[string]time.Duration{
		"":               MaxAge,
		"max-age=86400":  MaxAge,
		"max-age=20":     20 * time.Second,
		"no-store":       time.Second,
		"no-cache":       time.Second,
		"max-age=0":      time.Second,
		"max-age=banana": time.Second,
	} {
		w := newWorld(t)
		i := newE1(t)
		w.publish(i.id, i.signed(t, start), control)
		w.want(i.id, "")
		w.serve(i.id, nil) // taken away
		w.clock.advance(life - 1)
		w.want(i.id, "")
		w.clock.advance(1)
		w.want(i.id, CodeNotFound)
	}
}

func TestClockSetBackEndsTheCache(t *testing.T) {
	w := newWorld(t)
	i := newE1(t)
	w.publish(i.id, i.signed(t, start.Add(-time.Hour)))
	w.want(i.id, "")
	w.clock.advance(-time.Minute) // else it would be served a minute too long
	w.want(i.id, "")
	if n := w.fetches(i.id); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

func TestBudgetOfASource(t *testing.T) {
	w := newWorld(t, func(w *world) { w.o.SourceBudget = Budget{Burst: 3, Every: 10 * time.Second} })
	mallory, alice := WithSource(t.Context(), "203.0.113.7"), WithSource(t.Context(), "198.51.100.9")
	known, missing := newE1(t), newE1(t)
	w.publish(known.id, known.signed(t, start))
	w.want(known.id, "")
	w.wantCtx(mallory, missing.id, CodeNotFound)
	w.wantCtx(mallory, missing.id, CodeNotFound) // remembered, costs nothing
	w.wantCtx(mallory, newE1(t).id, CodeNotFound)
	w.wantCtx(mallory, newE1(t).id, CodeNotFound)
	before := w.total.Load()
	w.wantCtx(mallory, newE1(t).id, CodeBudget)
	if w.total.Load() != before {
		t.Error("a request was made beyond the budget")
	}
	w.wantCtx(alice, newE1(t).id, CodeNotFound) // has a budget of her own
	w.clock.advance(10 * time.Second)
	w.wantCtx(mallory, newE1(t).id, CodeNotFound)
	w.wantCtx(mallory, newE1(t).id, CodeBudget)
	w.clock.advance(MaxAge - 10*time.Second)
	for range 5 { // fetched each time, and known
		for w.r.sources.take("203.0.113.7", w.clock.now()) {
		}
		w.wantCtx(mallory, known.id, "")
		w.fresh()
	}
	if n := w.fetches(known.id); n != 6 {
		t.Errorf("%d fetches of the known DID, want 6", n)
	}
}

func TestBudgetOfAHost(t *testing.T) {
	w := newWorld(t, func(w *world) { w.o.HostBudget = Budget{Burst: 5, Every: time.Minute} })
	for n := range 5 {
		w.wantCtx(WithSource(t.Context(), fmt.Sprint(n)), newE1(t).id, CodeNotFound)
	}
	w.wantCtx(WithSource(t.Context(), "another"), newE1(t).id, CodeBudget)
	w.clock.advance(time.Minute)
	w.wantCtx(WithSource(t.Context(), "another"), newE1(t).id, CodeNotFound)
	if w.total.Load() != 6 {
		t.Errorf("%d requests, want 6", w.total.Load())
	}
}

func TestLookupsUnderWayAreBounded(t *testing.T) {
	w := newWorld(t, func(w *world) { w.o.MaxFlights = 2 })
	release, arrived := make(chan struct{}), make(chan struct{}, 2)
	var wg sync.WaitGroup
	for range 2 {
		i := newE1(t)
		w.serve(i.id, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
		wg.Go(func() { w.want(i.id, CodeBadDocument) })
	}
	<-arrived
	<-arrived
	w.want(newE1(t).id, CodeBudget)
	close(release)
	wg.Wait()
	w.want(newE1(t).id, CodeNotFound)
}

func TestObserveIsToldOnceForEachFetch(t *testing.T) {
	var told []string
	w := newWorld(t, func(w *world) {
		w.o.Observe = func(_ context.Context, id did.DID, result *Result, err *Error) {
			if (result == nil) == (err == nil) {
				t.Errorf("told %v and %v", result, err)
			}
			if err != nil {
				told = append(told, string(err.Code))
			} else {
				told = append(told, result.Document.ID().String())
			}
		}
	})
	i, missing := newE1(t), newE1(t)
	w.publish(i.id, i.signed(t, start))
	for range 2 {
		w.want(i.id, "")
		w.want(missing.id, CodeNotFound)
	}
	if want := []string{i.id.String(), "not_found"}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestErrorText(t *testing.T) {
	id := newE1(t).id
	for _, c := range []struct {
		err  error
		want string
	}{
		{CodeRollback, "resolver: rollback"},
		{&Error{Code: CodeRollback, DID: id}, "resolving " + id.String() + ": rollback"},
		{&Error{Code: CodeStore, DID: id, Err: errors.New("disk full")}, "resolving " + id.String() + ": store: disk full"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if e := (&Error{Code: CodeRollback}); !errors.Is(e, CodeRollback) || errors.Is(e, CodeBudget) || errors.Is(e, ErrNotHeld) {
		t.Error("a code is not told from others")
	}
}

func TestNewWantsItsParts(t *testing.T) {
	full := newWorld(t).o
	for name, edit := range map[string]func(*Options){
		"client": func(o *Options) { o.Client = nil },
		"pins":   func(o *Options) { o.Pins = nil },
		"policy": func(o *Options) { o.Admit = nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New without %s", name)
				}
			}()
			o := full
			edit(&o)
			New(o)
		}()
	}
}
