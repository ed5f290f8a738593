// SPDX-License-Identifier: Apache-2.0

// Package pinstest holds the tests that every implementation of resolver.Pins
// has to pass.
package pinstest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
)

// Run tests the implementation that open returns, empty, for each test.
func Run(t *testing.T, open func(t *testing.T) resolver.Pins) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, resolver.Pins)
	}{
		{"Empty", testEmpty},
		{"Order", testOrder},
		{"CompareAndSwap", testCompareAndSwap},
		{"Hold", testHold},
		{"Apart", testApart},
		{"Copies", testCopies},
		{"Concurrent", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

var (
	subject = mustParse("did:wba:a.example")
	other   = mustParse("did:wba:b.example")
	start   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

func mustParse(s string) did.DID {
	id, err := did.Parse(s)
	if err != nil {
		panic(err)
	}
	return id
}

// version makes a pin; versions with a higher n are seen later and say that they
// are older, which the store has no business with.
func version(id did.DID, n int) resolver.Pin {
	raw := fmt.Appendf(nil, `{"n":%d}`, n)
	return resolver.Pin{
		DID: id, Hash: canon.Sum(raw), Raw: raw, State: resolver.PinAccepted,
		ProofCreated: start.Add(-time.Duration(n) * time.Hour), FirstSeen: start.Add(time.Duration(n) * time.Minute),
		Deactivated: n%2 == 1,
	}
}

func held(id did.DID, n int) resolver.Pin {
	p := version(id, n)
	p.State = resolver.PinHeld
	return p
}

func equal(a, b resolver.Pin) bool {
	return a.DID == b.DID && a.Hash == b.Hash && bytes.Equal(a.Raw, b.Raw) && a.State == b.State &&
		a.ProofCreated.Equal(b.ProofCreated) && a.FirstSeen.Equal(b.FirstSeen) && a.Deactivated == b.Deactivated
}

func add(t *testing.T, pins resolver.Pins, p resolver.Pin, prev canon.Digest) {
	t.Helper()
	if err := pins.Add(t.Context(), p, prev); err != nil {
		t.Fatalf("Add: %v", err)
	}
}

func wantLatest(t *testing.T, pins resolver.Pins, id did.DID, want *resolver.Pin) {
	t.Helper()
	got, err := pins.Latest(t.Context(), id)
	check(t, "Latest", got, err, want)
}

func wantHeld(t *testing.T, pins resolver.Pins, id did.DID, want *resolver.Pin) {
	t.Helper()
	got, err := pins.Held(t.Context(), id)
	check(t, "Held", got, err, want)
}

func check(t *testing.T, what string, got *resolver.Pin, err error, want *resolver.Pin) {
	t.Helper()
	if err != nil || (got == nil) != (want == nil) || got != nil && !equal(*got, *want) {
		t.Errorf("%s = %+v, %v; want %+v", what, got, err, want)
	}
}

func wantHistory(t *testing.T, pins resolver.Pins, id did.DID, want ...resolver.Pin) {
	t.Helper()
	got, err := pins.History(t.Context(), id)
	if err != nil || len(got) != len(want) {
		t.Fatalf("History has %d versions (%v), want %d", len(got), err, len(want))
	}
	for i := range got {
		if !equal(got[i], want[i]) {
			t.Errorf("History[%d] = %+v, want %+v", i, got[i], want[i])
		}
	}
}

func testEmpty(t *testing.T, pins resolver.Pins) {
	wantLatest(t, pins, subject, nil)
	wantHeld(t, pins, subject, nil)
	wantHistory(t, pins, subject)
}

func testOrder(t *testing.T, pins resolver.Pins) {
	var all []resolver.Pin
	var prev canon.Digest
	for n := range 5 {
		p := version(subject, n)
		add(t, pins, p, prev)
		all, prev = append(all, p), p.Hash
		wantLatest(t, pins, subject, &p)
	}
	wantHistory(t, pins, subject, all...)
	// A document without a proof has no time, and stays without.
	p := version(subject, 9)
	p.ProofCreated = time.Time{}
	add(t, pins, p, prev)
	if got, err := pins.Latest(t.Context(), subject); err != nil || !got.ProofCreated.IsZero() {
		t.Errorf("Latest = %+v, %v; want no time of a proof", got, err)
	}
}

func testCompareAndSwap(t *testing.T, pins resolver.Pins) {
	v0, v1, v2 := version(subject, 0), version(subject, 1), version(subject, 2)
	conflict := func(p resolver.Pin, prev canon.Digest) {
		t.Helper()
		if err := pins.Add(t.Context(), p, prev); !errors.Is(err, resolver.ErrPinConflict) {
			t.Errorf("Add after %v: %v, want ErrPinConflict", prev, err)
		}
	}
	conflict(v0, v1.Hash) // there is no version yet
	add(t, pins, v0, canon.Digest{})
	conflict(v1, canon.Digest{}) // there is one now
	conflict(v1, v2.Hash)        // but another
	add(t, pins, v1, v0.Hash)
	conflict(v2, v0.Hash) // no longer the latest
	conflict(v1, v1.Hash) // is the latest already
	conflict(v0, v1.Hash) // was there before
	wantHistory(t, pins, subject, v0, v1)
}

func testHold(t *testing.T, pins resolver.Pins) {
	ctx := t.Context()
	v0, h1, h2 := version(subject, 0), held(subject, 1), held(subject, 2)
	add(t, pins, v0, canon.Digest{})
	for _, p := range []resolver.Pin{h1, h2} {
		if err := pins.Hold(ctx, p); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, pins, subject, &p)
	}
	again := h2
	again.FirstSeen = again.FirstSeen.Add(time.Hour)
	if err := pins.Hold(ctx, again); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pins, subject, &h2)
	wantLatest(t, pins, subject, &v0)
	wantHistory(t, pins, subject, v0)

	// A failed Add leaves what is held; so does another version.
	v2 := version(subject, 2)
	if err := pins.Add(ctx, v2, canon.Digest{}); !errors.Is(err, resolver.ErrPinConflict) {
		t.Errorf("Add: %v, want ErrPinConflict", err)
	}
	v1 := version(subject, 1)
	add(t, pins, v1, v0.Hash)
	wantHeld(t, pins, subject, &h2)
	add(t, pins, v2, v1.Hash)
	wantHeld(t, pins, subject, nil)
	wantHistory(t, pins, subject, v0, v1, v2)
}

func testApart(t *testing.T, pins resolver.Pins) {
	a, b := version(subject, 0), version(other, 0) // one hash, two DIDs
	add(t, pins, a, canon.Digest{})
	wantLatest(t, pins, other, nil)
	add(t, pins, b, canon.Digest{})
	if err := pins.Hold(t.Context(), held(subject, 3)); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pins, other, nil)
	wantHistory(t, pins, subject, a)
	wantHistory(t, pins, other, b)
}

func testCopies(t *testing.T, pins resolver.Pins) {
	p, want := version(subject, 0), version(subject, 0)
	add(t, pins, p, canon.Digest{})
	p.Raw[0] = 'X'
	got, err := pins.Latest(t.Context(), subject)
	check(t, "Latest", got, err, &want)
	got.Raw[0] = 'Y'
	wantLatest(t, pins, subject, &want)
}

// Of many that append after the same version, one wins.
func testConcurrent(t *testing.T, pins resolver.Pins) {
	v0 := version(subject, 0)
	add(t, pins, v0, canon.Digest{})
	const n = 16
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = pins.Add(t.Context(), version(subject, i+1), v0.Hash) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, resolver.ErrPinConflict):
			t.Errorf("Add: %v", err)
		}
	}
	history, err := pins.History(t.Context(), subject)
	if won != 1 || err != nil || len(history) != 2 {
		t.Errorf("%d of %d won, %d versions (%v)", won, n, len(history), err)
	}
}
