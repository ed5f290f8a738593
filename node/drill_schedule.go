// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
)

const (
	scheduleLook = 5 * time.Second // between looks at what is due
	minEvery     = time.Minute
	maxScheduled = 64
)

func (c *Drill) validate() error {
	if c.MinGrace < time.Second || c.MinGrace > maxDrillGrace {
		return fmt.Errorf("drill.min_grace: %s is not between 1s and %s", c.MinGrace, maxDrillGrace)
	}
	if c.MaxQueries < 1 || c.MaxQueries > maxDrillQueries {
		return fmt.Errorf("drill.max_queries: %d is not between 1 and %d", c.MaxQueries, maxDrillQueries)
	}
	if len(c.Schedule) > maxScheduled {
		return fmt.Errorf("drill.schedule: more than %d", maxScheduled)
	}
	for _, s := range c.Schedule {
		if err := (drill.Terms{Kind: drill.Kind(s.Kind), Mode: drill.Rehearsal}).Check(); err != nil {
			return fmt.Errorf("drill.schedule: %w", err)
		}
		if s.Peer == "" || s.Every < minEvery {
			return fmt.Errorf("drill.schedule: %s: a peer and a time of at least %s are needed", s.Kind, minEvery)
		}
	}
	return nil
}

// key is the setting that says when a scheduled drill was tried last, or that it was not and when its entry was first seen.
func (s ScheduledDrill) key() string { return "drill.last " + s.Kind + " " + s.Peer }

// due is when it comes next. Who has many peers that do the same shall not meet them all at once: up to a tenth of the time is
// taken off, always the same for the same last time.
func (s ScheduledDrill) due(last time.Time, who string) time.Time {
	h := fnv.New32a()
	fmt.Fprint(h, who, s.key(), last.Unix())
	return last.Add(s.Every - s.Every/10*time.Duration(h.Sum32()%1000)/1000)
}

// firstSeen begins the setting of a scheduled drill that was not tried yet.
const firstSeen = "first seen "

// lastDrill reads when a scheduled drill was tried last, or else when its entry was first seen; zero when it was not.
func lastDrill(tx store.Settings, s ScheduledDrill) (last time.Time, tried bool, err error) {
	text, err := tx.GetSetting(s.key())
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	text, untried := strings.CutPrefix(text, firstSeen)
	last, err = time.Parse(time.RFC3339, text)
	return last, !untried, err
}

// keepSchedule runs the scheduled rehearsals that are due, one after the other. The time of a try is stored before it begins: a node
// that does not survive one does not begin with it again, and of several processes over one store one has it.
func (d *drills) keepSchedule(ctx context.Context) {
	for _, s := range d.n.cfg.Drill.Schedule {
		mine, err := d.claim(ctx, s)
		if err == nil && mine {
			_, err = d.n.Drill(ctx, httpapi.DrillRequest{Peer: s.Peer, Kind: s.Kind})
		}
		if err != nil && ctx.Err() == nil {
			d.n.log.Error("scheduled drill", "kind", s.Kind, "peer", s.Peer, "err", err)
		}
	}
}

// claim says whether a scheduled drill is due, and takes it. The first comes a while after the schedule was first seen, not with
// the node's start.
func (d *drills) claim(ctx context.Context, s ScheduledDrill) (mine bool, err error) {
	due := func(tx store.Settings) (first, now bool, err error) {
		last, _, err := lastDrill(tx, s)
		return last.IsZero(), err == nil && !last.IsZero() && !d.n.clock.Now().Before(s.due(last, d.n.cfg.Domain)), err
	}
	var first, now bool
	if err := d.n.db.View(ctx, func(tx store.Tx) (err error) { first, now, err = due(tx); return err }); err != nil || !first && !now {
		return false, err
	}
	err = d.n.db.Update(ctx, func(tx store.Tx) error {
		if first, now, err = due(tx); err != nil || !first && !now {
			return err
		}
		text := stamp(d.n.clock.Now())
		if mine = now; first {
			text = firstSeen + text
		}
		return tx.PutSetting(s.key(), text)
	})
	return mine && err == nil, err
}

// drills looks at the scheduled rehearsals: what came of the last of each, and whether it is due.
func (e *examination) drills(ctx context.Context) {
	plan := e.n.cfg.Drill.Schedule
	if len(plan) == 0 {
		return
	}
	reports, err := e.n.Drills(ctx)
	if err != nil {
		e.fail("drills", "look into the folder "+DrillsDir, "%v", err)
		return
	}
	for _, s := range plan {
		name := "drill " + s.Kind + " with " + s.Peer
		var last time.Time
		var tried bool
		if err := e.n.db.View(ctx, func(tx store.Tx) (err error) { last, tried, err = lastDrill(tx, s); return err }); err != nil {
			e.fail(name, "", "%v", err)
			continue
		}
		if !tried {
			e.ok(name, "every %s; the first is to come", s.Every)
			continue
		}
		// The newest report of that kind and peer that was finished after the last try began.
		var found *httpapi.DrillSummary
		for i, r := range reports {
			if r.Kind == s.Kind && r.Mode == string(drill.Rehearsal) && r.Finished >= drill.Stamp(last) && ofPeer(s.Peer, r.Counterparty) {
				found = &reports[i]
				break
			}
		}
		next := s.due(last, e.n.cfg.Domain).UTC().Format(time.RFC3339)
		switch {
		case found == nil:
			e.warn(name, "`treaty events` says why: look for drill.finished; `treaty drill rotation` tries again", "the try of %s has no report; next %s", stamp(last), next)
		case found.Broken > 0:
			e.fail(name, "`treaty drill show "+found.ID+"`", "%d promises were broken on %s; next %s", found.Broken, found.Finished, next)
		default:
			e.ok(name, "%d promises held on %s; next %s", found.Held, found.Finished, next)
		}
	}
}

// ofPeer says whether a DID is the one that a schedule names, or of the domain that it names.
func ofPeer(named, id string) bool {
	d, err := did.Parse(id)
	if err != nil {
		return false
	}
	if of, err := did.Parse(named); err == nil {
		return of == d || did.SameSubject(of, d)
	}
	return d.Domain() == named
}
