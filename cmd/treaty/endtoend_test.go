// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// stranger is a third company that deals with anybody, and that nobody allows.
const stranger = "stranger"

// TestEndToEnd is the main job with everything around it that can go wrong, through the real programs.
func TestEndToEnd(t *testing.T) {
	w := newWorld(t, stranger)
	w.join(stranger)
	w.start(vendor, plane, buyer, stranger)
	n := w.negotiate()
	w.ask(n.ContractID)
	sub := func(name string, f func(*world, string)) {
		t.Run(name, func(t *testing.T) {
			w.t = t
			f(w, n.ContractID)
		})
		w.t = t
	}
	sub("both companies tell the same", bothTellTheSame)
	sub("keys list, and no core dumps", keysAndCores)
	sub("another purpose", anotherPurpose)
	sub("what was not granted", notGranted)
	sub("groups that are too small", groupTooSmall)
	sub("SQL in every string", sqlEverywhere)
	sub("a stranger", strangerLearnsNothing)
	sub("whom trust policy does not admit", notTrusted)
	sub("a contract altered in the store", alteredContract)
	sub("the vendor's node is stopped", vendorStopped)
	sub("the data plane dies in mid-query", dataPlaneDies)
	sub("an MCP client through the proxy", throughProxy)
	sub("a proxy without a data plane, or without a node", proxyWithoutDataPlane)
	sub("the port is taken", portTaken)
	sub("a second node on one folder", secondNode)
	sub("backup and restore", backupAndRestore)
	sub("what does not start", doesNotStart)
	sub("a contract is renewed and amended", contractReplaced)
	sub("the identities move", identitiesMove)
	sub("the job still runs", func(w *world, id string) {
		w.ask(id)
		w.ask(w.negotiate().ContractID)
		for _, name := range []string{buyer, vendor} {
			w.events(name, w.genesis(name))
		}
	})
}

func bothTellTheSame(w *world, id string) {
	b, v := w.contracts(buyer, ""), w.contracts(vendor, "")
	if len(b) != 1 || len(v) != 1 || b[0].ID != id || v[0].ID != id {
		w.t.Fatalf("the buyer holds %+v, the vendor %+v", b, v)
	}
	if string(b[0].Contract) != string(v[0].Contract) || string(b[0].Activation) != string(v[0].Activation) {
		w.t.Error("the two companies hold different bytes")
	}
	for _, name := range []string{buyer, vendor} {
		w.verifyEvidence(name, id)
		out := w.path(name + "-evidence.json")
		w.must(0, name, "contracts", "export", id, "--out", out)
		w.must(0, name, "verify", out)
	}
}

// refused runs a command that has to be refused with a code, and returns what it said.
func (w *world) refused(code, name string, args ...string) string {
	w.t.Helper()
	r := w.must(3, name, args...)
	if !strings.Contains(r.stderr, code) {
		w.t.Fatalf("treaty %q was refused, but not with %s: %v", args, code, r)
	}
	return r.stderr
}

func anotherPurpose(w *world, id string) {
	said := w.refused("PURPOSE_MISMATCH", buyer, question(id, "--purpose", "marketing")...)
	for _, want := range []string{id, "Regional pricing review Q3 2025", "Nothing was read."} {
		if !strings.Contains(said, want) {
			w.t.Errorf("the refusal does not say %q: %s", want, said)
		}
	}
}

// TestC10: a refusal says what was granted, and that nothing was read.
func notGranted(w *world, id string) {
	said := w.refused("SCOPE_DENIED", buyer, "query", "--contract", id, "--aggregate", "count()", "--group-by", "customer_email")
	for _, want := range []string{id, "customer_email", "order_value", "Nothing was read."} {
		if !strings.Contains(said, want) {
			w.t.Errorf("the refusal does not say %q: %s", want, said)
		}
	}
	w.refused("SCOPE_DENIED", buyer, "query", "--contract", id, "--aggregate", "median(order_value)")
	w.refused("UNKNOWN_COLUMN", buyer, "query", "--contract", id, "--aggregate", "avg(salary)")
	// A column that nobody has is refused before anything is sent.
	before := len(w.negotiations(buyer))
	w.refused("UNKNOWN_COLUMN", buyer, "negotiate", "--peer", domains[vendor], "--dataset", "orders", "--columns", "salary", "--operations", "avg", "--purpose", "wages")
	if got := len(w.negotiations(buyer)); got != before {
		w.t.Errorf("%d negotiations, %d before: something was sent", got, before)
	}
	w.must(4, buyer, question("ctr_AAAAAAAAAAAAAAAAAAAAAA")...)
}

