// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/node/dataplane"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

type fakeCalls struct {
	calls []dataplane.UnderWay
	ended []string
}

func (f *fakeCalls) Calls() []dataplane.UnderWay { return slices.Clone(f.calls) }

func (f *fakeCalls) Cancel(id string) error {
	f.ended = append(f.ended, id)
	return nil
}

// What is long under way reaches the store, and the operator's word the call.
func TestOperator(t *testing.T) {
	db, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "treaty.db"), sqlite.Options{Node: "did:wba:vendorcorp.test", Process: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := &fakeCalls{}
	o := &operator{db: db, calls: f, now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	said := func() (c store.CallsUnderWay) {
		t.Helper()
		if err := o.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.View(t.Context(), func(tx store.Tx) (err error) { c, err = store.GetCallsUnderWay(tx); return err }); err != nil {
			t.Fatal(err)
		}
		return c
	}
	cancel := func(id string) error {
		return db.Update(t.Context(), func(tx store.Tx) error { return store.CancelCall(tx, id) })
	}
	f.calls = []dataplane.UnderWay{{ID: "A", Buyer: "did:wba:buyercorp.test", Since: now, Running: true}}
	if c := said(); len(c.Calls) != 0 || !c.At.IsZero() {
		t.Errorf("a short call was written: %v", c)
	}
	now = now.Add(2 * time.Second)
	f.calls = append(f.calls, dataplane.UnderWay{ID: "B", Since: now})
	if c := said(); len(c.Calls) != 1 || c.Calls[0] != f.calls[0] || !c.At.Equal(now) {
		t.Errorf("%v", c)
	}
	if err := cancel("B"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a call that was not told of: %v", err)
	}
	for range 2 {
		if err := cancel("A"); err != nil {
			t.Fatal(err)
		}
	}
	if said(); !slices.Equal(f.ended, []string{"A"}) {
		t.Errorf("ended %v", f.ended)
	}
	f.calls = nil
	if c := said(); len(c.Calls) != 0 || len(f.ended) != 1 {
		t.Errorf("%v, ended %v", c, f.ended)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Strangers share a small budget; a party of a contract is not kept out by them.
func TestFetching(t *testing.T) {
	now, reads := time.Unix(0, 0), 0
	parties := []string{"did:wba:buyercorp.test:agents:a:e1_x", "did:wba:other.test%3A8443"}
	f := &fetching{
		base: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
		}),
		contracts: func(context.Context) ([]string, error) { reads++; return parties, nil },
		strangers: rate.NewLimiter(rate.Every(time.Second), 2), now: func() time.Time { return now },
	}
	get := func(url string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	for i, url := range []string{"https://a.test/", "https://b.test/"} {
		if err := get(url); err != nil {
			t.Errorf("stranger %d: %v", i, err)
		}
	}
	if err := get("https://c.test/"); !errors.Is(err, errStrangers) {
		t.Errorf("a third stranger: %v", err)
	}
	for range 5 {
		if err := get("https://OTHER.test:8443/x"); err != nil {
			t.Errorf("a party: %v", err)
		}
	}
	if reads != 1 {
		t.Errorf("the store was read %d times", reads)
	}
	parties = append(parties, "did:wba:new.test")
	if err := get("https://new.test/"); !errors.Is(err, errStrangers) {
		t.Errorf("before the list is read again: %v", err)
	}
	now = now.Add(refreshEvery)
	for range 3 {
		if err := get("https://new.test/"); err != nil {
			t.Errorf("a new party: %v", err)
		}
	}
}

func TestPassword(t *testing.T) {
	dir := t.TempDir()
	path := func(p string) string { return filepath.Join(dir, p) }
	for name, f := range map[string]struct {
		data string
		mode os.FileMode
	}{"good": {"s3cr3t\n", 0o600}, "open": {"s3cr3t", 0o604}, "empty": {"\n", 0o600}, "long": {strings.Repeat("x", maxPassword+1), 0o600}} {
		if err := os.WriteFile(path(name), []byte(f.data), f.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path(name), f.mode); err != nil {
			t.Fatal(err)
		}
		pw, err := password(&dataset.Source{PasswordFile: name}, path)
		if good := name == "good"; good != (err == nil) || good != (pw == "s3cr3t") || err != nil && (!errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "s3cr3t")) {
			t.Errorf("%s: %q, %v", name, pw, err)
		}
	}
	t.Setenv("TREATY_TEST_PASSWORD", "s3cr3t")
	if pw, err := password(&dataset.Source{PasswordEnv: "TREATY_TEST_PASSWORD"}, path); err != nil || pw != "s3cr3t" {
		t.Errorf("%q, %v", pw, err)
	}
	if _, err := password(&dataset.Source{PasswordEnv: "TREATY_TEST_NOT_THERE"}, path); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}
