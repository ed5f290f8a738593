// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver/fetch"
)

// MaxAge is the longest time that a document is reused without asking again.
const MaxAge = 5 * time.Minute

// Options says how a Resolver works. Client, Pins and Admit must be given.
type Options struct {
	// Client fetches. It must be from fetch.NewClient, or wrap its transport: the
	// resolver relies on that client's rules.
	Client *http.Client
	// Pins remembers accepted versions.
	Pins Pins
	// Admit is the trust policy, asked on every look-up, also when the answer is
	// in the cache. It must not block.
	Admit func(did.DID) error

	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// AcceptKeyChanges lets a changed key of a DID that only its web server
	// vouches for pass without Confirm. Result.KeyChanged still tells.
	AcceptKeyChanges bool
	// MaxAge bounds how long a document is reused; zero, or more than the constant
	// MaxAge, means that constant.
	MaxAge time.Duration
	// MinAge is how long a document is reused even if its server wants less; zero
	// means one second. Without it, a document marked no-store would be fetched
	// once for each request that names it, at the will of whoever sends them.
	MinAge time.Duration
	// NegativeAge is how long a failure is remembered; zero means 15 seconds.
	NegativeAge time.Duration
	// Timeout bounds one look-up; zero means 15 seconds.
	Timeout time.Duration
	// CacheEntries and CacheBytes bound the cache; zero means 10,000 documents and
	// 64 MiB.
	CacheEntries int
	CacheBytes   int64
	// MaxFlights bounds the look-ups under way; zero means 64.
	MaxFlights int
	// SourceBudget is how many unknown DIDs one source can make this node look up;
	// zero means 30 at once and one more every 2 seconds.
	SourceBudget Budget
	// HostBudget is how many unknown DIDs of one host are looked up for all
	// sources together; zero means 60 at once and one more each second.
	HostBudget Budget
	// Observe is told of each look-up that asked the network, before those who wait
	// for it. Exactly one of result and err is nil. It must not block for long, nor
	// call the resolver.
	Observe func(ctx context.Context, id did.DID, result *Result, err *Error)
}

// Result is a resolved document with the circumstances. Results are shared: do
// not change them.
type Result struct {
	Document     *did.Document
	Verification did.Verification
	URL          string    // where it was fetched
	Fetched      time.Time // when that began
	Expires      time.Time // when it will be fetched again
	Cached       bool      // this answer came from the cache

	FirstSeen  time.Time    // when this node first accepted this version
	New        bool         // this look-up accepted it
	Previous   canon.Digest // with New: the version before it, zero if it is the first
	KeyChanged bool         // with New: accepted by policy though a key was added
}

// Resolver resolves DIDs. It is safe for concurrent use.
type Resolver struct {
	o Options

	mu       sync.Mutex // guards what follows; never held during I/O
	cache    *cache
	chains   *chains
	flights  map[did.DID]*flight
	sources  *meters
	hosts    *meters
	versions *meters
}

// flight is a look-up under way. entry is set before done is closed.
type flight struct {
	done  chan struct{}
	entry *entry
}

