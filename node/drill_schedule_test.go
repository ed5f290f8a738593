// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

func TestDrillSchedule_Validate(t *testing.T) {
	good := func() *Drill {
		return &Drill{MinGrace: time.Second, MaxQueries: 1, Schedule: []ScheduledDrill{{Kind: "signing", Peer: "vendorcorp.test", Every: time.Minute}}}
	}
	if err := good().validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Drill){
		"drill.min_grace: 999ms":          func(c *Drill) { c.MinGrace = 999 * time.Millisecond },
		"drill.min_grace: 1h0m0.001s":     func(c *Drill) { c.MinGrace = time.Hour + time.Millisecond },
		"drill.max_queries: 0":            func(c *Drill) { c.MaxQueries = 0 },
		"drill.max_queries: 1000001":      func(c *Drill) { c.MaxQueries = 1_000_001 },
		"drill.schedule: more than 64":    func(c *Drill) { c.Schedule = make([]ScheduledDrill, 65) },
		`drill.schedule: kind "human"`:    func(c *Drill) { c.Schedule[0].Kind = "human" },
		"drill.schedule: signing: a peer": func(c *Drill) { c.Schedule[0].Peer = "" },
		"a time of at least 1m0s":         func(c *Drill) { c.Schedule[0].Every = time.Minute - 1 },
	} {
		c := good()
		change(c)
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestDrillSchedule_Due: up to a tenth of the time is taken off, always the same for one node, entry and try, and not for all alike.
func TestDrillSchedule_Due(t *testing.T) {
	last := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := ScheduledDrill{Kind: "signing", Peer: "vendorcorp.test", Every: 1000 * time.Hour}
	seen := map[time.Time]bool{}
	for _, who := range []string{"a.test", "b.test", "c.test", "d.test", "e.test", "f.test", "g.test", "h.test"} {
		due := s.due(last, who)
		if due.Before(last.Add(900*time.Hour)) || due.After(last.Add(1000*time.Hour)) || !s.due(last, who).Equal(due) {
			t.Errorf("%s: %s", who, due)
		}
		other := s
		other.Kind = "binding"
		seen[due], seen[other.due(last, who)], seen[s.due(last.Add(time.Second), who)] = true, true, true
	}
	if len(seen) < 12 {
		t.Errorf("%d times of 24", len(seen))
	}
}

// scheduled is a process over the store at path, at the time that the clock shows.
func scheduled(t *testing.T, path string, c clock.Clock, open func(context.Context, string, sqlite.Options) (*sqlite.DB, error)) *drills {
	t.Helper()
	db, err := open(t.Context(), path, sqlite.Options{Node: "did:wba:buyercorp.test", Process: "node", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	secure, err := clock.NewSecure(t.Context(), c, noFloor{})
	if err != nil {
		t.Fatal(err)
	}
	return &drills{n: &Node{clock: secure, db: db, cfg: &Config{Domain: "buyercorp.test"}}}
}

// TestDrillSchedule_Claim: the first drill comes a while after its entry was first seen; each is claimed once, by one process.
func TestDrillSchedule_Claim(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := clock.NewFake(start)
	path := filepath.Join(t.TempDir(), "treaty.db")
	a := scheduled(t, path, c, sqlite.Create)
	b := scheduled(t, path, c, sqlite.OpenExisting)
	s := ScheduledDrill{Kind: "signing", Peer: "vendorcorp.test", Every: time.Hour}
	claim := func(d *drills, s ScheduledDrill, want bool) {
		t.Helper()
		if mine, err := d.claim(t.Context(), s); err != nil || mine != want {
			t.Errorf("at %s: claimed is %v, %v", c.Now().Format(time.TimeOnly), mine, err)
		}
	}
	claim(a, s, false) // seen for the first time
	claim(b, s, false)
	due := s.due(start, "buyercorp.test")
	c.Set(due.Add(-time.Nanosecond))
	claim(a, s, false)
	c.Set(due)
	claim(b, s, true)
	claim(a, s, false) // b has it
	claim(b, s, false)
	// What was claimed is stored with its time: a node that starts again, and has lost what it knew, does not begin anew.
	last := due
	again := scheduled(t, path, c, sqlite.OpenExisting)
	claim(again, s, false)
	c.Set(s.due(last.Truncate(time.Second), "buyercorp.test"))
	claim(again, s, true)
	// Another entry has a time of its own, and a clock that steps back brings none forward.
	other := s
	other.Kind = "binding"
	claim(a, other, false)
	c.Advance(-2 * time.Hour)
	claim(a, other, false)
	claim(scheduled(t, path, c, sqlite.OpenExisting), s, false)
	// A time that cannot be read is no time at all: no drill, and the reason is told.
	if err := a.n.db.Update(t.Context(), func(tx store.Tx) error { return tx.PutSetting(s.key(), "yesterday") }); err != nil {
		t.Fatal(err)
	}
	if mine, err := a.claim(t.Context(), s); mine || err == nil {
		t.Errorf("claimed is %v, %v", mine, err)
	}
}
