// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
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

// proposer is who proposes a drill, and the clock of the node that it proposes it to.
func proposer(t *testing.T) (did.DID, *clock.Secure) {
	t.Helper()
	id, err := did.Parse("did:wba:vendorcorp.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := clock.NewSecure(t.Context(), clock.System{}, noFloor{})
	if err != nil {
		t.Fatal(err)
	}
	return id, secure
}

// A step makes this node call the subject, and nobody else.
func TestDrill_StepsAboutOthers(t *testing.T) {
	id, secure := proposer(t)
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

// deal is a transaction of a store that holds one contract.
type deal struct {
	store.Tx
	rec store.ContractRecord
}

func (d deal) Lineage(id string) ([]string, error)                                { return []string{id}, nil }
func (d deal) ListContracts(store.ContractFilter) ([]store.ContractRecord, error) { return nil, nil }
func (d deal) GetContract(string) (store.ContractRecord, error)                   { return d.rec, nil }
func (d deal) Append(ledger.Entry) (ledger.Event, error)                          { return ledger.Event{}, nil }

// A vendor cannot have its buyer's budget used up: how many queries a drill takes from it is the buyer's to say.
func TestDrill_LoadAtAPeersWish(t *testing.T) {
	id, secure := proposer(t)
	peers, err := trust.ParsePattern("vendorcorp.test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Drill: Drill{Allow: []trust.Pattern{peers}, Live: true}}
	cfg.defaults()
	for name, c := range map[string]struct {
		role  string
		terms drill.Terms
		grace int
		want  string // in the refusal; "": agreed
	}{
		"no load":                {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty}, 3600, ""},
		"as many as it may be":   {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty, Load: 5}, 11, ""},
		"longer":                 {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty, Load: 5}, 12, "105 queries"},
		"more":                   {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty, Load: 50}, 5, "drill.max_queries"},
		"one a second, all day":  {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty, Load: 1}, 3600, "drill.max_queries"},
		"without a grace":        {"buyer", drill.Terms{Kind: drill.Compromise, Buyer: drill.Counterparty, Load: 11}, 3600, ""},
		"the proposer's own":     {"vendor", drill.Terms{Kind: drill.Binding, Buyer: drill.Subject, Load: 50}, 3600, ""},
		"in the other's name":    {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Subject, Load: 50}, 5, "with that buyer"},
		"a grace beyond all":     {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty}, 3601, "not between"},
		"a grace beyond numbers": {"buyer", drill.Terms{Kind: drill.Binding, Buyer: drill.Counterparty}, 1 << 53, "not between"},
	} {
		d := &drills{n: &Node{clock: secure, cfg: cfg}}
		c.terms.Mode = drill.Live
		data, err := json.Marshal(drill.Proposal{Drill: "drl_1", Terms: c.terms, GraceSeconds: c.grace, Identity: id.String(), Contract: "ctr_1"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.proposed(t.Context(), deal{rec: store.ContractRecord{Peer: id.String(), Role: c.role, State: store.InForce}}, id, data)
		var no *notice.Refused
		switch {
		case c.want == "" && (err != nil || d.joined == nil):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.As(err, &no) || !strings.Contains(no.Text, c.want) || d.joined != nil):
			t.Errorf("%s: %v", name, err)
		}
	}
}