// contractReplaced: the data plane serves the contract that replaces another one, and refuses that one, from the same moment on. A
// call that runs meanwhile ends with an answer or with the refusal, and its receipt says which.
func contractReplaced(w *world, _ string) {
	first := w.negotiate().ContractID
	_, began := w.events(vendor, w.genesis(vendor))
	w.ask(first)
	asked := 1
	var replaced atomic.Bool
	var asking sync.WaitGroup
	asking.Go(func() {
		for !replaced.Load() {
			asked++
			if r := w.run(buyer, question(first)...); r.code != 0 && !strings.Contains(r.stderr, "CONTRACT_REVOKED") {
				w.t.Errorf("while the contract was replaced: %v", r)
				return
			}
		}
	})
	replace := func(args ...string) string {
		n := decodeInto[httpapi.Negotiation](w.t, w.must(0, buyer, append([]string{"contracts"}, append(args, "--json")...)...).stdout)
		if n.Phase != "in_force" || n.ContractID == "" {
			w.t.Fatalf("%q: %+v", args, n)
		}
		return n.ContractID
	}
	second := replace("renew", first)
	replaced.Store(true)
	asking.Wait()
	// No call is lost: each has its answer or its refusal in the vendor's log, and none is answered after the end.
	said, ended := 0, false
	events, _ := w.events(vendor, began)
	for _, e := range events {
		switch {
		case e.Contract != first:
		case e.Type == ledger.ContractRevoked:
			ended = true
		case e.Type == ledger.CallAnswered || e.Type == ledger.CallRefused:
			said++
			if ended && e.Type == ledger.CallAnswered {
				w.t.Errorf("answered after the end: %+v", e)
			}
		}
	}
	if said != asked || !ended {
		w.t.Errorf("%d calls, %d of them in the log; ended: %v", asked, said, ended)
	}
	third := replace("amend", second, "--operations", "avg", "--calls", "2")
	for old, next := range map[string]string{first: second, second: third} {
		_, head := w.events(vendor, w.genesis(vendor))
		said := w.refused("CONTRACT_REVOKED", buyer, question(old)...)
		if !strings.Contains(said, next+" took its place") {
			w.t.Errorf("the buyer is not told of the new contract: %s", said)
		}
		since, _ := w.events(vendor, head)
		if !slices.ContainsFunc(since, func(e ledger.Event) bool {
			return e.Type == ledger.CallRefused && e.Process == "dataplane" && e.Contract == old
		}) {
			w.t.Errorf("the data plane was not asked, or did not say no: %s\n%+v", said, since)
		}
		for _, name := range []string{buyer, vendor} {
			c := decodeInto[httpapi.Contract](w.t, w.must(0, name, "contracts", "show", old, "--json").stdout)
			if c.State != "revoked" || c.ReplacedBy != next {
				w.t.Errorf("%s: %s is %s, replaced by %q", name, old, c.State, c.ReplacedBy)
			}
			w.verifyEvidence(name, old)
			w.verifyEvidence(name, next)
		}
	}
	// The new terms are in force, with a budget of their own; what they leave out is refused.
	if k := w.describe(second); k.State != "revoked" || k.Amends == nil || k.Amends.ID != first {
		w.t.Errorf("the data plane describes the old one as %+v", k)
	}
	if k := w.describe(third); k.State != "in_force" || k.CallBudget != 2 || k.CallsUsed != 0 || !slices.Equal(k.Operations, []string{"avg"}) || k.Amends == nil || k.Amends.ID != second {
		w.t.Errorf("the data plane describes the new one as %+v", k)
	}
	w.refused("SCOPE_DENIED", buyer, question(third)...) // it counts, too
	mean := []string{"query", "--contract", third, "--aggregate", "avg(order_value)", "--group-by", "region"}
	w.must(0, buyer, mean...)
	w.must(0, buyer, mean...)
	w.refused("BUDGET_EXHAUSTED", buyer, mean...)
	w.refused("NOT_IN_FORCE", buyer, "contracts", "renew", first)
	w.refused("WRONG_PARTY", vendor, "contracts", "renew", third)
}

