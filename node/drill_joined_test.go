// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/notice"
)

// What a counterparty signs says everything that it has seen: a subject does not turn a broken promise into one that nobody looked
// at.
func TestDrill_NothingHidden(t *testing.T) {
	broken := drill.Check{Phase: drill.After, Name: drill.OldKeyRefused, Side: drill.Counterparty, Result: drill.Broken}
	j := &joinedDrill{seen: map[drill.Phase][]drill.Check{drill.After: {broken}}}
	hidden, unseen := broken, broken
	hidden.Result, unseen.Result, unseen.Phase = drill.NotChecked, drill.NotChecked, drill.Grace
	for _, c := range []struct {
		check drill.Check
		want  bool
	}{{broken, true}, {hidden, false}, {unseen, true}} {
		if got := j.sawAsReported(&drill.Report{Checks: []drill.Check{c.check}}); got != c.want {
			t.Errorf("%+v: %v", c.check, got)
		}
	}
}

// A proposal that comes again is the same drill: with anything else in it, it does not take the place of one that is under way.
func TestDrill_AgreedOnce(t *testing.T) {
	id, err := did.Parse("did:wba:vendorcorp.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	p := drill.Proposal{Drill: "drl_1", Identity: id.String(), GraceSeconds: 1, Terms: drill.Terms{Kind: drill.Signing, Mode: drill.Live}}
	j := &joinedDrill{id: p.Drill, from: id, identity: id, terms: p.Terms, grace: 1}
	if !j.agreed(p, id) {
		t.Error("the same proposal again")
	}
	for _, change := range []func(*drill.Proposal){
		func(p *drill.Proposal) { p.Drill = "drl_2" }, func(p *drill.Proposal) { p.Terms.Load = 50 }, func(p *drill.Proposal) { p.GraceSeconds = 3600 },
		func(p *drill.Proposal) { p.Contract = "ctr" }, func(p *drill.Proposal) { p.Identity = "" },
	} {
		q := p
		if change(&q); j.agreed(q, id) {
			t.Errorf("%+v", q)
		}
	}
	if j.agreed(p, did.DID{}) {
		t.Error("somebody else")
	}
}

type noFloor struct{}

func (noFloor) Load(context.Context) (time.Time, error)                 { return time.Time{}, nil }
func (noFloor) Raise(_ context.Context, t time.Time) (time.Time, error) { return t, nil }

// A step makes this node call the subject, and nobody else.
func TestDrill_StepsAboutOthers(t *testing.T) {
	id, err := did.Parse("did:wba:vendorcorp.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := clock.NewSecure(t.Context(), clock.System{}, noFloor{})
	if err != nil {
		t.Fatal(err)
	}
	d := &drills{n: &Node{clock: secure}}
	d.joined = &joinedDrill{id: "drl_1", from: id, identity: id, until: time.Now().Add(time.Hour), started: map[drill.Phase]bool{}}
	for _, other := range []string{"", "did:wba:victim.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "did:web:victim.test"} {
		data, err := json.Marshal(drill.Step{Drill: "drl_1", Phase: drill.Before, Identity: other})
		if err != nil {
			t.Fatal(err)
		}
		var no *notice.Refused
		if _, err := d.stepped(t.Context(), nil, id, data); !errors.As(err, &no) || len(d.joined.started) != 0 {
			t.Errorf("%q: %v", other, err)
		}
	}
}
