// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/wellknown"
)

const datasetsYAML = `
orders:
  path: orders.csv
  description: Orders of 2025.
  columns:
    region: {type: text, class: business}
    order_id: {type: text, class: business}
    order_date: {type: date, class: business}
    order_value: {type: "decimal(10,2)", class: business}
    customer_email: {type: text, class: pii}
    note: {type: text}
`

const policyYAML = `
version: 1
datasets:
  orders:
    purposes: any
    operations: [avg, sum, count, count_distinct]
    retention_days: 90
    min_group_size: 5
    call_budget: 50
`

const needsYAML = `
version: 1
dataset: orders
columns: {required: [region, order_value, order_date], optional: [customer_email]}
operations: [avg, count]
purpose: Regional pricing review
retention_days: {wanted: 365, minimum: 30}
`

// company is a node running in this process.
type company struct {
	*node.Node
	dir    string
	cancel context.CancelFunc
	done   chan error
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// initPair makes a buyer's and a vendor's folder.
func initPair(t testing.TB, change func(buyer, vendor *node.InitOptions)) (buyer, vendor string) {
	t.Helper()
	root, err := os.MkdirTemp("", "treaty")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	file := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	b, v := freePort(t), freePort(t)
	hosts := map[string]string{"buyercorp.test:443": b, "vendorcorp.test:443": v}
	options := func(name, domain, listen, peer string) node.InitOptions {
		return node.InitOptions{
			Dir: filepath.Join(root, name), Domain: domain, Listen: listen, DevCA: filepath.Join(root, "ca"), Hosts: hosts, Allow: []string{peer},
			HumanKeyOut: filepath.Join(root, "offline", name+"-human.age"), RecoveryKeyOut: filepath.Join(root, "offline", name+"-recovery.age"),
			Passphrase: "a passphrase for tests", WorkFactor: 10,
		}
	}
	bo, vo := options("buyer", "buyercorp.test", b, "vendorcorp.test"), options("vendor", "vendorcorp.test", v, "buyercorp.test")
	bo.Needs, bo.Transports = file("needs.yaml", needsYAML), []string{"a2a-http+json", "a2a-jsonrpc"}
	vo.Datasets, vo.Policy, vo.Transports = file("datasets.yaml", datasetsYAML), file("policy.yaml", policyYAML), []string{"a2a-jsonrpc"}
	vo.DataPlane = node.DataPlane{DID: "did:wba:data.vendorcorp.test", URL: "https://data.vendorcorp.test/mcp"}
	if change != nil {
		change(&bo, &vo)
	}
	for _, o := range []node.InitOptions{bo, vo} {
		if _, err := node.Init(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return bo.Dir, vo.Dir
}

func start(t *testing.T, dir string) *company {
	t.Helper()
	return startAt(t, dir, clock.System{})
}

// startAt starts the node with a clock of its own.
func startAt(t *testing.T, dir string, c clock.Clock) *company {
	t.Helper()
	n, err := node.Open(t.Context(), dir, node.Options{Process: "treaty", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	co := &company{Node: n, dir: dir, cancel: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { co.done <- n.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-co.done:
		t.Fatal(err)
	}
	t.Cleanup(func() { co.stop(t) })
	return co
}

func (c *company) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	select {
	case err := <-c.done:
		if err != nil {
			t.Errorf("node in %s: %v", c.dir, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the node does not stop")
	}
	c.done <- nil
}

func (c *company) wait(t *testing.T, id string) httpapi.Negotiation {
	t.Helper()
	for range 600 {
		n, err := c.Negotiation(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if negotiation.Phase(n.Phase).Terminal() {
			return n
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the negotiation does not end")
	return httpapi.Negotiation{}
}

func (c *company) dump(t *testing.T) {
	t.Helper()
	events, err := c.Events(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		t.Logf("%s %3d %s", filepath.Base(c.dir), e.Seq, ledger.Describe(e))
	}
}

// TestNegotiation_BothSidesAgree runs a whole negotiation between two nodes over TLS: rounds, proposal, narrowed offer,
// accept, both proofs.
func TestNegotiation_BothSidesAgree(t *testing.T) {
	buyerDir, vendorDir := initPair(t, nil)
	vendor, buyer := start(t, vendorDir), start(t, buyerDir)
	n, err := buyer.Negotiate(t.Context(), httpapi.NegotiateRequest{Peer: "vendorcorp.test"})
	if err != nil {
		t.Fatal(err)
	}
	n = buyer.wait(t, n.ContextID)
	if n.Phase != "in_force" {
		buyer.dump(t)
		vendor.dump(t)
		t.Fatalf("phase %s: %s %s", n.Phase, n.Code, n.Reason)
	}
	v, err := vendor.Negotiation(t.Context(), n.ContextID)
	if err != nil || v.Phase != "in_force" || v.ContractID != n.ContractID || v.Transcript != n.Transcript {
		t.Fatalf("the vendor sees %+v (%v)", v, err)
	}
	if len(n.Offer.Removed) == 0 || n.Offer.RetentionDays != 90 {
		t.Fatalf("the offer was not narrowed: %+v", n.Offer)
	}
	b, err := buyer.Contract(t.Context(), n.ContractID)
	if err != nil {
		t.Fatal(err)
	}
	w, err := vendor.Contract(t.Context(), n.ContractID)
	if err != nil || string(b.Contract) != string(w.Contract) || string(b.Activation) != string(w.Activation) {
		t.Fatalf("the two sides hold different contracts (%v)", err)
	}
	// The contract is a skill in the card for who holds it, and in nobody else's.
	for caller, skills := range map[string]int{buyer.Talking().Document.ID().String(): 3, "did:wba:other.test": 2} {
		card := must[*wellknown.Card](t)(wellknown.ParseCard(must[[]byte](t)(vendor.ExtendedCard(t.Context(), must[did.DID](t)(did.Parse(caller))))))
		if len(card.Skills) != skills || (skills == 3) != (card.Skills[skills-1].ID == n.ContractID) {
			t.Errorf("%s sees %+v", caller, card.Skills)
		}
	}
}