// describe is what the data plane tells the buyer of a contract.
func (w *world) describe(id string) datatools.ContractInfo {
	w.t.Helper()
	var raw []byte
	if err := w.admin(buyer).Post(w.t.Context(), "/tool", httpapi.ToolRequest{ContractID: id, Tool: "describe_contract", Arguments: json.RawMessage(`{"contract_id":"` + id + `"}`)}, &raw); err != nil {
		w.t.Fatal(err)
	}
	var res struct {
		StructuredContent datatools.ContractInfo `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &res); err != nil || res.StructuredContent.ContractID != id {
		w.t.Fatalf("%v: %s", err, raw)
	}
	return res.StructuredContent
}

func groupTooSmall(w *world, _ string) {
	made := decodeInto[httpapi.Negotiation](w.t, w.must(0, buyer, "negotiate", "--peer", domains[vendor], "--json", "--dataset", "orders",
		"--columns", "order_id,region", "--operations", "count", "--purpose", "Counting").stdout)
	said := w.refused("GROUP_TOO_SMALL", buyer, "query", "--contract", made.ContractID, "--aggregate", "count()", "--group-by", "order_id")
	if !strings.Contains(said, "Nothing was released.") {
		w.t.Errorf("the refusal does not say that nothing was released: %s", said)
	}
	w.must(0, buyer, "query", "--contract", made.ContractID, "--aggregate", "count()", "--group-by", "region")
}

// sqlEverywhere: no string of a query becomes SQL (invariant 5). Names are looked up, and values are parameters.
func sqlEverywhere(w *world, _ string) {
	id := w.negotiate().ContractID // with a budget of its own
	base := func() httpapi.QueryRequest {
		return httpapi.QueryRequest{
			ContractID: id, Aggregates: []contract.Aggregate{{Op: contract.OpCount}}, GroupBy: []string{"region"},
			Filters: []contract.Condition{{Column: "region", Op: contract.OpNotEqual, Value: contract.TextValue("Atlantis")}}, OrderBy: []contract.Order{{By: "region"}},
		}
	}
	fields := map[string]func(q *httpapi.QueryRequest, s string){
		"contract":         func(q *httpapi.QueryRequest, s string) { q.ContractID = s },
		"purpose":          func(q *httpapi.QueryRequest, s string) { q.Purpose = s },
		"dataset":          func(q *httpapi.QueryRequest, s string) { q.Dataset = s },
		"aggregate op":     func(q *httpapi.QueryRequest, s string) { q.Aggregates[0].Op = s },
		"aggregate column": func(q *httpapi.QueryRequest, s string) { q.Aggregates[0].Column = s },
		"group by":         func(q *httpapi.QueryRequest, s string) { q.GroupBy[0] = s },
		"filter column":    func(q *httpapi.QueryRequest, s string) { q.Filters[0].Column = s },
		"filter op":        func(q *httpapi.QueryRequest, s string) { q.Filters[0].Op = s },
		"order by":         func(q *httpapi.QueryRequest, s string) { q.OrderBy[0].By = s },
	}
	post := func(q httpapi.QueryRequest) (res httpapi.QueryResult, err error) {
		return res, w.admin(buyer).Post(w.t.Context(), "/query", q, &res)
	}
	whole, err := post(base())
	if err != nil || len(whole.Rows) != 4 || whole.UsedRows != 624 {
		w.t.Fatalf("%+v, %v", whole, err)
	}
	for _, s := range []string{`region"; DROP TABLE orders; --`, `' OR 1=1 --`, `(SELECT max(customer_email) FROM orders)`, "region\x00"} {
		for field, set := range fields {
			q := base()
			set(&q, s)
			res, err := post(q)
			var e *httpapi.Error
			if !errors.As(err, &e) || e.Kind == httpapi.KindInternal || e.Kind == httpapi.KindUnreachable {
				w.t.Errorf("%s = %q: %+v, %v", field, s, res, err)
			}
		}
		// A value is compared, and equals nothing.
		q := base()
		q.Filters = []contract.Condition{{Column: "region", Op: contract.OpEqual, Value: contract.TextValue(s)}}
		if res, err := post(q); err == nil && (res.UsedRows != 0 || len(res.Rows) != 0) || err != nil && httpapi.AsError(err).Kind != httpapi.KindRefused {
			w.t.Errorf("region = %q: %+v, %v", s, res, err)
		}
		// A name of a result is a name, or refused.
		q = base()
		q.Aggregates[0].As = s
		if res, err := post(q); err == nil && (len(res.Rows) != 4 || !slices.Equal(res.Columns, []string{"region", s})) || err != nil && httpapi.AsError(err).Kind != httpapi.KindRefused {
			w.t.Errorf("as %q: %+v, %v", s, res, err)
		}
	}
	again, err := post(base())
	if err != nil || !again.ResultDigest.Equal(whole.ResultDigest) {
		w.t.Errorf("the data is not what it was: %+v, %v", again, err)
	}
}