// New returns a Resolver. It panics without a Client, Pins or Admit: there is no
// safe default for any of them.
func New(o Options) *Resolver {
	if o.Client == nil || o.Pins == nil || o.Admit == nil {
		panic("resolver: New without Client, Pins or Admit")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxAge <= 0 || o.MaxAge > MaxAge {
		o.MaxAge = MaxAge
	}
	o.MinAge = min(cmp.Or(o.MinAge, time.Second), o.MaxAge)
	o.NegativeAge = cmp.Or(o.NegativeAge, 15*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.MaxFlights = cmp.Or(o.MaxFlights, 64)
	return &Resolver{
		o:        o,
		cache:    newCache(cmp.Or(o.CacheEntries, 10_000), cmp.Or(o.CacheBytes, 64<<20)),
		chains:   newChains(),
		flights:  map[did.DID]*flight{},
		sources:  newMeters(o.SourceBudget, defaultSourceBudget),
		hosts:    newMeters(o.HostBudget, defaultHostBudget),
		versions: newMeters(Budget{}, versionBudget),
	}
}

// Resolve returns the verified document of id. The error is an *Error. The
// context bounds this caller's wait; a look-up that others share goes on.
func (r *Resolver) Resolve(ctx context.Context, id did.DID) (*did.Document, error) {
	e, _, err := r.resolve(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.result.Document, nil
}

// ResolveResult is Resolve with the circumstances.
func (r *Resolver) ResolveResult(ctx context.Context, id did.DID) (*Result, error) {
	e, cached, err := r.resolve(ctx, id)
	if err != nil {
		return nil, err
	}
	result := *e.result
	if cached {
		result.Cached, result.New, result.Previous, result.KeyChanged = true, false, canon.Digest{}, false
	}
	return &result, nil
}

// History returns the accepted versions of id, oldest first, and the version
// that is held for confirmation, nil if there is none. Nothing is fetched.
func (r *Resolver) History(ctx context.Context, id did.DID) (accepted []Pin, held *Pin, err error) {
	if accepted, err = r.o.Pins.History(ctx, id); err == nil {
		held, err = r.o.Pins.Held(ctx, id)
	}
	if err != nil {
		return nil, nil, &Error{Code: CodeStore, DID: id, Err: err}
	}
	return accepted, held, nil
}

// Confirm accepts the held version of id with that hash, in the name of an
// operator who has compared its keys over another channel. It verifies the
// version again; confirmation overcomes a changed key or successor, not an older
// proof, a deactivation, or a successor that a recovery key has signed. Without
// such a version the error is ErrNotHeld.
func (r *Resolver) Confirm(ctx context.Context, id did.DID, hash canon.Digest) error {
	held, err := r.o.Pins.Held(ctx, id)
	if err != nil {
		return &Error{Code: CodeStore, DID: id, Err: err}
	}
	if held == nil || !held.Hash.Equal(hash) {
		return fmt.Errorf("%w: %s %s", ErrNotHeld, id, hash)
	}
	latest, err := r.o.Pins.Latest(ctx, id)
	if err != nil {
		return &Error{Code: CodeStore, DID: id, Err: err}
	}
	now := r.o.Now()
	c, failure := r.verify(ctx, id, held.Raw, latest, now)
	if failure != nil {
		return failure
	}
	c.confirmed = true
	if _, failure := r.pin(ctx, id, c, latest, now); failure != nil {
		return failure
	}
	r.Evict(id)
	return nil
}

// Evict forgets the cached answer for id and every cached chain that it is in, so
// that the next look-up asks its domain. Pins stay.
func (r *Resolver) Evict(id did.DID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.drop(id)
	r.chains.drop(id)
	delete(r.flights, id) // what is under way began before, and will not be cached
}

// resolve returns the finished look-up, with its error also if that is one of the
// look-up's and not of this caller.
func (r *Resolver) resolve(ctx context.Context, id did.DID) (_ *entry, cached bool, _ error) {
	if err := r.o.Admit(id); err != nil {
		return nil, false, &Error{Code: CodeNotAdmitted, DID: id, Err: err}
	}
	if ctx.Err() != nil {
		return nil, false, &Error{Code: CodeCanceled, DID: id, Err: context.Cause(ctx)}
	}
	r.mu.Lock()
	e, f := r.cache.get(id, r.o.Now()), r.flights[id]
	r.mu.Unlock()
	if e == nil && f == nil {
		// Whether the DID is known decides about its budget; the store is asked
		// without the lock, so look once more afterwards.
		pin, err := r.o.Pins.Latest(ctx, id)
		if err != nil {
			return nil, false, &Error{Code: CodeStore, DID: id, Err: err}
		}
		var failure *Error
		if e, f, failure = r.join(ctx, id, pin != nil); failure != nil {
			return nil, false, failure
		}
	}
	if cached = e != nil; !cached {
		select {
		case <-f.done:
			e = f.entry
		case <-ctx.Done():
			return nil, false, &Error{Code: CodeCanceled, DID: id, Err: context.Cause(ctx)}
		}
	}
	if e.err != nil {
		return e, cached, e.err
	}
	return e, cached, nil
}

// join returns the cached answer, the look-up under way, or a new one.
func (r *Resolver) join(ctx context.Context, id did.DID, known bool) (*entry, *flight, *Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	if e := r.cache.get(id, now); e != nil {
		return e, nil, nil
	}
	if f := r.flights[id]; f != nil {
		return nil, f, nil
	}
	if len(r.flights) >= r.o.MaxFlights {
		return nil, nil, &Error{Code: CodeBudget, DID: id, Err: errors.New("too many look-ups under way")}
	}
	if !known {
		source := sourceFrom(ctx)
		if !r.sources.left(source, now) {
			return nil, nil, &Error{Code: CodeBudget, DID: id, Err: fmt.Errorf("source %q has named too many unknown DIDs", source)}
		}
		if !r.hosts.take(id.Host(), now) {
			return nil, nil, &Error{Code: CodeBudget, DID: id, Err: errors.New("too many unknown DIDs of this host")}
		}
		r.sources.take(source, now)
	}
	f := &flight{done: make(chan struct{})}
	r.flights[id] = f
	// The look-up belongs to everybody who waits for it, not to its first caller.
	go r.fly(context.WithoutCancel(ctx), id, f, now)
	return nil, f, nil
}

// fly looks id up, remembers the answer and wakes those who wait.
func (r *Resolver) fly(ctx context.Context, id did.DID, f *flight, began time.Time) {
	lookup, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	e := r.lookup(lookup, id, began)
	if r.o.Observe != nil {
		r.o.Observe(ctx, id, e.result, e.err)
	}
	f.entry = e

	r.mu.Lock()
	if r.flights[id] == f { // Evict may have disowned it
		delete(r.flights, id)
		r.cache.put(id, e)
	}
	r.mu.Unlock()
	close(f.done)
}

// lookup fetches, verifies and pins.
func (r *Resolver) lookup(ctx context.Context, id did.DID, began time.Time) *entry {
	failed := func(e *Error) *entry {
		return &entry{err: e, from: began, until: r.o.Now().Add(r.o.NegativeAge)}
	}
	url := id.DocumentURL()
	raw, header, err := fetch.Get(ctx, r.o.Client, url, did.MaxDocumentBytes)
	if err != nil {
		return failed(&Error{Code: fetchCode(err), DID: id, Err: err})
	}
	now := r.o.Now()
	latest, err := r.o.Pins.Latest(ctx, id)
	if err != nil {
		return failed(&Error{Code: CodeStore, DID: id, Err: err})
	}
	c, failure := r.verify(ctx, id, raw, latest, now)
	if failure != nil {
		return failed(failure)
	}
	result, failure := r.pin(ctx, id, c, latest, now)
	if failure != nil {
		return failed(failure)
	}
	// Counted from before the request: the answer is at most that old.
	e := &entry{from: began, until: began.Add(max(lifetime(header, now, r.o.MaxAge), r.o.MinAge)), size: len(raw)}
	if c.doc.Deactivated() {
		e.err = &Error{Code: CodeDeactivated, DID: id, Document: c.doc, Successor: c.doc.SuccessorDID()}
		return e
	}
	result.Document, result.Verification = c.doc, c.verification
	result.URL, result.Fetched, result.Expires = url, e.from, e.until
	e.result = result
	return e
}

// verify checks a document by itself, or, where it says that its DID is no more,
// by a recovery key of the newest version that was pinned while the DID was
// active: one that came with the deactivation does not count.
func (r *Resolver) verify(ctx context.Context, id did.DID, raw []byte, latest *Pin, now time.Time) (candidate, *Error) {
	fail := func(code Code, err error) (candidate, *Error) {
		return candidate{}, &Error{Code: code, DID: id, Err: err}
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return fail(CodeBadDocument, err)
	}
	if doc.ID() != id {
		return fail(CodeIDMismatch, fmt.Errorf("the document is of %s", doc.ID()))
	}
	if created := doc.ProofCreated(); created.After(now.Add(maxSkew)) {
		// Pinned, it would shut out every honest version until its date.
		return fail(CodeRollback, fmt.Errorf("the proof is dated %s, in the future", stamp(created)))
	}
	verification, err := doc.Verify(now)
	if err == nil {
		return candidate{doc: doc, verification: verification, bound: isBound(verification)}, nil
	}
	if latest != nil && doc.Deactivated() {
		pinned, failure := r.lastActive(ctx, id, latest)
		if failure != nil {
			return candidate{}, failure
		}
		if verification, rerr := doc.VerifyRecovery(pinned, now); rerr == nil {
			return candidate{doc: doc, verification: verification, bound: true}, nil
		}
	}
	return fail(CodeBadProof, err)
}

// lastActive returns the newest accepted version of id that is not deactivated,
// nil if there is none. latest is the newest one of all.
func (r *Resolver) lastActive(ctx context.Context, id did.DID, latest *Pin) (*did.Document, *Error) {
	if latest == nil {
		return nil, nil
	}
	raw := latest.Raw
	if latest.Deactivated {
		history, err := r.o.Pins.History(ctx, id)
		if err != nil {
			return nil, &Error{Code: CodeStore, DID: id, Err: err}
		}
		raw = nil
		for _, p := range history {
			if !p.Deactivated {
				raw = p.Raw
			}
		}
		if raw == nil {
			return nil, nil
		}
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		return nil, &Error{Code: CodeStore, DID: id, Err: fmt.Errorf("the pinned version cannot be read: %w", err)}
	}
	return doc, nil
}

// pin judges a verified document against the latest version and appends it if it
// is new. Another process may append its own meanwhile; then the newer version
// is the one to be judged against.
func (r *Resolver) pin(ctx context.Context, id did.DID, c candidate, latest *Pin, now time.Time) (*Result, *Error) {
	fail := func(code Code, err error) (*Result, *Error) {
		return nil, &Error{Code: code, DID: id, Err: err}
	}
	next := Pin{
		DID: id, Hash: c.doc.Hash(), Raw: c.doc.Raw(), ProofCreated: c.doc.ProofCreated(),
		Deactivated: c.doc.Deactivated(), FirstSeen: now, State: PinAccepted,
	}
	for attempt := range 5 {
		v := judge(latest, c, r.o.AcceptKeyChanges)
		switch {
		case v.same:
			return &Result{FirstSeen: latest.FirstSeen}, nil
		case v.hold:
			next.State = PinHeld
			if err := r.o.Pins.Hold(ctx, next); err != nil {
				return fail(CodeStore, err)
			}
			return nil, &Error{Code: v.code, DID: id, Err: v.cause(), Hash: next.Hash, Conflict: v.conflict}
		case !v.accept:
			return nil, &Error{Code: v.code, DID: id, Err: v.cause(), Conflict: v.conflict}
		}
		var prev canon.Digest
		if latest != nil {
			prev = latest.Hash
			if attempt == 0 && !c.confirmed && !r.mayAppend(id, now) {
				return fail(CodeBudget, errors.New("the document changes too often"))
			}
		}
		err := r.o.Pins.Add(ctx, next, prev)
		if err == nil {
			return &Result{FirstSeen: now, New: true, Previous: prev, KeyChanged: v.code == CodeKeyChanged}, nil
		}
		if !errors.Is(err, ErrPinConflict) {
			return fail(CodeStore, err)
		}
		if latest, err = r.o.Pins.Latest(ctx, id); err != nil {
			return fail(CodeStore, err)
		}
		if latest != nil && latest.Hash == prev {
			// Refused, although nobody was faster: the version is one from further
			// back in the history (see Pins.Add).
			return fail(CodeRollback, errors.New("a version from before the pinned one"))
		}
	}
	return fail(CodeStore, errors.New("the pin kept changing"))
}

func (r *Resolver) mayAppend(id did.DID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions.take(id.String(), now)
}
