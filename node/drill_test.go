// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// configure adds lines to a node's configuration.
func configure(t *testing.T, dir, text string) {
	t.Helper()
	f := must[*os.File](t)(os.OpenFile(filepath.Join(dir, node.ConfigFile), os.O_APPEND|os.O_WRONLY, 0))
	if _, err := f.WriteString("\n" + text + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// drilled runs a drill and holds its report to what a report is.
func drilled(t *testing.T, n *company, req httpapi.DrillRequest) *drill.Report {
	t.Helper()
	raw, err := n.Drill(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	rep := must[*drill.Report](t)(drill.Parse(raw))
	if err := rep.VerifyProofs(2); err != nil {
		t.Error(err)
	}
	for _, c := range rep.Checks {
		if c.Result == drill.Broken {
			t.Errorf("%s %s: %s", c.Phase, c.Name, c.Observed)
		}
	}
	return rep
}

// TestDrill_Rehearsals goes through every kind of drill between two nodes that have no contract, over the wire.
func TestDrill_Rehearsals(t *testing.T) {
	t.Parallel() // it waits more than it works
	b, v := initPair(t, nil)
	configure(t, b, "drill: {allow: [vendorcorp.test], min_grace: 1s}")
	configure(t, v, "drill: {allow: [buyercorp.test], min_grace: 1s}")
	vendor, buyer := start(t, v), start(t, b)
	before := buyer.Status()
	for _, kind := range drill.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			rep := drilled(t, buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: string(kind), GraceSeconds: 1})
			if rep.Held < 8 || rep.Subject != before.DID || rep.Identity == before.DID || (rep.Successor != "") != kind.Moves() {
				t.Errorf("%+v", rep)
			}
			// Both sides have it, byte for byte, and as text.
			for _, n := range []*company{buyer, vendor} {
				raw := must[json.RawMessage](t)(n.DrillReport(t.Context(), rep.ID))
				if string(raw) != string(must[[]byte](t)(rep.Marshal())) {
					t.Errorf("%s has another report", n.dir)
				}
				if text := must[[]byte](t)(os.ReadFile(filepath.Join(n.dir, node.DrillsDir, rep.ID+".md"))); !strings.Contains(string(text), "every promise that was looked at held") {
					t.Errorf("%s", text)
				}
			}
		})
	}
	if after := buyer.Status(); after.DID != before.DID || after.Document != before.Document {
		t.Error("a rehearsal has touched the node's own document")
	}
	if list := must[[]httpapi.DrillSummary](t)(vendor.Drills(t.Context())); len(list) != len(drill.Kinds()) {
		t.Errorf("%d drills on record", len(list))
	}
	for _, n := range []*company{buyer, vendor} {
		started, finished, steps := eventsOf(t, n.Node, ledger.DrillStarted), eventsOf(t, n.Node, ledger.DrillFinished), eventsOf(t, n.Node, ledger.DrillStep)
		if len(started) != len(drill.Kinds()) || len(finished) != len(started) || len(steps) < 5*len(started) {
			t.Errorf("%s: %d started, %d finished, %d steps", n.dir, len(started), len(finished), len(steps))
		}
	}
}

// TestDrill_Live rotates the keys inside the node's own DID.
func TestDrill_Live(t *testing.T) {
	t.Parallel() // it waits more than it works
	b, v := initPair(t, nil)
	configure(t, b, "drill: {allow: [vendorcorp.test], min_grace: 1s}")
	configure(t, v, "drill: {allow: [buyercorp.test], live: true, min_grace: 1s}")
	_, buyer := start(t, v), start(t, b)
	old := buyer.Talking().KeyAgreementKID
	rep := drilled(t, buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "key-agreement", Live: true, GraceSeconds: 1})
	if rep.Held != len(rep.Checks) || rep.Identity != rep.Subject {
		t.Errorf("%+v", rep)
	}
	// The drill met the end of a grace that for everybody else has a week to go.
	if k := keyOf(t, buyer.Node, old); k.State != httpapi.KeyRetiring {
		t.Errorf("%+v", k)
	}
	rep = drilled(t, buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "signing", Live: true, GraceSeconds: 1})
	if rep.NotChecked != 1 {
		t.Errorf("%+v", rep)
	}
}

// TestDrill_Scheduled: a node runs the rehearsals of its schedule when they are due, and an operator sees what came of the last.
func TestDrill_Scheduled(t *testing.T) {
	t.Parallel() // it waits more than it works
	b, v := initPair(t, nil)
	configure(t, b, "drill: {allow: [vendorcorp.test], schedule: [{kind: compromise, peer: vendorcorp.test, every: 1h}, {kind: compromise, peer: nobody.test, every: 1h}]}")
	configure(t, v, "drill: {allow: [buyercorp.test]}")
	c := &shifted{}
	_, buyer := startAt(t, v, c), startAt(t, b, c)
	seen := func() (reports int, check httpapi.Check) {
		t.Helper()
		for _, check = range must[httpapi.Diagnosis](t)(buyer.Doctor(t.Context(), httpapi.DoctorRequest{})).Checks {
			if check.Name == "drill compromise with vendorcorp.test" {
				break
			}
		}
		return len(must[[]httpapi.DrillSummary](t)(buyer.Drills(t.Context()))), check
	}
	buyer.KeepSchedule(t.Context())
	if n, check := seen(); n != 0 || check.Status != httpapi.CheckOK || !strings.Contains(check.Detail, "the first is to come") {
		t.Errorf("%d drills, %+v", n, check)
	}
	c.advance(time.Hour)
	buyer.KeepSchedule(t.Context())
	for range 400 { // the node's own look may have been faster
		if n, _ := seen(); n > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	buyer.KeepSchedule(t.Context()) // not due again
	if n, check := seen(); n != 1 || check.Status != httpapi.CheckOK || !strings.Contains(check.Detail, "promises held") {
		t.Errorf("%d drills, %+v", n, check)
	}
}

// TestDrill_Refused: a drill is what both nodes agree to.
func TestDrill_Refused(t *testing.T) {
	t.Parallel() // it waits more than it works
	b, v := initPair(t, nil)
	configure(t, v, "drill: {allow: [buyercorp.test], min_grace: 1m}")
	vendor, buyer := start(t, v), start(t, b)
	document := buyer.Status().Document
	for name, c := range map[string]struct {
		by   *company
		req  httpapi.DrillRequest
		want string
	}{
		"live":          {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "key-agreement", Live: true, GraceSeconds: 60}, "drill.live"},
		"short grace":   {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "key-agreement", GraceSeconds: 59}, "drill.min_grace"},
		"nobody":        {vendor, httpapi.DrillRequest{Peer: "buyercorp.test", Kind: "binding", GraceSeconds: 60}, "no contract"},
		"unknown kind":  {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "human"}, "none of"},
		"recovery live": {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "recovery", Live: true}, "rehearsed"},
		"load":          {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "signing", Load: 5, GraceSeconds: 60}, "no contract in force"},
		"much load":     {buyer, httpapi.DrillRequest{Peer: "vendorcorp.test", Kind: "signing", Load: 500}, "between"},
	} {
		if _, err := c.by.Drill(t.Context(), c.req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if buyer.Status().Document != document || len(must[[]httpapi.DrillSummary](t)(buyer.Drills(t.Context()))) != 0 {
		t.Error("a drill that was refused has left something")
	}
	if _, err := buyer.DrillReport(t.Context(), "drl_../treaty.yaml"); err == nil {
		t.Error("a report outside of the folder")
	}
}