// strangerLearnsNothing: a company that got hold of a contract id, and makes its own node believe that it is the buyer, gets
// its own words back, and the same whether there is such a contract or not.
func strangerLearnsNothing(w *world, id string) {
	// A query from the command line ends at the stranger's own node, which has no such contract.
	w.must(4, stranger, question(id)...)

	from, to := openStore(w.t, w.path(buyer, node.StoreFile)), openStore(w.t, w.path(stranger, node.StoreFile))
	var digest, raw, activation []byte
	if err := from.QueryRowContext(w.t.Context(), "SELECT digest, bytes, activation FROM contracts WHERE id = ?", id).Scan(&digest, &raw, &activation); err != nil {
		w.t.Fatal(err)
	}
	invented, err := contract.Parse(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	invented.Transcript = canon.Sum([]byte("another conversation"))
	invented.ID = contract.ID(invented.Transcript)
	other := invented.ID
	text, err := invented.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	for name, bytes := range map[string][]byte{id: raw, other: text} {
		if _, err := to.ExecContext(w.t.Context(), "INSERT INTO contracts (id, digest, role, bytes, activation, state, context_id, peer, created) VALUES (?, ?, 'buyer', ?, ?, 'in_force', 'c', 'p', 1)",
			name, digest, bytes, activation); err != nil {
			w.t.Fatal(err)
		}
	}
	said := w.refused("NO_CONTRACT", stranger, question(id, "--purpose", "spying")...)
	for _, secret := range []string{"Regional", "buyercorp", "grants", "order_date", "retention"} {
		if strings.Contains(said, secret) {
			w.t.Errorf("the stranger learns %q: %s", secret, said)
		}
	}
	same := w.refused("NO_CONTRACT", stranger, question(other, "--purpose", "spying")...)
	if strings.ReplaceAll(said, id, "ID") != strings.ReplaceAll(same, other, "ID") {
		w.t.Errorf("the stranger can tell whether there is a contract:\n%s%s", said, same)
	}
	// The vendor's log knows who it was.
	var s httpapi.Status
	if err := w.admin(stranger).Get(w.t.Context(), "/status", &s); err != nil {
		w.t.Fatal(err)
	}
	list, _ := w.events(vendor, w.genesis(vendor))
	if n := len(slices.DeleteFunc(list, func(e ledger.Event) bool { return e.Type != ledger.CallRefused || e.Peer != s.DID })); n != 2 {
		w.t.Errorf("the vendor's log has %d refusals to the stranger, want 2", n)
	}
}

func notTrusted(w *world, _ string) {
	// First contact is closed: nobody is even looked up.
	w.refused("NOT_TRUSTED", buyer, "negotiate", "--peer", domains[stranger])
	w.refused("NOT_TRUSTED", buyer, "resolve", domains[stranger])
	// The stranger would deal with the vendor; the vendor does not deal with the stranger, and says so.
	w.refused("NOT_TRUSTED", stranger, "negotiate", "--peer", domains[vendor], "--dataset", "orders", "--columns", "region", "--operations", "count", "--purpose", "spying")
	if all := w.contracts(stranger, ""); len(slices.DeleteFunc(all, func(c httpapi.Contract) bool { return c.ContextID == "c" })) != 0 {
		w.t.Errorf("the stranger has contracts: %+v", all)
	}
}

// alteredContract: whoever can write to the company's store can refuse, but not grant.
func alteredContract(w *world, id string) {
	db := openStore(w.t, w.path(vendor, node.StoreFile))
	var digest, raw, activation []byte
	if err := db.QueryRowContext(w.t.Context(), "SELECT digest, bytes, activation FROM contracts WHERE id = ?", id).Scan(&digest, &raw, &activation); err != nil {
		w.t.Fatal(err)
	}
	put := func(digest, raw, activation []byte) {
		w.t.Helper()
		if _, err := db.ExecContext(w.t.Context(), "UPDATE contracts SET digest = ?, bytes = ?, activation = ? WHERE id = ?", digest, raw, activation, id); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, change := range map[string][2]string{
		"smaller groups":    {`"minGroupSize":5`, `"minGroupSize":1`},
		"another column":    {`"order_date"]`, `"order_date","customer_email"]`},
		"more operations":   {`["avg","count"]`, `["avg","count","max"]`},
		"longer validity":   {`"validUntil":"20`, `"validUntil":"21`},
		"another purpose":   {`"Regional pricing review Q3 2025"`, `"Whatever"`},
		"without a proof":   {`"proofs":[`, `"proofs":[],"was":[`},
		"not JSON any more": {`{`, ``},
	} {
		altered := strings.Replace(string(raw), change[0], change[1], 1)
		if altered == string(raw) {
			w.t.Fatalf("%s: there is no %s in %s", name, change[0], raw)
		}
		put(digest, []byte(altered), activation)
		w.refused("NO_CONTRACT", buyer, question(id)...)
		// With a digest that fits, it still has not been signed.
		if c, err := contract.Parse([]byte(altered)); err == nil {
			d, err := c.Digest()
			if err != nil {
				w.t.Fatal(err)
			}
			put(d[:], []byte(altered), activation)
			w.refused("NO_CONTRACT", buyer, question(id)...)
		}
	}
	put(digest, raw, nil) // as if the vendor had never activated it
	w.refused("NO_CONTRACT", buyer, question(id)...)
	put(digest, raw, activation)
	w.ask(id)
}

func vendorStopped(w *world, id string) {
	if err := w.stop(vendor); err != nil {
		w.t.Fatal(err)
	}
	defer w.start(vendor)
	w.ask(id)
	w.refused("SCOPE_DENIED", buyer, "query", "--contract", id, "--aggregate", "count()", "--group-by", "customer_email")
	w.refused("PURPOSE_MISMATCH", buyer, question(id, "--purpose", "marketing")...)
	// A fault, not a decision: nothing was found out about the other side, and nothing is left behind.
	before := len(w.negotiations(buyer))
	if r := w.must(5, buyer, "negotiate", "--peer", domains[vendor]); !strings.Contains(r.stderr, domains[vendor]) {
		w.t.Errorf("the error does not name the peer: %v", r)
	}
	if got := len(w.negotiations(buyer)); got != before {
		w.t.Errorf("%d negotiations, %d before", got, before)
	}
}

// dataPlaneDies (C11): a query whose data plane is killed while it runs ends with a connection error, in time, and is logged
// as a fault and not as a decision.
func dataPlaneDies(w *world, id string) {
	_, head := w.events(buyer, w.genesis(buyer))
	p := w.running[plane]
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan ran, 1)
	go func() { done <- w.run(buyer, question(id)...) }()
	w.await(buyer, head, ledger.QuerySent)
	select {
	case r := <-done:
		w.t.Errorf("a data plane that stands still has answered: %v", r)
		done <- r
	case <-time.After(300 * time.Millisecond): // the request is on its way
	}
	w.kill(plane)
	r := <-done
	if r.code != 5 || r.took > mcp.Timeout {
		w.t.Errorf("want exit code 5 within %v: %v", mcp.Timeout, r)
	}
	w.await(buyer, head, ledger.QueryFailed)
	// While nobody is there, the same, at once.
	w.must(5, buyer, question(id)...)
	w.start(plane)
	w.ask(id)
}

// await waits for an event of a type after head.
func (w *world) await(name string, head ledger.Head, kind string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), startTime)
	defer cancel()
	found := false
	err := w.admin(name).Events(ctx, head.Seq, true, func(e ledger.Event) error {
		if found = e.Type == kind; found {
			return io.EOF
		}
		return nil
	})
	if !found {
		w.t.Fatalf("%s: no event %s: %v", name, kind, err)
	}
}

func (w *world) negotiations(name string) (list []httpapi.Negotiation) {
	w.t.Helper()
	if err := w.admin(name).Get(w.t.Context(), "/negotiations", &list); err != nil {
		w.t.Fatal(err)
	}
	return list
}

// portTaken (C14): a port that something else holds is said to be taken, and what answers there is not taken for the service.
func portTaken(w *world, _ string) {
	for _, name := range []string{vendor, plane} {
		if err := w.stop(name); err != nil {
			w.t.Fatal(err)
		}
		l, err := net.Listen("tcp", w.addr[domains[name]])
		if err != nil {
			w.t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(w.path(plane, "cert.pem"), w.path(plane, "key.pem"))
		if err != nil {
			w.t.Fatal(err)
		}
		squatter := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"service":"squatter","build":"1","did":"did:wba:data.vendorcorp.test"}`)
		}))
		_ = squatter.Listener.Close()
		squatter.Listener, squatter.TLS = l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		squatter.StartTLS()
		// What starts it sees that somebody else answers, or that it has ended.
		p := w.launch(name)
		if err := w.up(name); err == nil {
			w.t.Errorf("%s is taken for up while something else holds its port", name)
		}
		w.ended(name)
		if code := p.cmd.ProcessState.ExitCode(); code != 2 {
			w.t.Errorf("%s: exit code %d, want 2", name, code)
		}
		log, err := os.ReadFile(w.path(name + ".log"))
		if err != nil {
			w.t.Fatal(err)
		}
		last := string(log[strings.LastIndex(strings.TrimSpace(string(log)), "\n")+1:])
		if !strings.Contains(last, w.addr[domains[name]]+" is taken by another program") || strings.Contains(last, "ready") {
			w.t.Errorf("%s says %q", name, last)
		}
		if name == plane {
			alive := &process{done: make(chan error)}
			if err := healthy(w.t.Context(), w.client, alive, "https://"+domains[plane]+"/healthz", "treaty-dataplane"); err == nil || !strings.Contains(err.Error(), "something else holds the port") {
				w.t.Errorf("a foreign service's health check passes: %v", err)
			}
		}
		squatter.Close()
		w.start(name)
	}
}

// secondNode: two nodes never run on one folder, whichever of port and socket the second one meets first.
func secondNode(w *world, id string) {
	if r := w.must(2, buyer, "serve"); !strings.Contains(r.stderr, "is taken by another program") {
		w.t.Errorf("%v", r)
	}
	config := w.path(buyer, node.ConfigFile)
	was, err := os.ReadFile(config)
	if err != nil {
		w.t.Fatal(err)
	}
	moved := strings.ReplaceAll(string(was), "listen: \""+w.addr[domains[buyer]], "listen: \""+freeAddress(w.t))
	if err := os.WriteFile(config, []byte(moved), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if r := w.must(2, buyer, "serve"); !strings.Contains(r.stderr, "another node is running on this folder") {
		w.t.Errorf("%v", r)
	}
	if err := os.WriteFile(config, was, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.ask(id) // the first one is not disturbed
}

func backupAndRestore(w *world, id string) {
	store, file := w.path(buyer, node.StoreFile), w.path("buyer-backup.db")
	w.must(0, buyer, "backup", "--out", file)
	w.must(2, buyer, "backup", "--out", file) // never overwritten
	w.must(2, buyer, "restore", "--from", file)
	w.kill(buyer) // its last commits are in the write-ahead log still
	before, err := os.ReadFile(store)
	if err != nil {
		w.t.Fatal(err)
	}
	if r := w.must(2, buyer, "restore", "--from", file); !strings.Contains(r.stderr, "exist") {
		w.t.Errorf("%v", r)
	}
	if after, err := os.ReadFile(store); err != nil || string(after) != string(before) {
		w.t.Errorf("a restore over an existing store has changed it (%v)", err)
	}
	lost := w.path("lost")
	if err := os.Mkdir(lost, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for i, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(store+suffix, filepath.Join(lost, node.StoreFile+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		if i == 0 { // and would be replayed on the backup
			if r := w.must(2, buyer, "restore", "--from", file); !strings.Contains(r.stderr, "move it away with that store") {
				w.t.Errorf("%v", r)
			}
		}
	}
	// A missing store is never made anew.
	if r := w.must(2, buyer, "serve"); !strings.Contains(r.stderr, "treaty restore") {
		w.t.Errorf("%v", r)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	bad := map[string][]byte{"truncated": good[:len(good)/2], "empty": nil, "foreign": []byte(strings.Repeat("not a store ", 1000))}
	flipped := slices.Clone(good)
	at := strings.LastIndex(string(good), "order_value") // in an event
	flipped[at] = 'X'
	bad["altered"] = flipped
	for name, data := range bad {
		path := w.path(name + ".db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.must(6, buyer, "restore", "--from", path)
		if _, err := os.Lstat(store); !errors.Is(err, os.ErrNotExist) {
			w.t.Fatalf("a %s backup has left a store (%v)", name, err)
		}
	}
	w.must(2, buyer, "restore", "--from", w.path("no-such-file.db"))
	w.must(0, buyer, "restore", "--from", file)
	w.start(buyer)
	w.ask(id)
	w.events(buyer, w.genesis(buyer))
}

// doesNotStart: what a node refuses to start on.
func doesNotStart(w *world, _ string) {
	if err := w.stop(stranger); err != nil {
		w.t.Fatal(err)
	}
	keys, err := filepath.Glob(w.path(stranger, node.KeysDir, "*.age"))
	if err != nil || len(keys) == 0 {
		w.t.Fatalf("%v, %v", keys, err)
	}
	for _, path := range append(keys, w.path(stranger, "unlock.age-identity"), w.path(stranger, node.StoreFile)) {
		if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // that is the point
			w.t.Fatal(err)
		}
		r := w.must(2, stranger, "serve")
		if !strings.Contains(r.stderr, filepath.Base(path)) {
			w.t.Errorf("%s with mode 0644: %v", path, r)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, name := range []string{node.ConfigFile, node.StoreFile, "unlock.age-identity", filepath.Join(node.DocumentsDir, "agent.json"), filepath.Join("tls", "key.pem")} {
		path := w.path(stranger, name)
		if err := os.Rename(path, path+".away"); err != nil {
			w.t.Fatal(err)
		}
		w.must(2, stranger, "serve")
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			w.t.Errorf("%s was made anew (%v)", name, err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			w.t.Fatal(err)
		}
	}
	w.start(stranger)
}
